"""Reading told from decoding, by the rung under which files' bytes come from memory and all else runs."""

from __future__ import annotations

from typing import NamedTuple

from unstarve import estimate
from unstarve.judge.evidence import Evidence, share_of
from unstarve.recording import Stage, leaves
from unstarve.report import Estimate

PAGE_BYTES = 4096
"""Storage is read in no smaller pieces: a stage that read less in all its samples read no data."""

MOST = 0.5
"""Share of what a stage costs that free reading must save for the stage to be a read."""


class Told(NamedTuple):
    """What a stage turned out to be."""

    kind: str
    resource: str
    sentence: str
    """The evidence."""


def told_apart(evidence: Evidence, stage: Stage, resource: str, gain: Estimate) -> Told | None:
    """What a stage that reads spends its time on; None where that cannot be told, or the stage does not read.

    Args:
        evidence: figures of the loop.
        stage: the stage to blame.
        resource: what it uses up, by the workers' clocks.
        gain: the loop's speed-up without the stage.
    """
    free = evidence.contrast("bytes", "none")
    if free is None and stage.kind == "read" and stage.decodes and resource == "cpu":
        return Told("decode", "cpu", " It computes most of its time, rather than wait for what it reads.")
    part = part_of_reading(evidence, stage)
    if free is None or part is None or stage.kind not in ("read", "decode", "code", "transform") or gain.value <= 1:
        return None
    saved = max(0.0, 1 - 1 / free.value) * part / (1 - 1 / gain.value)
    sentence = f" With its files' bytes in memory, and all else run, the loop runs {free.value:.2f} times as fast"
    if saved >= MOST and free.low > 1:
        return Told("read", "wait", f"{sentence}: reading is most of what it costs.")
    if resource == "wait":
        return Told(stage.kind, resource, f"{sentence}: it hardly waits for the bytes of files.")
    kind = "decode" if _decodes(evidence, stage) else stage.kind
    return Told(kind, resource, f"{sentence}: most of what it costs is done to the bytes.")


def part_of_reading(evidence: Evidence, stage: Stage) -> float | None:
    """The stage's part of all waiting in stages that read; None where it is not known to read."""
    readers = _readers(evidence)
    mine = [leaf for leaf in readers if is_within(evidence, leaf, stage.id)]
    if not mine:
        return None
    total = sum(leaf.waited_ns for leaf in readers)
    return sum(leaf.waited_ns for leaf in mine) / total if total else 1.0


def slowest_reader(evidence: Evidence) -> Stage | None:
    """The stage that waits longest for what it reads, unless it was knocked out, alone or with what contains it."""
    stage = max(_readers(evidence), key=lambda reader: reader.waited_ns, default=None)
    stages = evidence.recording.stages
    tried = [each for each in stages if f"knockout:{each.id}" in evidence.rates]
    if stage is None or any(is_within(evidence, stage, each.id) for each in tried):
        return None
    return stage


def _readers(evidence: Evidence) -> list[Stage]:
    """Stages that read data, by the kernel's count or, for mapped files and sockets, by their kind."""
    return [
        leaf for leaf in _leaves(evidence) if leaf.kind == "read" or (leaf.read_calls and leaf.read_bytes >= PAGE_BYTES)
    ]


def waiting_share(evidence: Evidence, stage: Stage) -> float:
    """Share of the workers' time that the stage spends waiting."""
    return share_of(evidence, stage) * stage.waited_ns / max(1.0, estimate.mean(stage.wall_ns))


def _decodes(evidence: Evidence, stage: Stage) -> bool:
    return stage.decodes or any(leaf.decodes and is_within(evidence, leaf, stage.id) for leaf in _leaves(evidence))


def _leaves(evidence: Evidence) -> list[Stage]:
    """Stages of a sample that contain no other."""
    return leaves([stage for stage in evidence.recording.stages if stage.id not in ("collate", "ipc")])


def is_within(evidence: Evidence, stage: Stage, outer: str) -> bool:
    """Whether the stage is the one of the id `outer`, or lies in it."""
    parents = {each.id: each.parent for each in evidence.recording.stages}
    here: str | None = stage.id
    while here is not None and here != outer:
        here = parents.get(here)
    return here is not None
