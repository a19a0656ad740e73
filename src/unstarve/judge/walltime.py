"""The account of an epoch's wall time: steady steps, iterator starts, other loaders."""

from __future__ import annotations

import math
from dataclasses import replace

from unstarve import estimate
from unstarve.judge.evidence import Evidence
from unstarve.recording import Loader, Start
from unstarve.report import WallTime

MANY_DROPPED = 10
"""Batches dropped at an iterator's beginning from which on that is no accident."""

LEFT_EARLY = 2
"""Epochs that a loop must have left long before their end for that to be its way."""

LONG_DROP_NS = 1_000_000_000
"""Time that they must have taken to be worth a word."""


def wall_time(evidence: Evidence) -> WallTime:
    """Account of the wall time of one epoch as the script would run it without us.

    Steady time is the epoch's steps at the baseline rate; starts are those of natural iterators, as far as they come
    again with every epoch; other loaders count once an epoch. Of an epoch that has no length, and of which no end was seen,
    nothing is claimed: then all is steady.
    """
    recording, loader = evidence.recording, evidence.loader
    period = 1 / evidence.rates["none"].value
    start = estimate.mean([start_cost_s(item, period) for item in recurring_starts(evidence)])
    ours = [item for item in recording.starts if item.loader == loader.number]
    length = epoch_batches(evidence)
    inside = [span_s(item) for item in _others(evidence) if _is_inside(item, ours)]
    between = [span_s(item) for item in _others(evidence) if not _is_inside(item, ours)]
    inside_step = sum(inside) / max(1, sum(item.batches for item in ours))
    if math.isinf(length):
        share = inside_step / (period + inside_step)
        return WallTime(steady=1 - share, start=0.0, other_loaders=share)
    steady = max(1.0, length) * period
    other = sum(between) / _epochs(evidence) + inside_step * length
    total = steady + start + other
    return WallTime(steady=steady / total, start=start / total, other_loaders=other / total)


def recurring_starts(evidence: Evidence) -> list[Start]:
    """Natural starts of the loader that was diagnosed which stand for that of every epoch: without the first where there
    is another. Of a lone first start of workers that outlive the epoch only the sampler's part is known to come again."""
    loader = evidence.loader
    natural = [start for start in evidence.recording.starts if start.loader == loader.number and start.natural]
    if natural[1:] or not loader.persistent_workers:
        return natural[1:] or natural
    return [
        replace(item, construct_ns=0, first_wait_ns=0, dropped_ns=item.dropped_ns - item.construct_ns - item.first_wait_ns)
        for item in natural
    ]


def epoch_batches(evidence: Evidence) -> float:
    """Batches of an epoch: as the loader says, unless the loop was seen to leave it sooner, time and again; without a
    length as far as epochs were seen to end, and endless where none was."""
    ours = [item for item in evidence.recording.starts if item.loader == evidence.loader.number]
    last = max((other.created_ns for other in _others(evidence)), default=-1)  # a validation, say, follows an epoch
    ended = [item.batches for item in ours if item is not ours[-1] or item.ended_ns <= last]
    length = evidence.loader.length
    if length is None:
        return estimate.mean(ended) if ended else math.inf
    if len(ended) >= LEFT_EARLY and max(ended) < length / 2:
        return estimate.mean(ended)
    return float(length)


def _others(evidence: Evidence) -> list[Start]:
    return [item for item in evidence.recording.starts if item.loader != evidence.loader.number]


def _is_inside(other: Start, ours: list[Start]) -> bool:
    """Whether it was begun in the middle of an epoch: such as for a validation every so many steps."""
    return any(item.created_ns < other.created_ns < item.ended_ns for item in ours)


def span_s(other: Start) -> float:
    """What an iterator of another loader took of the script's time: waiting, where the loop went on beside it."""
    is_beside = other.beside > other.batches / 4
    return (other.construct_ns + other.wait_ns if is_beside else other.ended_ns - other.created_ns) / 1e9


def _epochs(evidence: Evidence) -> int:
    """Whole epochs of the loader that was diagnosed, within the run."""
    loader = evidence.loader
    ours = [item for item in evidence.recording.starts if item.loader == loader.number]
    return max(1, len([item for item in ours if loader.length and item.batches >= loader.length]))


def waiting_loader(evidence: Evidence, time: WallTime) -> tuple[Loader, float] | None:
    """The other loader that the script waits for longest, and the share of an epoch's wall time that this takes."""
    waits: dict[int, int] = {}
    spans = 0
    for start in _others(evidence):
        waits[start.loader] = waits.get(start.loader, 0) + start.wait_ns + start.construct_ns
        spans += int(1e9 * span_s(start))
    if not waits or spans <= 0:
        return None
    number = max(waits, key=lambda each: waits[each])
    loader = next(each for each in evidence.recording.loaders if each.number == number)
    return loader, time.other_loaders * min(1.0, waits[number] / spans)


def start_cost_s(start: Start, period_s: float) -> float:
    """What an iterator cost before the first batch that the loop used, beyond the wait that every step has."""
    return max(0.0, max(start.construct_ns + start.first_wait_ns, start.sampler_ns, start.dropped_ns) / 1e9 - period_s)


def dropping_start(evidence: Evidence) -> Start | None:
    """The iterator at whose beginning the loop dropped batches unused for long, if there is one."""
    ours = [start for start in evidence.recording.starts if start.loader == evidence.loader.number]
    worst = max(ours, key=lambda start: start.dropped_ns, default=None)
    is_long = worst is not None and worst.dropped >= MANY_DROPPED and worst.dropped_ns > LONG_DROP_NS
    return worst if is_long else None
