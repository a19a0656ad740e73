"""The account of an epoch's wall time: steady steps, iterator starts, other loaders."""

from __future__ import annotations

from unstarve import estimate
from unstarve.judge.evidence import Evidence
from unstarve.recording import Loader, Start
from unstarve.report import WallTime

MANY_DROPPED = 10
"""Batches dropped at an iterator's beginning from which on that is no accident."""

LONG_DROP_NS = 1_000_000_000
"""Time that they must have taken to be worth a word."""


def wall_time(evidence: Evidence) -> WallTime:
    """Account of the wall time of one epoch as the script would run it without us.

    Steady time is the epoch's steps at the baseline rate; starts are those of natural iterators, the recurring ones
    where there are any; other loaders count once an epoch.
    """
    recording, loader = evidence.recording, evidence.loader
    period = 1 / evidence.rates["none"].value
    natural = [start for start in recording.starts if start.loader == loader.number and start.natural]
    recurring = natural[1:] or natural
    start = estimate.mean([start_cost_s(item, period) for item in recurring])
    ours = [item for item in recording.starts if item.loader == loader.number]
    length = loader.length or estimate.mean([item.batches for item in ours]) or 1
    if natural and max(item.batches for item in ours) <= 2:
        length = estimate.mean([item.batches for item in ours])
    steady = max(1.0, length) * period
    others = [item for item in recording.starts if item.loader != loader.number]
    other = sum((item.ended_ns - item.created_ns) / 1e9 for item in others) / _epochs(evidence)
    total = steady + start + other
    return WallTime(steady=steady / total, start=start / total, other_loaders=other / total)


def _epochs(evidence: Evidence) -> int:
    """Whole epochs of the loader that was diagnosed, within the run."""
    loader = evidence.loader
    ours = [item for item in evidence.recording.starts if item.loader == loader.number]
    return max(1, len([item for item in ours if loader.length and item.batches >= loader.length]))


def waiting_loader(evidence: Evidence, time: WallTime) -> tuple[Loader, float] | None:
    """The other loader that the script waits for longest, and the share of an epoch's wall time that this takes."""
    waits: dict[int, int] = {}
    spans = 0
    for start in evidence.recording.starts:
        if start.loader != evidence.loader.number:
            waits[start.loader] = waits.get(start.loader, 0) + start.wait_ns + start.construct_ns
            spans += start.ended_ns - start.created_ns
    if not waits or spans <= 0:
        return None
    number = max(waits, key=lambda each: waits[each])
    loader = next(each for each in evidence.recording.loaders if each.number == number)
    return loader, time.other_loaders * min(1.0, waits[number] / spans)


def start_cost_s(start: Start, period_s: float) -> float:
    """What an iterator cost before the first batch that the loop used, beyond the wait that every step has."""
    return max(0.0, max(start.construct_ns + start.first_wait_ns, start.dropped_ns) / 1e9 - period_s)


def dropping_start(evidence: Evidence) -> Start | None:
    """The iterator at whose beginning the loop dropped batches unused for long, if there is one."""
    ours = [start for start in evidence.recording.starts if start.loader == evidence.loader.number]
    worst = max(ours, key=lambda start: start.dropped_ns, default=None)
    is_long = worst is not None and worst.dropped >= MANY_DROPPED and worst.dropped_ns > LONG_DROP_NS
    return worst if is_long else None
