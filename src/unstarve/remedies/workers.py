"""More workers, workers that are kept, and what else is done about starts, for the loader that was diagnosed and for others."""

from __future__ import annotations

import math
import os
from dataclasses import replace

from unstarve import estimate, law
from unstarve.recording import HALF, Loader, Recording, Settings, begun_share
from unstarve.remedies.facts import FULL, law_of, loader_of, mib, shared_bytes
from unstarve.remedies.settings import trials, tried_remedy
from unstarve.report import Culprit, Remedy, Report

WORTH_SPARING = 1.03
"""What keeping workers must gain to be advised: it costs nothing but their memory."""

_KEEP_LOADER = (
    "Make the loader once, before the epochs, and keep it: workers live no longer than the loader that started them, and a "
    "new one is made for every epoch."
)

_BEGUN_ANEW = ("new-iterators", "short-epochs")
"""Causes that are iterators with a batch or two each."""

_BY_CAUSE = {
    "dropped-batches": (
        "skip-indices",
        "Resume without making the batches that were seen already: skip their indices in the sampler (a "
        "StatefulDataLoader, or accelerate's skip_first_batches), not the batches.",
    ),
    "before-first-batch": (
        "smaller-buffer",
        "Do less before the first batch: open fewer shards at once, fill a smaller shuffle buffer and shuffle the "
        "shards instead, or begin to read the next epoch before this one ends.",
    ),
    "short-epochs": (
        "epochs-run-on",
        "Each of these epochs begins with a new iterator and ends at once: keep the batches if they are the same in "
        "every epoch, or give one iterator the batches of many epochs (a sampler or a stream that begins anew).",
    ),
    "new-iterators": (
        "one-iterator",
        "Make one iterator and take batches from it, instead of calling iter() for every step.",
    ),
}
"""Name and advice of the remedy for each cause of a dear start which keeping the workers would not spare."""


def more_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """As many workers as were tried or are of use, where their number is to blame."""
    if culprit.stage != "workers":
        return None
    loader = loader_of(recording)
    loop = law_of(recording)
    wanted = max(1 if loader.num_workers == 0 else 2, min(loop.enough_workers(), 2 * int(recording.cores)))
    blamed = _blamed_settings(recording, culprit)
    if blamed is not None and not blamed.num_workers:
        remedy = tried_remedy(loader, blamed, culprit.gain)
        return None if remedy is None else replace(remedy, id="workers", about=culprit.stage)
    number, remedy = _loading(recording, loader, wanted if blamed is None else blamed.num_workers)
    gain = culprit.gain
    if gain.is_computed and report.baseline is not None:  # for as many as are of use
        most = min(gain.value, loop.rate(number) / report.baseline.value)
        gain = estimate.computed(most, down=0.7, up=1.15)
    return replace(remedy, id="workers", predicted_gain=gain, about=culprit.stage)


def _blamed_settings(recording: Recording, culprit: Culprit) -> Settings | None:
    """Those that were tried and gained what the culprit says, if that was not computed."""
    return next((tried for tried, gain in trials(recording) if gain.value == culprit.gain.value), None)


def workers_elsewhere(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For another loader than the one that was diagnosed: as many as that has, since nothing of its own was measured; its
    batches are taken to be as large."""
    other = _other_loader(recording, culprit)
    if culprit.kind != "workers" or other is None or culprit.cause in _BEGUN_ANEW:
        return None
    wanted = loader_of(recording).num_workers or int(recording.cores)
    number, remedy = _loading(recording, other, max(1, wanted))
    # one worker still makes batches beside the script
    spared = max(HALF, 1 - 1 / min(number, max(1.0, recording.cores)))
    gain = estimate.computed(estimate.of_part(culprit.gain, spared).value, down=0.5, up=1.5)
    advice = (
        f"{_placed(other)} has no workers, so that the script waits while each of its batches is made. {remedy.advice}"
    )
    return replace(remedy, id=f"workers:{culprit.stage}", advice=advice, predicted_gain=gain, about=culprit.stage)


def quicker_elsewhere(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For another loader that has workers: to keep these where most of the waiting is for their start, in which forked ones
    need no imports; or more of them where it is for later batches, as many as the loader that was diagnosed has or twice
    its own. What is left, the making of first batches, neither would spare."""
    other = _other_loader(recording, culprit)
    if culprit.kind != "loader" or other is None or not other.num_workers:
        return None
    starts = recording.starts_of(other)
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
        wanted = min(max(loader_of(recording).num_workers, 2 * other.num_workers), 2 * int(recording.cores))
        number, remedy = _loading(recording, other, wanted)
        if number <= other.num_workers:
            return None
        remedy = replace(remedy, advice=f"{name} has {other.num_workers}. {remedy.advice}")
        spared = 1 - other.num_workers / number
    else:
        return None
    gain = estimate.computed(estimate.of_part(culprit.gain, spared).value, down=0.3, up=1.2)
    return replace(remedy, id=f"{remedy.id}:{culprit.stage}", predicted_gain=gain, about=culprit.stage)


def _other_loader(recording: Recording, culprit: Culprit) -> Loader | None:
    """The loader beside the one that was diagnosed which is blamed, if one is."""
    return next((each for each in recording.loaders if f"loader:{each.number}" == culprit.stage), None)


def _placed(loader: Loader) -> str:
    """The loader's name, and the place where it is made."""
    return f"{loader.name} ({os.path.basename(loader.source)})" if loader.source else loader.name


def _loading(recording: Recording, loader: Loader, wanted: int) -> tuple[int, Remedy]:
    """So many workers, as far as the loader's samples can be split among them and shared memory has room for their
    batches; to make room, where it has none for more than there are."""
    number = min(wanted, loader.most_workers or wanted)
    unsplit = (
        "" if loader.most_workers is None else " More than one would each give every sample of the stream, until it is "
        "split among them by `torch.utils.data.get_worker_info()`."
    )  # fmt: skip
    ahead = (loader.prefetch_factor + 1) * shared_bytes(recording)
    free = recording.shared_memory_bytes  # 0 where it is not known
    room = int(FULL * free / ahead) if free and ahead else number
    before, limit, call = "", "", ""
    if loader.num_workers < room < number:
        number = room
        limit = f" The {mib(free)} of shared memory that were free have no room for the batches of more (docker: --shm-size)."
    elif room <= loader.num_workers < number:
        before = (
            f"Make room in shared memory, in which workers hand over their batches: each may have {mib(ahead)} ready or in "
            f"the making, and {mib(free)} were free, so that more workers end in a bus error. Then: "
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


def work_in_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a generator of the script's around the loader."""
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


def keep_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For iterators whose start costs much, by what they spend it on."""
    if culprit.kind != "worker-start" and culprit.cause not in _BEGUN_ANEW:
        return None
    if culprit.cause in _BY_CAUSE:
        ident, advice = _BY_CAUSE[culprit.cause]
        advice += _about_workers(recording, culprit)
        return Remedy(id=ident, advice=advice, predicted_gain=culprit.gain, about=culprit.stage)
    remedy = kept_over_epochs(recording, report)
    return None if remedy is None else replace(remedy, about=culprit.stage)


def kept_over_epochs(recording: Recording, report: Report) -> Remedy | None:
    """To keep the workers, where that spares a part of an epoch that is worth a word, whatever else is to blame."""
    loader = recording.loader
    if loader is None or loader.keeps_workers or not loader.num_workers:
        return None
    spared = report.time.start * law.spared_share(law.start_costs(recording))
    gain = estimate.computed(1 / max(0.01, 1 - spared), down=0.75, up=1.25)
    if gain.value < WORTH_SPARING:
        return None
    return Remedy(
        id="persistent-workers",
        advice=(_KEEP_LOADER if loader.made > 1 else "Keep the workers over epochs.")
        + f" Starting them takes {spared:.0%} of an epoch.",
        patch="DataLoader(..., persistent_workers=True)" + ("  # once, before the epochs" if loader.made > 1 else ""),
        predicted_gain=gain,
        about="loader",
    )


def _about_workers(recording: Recording, culprit: Culprit) -> str:
    """What to say of workers beside advice on iterators that are begun anew; nothing beside any other."""
    if culprit.cause == "short-epochs" and _starts_workers(recording, culprit):
        return " Workers that are kept over epochs (persistent_workers=True) spare their start."
    if culprit.cause == "new-iterators" and culprit.kind == "workers":
        return " Then give it workers: without that each step would have them fill up anew."
    return ""


def _starts_workers(recording: Recording, culprit: Culprit) -> bool:
    """Whether the loader that is blamed starts workers for every iterator."""
    named = _other_loader(recording, culprit) or loader_of(recording)
    return named.num_workers > 0 and not named.keeps_workers


def epochs_that_run_on(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For a way to the first batch that kept workers do not spare."""
    if culprit.cause != "first-batch" or not loader_of(recording).num_workers:
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
