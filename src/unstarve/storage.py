"""Remedies for how data are stored, read and decoded, each with the figures that tell whether it pays. Pure, no clock."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from unstarve import estimate
from unstarve.recording import Head, Loader, Recording, Stage
from unstarve.report import Culprit, Estimate, Remedy, Report

STORABLE = 1.05
"""What a head gives is worth storing if serving it gains at least this much, with 95 % certainty."""

ALIKE = 1.03
"""Of heads whose gains differ by less than this factor, the one that takes least to store is taken."""

FITS = 0.8
"""Share of the free memory that stored values may take."""

NO_LARGER = 1.2
"""A head that gives at most so many times the bytes that were read for it, and spends its time on reading, gives what is
stored already."""

SMALL_READ_BYTES = 1 << 18
"""Samples that read less than this are small: a disk or a network needs longer to begin than to deliver them."""

FAST_CODEC_MB_PER_S = 1000
"""What one core decompresses in a second at least, with a light codec: the benchmarks of Zstandard and LZ4 themselves
show 1.5 to 5 GB/s on one core of a desktop."""

PIXEL_SHARE = 0.45
"""Share of decoding a JPEG that goes with the pixels that are decoded; the rest is undoing the entropy code, which cannot
be skipped. At 1/8 of each side Pillow took 0.3 to 0.66 of the CPU time of a full decode, at 0.5 to 3 bits a pixel."""

MOST_KEPT = 0.8
"""A crop that keeps more of the picture than this is not worth decoding apart."""

DECODABLE = ("decode", "read", "code")
"""Kinds of stages that may hold a call which decodes a picture."""


# --- What the pipeline makes anew every epoch -------------------------------------------------------------------------


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
        return self.total_bytes <= FITS * self.free_bytes


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
    made = _until(recording, _stage(recording, head.after))
    reading = sum(_mean_ns(stage) for stage in made if stage.read_bytes)
    is_read = 2 * reading >= sum(_mean_ns(stage) for stage in made)
    is_decoded = any(stage.decodes or stage.kind == "decode" for stage in made)
    is_as_large = 1 / NO_LARGER <= head.bytes_per_sample / max(1, _read_bytes(made)) <= NO_LARGER
    return is_read and is_as_large and not is_decoded


def _sameness(recording: Recording, head: Head) -> str:
    last = _stage(recording, head.after)
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
    size = f"It takes {_bytes(stored.total_bytes)} for {stored.samples} samples ({_bytes(stored.head.bytes_per_sample)} each)"
    if stored.fits:
        return (
            f"{size}, which fits into the {_bytes(stored.free_bytes)} of memory that are free, if all workers share one "
            "copy (a shared tensor, a memory-mapped file)."
        )
    free = f", more than the {_bytes(stored.free_bytes)} of free memory have room for" if stored.free_bytes else ""
    rate = stored.gain.value * (report.baseline.value if report.baseline is not None else 0.0)
    needed = stored.head.bytes_per_sample * _loader(recording).samples_per_batch * rate / 1e6
    now = report.needs.read_mb_per_s_now if report.needs is not None else None
    told = f", where {_figure(now)} MB/s are read now" if now else ""
    return f"{size}{free}: from disk that is {_figure(needed)} MB/s at the pace measured from memory{told}."


def _paying_off(recording: Recording, report: Report, stored: _Stored) -> str:
    if not stored.fits:
        return "Stored during the first epoch it pays from the second on, if a disk delivers that."
    length = _loader(recording).length
    epochs = math.ceil(stored.gain.value / (stored.gain.value - 1) - 1e-9)
    apart = f"in a pass of its own, which takes an epoch's time at most, it has paid off after {epochs} epochs."
    if length is None or report.baseline is None:
        return f"Stored during the first epoch it pays from the second on; {apart}"
    now = length / report.baseline.value
    return (
        f"An epoch then takes {_seconds(now / stored.gain.value)} instead of {_seconds(now)}: stored during the first epoch "
        f"it pays from the second on; {apart}"
    )


# --- Pictures that are decoded whole ----------------------------------------------------------------------------------

_PICTURES = re.compile(
    r"Image\.open|pil_loader|default_loader|\.convert\(|decode_(jpeg|image|png)|read_image|imdecode|imread|TurboJPEG"
)
"""Calls that decode pictures."""
_OPENCV = re.compile(r"imdecode|imread")
_PILLOW = re.compile(r"Image\.open|pil_loader|default_loader|\.convert\(")
_CROP = re.compile(r"(?<!five)(?<!ten)crop(?!_?and)", re.IGNORECASE)
_RESIZE = re.compile(r"resize|thumbnail|smallestmaxsize|longestmaxsize|interpolate", re.IGNORECASE)
_CONVERTS = re.compile(
    r"convert|to_?(image|tensor|pil|dtype|float|rgb)|asarray|from_numpy|permute|cvtcolor|(^|\.)array$", re.IGNORECASE
)
"""Transforms that change how pixels are represented, and leave them where they are."""


def _decode_less(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """To decode of a picture only what the transform behind it keeps."""
    stage = _stage(recording, culprit.stage)
    if stage is None or culprit.resource == "wait" or culprit.kind not in DECODABLE:
        return None
    calls = "\n".join(f"{each.name}\n{each.text}" for each in (stage, *_inside(recording, stage)))
    follower = _follower(recording, stage) if _PICTURES.search(calls) else None
    if follower is None:
        return None
    kept = _kept(recording, follower)
    if _CROP.search(follower.name):
        return _crop_only(culprit, follower, None if "resized" in follower.name.lower() else kept)
    return _draft(culprit, follower, kept, calls)


def _follower(recording: Recording, stage: Stage) -> Stage | None:
    """The crop or resize that gets what the stage decodes, with nothing but conversions and trifles between; None where
    anything else comes first."""
    inside = {stage.id, *(each.id for each in _inside(recording, stage))}
    containers = {each.parent for each in recording.stages}
    behind = recording.stages[recording.stages.index(stage) + 1 :]
    for later in (each for each in behind if each.id not in inside):
        if _CROP.search(later.name) or _RESIZE.search(later.name):
            return later
        is_trifle = later.kind != "transform" and _mean_ns(later) < 0.05 * _mean_ns(stage)
        if later.id not in containers and not is_trifle and not _CONVERTS.search(later.name):
            return None
    return None


def _kept(recording: Recording, follower: Stage) -> float | None:
    """Share of the pixels that are left behind a transform, by the bytes on both sides of it."""
    ends = [head.after for head in recording.heads]
    position = ends.index(follower.id) if follower.id in ends else 0
    before = recording.heads[position - 1].bytes_per_sample if position else 0
    return recording.heads[position].bytes_per_sample / before if before else None


def _crop_only(culprit: Culprit, follower: Stage, kept: float | None) -> Remedy | None:
    if kept is not None and kept > MOST_KEPT:
        return None
    share = f" It keeps {kept:.0%} of the pixels." if kept is not None else ""
    return Remedy(
        id="decode-crop",
        advice=(
            f"`{follower.name}` throws away what `{culprit.name}` decoded.{share} Where files are JPEG, choose the crop by "
            "the size in their header and decode only that: PIL and `torchvision.io` cannot, TurboJPEG can cut it out of the "
            "compressed picture first (at multiples of its blocks of 8 or 16 pixels)."
        ),
        patch="import turbojpeg\njpeg = turbojpeg.TurboJPEG()\nimage = jpeg.decode(jpeg.crop(data, left, top, width, height))",
        predicted_gain=None if kept is None else _fewer_pixels(culprit, kept),
        about=culprit.stage,
    )


def _draft(culprit: Culprit, follower: Stage, kept: float | None, calls: str) -> Remedy | None:
    """To decode at a fraction of the size, where a resize would make the picture smaller anyway."""
    factor = None if kept is None else next((each for each in (8, 4, 2) if kept <= 1 / each**2), 1)
    if factor == 1:
        return None
    share = "" if kept is None else f" It keeps {kept:.1%} of the pixels, so 1/{factor} of each side is enough."
    return Remedy(
        id="decode-smaller",
        advice=(
            f"`{follower.name}` makes smaller what `{culprit.name}` decodes whole.{share} A JPEG can be decoded at 1/2, 1/4 or "
            "1/8 of its size, in less time; the pixels then differ a little from those of a full decode."
        ),
        patch=_reduced(calls, factor or 2),
        predicted_gain=None if factor is None else _fewer_pixels(culprit, 1 / factor**2),
        about=culprit.stage,
    )


def _reduced(calls: str, factor: int) -> str:
    if _OPENCV.search(calls):
        return f"image = cv2.imdecode(data, cv2.IMREAD_REDUCED_COLOR_{factor})"
    if _PILLOW.search(calls):
        return 'image = Image.open(file)\nimage.draft("RGB", (width, height))  # the least size wanted; before the pixels are used'
    return "image = simplejpeg.decode_jpeg(data, min_height=height, min_width=width)"


def _fewer_pixels(culprit: Culprit, kept: float) -> Estimate:
    """The loop's speed-up if only this share of the pixels were decoded: computed, not tried."""
    saved = PIXEL_SHARE * (1 - kept) * (1 - 1 / culprit.gain.value)
    return estimate.computed(1 / (1 - saved), down=0.5, up=1.3)


# --- Reading ----------------------------------------------------------------------------------------------------------


def _larger_files(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """Many small reads that are waited for cost their latency, whatever the bandwidth."""
    stage = _stage(recording, culprit.stage)
    if (
        culprit.kind != "read"
        or culprit.resource != "wait"
        or stage is None
        or not stage.read_bytes
        or not stage.wall_ns
        or _reads_seldom(stage)
    ):
        return None
    size, calls = stage.read_bytes / len(stage.wall_ns), stage.read_calls / len(stage.wall_ns)
    if size / min(1.0, calls or 1.0) > SMALL_READ_BYTES:  # several samples may be read in one call
        return None
    wanted = _samples_per_s(recording, report)
    return Remedy(
        id="larger-files",
        advice=(
            f"A sample reads only {size / 1024:.3g} KiB in {_figure(calls)} calls, at {_figure(_mb_per_s(size, _mean_ns(stage)))} MB/s. "
            f"At its ceiling the loop takes {_figure(calls * wanted)} such calls a second, but no more than "
            f"{_figure(size * wanted / 1e6)} MB/s: group samples into larger files (shards) that are read in sequence, so that "
            "the latency is paid once for many."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _reads_seldom(stage: Stage) -> bool:
    """Whether most samples that ran through the stage read nothing there: others meet a module that is imported."""
    ran = sum(wall > 0 for wall in stage.wall_ns)
    return stage.reading_samples is not None and 2 * stage.reading_samples < ran


def _concurrent_reads(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """Waits that use no core can overlap; how many must, says Little's law (J. D. C. Little, Oper. Res. 9(3), 1961)."""
    if culprit.resource != "wait" or culprit.kind not in (*DECODABLE, "transform"):
        return None
    stage = _stage(recording, culprit.stage)
    workers = max(1, _loader(recording).num_workers)
    waits = 0.0 if stage is None else _samples_per_s(recording, report) * _waited_ns(stage) / 1e9
    told = "" if stage is None or waits <= workers else _overlap(recording, report, stage, waits)
    threads = min(math.ceil(waits / workers), _fetched_together(recording))
    return Remedy(
        id="concurrent-reads",
        advice=f"The stage waits without using a core: overlap the waits.{told} {_how_to_overlap(recording)}",
        patch=None
        if not told or threads < 2 or _loader(recording).makes_batches
        else (
            "from concurrent.futures import ThreadPoolExecutor\n\n"
            "def __getitems__(self, indices):\n"
            "    # every thread needs its own open file (a shared one is moved while another reads); draws come in any order\n"
            f"    with ThreadPoolExecutor({threads}) as pool:\n"
            "        return list(pool.map(self.__getitem__, indices))"
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _fetched_together(recording: Recording) -> int:
    """Samples that `__getitems__` is asked for at once: those of a batch, and one of a stream or of a loader that makes no
    batches, as far as is known."""
    loader = _loader(recording)
    return loader.samples_per_batch if loader.kind == "map" else 1


def _how_to_overlap(recording: Recording) -> str:
    if _loader(recording).kind != "map":
        return (
            "Read ahead in the generator (a thread pool that has some samples in flight), split the stream among more workers "
            "than cores by `torch.utils.data.get_worker_info()` (unsplit, each would give every sample), or move the data to "
            "faster storage."
        )
    if _fetched_together(recording) < 2:
        return "Raise num_workers beyond the number of cores, or move the data to faster storage."
    return (
        "Read the samples of a batch in a thread pool inside `__getitems__`, raise num_workers beyond the number of cores, or "
        "move the data to faster storage."
    )


def _overlap(recording: Recording, report: Report, stage: Stage, waits: float) -> str:
    wanted, workers = _samples_per_s(recording, report), _loader(recording).num_workers
    size = stage.read_bytes / max(1, len(stage.wall_ns))
    base = report.baseline.value * _loader(recording).samples_per_batch if report.baseline is not None else 0.0
    read = (
        f" It reads {_figure(size * base / 1e6)} MB/s now, and {_figure(size * wanted / 1e6)} MB/s then."
        if size
        else ""
    )
    return (
        f" A sample waits {_waited_ns(stage) / 1e6:.3g} ms here, so at the loop's ceiling {waits:.2g} samples wait at a time; "
        f"{workers or 'no'} worker{'s wait' if workers != 1 else ' waits'} for {max(1, workers)}.{read}"
    )


def _compressed(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """To read fewer bytes, where a lot of them are waited for that nobody unpacks."""
    stage = _stage(recording, culprit.stage)
    if stage is None or culprit.kind != "read" or culprit.resource != "wait" or not stage.wall_ns:
        return None
    size = stage.read_bytes / len(stage.wall_ns)
    is_packed = any(each.decodes or each.kind == "decode" for each in recording.stages)
    speed = _mb_per_s(size, _waited_ns(stage))
    if size <= SMALL_READ_BYTES or is_packed or 2 * speed > FAST_CODEC_MB_PER_S:
        return None
    wanted = _samples_per_s(recording, report) / 1e6
    return Remedy(
        id="compress",
        advice=(
            f"A sample waits {_waited_ns(stage) / 1e6:.3g} ms for {_bytes(size)} ({_figure(speed)} MB/s for each worker), and nothing "
            f"unpacks them. If they compress to half, storing them so pays once a core decompresses more than {_figure(2 * speed)} "
            f"MB/s, which light codecs (Zstandard, LZ4) do; {_figure(size * wanted / 2)} instead of "
            f"{_figure(size * wanted)} MB/s are then read at the loop's ceiling."
        ),
        about=culprit.stage,
    )


_CODEC = re.compile(r"gzip|zlib|lzma|bz2|zstd|inflate|decompress|\.npz|blosc", re.IGNORECASE)


def _lighter_codec(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """To spend less on decompressing, where storage could deliver more bytes instead."""
    stage = _stage(recording, culprit.stage)
    if stage is None or culprit.resource == "wait" or culprit.kind not in DECODABLE or not stage.wall_ns:
        return None
    calls = "\n".join(f"{each.name}\n{each.text}" for each in (stage, *_inside(recording, stage)))
    whole = next((head.bytes_per_sample for head in recording.heads if head.after == stage.id), 0)
    packed = _read_bytes(_until(recording, stage))
    if not _CODEC.search(calls) or not packed or whole <= packed:
        return None
    wanted = _samples_per_s(recording, report) / 1e6
    return Remedy(
        id="lighter-codec",
        advice=(
            f"Decompressing takes {sum(stage.cpu_ns) / len(stage.wall_ns) / 1e6:.3g} ms of a core for every sample. Stored "
            f"without compression a sample is {_bytes(whole)} instead of {_bytes(packed)}: {_figure(whole * wanted)} instead of "
            f"{_figure(packed * wanted)} MB/s at the loop's ceiling. If storage delivers that, leave the compression out; else take a "
            f"lighter codec (Zstandard, LZ4), which decompresses more than {FAST_CODEC_MB_PER_S} MB/s on one core."
        ),
        about=culprit.stage,
    )


def _until(recording: Recording, stage: Stage | None) -> list[Stage]:
    """The stages of a sample that have nothing inside, until this one has ended; without one all of them."""
    own = [each for each in recording.stages if each.kind not in ("collate", "ipc")]
    until = own if stage is None else [*own[: own.index(stage) + 1], *_inside(recording, stage)]
    containers = {each.parent for each in own}
    return [each for each in until if each.id not in containers and each.wall_ns]


def _read_bytes(stages: Iterable[Stage]) -> float:
    """Bytes that stages read for a sample."""
    return sum(each.read_bytes / len(each.wall_ns) for each in stages)


# --- What the rules look up -------------------------------------------------------------------------------------------


def _loader(recording: Recording) -> Loader:
    assert recording.loader is not None
    return recording.loader


def _stage(recording: Recording, ident: str | None) -> Stage | None:
    return next((stage for stage in recording.stages if stage.id == ident), None)


def _inside(recording: Recording, stage: Stage) -> Iterator[Stage]:
    """The stages that a stage contains, at any depth, in pipeline order."""
    outer = {stage.id}
    for each in recording.stages:
        if each.parent in outer:
            outer.add(each.id)
            yield each


def _samples_per_s(recording: Recording, report: Report) -> float:
    """Samples that the loop takes in a second at its ceiling."""
    rates = [found.value for found in (report.baseline, report.ceiling) if found is not None]
    return max(rates, default=0.0) * _loader(recording).samples_per_batch


def _mean_ns(stage: Stage) -> float:
    return estimate.mean(stage.wall_ns)


def _waited_ns(stage: Stage) -> float:
    waited = sum(stage.wall_ns) - sum(stage.cpu_ns) - sum(stage.delay_ns)
    return max(0, waited) / max(1, len(stage.wall_ns))


def _mb_per_s(size: float, span_ns: float) -> float:
    return size / 1e6 / max(1e-9, span_ns / 1e9)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(size: float) -> str:
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size:.0f} bytes"


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


RULES: tuple[Callable[[Recording, Report, Culprit], Remedy | None], ...] = (
    cached_head, _concurrent_reads, _larger_files, _compressed, _decode_less, _lighter_codec,
)  # fmt: skip
"""From a culprit to a remedy, if there is one of the kind."""
