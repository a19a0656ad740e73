"""Batches that carry less, and in fewer pieces: as tried in the loop, by the audit of what they carry, and by how they are sent."""

from __future__ import annotations

from unstarve import estimate
from unstarve.payload import Finding, findings
from unstarve.recording import Recording
from unstarve.remedies.facts import is_worth, law_of, loader_of, mib
from unstarve.remedies.settings import trials
from unstarve.report import Culprit, Estimate, Remedy, Report

WORTH_SAVING = 0.05
"""Bytes, as a share of the batch, that are worth a word."""

WORTH_LIGHTENING = 1.03
"""What a lighter copy to the device must gain for its gain to be told beside the bytes that it saves."""


def lean_batch(recording: Recording) -> list[Remedy]:
    """A leaner batch, if it was tried in the loop and made it faster."""
    rung = next((rung for rung in recording.rungs if rung.changes), None)
    gain = estimate.contrast(recording.blocks, rung.id, "none") if rung is not None else None
    if rung is None or gain is None or not is_worth(gain):
        return []
    whole = recording.batch_bytes
    saved = sum(change.saved_bytes for change in rung.changes)
    where = "on the device" if recording.has_device else "in the loop's process"
    hows = {change.how for change in rung.changes}
    but = ", but for what is left out or rounded" if hows & {"rounded", "left out"} else ""
    return [
        Remedy(
            id="lean-batch",
            advice=(
                f"Send less: {'; '.join(map(str, rung.changes))}. That leaves {mib(whole - saved)} of the batch's "
                f"{mib(whole)}. In the trial the values were made whole again {where} before the loop got them, which "
                f"is paid for in the gain; every batch was compared with what it had been{but}."
            ),
            measured_gain=gain,
            about="payload",
        )
    ]


def leaner_payload(recording: Recording, report: Report) -> list[Remedy]:
    """What the batch need not carry, where moving batches was shown to cost the loop something."""
    guilty = {culprit.kind for culprit in report.verdict.culprits}
    whole = recording.batch_bytes
    if not guilty & {"copy", "ipc", "pin", "collate"} or not whole:
        return []
    found = []
    for item in findings(recording.payload, batch_size=loader_of(recording).batch_size):
        advice = None
        if item.bytes_before - item.bytes_after >= WORTH_SAVING * whole:
            held = sum(field.storage_bytes_per_step for field in recording.payload) if item.id == "view" else whole
            advice = f"{item.advice} {mib(item.bytes_before)} of the batch's {mib(held)} would become {mib(item.bytes_after)}."
        elif item.id == "small-tensors" and guilty & {"copy", "ipc"}:
            advice = f"{item.advice} Handing each of them over costs more than its bytes do."
        if advice is not None:
            found.append(
                Remedy(
                    id=f"payload:{item.id}:{item.path}",
                    advice=advice,
                    patch=item.patch,
                    predicted_gain=_lighter_copy(recording, report, item),
                    about="payload",
                )
            )
    return found


def _lighter_copy(recording: Recording, report: Report, item: Finding) -> Estimate | None:
    """The loop's gain if the copy to the device moved less by what the finding saves; None where there is no copy to speak
    of, or it moves that not at all: of a view only the values, not the storage behind it."""
    moved = {field.path: field.bytes_per_step for field in recording.payload if field.moved_by_step is not False}
    saved = min(item.bytes_before - item.bytes_after, moved.get(item.path, 0)) / max(1, sum(moved.values()))
    if item.id == "view" or not saved:
        return None
    rates = {rung.id: rung.steps_per_s.value for rung in report.rungs}
    if not {"device", "host"} <= rates.keys() or rates["host"] >= rates["device"]:
        return None
    period, less_s = 1 / rates["none"], saved * (1 / rates["host"] - 1 / rates["device"])
    most = (
        law_of(recording).shorter(less_s).rate(loader_of(recording).num_workers) * period
    )  # workers need what they need
    value = min(most, period / max(0.05 * period, period - less_s))
    return estimate.computed(value, down=0.7, up=1.3) if value >= WORTH_LIGHTENING else None


def lighter_transport(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For batches that are dear to send from the workers, by how they are sent."""
    if culprit.kind != "ipc":
        return None
    whole = recording.batch_bytes
    pickled = sum(field.bytes_per_step for field in recording.payload if field.kind != "tensor")
    how = (
        "send fewer and smaller tensors (pack small ones into one, clone views of large storages, keep bytes as uint8 until "
        "they are on the device)."
    )
    if 2 * pickled > whole:
        how = (
            f"{pickled / whole:.0%} of a batch's bytes are arrays or other objects, which are pickled and go through a pipe. "
            "Make few large tensors of them in `collate_fn` (`torch.from_numpy`, `torch.stack`), which go through shared memory."
        )
    return Remedy(
        id="lighter-transport",
        advice=f"Sending batches from the workers binds: {how}{_without_workers(recording)}",
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _without_workers(recording: Recording) -> str:
    """What came of having nothing to send, if that was tried."""
    gain = next((gain for settings, gain in trials(recording) if not settings.num_workers), None)
    if gain is None:
        return ""
    word = "" if is_worth(gain) else "only " if gain.value < 1 else "about "
    told = f"{word}{gain.value:.2f} times as fast ({gain.low:.2f}–{gain.high:.2f})"
    return f" Without workers there is nothing to send: tried in the loop, num_workers=0 runs {told}."
