"""What the remedies look up in a recording, and what several of them ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from unstarve import law
from unstarve.recording import Loader, Recording, Stage, leaves
from unstarve.report import Estimate

FULL = 0.8
"""Share of the memory that is free which may be taken: shared memory by batches on their way, any by stored values."""

WORTH_TRIED = 1.05
"""Settings that gained less in the loop are not worth a word."""


def is_worth(gain: Estimate) -> bool:
    """Whether what was tried in the loop made it faster beyond doubt, and by enough for a word."""
    return gain.low > 1.0 and gain.value >= WORTH_TRIED


def loader_of(recording: Recording) -> Loader:
    """The loader that was diagnosed."""
    assert recording.loader is not None
    return recording.loader


def law_of(recording: Recording) -> law.Loop:
    """The throughput law of the loop as it is."""
    return law.of_blocks(recording.blocks, loader_of(recording).num_workers, recording.cores)


def shared_bytes(recording: Recording) -> int:
    """What a batch takes of shared memory: its tensors go through that."""
    return sum(field.bytes_per_step for field in recording.payload if field.kind == "tensor")


def mib(size: float) -> str:
    """A size in MiB, with its unit."""
    return f"{size / 2**20:.3g} MiB"


def with_unit(size: float) -> str:
    """A size in the largest decimal unit that it fills, with that unit."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size:.0f} bytes"


def stages_inside(recording: Recording, stage: Stage) -> Iterator[Stage]:
    """The stages that a stage contains, at any depth, in pipeline order."""
    outer = {stage.id}
    for each in recording.stages:
        if each.parent in outer:
            outer.add(each.id)
            yield each


def leaves_until(recording: Recording, stage: Stage | None) -> list[Stage]:
    """The stages of a sample that have nothing inside, until this one has ended; without one all of them."""
    own = [each for each in recording.stages if each.kind not in ("collate", "ipc")]
    until = own if stage is None else [*own[: own.index(stage) + 1], *stages_inside(recording, stage)]
    return [each for each in leaves(own) if each in until and each.wall_ns]


def calls_in(recording: Recording, stage: Stage) -> str:
    """Names and statements of a stage and of all that it contains."""
    return "\n".join(f"{each.name}\n{each.text}" for each in (stage, *stages_inside(recording, stage)))


def bytes_read(stages: Iterable[Stage]) -> float:
    """Bytes that stages read for a sample."""
    return sum(each.read_bytes / len(each.wall_ns) for each in stages)
