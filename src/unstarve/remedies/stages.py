"""Less work in the stages of a sample, in collation and in the sampler, and another order of transforms."""

from __future__ import annotations

import os
import re

from unstarve import estimate
from unstarve.recording import Recording, Reordering
from unstarve.remedies.facts import is_worth, loader_of
from unstarve.remedies.memory import collects
from unstarve.report import Culprit, Estimate, Remedy, Report

_JOINS = re.compile(
    r"collate|stack|concat|\bcat\(|pad_sequence|from_data_list|tensor\(|Tensor\(|\barray\(|\.pad\(|\.batch\("
)
"""Calls that make one of many samples, which is what a collate function is for."""


def cheaper_stage(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a stage that computes."""
    if culprit.resource == "wait" or culprit.kind not in ("transform", "code", "decode", "read"):
        return None
    if collects(culprit):
        return None
    is_named = not culprit.text or culprit.name in culprit.text  # the line may hold a whole chain
    # where that was looked at, `cache-head` says so if it pays
    once = "" if recording.heads else "do it once and store the result if it is the same every epoch, "
    if _is_loop(culprit.text):
        return _loop_replaced(culprit, once)
    return Remedy(
        id=f"cheaper:{culprit.stage}",
        advice=(
            f"Make `{culprit.name if is_named else culprit.text}` cheaper: do less (work on the crop, not the whole), do it in a "
            f"vectorised or compiled way, {once}or do it on the device."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _is_loop(text: str | None) -> bool:
    """Whether a statement is the head of a loop, so that what it does for each item is what costs."""
    return text is not None and re.match(r"(async )?(for|while)\b", text) is not None


def _loop_replaced(culprit: Culprit, once: str) -> Remedy:
    return Remedy(
        id=f"cheaper:{culprit.stage}",
        advice=(
            f"Replace the Python loop `{culprit.text}` by code that works on whole arrays (NumPy, torch), compile it, do less "
            f"in it, {once}or do its work on the device."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def leaner_collation(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a statement of the user's own in the collate function that does something else than joining samples."""
    if culprit.kind != "collate" or not culprit.text or _JOINS.search(culprit.text):
        return None
    if _is_loop(culprit.text):
        return _loop_replaced(
            culprit, "do it once for each sample and store the result if it is the same every epoch, "
        )
    return Remedy(
        id=f"cheaper:{culprit.stage}",
        advice=(
            f"Take `{culprit.text}` out of collation or make it cheaper: do it once for each sample and store the result if it is "
            "the same every epoch, do it on the device, or in a vectorised or compiled way."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def batched_fetch(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a collate function that joins samples, and nothing else."""
    if culprit.kind != "collate" or (culprit.text and not _JOINS.search(culprit.text)):
        return None
    how = "(`__getitems__`, or indexing a tensor with the whole batch)"
    if loader_of(recording).makes_batches:
        how = "(`__getitems__` can give one array for each field, which `collate_fn` hands on)"
    elif loader_of(recording).kind != "map":
        how = "(the generator can yield whole batches, with batch_size=None)"
    return Remedy(
        id="batched-fetch",
        advice=f"Collation binds: build batches from arrays instead of single samples {how}, and hand over few large tensors.",
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def quicker_sampler(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a sampler that is slow to order batches."""
    if culprit.stage != "sampler":
        return None
    return Remedy(
        id="quicker-sampler",
        advice=(
            "Order the indices in vectorised code (NumPy, torch) instead of one by one, compute once what is the same every "
            "epoch (lengths, weights, their order), and yield from an array, a block after the other, instead of making a list "
            "of all indices before the first batch."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def reordered(recording: Recording) -> list[Remedy]:
    """Other orders of transforms that were tried in the loop and made it faster, those that gained most first."""
    gains = [(rung.reordering, estimate.contrast(recording.blocks, rung.id, "none")) for rung in recording.rungs]
    worth = [(found, gain) for found, gain in gains if found is not None and gain is not None and is_worth(gain)]
    return [
        _reorder_remedy(found, gain, "reorder" if number == 0 else f"reorder:{number}")
        for number, (found, gain) in enumerate(sorted(worth, key=lambda item: -item[1].value))
    ]


def _reorder_remedy(found: Reordering, gain: Estimate, ident: str) -> Remedy:
    moves = ", and ".join(f"`{found.names[step]}` before `{found.names[other]}`" for step, other in found.moves)
    place = f" ({os.path.basename(found.source)})" if found.source else f" (`dataset{''.join(found.path)}`)"
    same = {
        "exact": "exactly the same",
        "rounding": f"the same but for rounding in {found.differing:.0%} of the values",
    }
    border = (
        f"the same but for a border with {found.differing:.1%} of the values: whether these matter is for you to say"
    )
    return Remedy(
        id=ident,
        advice=(
            f"Put {moves}{place}: it makes the data smaller. On {found.samples} real samples both orders gave, under the "
            f"same random draws, {same.get(found.likeness, border)}; the transforms took {found.after_ns / 1e6:.3g} "
            f"instead of {found.before_ns / 1e6:.3g} ms a sample."
        ),
        patch=found.patch,
        measured_gain=gain,
        about="transform",
    )
