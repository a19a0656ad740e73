"""Quicker reads: fewer and larger ones, several at a time, of fewer bytes or of bytes that are cheaper to unpack."""

from __future__ import annotations

import math
import re

from unstarve import estimate
from unstarve.recording import Recording, Stage, find_stage
from unstarve.remedies.decoding import DECODABLE
from unstarve.remedies.facts import bytes_read, calls_in, leaves_until, loader_of, with_unit
from unstarve.report import Culprit, Remedy, Report, figure

SMALL_READ_BYTES = 1 << 18
"""Samples that read less than this are small: a disk or a network needs longer to begin than to deliver them."""

FAST_CODEC_MB_PER_S = 1000
"""What one core decompresses in a second at least, with a light codec: the benchmarks of Zstandard and LZ4 themselves
show 1.5 to 5 GB/s on one core of a desktop."""


def larger_files(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """Many small reads that are waited for cost their latency, whatever the bandwidth."""
    stage = find_stage(recording.stages, culprit.stage)
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
            f"A sample reads only {size / 1024:.3g} KiB in {figure(calls)} calls, at {figure(_mb_per_s(size, estimate.mean(stage.wall_ns)))} MB/s. "
            f"At its ceiling the loop takes {figure(calls * wanted)} such calls a second, but no more than "
            f"{figure(size * wanted / 1e6)} MB/s: group samples into larger files (shards) that are read in sequence, so that "
            "the latency is paid once for many."
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _reads_seldom(stage: Stage) -> bool:
    """Whether most samples that ran through the stage read nothing there: others meet a module that is imported."""
    ran = sum(wall > 0 for wall in stage.wall_ns)
    return stage.reading_samples is not None and 2 * stage.reading_samples < ran


def concurrent_reads(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """Waits that use no core can overlap; how many must, says Little's law (J. D. C. Little, Oper. Res. 9(3), 1961)."""
    if culprit.resource != "wait" or culprit.kind not in (*DECODABLE, "transform"):
        return None
    stage = find_stage(recording.stages, culprit.stage)
    workers = max(1, loader_of(recording).num_workers)
    waits = 0.0 if stage is None else _samples_per_s(recording, report) * stage.waited_ns / 1e9
    told = "" if stage is None or waits <= workers else _overlap(recording, report, stage, waits)
    threads = min(math.ceil(waits / workers), _fetched_together(recording))
    has_pool = stage is not None and _POOL.search(calls_in(recording, stage)) is not None
    return Remedy(
        id="concurrent-reads",
        advice=f"The stage waits without using a core: overlap the waits.{told} {_how_to_overlap(recording, has_pool=has_pool)}",
        patch=None
        if not told or has_pool or threads < 2 or loader_of(recording).makes_batches
        else (
            "from concurrent.futures import ThreadPoolExecutor\n\n"
            "def __getitems__(self, indices):\n"
            "    # each thread needs a file of its own;\n"
            "    # random draws come in any order\n"
            f"    with ThreadPoolExecutor({threads}) as pool:\n"
            "        return list(pool.map(self.__getitem__, indices))"
        ),
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _fetched_together(recording: Recording) -> int:
    """Samples that `__getitems__` is asked for at once: those of a batch, and one of a stream or of a loader that makes no
    batches, as far as is known."""
    loader = loader_of(recording)
    return loader.samples_per_batch if loader.kind == "map" else 1


_POOL = re.compile(r"\bpool\b|ThreadPool|Executor|as_completed|asyncio")
"""What code says that reads several samples at a time already."""


def _how_to_overlap(recording: Recording, *, has_pool: bool) -> str:
    more = "Raise num_workers beyond the number of cores, or move the data to faster storage."
    if loader_of(recording).kind != "map":
        return (
            "Read ahead in the generator (a thread pool that has some samples in flight), split the stream among more workers "
            "than cores by `torch.utils.data.get_worker_info()` (unsplit, each would give every sample), or move the data to "
            "faster storage."
        )
    if has_pool:
        return f"It reads in a pool already: give that more threads, as long as they wait. {more}"
    if _fetched_together(recording) < 2:
        return more
    return (
        "Read the samples of a batch in a thread pool inside `__getitems__`, raise num_workers beyond the number of cores, or "
        "move the data to faster storage."
    )


def _overlap(recording: Recording, report: Report, stage: Stage, waits: float) -> str:
    wanted, workers = _samples_per_s(recording, report), loader_of(recording).num_workers
    size = stage.read_bytes / max(1, len(stage.wall_ns))
    base = report.baseline.value * loader_of(recording).samples_per_batch if report.baseline is not None else 0.0
    read = (
        f" It reads {figure(size * base / 1e6)} MB/s now, and {figure(size * wanted / 1e6)} MB/s then." if size else ""
    )
    return (
        f" A sample waits {stage.waited_ns / 1e6:.3g} ms here, so at the loop's ceiling {waits:.2g} samples wait at a time; "
        f"{workers or 'no'} worker{'s wait' if workers != 1 else ' waits'} for {max(1, workers)}.{read}"
    )


def compressed(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """To read fewer bytes, where a lot of them are waited for that nobody unpacks."""
    stage = find_stage(recording.stages, culprit.stage)
    if stage is None or culprit.kind != "read" or culprit.resource != "wait" or not stage.wall_ns:
        return None
    size = stage.read_bytes / len(stage.wall_ns)
    is_packed = any(each.decodes or each.kind == "decode" for each in recording.stages)
    speed = _mb_per_s(size, stage.waited_ns)
    if size <= SMALL_READ_BYTES or is_packed or 2 * speed > FAST_CODEC_MB_PER_S:
        return None
    wanted = _samples_per_s(recording, report) / 1e6
    return Remedy(
        id="compress",
        advice=(
            f"A sample waits {stage.waited_ns / 1e6:.3g} ms for {with_unit(size)} ({figure(speed)} MB/s for each worker), and nothing "
            f"unpacks them. If they compress to half, storing them so pays once a core decompresses more than {figure(2 * speed)} "
            f"MB/s, which light codecs (Zstandard, LZ4) do; {figure(size * wanted / 2)} instead of "
            f"{figure(size * wanted)} MB/s are then read at the loop's ceiling."
        ),
        about=culprit.stage,
    )


_CODEC = re.compile(r"gzip|zlib|lzma|bz2|zstd|inflate|decompress|\.npz|blosc", re.IGNORECASE)


def lighter_codec(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """To spend less on decompressing, where storage could deliver more bytes instead."""
    stage = find_stage(recording.stages, culprit.stage)
    if stage is None or culprit.resource == "wait" or culprit.kind not in DECODABLE or not stage.wall_ns:
        return None
    calls = calls_in(recording, stage)
    whole = next((head.bytes_per_sample for head in recording.heads if head.after == stage.id), 0)
    packed = bytes_read(leaves_until(recording, stage))
    if not _CODEC.search(calls) or not packed or whole <= packed:
        return None
    wanted = _samples_per_s(recording, report) / 1e6
    return Remedy(
        id="lighter-codec",
        advice=(
            f"Decompressing takes {sum(stage.cpu_ns) / len(stage.wall_ns) / 1e6:.3g} ms of a core for every sample. Stored "
            f"without compression a sample is {with_unit(whole)} instead of {with_unit(packed)}: {figure(whole * wanted)} instead of "
            f"{figure(packed * wanted)} MB/s at the loop's ceiling. If storage delivers that, leave the compression out; else take a "
            f"lighter codec (Zstandard, LZ4), which decompresses more than {FAST_CODEC_MB_PER_S} MB/s on one core."
        ),
        about=culprit.stage,
    )


def _samples_per_s(recording: Recording, report: Report) -> float:
    """Samples that the loop takes in a second at its ceiling."""
    rates = [found.value for found in (report.baseline, report.ceiling) if found is not None]
    return max(rates, default=0.0) * loader_of(recording).samples_per_batch


def _mb_per_s(size: float, span_ns: float) -> float:
    return size / 1e6 / max(1e-9, span_ns / 1e9)
