"""Fewer garbage collections, and objects that forked workers need not copy."""

from __future__ import annotations

from unstarve.recording import COLLECTOR_OFF, Recording, collecting
from unstarve.remedies.facts import loader_of
from unstarve.remedies.settings import in_each_worker
from unstarve.report import Culprit, Remedy, Report

WORTH_SWITCHING = 0.05
"""Share of the time that garbage collections must take of a process's work to be switched off in it."""


def collects(culprit: Culprit) -> bool:
    """Whether the line that is blamed calls the garbage collector."""
    return "gc.collect(" in (culprit.text or "")


def collections_on_call(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For collections that the script asks for."""
    if not collects(culprit):
        return None
    return Remedy(
        id="fewer-collections",
        advice=(
            f"`{culprit.text}` goes through all objects of the process, however few are garbage: call it once an epoch or not "
            "at all. What is alive for good can be kept out of its way by `gc.freeze()`."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def fewer_collections(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For collections unasked, in the processes in which they take time."""
    if culprit.stage != COLLECTOR_OFF:
        return None
    in_workers, in_loop = collecting([block for block in recording.blocks if block.rung == "none"])
    if not loader_of(recording).num_workers:  # the loop's process makes the batches
        in_workers, in_loop = 0.0, max(in_workers, in_loop)
    least = min(WORTH_SWITCHING, max(in_workers, in_loop))
    patches = (
        (
            in_workers,
            in_each_worker("import gc", "gc.disable()  # or gc.freeze() and gc.set_threshold(100_000, 20, 20)"),
        ),
        (in_loop, "import gc\ngc.disable()  # before the loop, in its own process; gc.collect() once an epoch"),
    )
    return Remedy(
        id="fewer-collections",
        advice=(
            "Python's garbage collector runs over and over in the middle of the work: switch it off where no cycles pile "
            "up, or let it run less often; make fewer small objects per sample."
        ),
        patch="\n".join(patch for share, patch in patches if share >= least),
        measured_gain=culprit.gain,
        about=culprit.stage,
    )


def packed_objects(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For pages that forked workers copy since they read Python objects in them."""
    if culprit.stage != "worker-memory":
        return None
    is_kept = loader_of(recording).keeps_workers
    return Remedy(
        id="packed-objects",
        advice=(
            "Keep what the data set holds in few large buffers (an array, a tensor, Arrow) instead of lists and dicts of "
            "Python objects: reading these changes their reference counts, so that every worker copies their pages."
            + ("" if is_kept else " Workers that are kept over epochs copy only once.")
        ),
        patch=None if is_kept else "DataLoader(..., persistent_workers=True)",
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )
