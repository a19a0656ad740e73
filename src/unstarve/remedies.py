"""Remedies: functions from evidence to a finding, in a tuple. Pure; trials are made by the experiment."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unstarve import estimate, law, storage
from unstarve.payload import Finding, findings
from unstarve.recording import Loader, Recording, Reordering, Settings, begun_share, collecting
from unstarve.report import Culprit, Estimate, Remedy, Report

WORTH_SPARING = 1.03
"""What keeping workers must gain to be advised: it costs nothing but their memory."""

WORTH_TRIED = 1.05
"""Settings that gained less in the loop are not worth a word."""

WORTH_SAVING = 0.05
"""Bytes, as a share of the batch, that are worth a word."""

WORTH_SWITCHING = 0.05
"""Share of the time that garbage collections must take of a process's work to be switched off in it."""

HALF = 0.5
"""Share from which on a part stands for the whole."""

FULL = 0.8
"""Share of the free shared memory that batches on their way from workers may take."""

WITHOUT_WORKERS: dict[str, Any] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""Arguments that a `DataLoader` takes with workers only, and their values without."""

Rule = Callable[[Recording, Report, Culprit], "Remedy | None"]


def remedies(recording: Recording, report: Report) -> tuple[Remedy, ...]:
    """What to change, in the order of the culprits."""
    found: dict[str, Remedy] = {}
    tried = _tried_settings(recording)
    for culprit in report.verdict.culprits:
        for rule in _RULES:
            remedy = rule(recording, report, culprit)
            if remedy is not None:  # what was tried goes before what is computed
                remedy = replace(tried.get(remedy.id, remedy), about=remedy.about)
                found.setdefault(remedy.id, remedy)
    head = storage.cached_head(recording, report)
    for remedy in (
        *tried.values(),
        *([head] if head is not None else ()),
        *_reordered(recording),
        *_lean_batch(recording),
        *_leaner_payload(recording, report),
    ):
        found.setdefault(remedy.id, remedy)
    return tuple(found.values())


def _tried_settings(recording: Recording) -> dict[str, Remedy]:
    """Loader settings that were tried in the loop and made it faster: of each kind those that gained most."""
    gains = [(rung.settings, estimate.contrast(recording.blocks, rung.id, "none")) for rung in recording.rungs]
    worth = [(settings, gain) for settings, gain in gains if settings and gain and _is_worth(gain)]
    found: dict[str, Remedy] = {}
    for settings, gain in sorted(worth, key=lambda item: -item[1].value):
        remedy = _tried_remedy(_loader(recording), settings, gain)
        if remedy is not None:
            found.setdefault(remedy.id, remedy)
    return found


def _is_worth(gain: Estimate) -> bool:
    return gain.low > 1.0 and gain.value >= WORTH_TRIED


def changed_arguments(loader: Loader, settings: Settings) -> dict[str, Any]:
    """What to change in the call: the settings, and what must follow from there being workers or none."""
    own = loader.settings
    arguments = settings.changes(own)
    if settings.num_workers and not own.num_workers:
        arguments["persistent_workers"] = True  # or every epoch would begin with starting them
    if own.num_workers and not settings.num_workers:
        known = {"prefetch_factor": own.prefetch_factor != 2, "persistent_workers": loader.persistent_workers}
        arguments |= {name: WITHOUT_WORKERS[name] for name, is_given in known.items() if is_given}
    return arguments


def _tried_remedy(loader: Loader, settings: Settings, gain: Estimate) -> Remedy | None:
    """The change to these settings; None where no argument of the loader makes it."""
    arguments = changed_arguments(loader, settings)
    if not arguments:
        return None
    patch = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return Remedy(
        id="out-of-order" if "in_order" in arguments else "workers",
        advice=f"Give the loader {settings}; `unstarve tune` looks for the best settings.",
        patch=f"DataLoader(..., {patch})",
        measured_gain=gain,
        about="loader",
    )


def _reordered(recording: Recording) -> list[Remedy]:
    """Other orders of transforms that were tried in the loop and made it faster, those that gained most first."""
    gains = [(rung.reordering, estimate.contrast(recording.blocks, rung.id, "none")) for rung in recording.rungs]
    worth = [(found, gain) for found, gain in gains if found is not None and gain is not None and _is_worth(gain)]
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


def _lean_batch(recording: Recording) -> list[Remedy]:
    """A leaner batch, if it was tried in the loop and made it faster."""
    rung = next((rung for rung in recording.rungs if rung.changes), None)
    gain = estimate.contrast(recording.blocks, rung.id, "none") if rung is not None else None
    if rung is None or gain is None or not _is_worth(gain):
        return []
    whole = sum(field.bytes_per_step for field in recording.payload)
    saved = sum(change.saved_bytes for change in rung.changes)
    where = "on the device" if recording.has_device else "in the loop's process"
    hows = {change.how for change in rung.changes}
    but = ", but for what is left out or rounded" if hows & {"rounded", "left out"} else ""
    return [
        Remedy(
            id="lean-batch",
            advice=(
                f"Send less: {'; '.join(map(str, rung.changes))}. That leaves {_mib(whole - saved)} of the batch's "
                f"{_mib(whole)}. In the trial the values were made whole again {where} before the loop got them, which "
                f"is paid for in the gain; every batch was compared with what it had been{but}."
            ),
            measured_gain=gain,
            about="payload",
        )
    ]


def _leaner_payload(recording: Recording, report: Report) -> list[Remedy]:
    """What the batch need not carry, where moving batches was shown to cost the loop something."""
    guilty = {culprit.kind for culprit in report.verdict.culprits}
    whole = sum(field.bytes_per_step for field in recording.payload)
    if not guilty & {"copy", "ipc", "pin", "collate"} or not whole:
        return []
    found = []
    for item in findings(recording.payload, batch_size=_loader(recording).batch_size):
        advice = None
        if item.bytes_before - item.bytes_after >= WORTH_SAVING * whole:
            held = sum(field.storage_bytes_per_step for field in recording.payload) if item.id == "view" else whole
            advice = f"{item.advice} {_mib(item.bytes_before)} of the batch's {_mib(held)} would become {_mib(item.bytes_after)}."
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
    most = _law(recording).shorter(less_s).rate(_loader(recording).num_workers) * period  # workers need what they need
    value = min(most, period / max(0.05 * period, period - less_s))
    return estimate.computed(value, down=0.7, up=1.3) if value >= WORTH_SPARING else None


def _mib(size: float) -> str:
    return f"{size / 2**20:.3g} MiB"


def _loader(recording: Recording) -> Loader:
    assert recording.loader is not None
    return recording.loader


def _cores(recording: Recording) -> float:
    return float(recording.environment.get("cores_available", 1))


def _law(recording: Recording) -> law.Loop:
    return law.of_blocks(recording.blocks, _loader(recording).num_workers, _cores(recording))


def _shared_bytes(recording: Recording) -> int:
    """What a batch takes of shared memory: its tensors go through that."""
    return sum(field.bytes_per_step for field in recording.payload if field.kind == "tensor")


def _more_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.stage != "workers":
        return None
    loader = _loader(recording)
    loop = _law(recording)
    wanted = max(1 if loader.num_workers == 0 else 2, min(loop.enough_workers(), 2 * int(_cores(recording))))
    blamed = _blamed_settings(recording, culprit)
    if blamed is not None and not blamed.num_workers:
        remedy = _tried_remedy(loader, blamed, culprit.gain)
        return None if remedy is None else replace(remedy, id="workers", about=culprit.stage)
    number, remedy = _loading(recording, loader, wanted if blamed is None else blamed.num_workers)
    gain = culprit.gain
    if gain.is_computed and report.baseline is not None:  # for as many as are of use
        most = min(gain.value, loop.rate(number) / report.baseline.value)
        gain = estimate.computed(most, down=0.7, up=1.15)
    return replace(remedy, id="workers", predicted_gain=gain, about=culprit.stage)


def _blamed_settings(recording: Recording, culprit: Culprit) -> Settings | None:
    """Those that were tried and gained what the culprit says, if that was not computed."""
    for rung in recording.rungs:
        gain = estimate.contrast(recording.blocks, rung.id, "none") if rung.settings is not None else None
        if rung.settings is not None and gain is not None and gain.value == culprit.gain.value:
            return rung.settings
    return None


def _workers_elsewhere(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For another loader than the one that was diagnosed: as many as that has, since nothing of its own was measured; its
    batches are taken to be as large."""
    other = _other_loader(recording, culprit)
    if culprit.kind != "workers" or other is None or culprit.cause in _BEGUN_ANEW:
        return None
    wanted = _loader(recording).num_workers or int(_cores(recording))
    number, remedy = _loading(recording, other, max(1, wanted))
    # one worker still makes batches beside the script
    spared = max(HALF, 1 - 1 / min(number, max(1.0, _cores(recording))))
    gain = estimate.computed(_sparing(culprit, spared), down=0.5, up=1.5)
    advice = (
        f"{_placed(other)} has no workers, so that the script waits while each of its batches is made. {remedy.advice}"
    )
    return replace(remedy, id=f"workers:{culprit.stage}", advice=advice, predicted_gain=gain, about=culprit.stage)


def _quicker_elsewhere(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For another loader that has workers: to keep these where most of the waiting is for their start, in which forked ones
    need no imports; or more of them where it is for later batches, as many as the loader that was diagnosed has or twice
    its own. What is left, the making of first batches, neither would spare."""
    other = _other_loader(recording, culprit)
    if culprit.kind != "loader" or other is None or not other.num_workers:
        return None
    starts = [start for start in recording.starts if start.loader == other.number]
    begun = begun_share(starts)
    started = begun_share([replace(start, first_wait_ns=0) for start in starts])
    spared = started if other.start_method == "fork" else begun
    name = _placed(other)
    if spared >= HALF and not other.keeps_workers:
        remedy = Remedy(
            id="persistent-workers",
            advice=f"Keep the workers of {name} over epochs: most of the waiting for it is for their start."
            + (f" {_KEEP_LOADER}" if other.made > 1 else ""),
            patch="DataLoader(..., persistent_workers=True)",
        )
    elif begun < HALF:
        wanted = min(max(_loader(recording).num_workers, 2 * other.num_workers), 2 * int(_cores(recording)))
        number, remedy = _loading(recording, other, wanted)
        if number <= other.num_workers:
            return None
        remedy = replace(remedy, advice=f"{name} has {other.num_workers}. {remedy.advice}")
        spared = 1 - other.num_workers / number
    else:
        return None
    gain = estimate.computed(_sparing(culprit, spared), down=0.3, up=1.2)
    return replace(remedy, id=f"{remedy.id}:{culprit.stage}", predicted_gain=gain, about=culprit.stage)


def _other_loader(recording: Recording, culprit: Culprit) -> Loader | None:
    """The loader beside the one that was diagnosed which is blamed, if one is."""
    return next((each for each in recording.loaders if f"loader:{each.number}" == culprit.stage), None)


def _placed(loader: Loader) -> str:
    """The loader's name, and the place where it is made."""
    return f"{loader.name} ({os.path.basename(loader.source)})" if loader.source else loader.name


def _sparing(culprit: Culprit, part: float) -> float:
    """The loop's gain if this part of what the culprit costs were spared."""
    return 1 / (1 - part * (1 - 1 / culprit.gain.value))


def _loading(recording: Recording, loader: Loader, wanted: int) -> tuple[int, Remedy]:
    """So many workers, as far as the loader's samples can be split among them and shared memory has room for their
    batches; to make room, where it has none for more than there are."""
    number = min(wanted, loader.most_workers or wanted)
    unsplit = (
        "" if loader.most_workers is None else " More than one would each give every sample of the stream, until it is "
        "split among them by `torch.utils.data.get_worker_info()`."
    )  # fmt: skip
    ahead = (loader.prefetch_factor + 1) * _shared_bytes(recording)
    free = recording.shared_memory_bytes  # 0 where it is not known
    room = int(FULL * free / ahead) if free and ahead else number
    before, limit, call = "", "", ""
    if loader.num_workers < room < number:
        number = room
        limit = f" The {_mib(free)} of shared memory that were free have no room for the batches of more (docker: --shm-size)."
    elif room <= loader.num_workers < number:
        before = (
            f"Make room in shared memory, in which workers hand over their batches: each may have {_mib(ahead)} ready or in "
            f"the making, and {_mib(free)} were free, so that more workers end in a bus error. Then: "
        )
        call = f"docker run --shm-size={math.ceil(number * ahead / FULL / 2**30)}g ...\n"
    workers = f"Let {number} worker process{'es' if number > 1 else ''} load in parallel with the step."
    guard, where = "", ""
    if any(note.id == "no-main-guard" for note in recording.notes):
        guard = "Put the script's work under `if __name__ == '__main__':`, since each worker would run it as it is. "
        where = "  # under if __name__ == '__main__':"
    return number, Remedy(
        id="workers",
        advice=f"{guard}{before}{workers}{limit}{unsplit}",
        patch=f"{call}DataLoader(..., num_workers={number}, persistent_workers=True){where}",
    )


def _cheaper_stage(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.resource == "wait" or culprit.kind not in ("transform", "code", "decode", "read"):
        return None
    if _collects(culprit):
        return None
    is_named = not culprit.text or culprit.name in culprit.text  # the line may hold a whole chain
    # where that was looked at, `cache-head` says so if it pays
    once = "" if recording.heads else "do it once and store the result if it is the same every epoch, "
    return Remedy(
        id=f"cheaper:{culprit.stage}",
        advice=(
            f"Make `{culprit.name if is_named else culprit.text}` cheaper: do less (work on the crop, not the whole), do it in a "
            f"vectorised or compiled way, {once}or do it on the device."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


_JOINS = re.compile(
    r"collate|stack|concat|\bcat\(|pad_sequence|from_data_list|tensor\(|Tensor\(|\barray\(|\.pad\(|\.batch\("
)
"""Calls that make one of many samples, which is what a collate function is for."""


def _leaner_collation(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a statement of the user's own in the collate function that does something else than joining samples."""
    if culprit.kind != "collate" or not culprit.text or _JOINS.search(culprit.text):
        return None
    return Remedy(
        id=f"cheaper:{culprit.stage}",
        advice=(
            f"Take `{culprit.text}` out of collation or make it cheaper: do it once for each sample and store the result if it is "
            "the same every epoch, do it on the device, or in a vectorised or compiled way."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _batched_fetch(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.kind != "collate" or (culprit.text and not _JOINS.search(culprit.text)):
        return None
    how = "(`__getitems__`, or indexing a tensor with the whole batch)"
    if _loader(recording).makes_batches:
        how = "(`__getitems__` can give one array for each field, which `collate_fn` hands on)"
    elif _loader(recording).kind != "map":
        how = "(the generator can yield whole batches, with batch_size=None)"
    return Remedy(
        id="batched-fetch",
        advice=f"Collation binds: build batches from arrays instead of single samples {how}, and hand over few large tensors.",
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _quicker_sampler(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
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


def _lighter_transport(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.kind != "ipc":
        return None
    whole = sum(field.bytes_per_step for field in recording.payload)
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
        advice=f"Sending batches from the workers binds: {how}",
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


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


def _overlapped_copy(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.kind != "copy":
        return None
    tried = estimate.contrast(recording.blocks, "control:side-stream", "host")
    if tried is not None and not _is_worth(tried):
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
    is_unpinned = is_cuda and not _loader(recording).pin_memory
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
    value, low, high = (1 / (1 - part + part / each) for each in (tried.value, tried.low, tried.high))
    value = min(value, culprit.gain.value)
    return Estimate(value=value, low=min(low, value), high=max(value, min(high, culprit.gain.high)))


def _bridge_late(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """Enough batches ahead for the loop to go on while all workers are at a slow one."""
    if culprit.stage != "late" or report.baseline is None or report.ceiling is None:
        return None
    loader = _loader(recording)
    batch = _shared_bytes(recording)
    ahead = _with_room(recording, _to_bridge(recording, report.ceiling.value))
    loop = _law(recording)
    gain = min(loop.rate(loader.num_workers), report.ceiling.value) / report.baseline.value
    if ahead <= loader.prefetch_factor or gain < 1 + WORTH_SAVING:
        return None
    return Remedy(
        id="prefetch",
        advice=(
            f"Have {ahead} batches ordered ahead for each worker, to bridge {_slowest_s(recording):.2g} s without a new one. They take up "
            f"to {_mib(loader.num_workers * (ahead - loader.prefetch_factor) * batch)} more of shared memory."
        ),
        patch=f"DataLoader(..., prefetch_factor={ahead})",
        predicted_gain=estimate.computed(gain, down=0.5, up=1.2),
        about=culprit.stage,
    )


def _slowest_s(recording: Recording) -> float:
    """What the slowest batch of the loop as it is took to make."""
    made = (fetch for block in recording.blocks if block.rung == "none" for fetch in block.fetches_ns)
    return max(made, default=0) / 1e9


def _to_bridge(recording: Recording, steps_per_s: float) -> int:
    """So many batches ahead for each worker would feed the loop while the slowest batch is made."""
    return math.ceil(_slowest_s(recording) * steps_per_s / max(1, _loader(recording).num_workers)) + 1


def _with_room(recording: Recording, ahead: int) -> int:
    """So many batches ahead for each worker, as far as shared memory has room for them beside one that is in the making."""
    batches = max(1, _loader(recording).num_workers) * _shared_bytes(recording)
    free = recording.shared_memory_bytes  # 0 where it is not known
    return min(ahead, int(FULL * free / batches) - 1) if free and batches else ahead


def _work_in_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.stage != "iterator":
        return None
    return Remedy(
        id="work-in-workers",
        advice=(
            "The generator around the loader works in series with the step: do its work on samples in the dataset or on batches "
            "in `collate_fn`, so that workers do it beside the step, or on the device."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _keep_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.kind != "worker-start" and culprit.cause not in _BEGUN_ANEW:
        return None
    if culprit.cause == "dropped-batches":
        return Remedy(
            id="skip-indices",
            advice=(
                "Resume without making the batches that were seen already: skip their indices in the sampler (a "
                "StatefulDataLoader, or accelerate's skip_first_batches), not the batches."
            ),
            predicted_gain=culprit.gain,
            about=culprit.stage,
        )
    if culprit.cause == "before-first-batch":
        return Remedy(
            id="smaller-buffer",
            advice=(
                "Do less before the first batch: open fewer shards at once, fill a smaller shuffle buffer and shuffle the "
                "shards instead, or begin to read the next epoch before this one ends."
            ),
            predicted_gain=culprit.gain,
            about=culprit.stage,
        )
    if culprit.cause == "short-epochs":
        return Remedy(
            id="epochs-run-on",
            advice=(
                "Each of these epochs begins with a new iterator and ends at once: keep the batches if they are the same in "
                "every epoch, or give one iterator the batches of many epochs (a sampler or a stream that begins anew)."
                + (
                    " Workers that are kept over epochs (persistent_workers=True) spare their start."
                    if _starts_workers(recording, culprit)
                    else ""
                )
            ),
            predicted_gain=culprit.gain,
            about=culprit.stage,
        )
    if culprit.cause == "new-iterators":
        return Remedy(
            id="one-iterator",
            advice=(
                "Make one iterator and take batches from it, instead of calling iter() for every step."
                + (
                    " Then give it workers: without that each step would have them fill up anew."
                    if culprit.kind == "workers"
                    else ""
                )
            ),
            predicted_gain=culprit.gain,
            about=culprit.stage,
        )
    loader = _loader(recording)
    spared = report.time.start * law.spared_share(law.start_costs(recording))
    gain = estimate.computed(1 / max(0.01, 1 - spared), down=0.75, up=1.25)
    if loader.keeps_workers or not loader.num_workers or gain.value < WORTH_SPARING:
        return None
    return Remedy(
        id="persistent-workers",
        advice=_KEEP_LOADER if loader.made > 1 else "Keep the workers over epochs.",
        patch="DataLoader(..., persistent_workers=True)" + ("  # once, before the epochs" if loader.made > 1 else ""),
        predicted_gain=gain,
        about=culprit.stage,
    )


def _starts_workers(recording: Recording, culprit: Culprit) -> bool:
    """Whether the loader that is blamed starts workers for every iterator."""
    named = _other_loader(recording, culprit) or _loader(recording)
    return named.num_workers > 0 and not named.keeps_workers


def _epochs_that_run_on(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.cause != "first-batch" or not _loader(recording).num_workers:
        return None
    return Remedy(
        id="epochs-run-on",
        advice=(
            "Each epoch waits until a worker has made a whole batch, whether workers are kept or not: give one iterator "
            "the batches of several epochs (a sampler or a stream that begins anew), or make single batches sooner."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def limited_threads(count: int) -> str:
    """Code that gives the libraries in each worker so many threads, as the trial did."""
    return _in_each_worker(
        "import contextlib",
        "import threadpoolctl",
        "import torch",
        f"torch.set_num_threads({count})",
        "with contextlib.suppress(ImportError):",
        "    import cv2",
        f"    cv2.setNumThreads({count if count > 1 else 0})",
        f"threadpoolctl.threadpool_limits({count})  # BLAS and OpenMP",
    )


_KEEP_LOADER = (
    "Make the loader once, before the epochs, and keep it: workers live no longer than the loader that started them, and a "
    "new one is made for every epoch."
)


def _in_each_worker(*lines: str) -> str:
    """Code that runs the lines at the start of each worker; they import what they use, whatever the script does."""
    body = "\n    ".join(lines)
    call = "DataLoader(..., worker_init_fn=worker_init_fn)  # call your own from it, if there is one"
    return f"def worker_init_fn(worker_id):\n    {body}\n{call}"


_BEGUN_ANEW = ("new-iterators", "short-epochs")
"""Causes that are iterators with a batch or two each."""

_SETTINGS = {
    "trial:threads": (
        "Threads of torch in the loop's process and the workers fight for the cores: give torch fewer threads.",
        "import torch\ntorch.set_num_threads(1)  # or OMP_NUM_THREADS=1",
    ),
    "trial:worker-threads": (
        "Libraries in the workers use several threads each: one thread a worker is enough.",
        limited_threads(1),
    ),
    "trial:one-core": (
        "A library in the workers works in threads of its own, which get in each other's way: give it one thread a worker "
        "by its own setting, or bind each worker to one core.",
        _in_each_worker(
            "import os",
            "cores = sorted(os.sched_getaffinity(0))",
            "os.sched_setaffinity(0, {cores[worker_id % len(cores)]})",
        ),
    ),
    "trial:affinity": (
        "Something narrowed the workers' affinity mask (the job's launcher, taskset, an import): ask for more cores, or "
        "widen it again in worker_init_fn.",
        _in_each_worker("import os", "os.sched_setaffinity(0, range(os.cpu_count()))"),
    ),
}


def _setting(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.stage not in _SETTINGS:
        return None
    advice, patch = _SETTINGS[culprit.stage]
    return Remedy(id=culprit.stage, advice=advice, patch=patch, measured_gain=culprit.gain, about=culprit.stage)


def _collects(culprit: Culprit) -> bool:
    return "gc.collect(" in (culprit.text or "")


def _collections_on_call(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if not _collects(culprit):
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


def _fewer_collections(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.stage != "trial:collector":
        return None
    in_workers, in_loop = collecting([block for block in recording.blocks if block.rung == "none"])
    if not _loader(recording).num_workers:  # the loop's process makes the batches
        in_workers, in_loop = 0.0, max(in_workers, in_loop)
    least = min(WORTH_SWITCHING, max(in_workers, in_loop))
    patches = (
        (
            in_workers,
            _in_each_worker("import gc", "gc.disable()  # or gc.freeze() and gc.set_threshold(100_000, 20, 20)"),
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


def _packed_objects(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.stage != "worker-memory":
        return None
    is_kept = _loader(recording).keeps_workers
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


def _scheduling(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.kind != "scheduling":
        return None
    if culprit.cause == "uneven-shards":
        advice = "Give every worker at least one shard: split by get_worker_info(), into as many shards as workers."
        return Remedy(id="even-shards", advice=advice, predicted_gain=culprit.gain, about=culprit.stage)
    own = _loader(recording).prefetch_factor
    wanted = max(4, 2 * own)
    if report.ceiling is not None:
        wanted = max(wanted, _to_bridge(recording, report.ceiling.value))
    ahead = _with_room(recording, wanted)
    arguments = [f"prefetch_factor={ahead}"] if ahead > own else []
    room = ""
    if ahead < wanted:
        room = f" The {_mib(recording.shared_memory_bytes)} of shared memory that were free have no room for more (docker: --shm-size)."
    if not _has_in_order(recording):
        advice = (
            "Order more batches ahead, so that a slow one is started earlier; torch 2.6 and later can also hand out ready "
            "batches before it (in_order=False)."
        )
    elif _loader(recording).num_workers < 2 or not _loader(recording).in_order:
        advice = "Order more batches ahead, so that some are ready when none is made."
    else:
        arguments.insert(0, "in_order=False")
        advice = (
            "Let ready batches overtake a slow one (the order then differs from run to run), or order more batches ahead so "
            "that it is started earlier."
        )
    return Remedy(
        id="out-of-order" if "in_order=False" in arguments else "order-ahead",
        advice=advice + room,
        patch=f"DataLoader(..., {', '.join(arguments)})" if arguments else None,
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _has_in_order(recording: Recording) -> bool:
    """Whether the torch that ran knows the argument `in_order`; it is taken to be recent where its version is unknown."""
    version = re.match(r"(\d+)\.(\d+)", str(recording.environment.get("torch", "")))
    return version is None or (int(version[1]), int(version[2])) >= (2, 6)


def _fewer_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.stage != "cpu":
        return None
    return Remedy(
        id="leave-cores-to-the-step",
        advice="The workers take cores from the loop body: use fewer workers, or make the transforms cheaper.",
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _leaner_body(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    if culprit.kind != "step-host" or _collects(culprit):
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


_RULES: tuple[Rule, ...] = (
    _more_workers, _workers_elsewhere, _quicker_elsewhere, *storage.RULES, _cheaper_stage, _leaner_collation, _batched_fetch, _quicker_sampler, _lighter_transport, _overlapped_copy, _bridge_late, _work_in_workers, _keep_workers, _epochs_that_run_on,
    _setting, _fewer_collections, _collections_on_call, _packed_objects, _scheduling, _fewer_workers, _leaner_body,
)  # fmt: skip
