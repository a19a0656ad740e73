"""What the loop body need not wait for: the copy to the device, the device itself, and work of its own on the host."""

from __future__ import annotations

from unstarve import estimate
from unstarve.recording import Recording
from unstarve.remedies.facts import is_worth, loader_of
from unstarve.remedies.memory import collects
from unstarve.report import Culprit, Estimate, Remedy, Report

_COPIED_AHEAD = """\
import collections
import itertools
import torch

def copied_ahead(loader, device):  # whose batches are lists of pinned tensors
    stream, ready = torch.cuda.Stream(device), collections.deque()
    for batch in itertools.chain(loader, [None]):
        if batch is not None:
            with torch.cuda.stream(stream):
                moved = [tensor.to(device, non_blocking=True) for tensor in batch]
            ready.append((moved, stream.record_event()))
        if len(ready) == 2 or (ready and batch is None):
            tensors, done = ready.popleft()
            here = torch.cuda.current_stream(device)
            here.wait_event(done)
            for tensor in tensors:
                tensor.record_stream(here)  # or its memory is used again too early
            yield tensors
"""


def overlapped_copy(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a copy that the step waits for: to do it ahead, unless that was tried in vain."""
    if culprit.kind != "copy":
        return None
    tried = estimate.contrast(recording.blocks, "control:side-stream", "host")
    if tried is not None and not is_worth(tried):
        return Remedy(
            id="less-to-copy",
            advice=(
                "Copy less: uint8 that is converted on the device, half precision, no field that the step does not read. "
                f"Copying a batch ahead on a side stream was tried, and gains nothing here (×{tried.value:.2f})."
            ),
            predicted_gain=culprit.gain,
            about=culprit.stage,
        )
    how = (
        ""
        if tried is None
        else f" Tried with batches from host memory, the next one copied while the device computes: ×{tried.value:.2f}."
    )
    is_cuda = recording.has_device and str(recording.environment.get("device")).startswith("cuda")
    is_unpinned = is_cuda and not loader_of(recording).pin_memory
    pinning = "DataLoader(..., pin_memory=True)\n" if is_unpinned else ""
    ahead = (
        "opy the next batch on a side stream" if recording.has_device else "opy the next batch, without waiting for it,"
    )
    return Remedy(
        id="overlapped-copy",
        advice=(
            f"{'Pin the batches, and c' if is_unpinned else 'C'}{ahead} while the device computes; or copy less: uint8 that is "
            f"converted on the device.{how}"
        ),
        patch=pinning + _COPIED_AHEAD if is_cuda else None,
        predicted_gain=culprit.gain if tried is None else _of_the_copy(recording, culprit, tried),
        about=culprit.stage,
    )


def _of_the_copy(recording: Recording, culprit: Culprit, tried: Estimate) -> Estimate:
    """The loop's gain by what a loop gained that was fed from host memory: the loop waits for its workers as before, so
    what it takes when fed is the part that gains. The culprit's gain is the most."""
    fed = estimate.contrast(recording.blocks, "host", "none")
    part = 1.0 if fed is None else min(1.0, 1 / fed.value)
    gain = estimate.of_part(tried, part)
    value = min(gain.value, culprit.gain.value)
    return Estimate(value=value, low=min(gain.low, value), high=max(value, min(gain.high, culprit.gain.high)))


def leaner_body(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a loop body that works on the host, or waits for the device."""
    if culprit.kind != "step-host" or collects(culprit):
        return None
    if culprit.resource == "device":
        return Remedy(
            id="fewer-waits",
            advice=(
                "Wait for the device less often: keep losses and metrics as tensors on it, and read them (`.item()`, "
                "`.cpu()`, `print`) once in many steps, so that the host can launch the next step meanwhile."
            ),
            predicted_gain=culprit.gain,
            about=culprit.stage,
        )
    return Remedy(
        id="leaner-body",
        advice=(
            "The loop body computes on the host between waits for the device: vectorise metrics and losses, log less "
            "often, and read results from the device once in a while, not every step."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )
