"""The throughput law against what was measured: rungs that are much slower or faster than the law says, as one caveat.

The law is asked only where it stands on firm ground: the loop as it is, knock-outs of stages whose share of a sample is
known, and trials of another number of workers. Cuts and pools are left out: what serving from a cache costs is not in
the law. Nor are the copy to the device, transport, order of delivery and the sampler: where one of them is to blame, the
law has nothing to add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unstarve import estimate, law
from unstarve.judge.evidence import USED_UP, Evidence, share_of
from unstarve.recording import BUSY, Stage
from unstarve.report import Caveat, Culprit

RESIDUAL = 0.10
"""What a rung may differ from the law before that is worth a word."""

NEAR = 1.3
"""Where the second resource is within this of the first, both slow the loop in turns: the law is too high there."""

CORNER = 0.20
"""What a rung may be slower than the law in such a corner."""

BESIDE = ("ipc", "pin", "copy", "sampler", "scheduling", "cpu", "memory", "loader")
"""Kinds of culprits that are not in the law: where one is to blame, a residual is no news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A rung that the law does not explain."""

    rung: str
    """Its id."""
    label: str
    """How a person reads it."""
    ratio: float
    """Measured over predicted rate."""
    suspect: str
    """What may lie behind it."""


def residuals(evidence: Evidence) -> list[Residual]:
    """Rungs whose rate is beyond their interval and the law's own tolerance, worst first."""
    if not evidence.loader.num_workers or evidence.loader.kind != "map" or not evidence.fetch_s("none"):
        return []
    found = []
    for rung, workers, loop in _predicted(evidence):
        rate, predicted = evidence.rates[rung], loop.rate(workers)
        most = replace(loop, busy_step_s=0.0).rate(workers)  # workers that are less busy slow the loop body less
        lowest = 1 - (CORNER if _is_corner(loop, workers) else RESIDUAL)
        if lowest * predicted <= rate.high and rate.low <= (1 + RESIDUAL) * most:
            continue
        is_slower = rate.value < predicted
        predicted = predicted if is_slower else most
        suspect = _suspect(evidence, rung, workers, loop, is_slower=is_slower)
        found.append(Residual(rung=rung, label=_label(evidence, rung), ratio=rate.value / predicted, suspect=suspect))
    return sorted(found, key=lambda item: min(item.ratio, 1 / item.ratio))


def doubt_law(evidence: Evidence, bound: str, culprits: Sequence[Culprit]) -> list[Caveat]:
    """What the law leaves unexplained, in one sentence with the suspect of the worst; nothing where a culprit that is not
    in the law explains it."""
    found = residuals(evidence)
    moving = evidence.contrast("knockout:ipc", "none")
    is_moving = moving is not None and moving.low > 1 + evidence.threshold
    if not found or bound != "input" or is_moving or any(culprit.kind in BESIDE for culprit in culprits):
        return []
    parts = [f"“{item.label}” ran at {item.ratio:.0%} of the speed that they predict" for item in found[:3]]
    rest = f" and {len(found) - 3} more" if len(found) > 3 else ""
    sentence = f"The workers' clocks do not explain everything: {', '.join(parts)}{rest}; suspect {found[0].suspect}."
    return [Caveat(id="law-residual", about=found[0].rung, sentence=sentence)]


def _predicted(evidence: Evidence) -> Iterator[tuple[str, int, law.Loop]]:
    """Rungs that the law can predict, with the number of workers and the law's figures under each."""
    loop, own = evidence.law, evidence.loader.num_workers
    yield "none", own, loop
    for stage in evidence.recording.stages:
        rung = f"knockout:{stage.id}"
        if rung in evidence.rates and len(stage.wall_ns) >= 4 and stage.id not in ("ipc", "collate"):
            yield rung, own, _without(evidence, loop, stage)
    for settings, _ in evidence.trials():
        rung = next(r.id for r in evidence.recording.rungs if r.settings == settings)
        is_plain = settings.worker_threads is None and settings.in_order == evidence.loader.in_order
        if is_plain and settings.num_workers not in (0, own):
            yield rung, settings.num_workers, loop


def _without(evidence: Evidence, loop: law.Loop, stage: Stage) -> law.Loop:
    """The law's figures with the stage's share of a sample taken off."""
    share, cpu_share = min(1.0, share_of(evidence, stage)), _cpu_share(evidence, stage)
    return replace(loop, fetch_s=loop.fetch_s * (1 - share), cpu_s=loop.cpu_s * (1 - cpu_share))


def _cpu_share(evidence: Evidence, stage: Stage) -> float:
    tops = [other for other in evidence.recording.stages if other.parent is None and other.id != "ipc"]
    whole = sum(estimate.mean(other.cpu_ns) for other in tops)
    return min(1.0, estimate.mean(stage.cpu_ns) / whole) if whole else 0.0


def _is_corner(loop: law.Loop, workers: int) -> bool:
    """Whether two resources bind about equally."""
    step = max(loop.step_s, loop.busy_step_s, 1e-9)
    bounds = [1 / step, workers / max(1e-9, loop.fetch_s)]
    needed = loop.cpu_s + loop.main_cores * loop.step_s
    if needed > 0:
        bounds.append(loop.cores / needed)
    first, second = sorted(bounds)[:2]
    return second < NEAR * first


def _suspect(evidence: Evidence, rung: str, workers: int, loop: law.Loop, *, is_slower: bool) -> str:
    """What the rung's own clocks say of the time that the law misses."""
    if not is_slower:
        return "the figures of single stages: watched, or beside other stages, they cost more than alone"
    used = (evidence.fetch_cpu_s(rung) + loop.main_cores * loop.step_s) * evidence.rates[rung].value
    if evidence.delay_s(rung) > RESIDUAL * evidence.fetch_s(rung) and used < USED_UP * evidence.cores:
        return (
            f"other processes, or a limit on CPU time: workers wait for a core {evidence.delay_s(rung) / evidence.fetch_s(rung):.0%} "
            f"of the time, though the loop uses {used:.2g} of {evidence.cores:.2g} cores"
        )
    copied = estimate.mean([copy for block in evidence.of(rung) for copy in block.copies_ns]) / 1e9
    fetch = evidence.fetch_s(rung) - evidence.delay_s(rung) - copied
    cpu = evidence.fetch_cpu_s(rung) - copied
    if cpu > (1 + RESIDUAL) * loop.cpu_s:
        crowd = workers * min(1.0, cpu / max(1e-9, fetch)) + loop.main_cores > evidence.cores
        return (
            "more processes than cores, which cost each other their caches (oversubscription)"
            if crowd
            else "memory bandwidth, caches or a throttled clock: each batch costs more CPU time than it should"
        )
    if fetch > (1 + RESIDUAL) * loop.fetch_s:
        return "a lock or a device that all workers wait for: a batch takes longer, but no more CPU time"
    if BUSY not in evidence.rates and evidence.wait_fraction(rung) < RESIDUAL:
        return "the loop body, which busy workers slow down"
    return "what lies between workers and loop (delivery in order, transport, the main process)"


def _label(evidence: Evidence, rung: str) -> str:
    return next((item.label for item in evidence.recording.rungs if item.id == rung), rung)


__all__ = ["Residual", "doubt_law", "residuals"]
