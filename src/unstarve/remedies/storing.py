"""To store what the pipeline makes anew every epoch, with the figures that tell whether it pays."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from unstarve import estimate
from unstarve.recording import Head, Recording, find_stage
from unstarve.remedies.facts import FULL, bytes_read, leaves_until, loader_of, with_unit
from unstarve.report import Culprit, Estimate, Remedy, Report, figure

STORABLE = 1.05
"""What a head gives is worth storing if serving it gains at least this much, with 95 % certainty."""

ALIKE = 1.03
"""Of heads whose gains differ by less than this factor, the one that takes least to store is taken."""

NO_LARGER = 1.2
"""A head that gives at most so many times the bytes that were read for it, and spends its time on reading, gives what is
stored already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A head whose results could be stored."""

    head: Head
    gain: Estimate
    """Speed-up of the loop with what it gives served from memory."""
    samples: int
    """Samples of the data set."""
    free_bytes: int
    """Memory that is free."""

    @property
    def total_bytes(self) -> int:
        return self.samples * self.head.bytes_per_sample

    @property
    def fits(self) -> bool:
        return self.total_bytes <= FULL * self.free_bytes


def cached_head(recording: Recording, report: Report, culprit: Culprit | None = None) -> Remedy | None:
    """To store what the pipeline's beginning gives, where that is the same every epoch and serving it gained something.

    Args:
        recording: facts.
        report: what was judged from them so far.
        culprit: a stage to blame, which must be part of that beginning; None for whatever stages it has.
    """
    stored = _best(_storable(recording))
    if stored is None or (culprit is not None and not _contains(recording, stored.head, culprit)):
        return None
    if not stored.fits and _is_stored_already(recording, stored.head):
        return None
    return Remedy(
        id="cache-head",
        advice=f"{_sameness(recording, stored.head)} {_room(recording, report, stored)} {_paying_off(recording, report, stored)}",
        measured_gain=stored.gain if stored.fits else None,
        predicted_gain=None if stored.fits else stored.gain,  # measured from memory, not from a disk
        about=culprit.stage if culprit is not None else stored.head.after or "dataset",
    )


def _storable(recording: Recording) -> list[_Stored]:
    loader = recording.loader
    samples = loader.samples if loader is not None and loader.kind == "map" else None
    found = []
    for head in recording.heads if samples else ():
        gain = estimate.contrast(recording.blocks, head.rung, "none")
        if head.is_repeatable and head.bytes_per_sample and gain is not None and gain.low > STORABLE:
            found.append(
                _Stored(head=head, gain=gain, samples=samples or 0, free_bytes=recording.free_memory_bytes),
            )
    return found


def _best(found: list[_Stored]) -> _Stored | None:
    """What gains most of those that fit into memory, else of all; of about equal ones the smallest."""
    choice = [stored for stored in found if stored.fits] or found
    most = max((stored.gain.value for stored in choice), default=0.0)
    return min((stored for stored in choice if stored.gain.value * ALIKE >= most), key=_total, default=None)


def _total(stored: _Stored) -> int:
    return stored.total_bytes


def _contains(recording: Recording, head: Head, culprit: Culprit) -> bool:
    order = [stage.id for stage in recording.stages]
    if culprit.stage not in order or culprit.stage in ("collate", "ipc"):
        return False
    if head.after in order:
        return order.index(culprit.stage) <= order.index(head.after)
    return head.rung == "samples" or culprit.kind in ("read", "decode")


def _is_stored_already(recording: Recording, head: Head) -> bool:
    """Whether what the head gives is what it reads, so that reading it from another file would cost the same: mostly read,
    nothing decoded, and about as large."""
    made = leaves_until(recording, find_stage(recording.stages, head.after))
    reading = sum(estimate.mean(stage.wall_ns) for stage in made if stage.read_bytes)
    is_read = 2 * reading >= sum(estimate.mean(stage.wall_ns) for stage in made)
    is_decoded = any(stage.decodes or stage.kind == "decode" for stage in made)
    is_as_large = 1 / NO_LARGER <= head.bytes_per_sample / max(1, bytes_read(made)) <= NO_LARGER
    return is_read and is_as_large and not is_decoded


def _sameness(recording: Recording, head: Head) -> str:
    last = find_stage(recording.stages, head.after)
    if last is not None:
        place = f" ({os.path.basename(last.source)})" if last.source else ""
        what = f"Everything up to `{last.name}`{place}"
    else:
        what = "The data set's whole work on a sample" if head.rung == "samples" else "All that the transforms get"
    proviso = ", unless what its code seeds itself differs from epoch to epoch" if head.is_seeded else ""
    return (
        f"{what} is the same every epoch{proviso}: on {head.samples} real samples it came out exactly the same under other "
        "random draws, and drew none itself. Store it once instead of making it anew."
    )


def _room(recording: Recording, report: Report, stored: _Stored) -> str:
    size = f"It takes {with_unit(stored.total_bytes)} for {stored.samples} samples ({with_unit(stored.head.bytes_per_sample)} each)"
    if stored.fits:
        return (
            f"{size}, which fits into the {with_unit(stored.free_bytes)} of memory that are free, if all workers share one "
            "copy (a shared tensor, a memory-mapped file)."
        )
    free = f", more than the {with_unit(stored.free_bytes)} of free memory have room for" if stored.free_bytes else ""
    rate = stored.gain.value * (report.baseline.value if report.baseline is not None else 0.0)
    needed = stored.head.bytes_per_sample * loader_of(recording).samples_per_batch * rate / 1e6
    now = report.needs.read_mb_per_s_now if report.needs is not None else None
    told = f", where {figure(now)} MB/s are read now" if now else ""
    return f"{size}{free}: from disk that is {figure(needed)} MB/s at the pace measured from memory{told}."


def _paying_off(recording: Recording, report: Report, stored: _Stored) -> str:
    if not stored.fits:
        return "Stored during the first epoch it pays from the second on, if a disk delivers that."
    length = loader_of(recording).length
    epochs = math.ceil(stored.gain.value / (stored.gain.value - 1) - 1e-9)
    apart = f"in a pass of its own, which takes an epoch's time at most, it has paid off after {epochs} epochs."
    if length is None or report.baseline is None:
        return f"Stored during the first epoch it pays from the second on; {apart}"
    now = length / report.baseline.value
    return (
        f"An epoch then takes {_seconds(now / stored.gain.value)} instead of {_seconds(now)}: stored during the first epoch "
        f"it pays from the second on; {apart}"
    )


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
