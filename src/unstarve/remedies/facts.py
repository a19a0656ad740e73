"""What the remedies look up in a recording, and what several of them ask of it."""

from __future__ import annotations

from unstarve import law
from unstarve.recording import Loader, Recording
from unstarve.report import Estimate

FULL = 0.8
"""Share of the free shared memory that batches on their way from workers may take."""

WORTH_TRIED = 1.05
"""Settings that gained less in the loop are not worth a word."""


def is_worth(gain: Estimate) -> bool:
    """Whether what was tried in the loop made it faster beyond doubt, and by enough for a word."""
    return gain.low > 1.0 and gain.value >= WORTH_TRIED


def loader_of(recording: Recording) -> Loader:
    """The loader that was diagnosed."""
    assert recording.loader is not None
    return recording.loader


def cores_of(recording: Recording) -> float:
    """Cores that the run could use."""
    return float(recording.environment.get("cores_available", 1))


def law_of(recording: Recording) -> law.Loop:
    """The throughput law of the loop as it is."""
    return law.of_blocks(recording.blocks, loader_of(recording).num_workers, cores_of(recording))


def shared_bytes(recording: Recording) -> int:
    """What a batch takes of shared memory: its tensors go through that."""
    return sum(field.bytes_per_step for field in recording.payload if field.kind == "tensor")


def mib(size: float) -> str:
    """A size in MiB, with its unit."""
    return f"{size / 2**20:.3g} MiB"
