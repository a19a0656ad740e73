"""Remedies for how data are stored, read and decoded: when they are given, and the figures that they carry."""

from __future__ import annotations

import dataclasses
import re
import types
from typing import Any

import pytest
from literals import MS, make_recording, make_rung, make_stage

from unstarve.judge import judge
from unstarve.recording import Head, Loader, Recording, Rung, Stage
from unstarve.report import Remedy

GB, MB = 10**9, 10**6
STARVED = {"none": 80.0, "samples": 22.0, "host": 20.0}
LOADER = Loader(
    number=0, name="DataLoader(Toy)", length=6250, batch_size=8, num_workers=2, source="train.py:90", dataset_length=50_000
)  # fmt: skip
DECODE = make_stage("decode", 10, kind="decode", name="Image.open", text="image = Image.open(path)")
RESIZE = make_stage("transform:0", 4, kind="transform", name="Resize", source="train.py:12", text="Resize(256)")
CROP = make_stage("transform:1", 1, kind="transform", name="RandomCrop", source="train.py:13", text="RandomCrop(224)")
RAW = Head(rung="raw", after="decode", is_repeatable=True, samples=8, bytes_per_sample=3 * MB)
RESIZED = Head(rung="after:transform:0", after="transform:0", is_repeatable=True, samples=8, bytes_per_sample=200_000)
CROPPED = Head(rung="after:transform:1", after="transform:1", is_repeatable=False, samples=8, bytes_per_sample=150_000)
WHOLE = Head(rung="samples", is_repeatable=False, samples=8, bytes_per_sample=150_000)


def make(periods: dict[str, float], *stages: Stage, heads: tuple[Head, ...] = (), **facts: Any) -> Recording:
    """A starved loop with these rungs besides."""
    periods = {**STARVED, **periods}
    rungs = tuple(
        Rung(id=name, label=name, kind="cut", after=name[6:], order=79)
        if name.startswith("after:")
        else make_rung(name)
        for name in periods
    )
    facts = {"loader": LOADER, "rungs": rungs, "free_memory_bytes": 30 * GB, **facts}
    return make_recording(periods, stages=stages, heads=heads, **facts)


def given(recording: Recording, ident: str) -> Remedy | None:
    return next((remedy for remedy in judge(recording).remedies if remedy.id == ident), None)


def needed(recording: Recording, ident: str) -> Remedy:
    remedy = given(recording, ident)
    assert remedy is not None
    return remedy


# --- A head that gives the same every epoch ---------------------------------------------------------------------------

CACHED = {"raw": 60.0, "after:transform:0": 25.0, "after:transform:1": 24.0, "knockout:decode": 40.0}
HEADS = (RAW, RESIZED, CROPPED, WHOLE)


def test_the_head_that_gains_most_is_stored_with_its_measured_gain() -> None:
    """Up to the resize: it repeats and gained 3.2 times; the crop gained more and does not repeat."""
    remedy = needed(make(CACHED, DECODE, RESIZE, CROP, heads=HEADS), "cache-head")
    assert remedy.measured_gain is not None
    assert remedy.measured_gain.value == pytest.approx(80 / 25, rel=0.02)
    assert remedy.predicted_gain is None
    assert remedy.about == "decode"
    assert "Everything up to `Resize` (train.py:12)" in remedy.advice
    assert "on 8 real samples" in remedy.advice
    assert "It takes 10 GB for 50000 samples (200 kB each), which fits into the 30 GB" in remedy.advice


def test_what_storing_costs_and_when_it_has_paid_off_is_said() -> None:
    """An epoch of 6250 steps takes 500 s, and 312 s where what was stored makes it 1.6 times as fast; a pass as long as an
    epoch is earned after 1.6 / 0.6 epochs."""
    remedy = needed(make({**CACHED, "after:transform:0": 50.0}, DECODE, RESIZE, heads=(RESIZED,)), "cache-head")
    told = re.search(r"An epoch then takes ([\d.]+) min instead of ([\d.]+) min", remedy.advice)
    assert told is not None
    assert [float(figure) for figure in told.groups()] == pytest.approx([312 / 60, 500 / 60], rel=0.02)
    assert "pays from the second on" in remedy.advice
    assert "paid off after 3 epochs" in remedy.advice


def test_what_does_not_fit_into_memory_is_said_with_the_speed_that_a_disk_needs() -> None:
    """200 kB for each of 8 samples a step of 25 ms are 64 MB/s; a gain measured from memory is no more than a prediction."""
    remedy = needed(make(CACHED, DECODE, RESIZE, CROP, heads=HEADS, free_memory_bytes=4 * GB), "cache-head")
    told = re.search(r"more than the 4 GB of free memory have room for: from disk that is ([\d.]+) MB/s", remedy.advice)
    assert told is not None
    assert float(told[1]) == pytest.approx(64, rel=0.02)
    assert "An epoch then takes" not in remedy.advice
    assert remedy.measured_gain is None
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(80 / 25, rel=0.02)


LOAD = dataclasses.replace(
    make_stage("load", 10, cpu=0.2, kind="read", name="np.load", text="x = np.load(path)"), read_bytes=10 * 3 * MB
)
WORK = make_stage("work", 30, kind="code")
PHOTO = dataclasses.replace(LOAD, decodes=True)
LARGE = dataclasses.replace(LOAD, read_bytes=10 * 30 * MB)


@pytest.mark.parametrize(
    ("stages", "free", "is_stored"),
    [
        ((LOAD,), 4 * GB, False), ((LOAD,), 900 * GB, True), ((LOAD, WORK), 4 * GB, True), ((DECODE,), 4 * GB, True),
        ((PHOTO,), 4 * GB, True), ((LARGE,), 4 * GB, True),
    ],
    ids=["read as it is", "fits into memory", "worked on", "read packed", "decoded while read", "a part is kept"],
)  # fmt: skip
def test_what_is_read_as_it_is_stored_is_not_stored_again(
    stages: tuple[Stage, ...], free: int, is_stored: bool
) -> None:
    """3 MB that are read as such take as long from another file; they do not from memory, nor where making them costs."""
    head = Head(rung="samples", is_repeatable=True, samples=8, bytes_per_sample=3 * MB)
    remedy = given(make({"knockout:load": 25.0}, *stages, heads=(head,), free_memory_bytes=free), "cache-head")
    assert (remedy is not None) is is_stored


def test_a_head_that_fits_goes_before_one_that_gains_more() -> None:
    """The finished samples repeat too, but their floats take more than the memory."""
    whole = dataclasses.replace(WHOLE, is_repeatable=True, bytes_per_sample=1_200_000)
    remedy = needed(make(CACHED, DECODE, RESIZE, CROP, heads=(RAW, RESIZED, whole)), "cache-head")
    assert "`Resize`" in remedy.advice
    remedy = needed(
        make(CACHED, DECODE, RESIZE, CROP, heads=(RAW, RESIZED, whole), free_memory_bytes=90 * GB), "cache-head"
    )
    assert "The data set's whole work on a sample" in remedy.advice


@pytest.mark.parametrize("is_seeded", [False, True])
def test_a_head_that_seeds_a_generator_is_stored_with_a_proviso(is_seeded: bool) -> None:
    """What the seed is made of is not seen, and within one epoch nothing shows of that."""
    heads = (RAW, dataclasses.replace(RESIZED, is_seeded=is_seeded), WHOLE)
    remedy = needed(make(CACHED, DECODE, RESIZE, CROP, heads=heads), "cache-head")
    assert ("seeds itself differs from epoch to epoch" in remedy.advice) is is_seeded


def test_of_heads_that_gain_alike_the_smallest_is_stored() -> None:
    """Nothing is won by keeping floats where bytes do."""
    floats = dataclasses.replace(CROPPED, is_repeatable=True, bytes_per_sample=800_000)
    periods = {**CACHED, "after:transform:0": 24.4}
    remedy = needed(
        make(periods, DECODE, RESIZE, CROP, heads=(RAW, RESIZED, floats), free_memory_bytes=90 * GB), "cache-head"
    )
    assert "`Resize`" in remedy.advice


@pytest.mark.parametrize(
    ("heads", "period", "facts"),
    [
        ((), 25.0, {}),
        ((dataclasses.replace(RESIZED, is_repeatable=False), WHOLE), 25.0, {}),
        ((RESIZED,), 77.0, {}),
        ((dataclasses.replace(RESIZED, bytes_per_sample=0),), 25.0, {}),
        ((RESIZED,), 25.0, {"loader": dataclasses.replace(LOADER, kind="iterable")}),
        ((RESIZED,), 25.0, {"loader": dataclasses.replace(LOADER, dataset_length=None, length=None)}),
    ],
    ids=["not looked at", "random", "gains little", "gives nothing", "stream", "unknown length"],
)
def test_what_is_random_gains_little_or_has_no_end_is_not_stored(
    heads: tuple[Head, ...], period: float, facts: dict[str, Any]
) -> None:
    """Nothing is advised without a measured gain, a size and samples that were the same."""
    periods = {"after:transform:0": period, "knockout:decode": 40.0}
    assert given(make(periods, DECODE, RESIZE, heads=heads, **facts), "cache-head") is None


def test_a_head_without_a_culprit_in_it_is_stored_all_the_same() -> None:
    """What gained when it was served is worth a word, whoever is to blame."""
    periods = {"after:transform:0": 50.0, "knockout:transform:1": 40.0, "knockout:decode": 79.0}
    remedy = needed(make(periods, DECODE, RESIZE, CROP, heads=(RESIZED, CROPPED)), "cache-head")
    assert remedy.about == "transform:0"


@pytest.mark.parametrize(("heads", "is_said"), [((), True), ((CROPPED,), False)])
def test_storing_is_no_platitude_where_it_was_looked_at(heads: tuple[Head, ...], is_said: bool) -> None:
    """Whether something is the same every epoch is asked only where nobody knows."""
    advice = needed(make({"knockout:transform:1": 40.0}, DECODE, CROP, heads=heads), "cheaper:transform:1").advice
    assert ("if it is the same every epoch" in advice) is is_said


# --- Pictures that are decoded whole ----------------------------------------------------------------------------------

BLAMED = {"knockout:decode": 30.0}


def test_only_the_crop_is_decoded_where_one_follows() -> None:
    """A tenth of the pixels is kept: the entropy code of all has to be undone, so the gain is less than the stage's own."""
    convert = make_stage("transform:0", 1, kind="transform", name="PILToTensor", text="PILToTensor()")
    before = Head(
        rung="after:transform:0", after="transform:0", is_repeatable=True, samples=8, bytes_per_sample=1_500_000
    )
    remedy = needed(make(BLAMED, DECODE, convert, CROP, heads=(before, CROPPED)), "decode-crop")
    assert "`RandomCrop` throws away what `Image.open` decoded. It keeps 10% of the pixels." in remedy.advice
    assert remedy.predicted_gain is not None
    assert 1.2 < remedy.predicted_gain.value < 80 / 30
    assert "jpeg.crop(" in (remedy.patch or "")


@pytest.mark.parametrize("name", ["RandomResizedCrop", "RandomCrop"])
def test_without_known_pixels_no_gain_is_predicted(name: str) -> None:
    """How much a random resized crop takes is not seen from the size of what it gives."""
    crop = dataclasses.replace(CROP, name=name)
    heads = (RAW, CROPPED) if "Resized" in name else ()
    remedy = needed(make(BLAMED, DECODE, crop, heads=heads), "decode-crop")
    assert remedy.predicted_gain is None
    assert "% of the pixels" not in remedy.advice


def test_a_picture_that_is_made_small_is_decoded_small() -> None:
    """A fifteenth of the pixels is kept, so half of each side is too much and a quarter too little."""
    remedy = needed(make(BLAMED, DECODE, RESIZE, heads=(RAW, RESIZED)), "decode-smaller")
    assert "6.7% of the pixels, so 1/2 of each side is enough" in remedy.advice
    assert "image.draft(" in (remedy.patch or "")
    assert remedy.predicted_gain is not None
    opencv = dataclasses.replace(DECODE, name="cv2.imdecode", text="image = cv2.imdecode(data, 1)")
    assert "IMREAD_REDUCED_COLOR_2" in (
        needed(make(BLAMED, opencv, RESIZE, heads=(RAW, RESIZED)), "decode-smaller").patch or ""
    )


@pytest.mark.parametrize(
    ("decode", "stages", "heads"),
    [
        (DECODE, (make_stage("transform:0", 1, kind="transform", name="RandomRotation"), CROP), ()),
        (DECODE, (dataclasses.replace(CROP, name="FiveCrop"),), ()),
        (DECODE, (CROP,), (dataclasses.replace(RAW, bytes_per_sample=160_000), CROPPED)),
        (DECODE, (RESIZE,), (dataclasses.replace(RAW, bytes_per_sample=300_000), RESIZED)),
        (make_stage("decode", 10, kind="decode", name="json.loads", text="x = json.loads(line)"), (CROP,), ()),
        (dataclasses.replace(DECODE, cpu_ns=(MS,) * 10), (CROP,), ()),
        (DECODE, (), ()),
    ],
    ids=["something between", "many crops", "large crop", "large resize", "no picture", "waits", "nothing behind"],
)  # fmt: skip
def test_pictures_are_decoded_whole_where_all_of_them_is_used(
    decode: Stage, stages: tuple[Stage, ...], heads: tuple[Head, ...]
) -> None:
    """No part of the picture is left out that something else looks at, and nothing is said of other things than pictures."""
    found = {remedy.id for remedy in judge(make(BLAMED, decode, *stages, heads=heads)).remedies}
    assert not found & {"decode-crop", "decode-smaller"}


# --- Reading ----------------------------------------------------------------------------------------------------------


def reading(size: int, calls: int, *, text: str = "data = file.read()", cpu: float = 0.1, **facts: Any) -> Recording:
    """A stage that waits 9 ms of its 10 for so many bytes in so many calls."""
    stage = make_stage("load", 10, cpu=cpu, kind="read", text=text)
    stage = dataclasses.replace(stage, read_bytes=10 * size, read_calls=10 * calls)
    return make({"knockout:load": 25.0}, stage, **facts)


def test_small_reads_are_told_what_the_ceiling_takes() -> None:
    """400 samples a second in 2 calls of 4 KiB together: 800 calls, but 1.6 MB/s."""
    remedy = needed(reading(4096, 2), "larger-files")
    assert "reads only 4 KiB in 2 calls, at 0.41 MB/s" in remedy.advice
    told = re.search(r"the loop takes ([\d.]+) such calls a second, but no more than ([\d.]+) MB/s", remedy.advice)
    assert told is not None
    assert [float(figure) for figure in told.groups()] == pytest.approx([800, 1.64], rel=0.02)
    assert given(reading(1 << 20, 2), "larger-files") is None


def test_a_stage_that_reads_once_in_a_while_has_no_small_files() -> None:
    """It has imported a module, and waits for something else."""
    recording = reading(4096, 2)
    for samples, is_given in ((10, True), (5, True), (1, False), (None, True)):
        stage = dataclasses.replace(recording.stages[0], reading_samples=samples)
        found = given(dataclasses.replace(recording, stages=(stage,)), "larger-files")
        assert (found is not None) == is_given


def test_small_reads_that_compute_have_no_latency_to_spare() -> None:
    """What unpacks a file from the page cache is as slow in a larger one."""
    assert given(reading(4096, 2, cpu=1.0), "larger-files") is None


def test_a_transform_that_waits_is_told_to_overlap_its_waits() -> None:
    """Noise that is mixed in from other files is waited for as a sample is."""
    recording = reading(1 << 20, 2)
    noise = dataclasses.replace(recording.stages[0], kind="transform")
    found = needed(dataclasses.replace(recording, stages=(noise,)), "concurrent-reads")
    assert "3.6 samples wait at a time" in found.advice


def test_many_samples_that_are_read_in_one_call_are_not_small_reads() -> None:
    """A sample's 100 kB are small, but a call reads those of eight."""
    recording = reading(100_000, 1)
    together = dataclasses.replace(recording.stages[0], read_calls=10 / 8)
    assert given(recording, "larger-files") is not None
    assert given(dataclasses.replace(recording, stages=(together,)), "larger-files") is None


def test_a_data_set_that_makes_batches_gets_no_second_way_to() -> None:
    """The samples can be read together in its own `__getitems__`, which another would replace."""
    remedy = needed(reading(1 << 20, 2, loader=dataclasses.replace(LOADER, makes_batches=True)), "concurrent-reads")
    assert "thread pool inside `__getitems__`" in remedy.advice
    assert remedy.patch is None


def test_a_pool_that_reads_already_is_not_advised_again() -> None:
    """Only more of it, and what lies beside it."""
    recording = reading(1 << 20, 2, loader=dataclasses.replace(LOADER, makes_batches=True))
    stage = dataclasses.replace(recording.stages[0], text="return list(pool.map(self.__getitem__, indices))")
    remedy = needed(dataclasses.replace(recording, stages=(stage,)), "concurrent-reads")
    assert "inside `__getitems__`" not in remedy.advice
    assert "It reads in a pool already" in remedy.advice
    assert remedy.patch is None


def test_waits_that_must_overlap_are_counted() -> None:
    """400 samples a second that wait 9 ms each are 3.6 at a time; two workers wait for two, so each needs two threads."""
    remedy = needed(reading(1 << 20, 2), "concurrent-reads")
    assert (
        "A sample waits 9 ms here, so at the loop's ceiling 3.6 samples wait at a time; 2 workers wait for 2."
        in remedy.advice
    )
    told = re.search(r"It reads ([\d.]+) MB/s now, and ([\d.]+) MB/s then", remedy.advice)
    assert told is not None
    assert [float(figure) for figure in told.groups()] == pytest.approx([105, 419], rel=0.02)
    assert "ThreadPoolExecutor(2)" in (remedy.patch or "")
    assert "each thread needs a file of its own" in (remedy.patch or "")
    names: dict = {}
    exec(remedy.patch or "", names)
    data = types.SimpleNamespace(__getitem__=lambda index: -index)
    assert names["__getitems__"](data, [1, 2, 3]) == [-1, -2, -3]


def test_no_more_threads_than_samples_read_a_batch() -> None:
    """The four samples of a batch cannot be read by more than four threads, however many waits must overlap."""
    loader = dataclasses.replace(LOADER, batch_size=4, num_workers=0)
    recording = reading(1 << 20, 2, loader=loader)
    slow = dataclasses.replace(recording.stages[0], wall_ns=(100 * MS,) * 10)
    remedy = needed(dataclasses.replace(recording, stages=(slow,)), "concurrent-reads")
    assert "20 samples wait at a time" in remedy.advice
    assert "ThreadPoolExecutor(4)" in (remedy.patch or "")


@pytest.mark.parametrize("batch_size", [None, 1])
def test_samples_that_are_fetched_alone_are_not_read_together(batch_size: int | None) -> None:
    """Without batches `__getitems__` is never called, and of a batch of one there is nothing to overlap."""
    remedy = needed(
        reading(1 << 20, 2, loader=dataclasses.replace(LOADER, batch_size=batch_size, num_workers=0)),
        "concurrent-reads",
    )
    assert remedy.patch is None
    assert "__getitems__" not in remedy.advice
    assert "Raise num_workers" in remedy.advice


def test_waits_of_a_stream_overlap_in_its_generator() -> None:
    """It is asked for one sample after the other, and more workers would repeat its samples if they did not split it."""
    remedy = needed(reading(1 << 20, 2, loader=dataclasses.replace(LOADER, kind="iterable")), "concurrent-reads")
    assert "Read ahead in the generator" in remedy.advice
    assert "get_worker_info()" in remedy.advice
    assert "__getitems__" not in remedy.advice
    assert remedy.patch is None


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "(`__getitems__`,"),
        ({"kind": "iterable"}, "batch_size=None"),
        ({"makes_batches": True}, "`__getitems__` can give one array"),
    ],
    ids=["samples", "stream", "batches"],
)
def test_how_batches_are_built_at_once_depends_on_the_data_set(facts: dict[str, Any], said: str) -> None:
    """Only an indexed one is asked for many samples at once; a stream may give whole batches, and some do already."""
    stage = make_stage("collate", 1, kind="collate", text=None)
    recording = make({"knockout:collate": 40.0}, stage, loader=dataclasses.replace(LOADER, **facts))
    assert said in needed(recording, "batched-fetch").advice


@pytest.mark.parametrize(
    ("text", "ident"),
    [
        ("tokens = tokenizer(texts, padding=True)", "cheaper:collate"),
        ("images = mixup(images, labels)", "cheaper:collate"),
        ("images = torch.stack(images)", "batched-fetch"),
        ("return default_collate(samples)", "batched-fetch"),
        ("x = torch.cat(parts)", "batched-fetch"),
    ],
)
def test_what_a_collate_function_does_beside_joining_samples_is_to_be_done_elsewhere(text: str, ident: str) -> None:
    """Arrays in place of samples are no remedy for a tokenizer."""
    stages = (
        make_stage("collate", 5, kind="collate", text=None),
        make_stage("collate:0", 4, kind="collate", parent="collate", text=text),
    )
    remedies = judge(make({"knockout:collate": 40.0}, *stages)).remedies
    assert [remedy.id for remedy in remedies if remedy.about == "collate"] == [ident]
    assert (text in remedies[0].advice) is (ident == "cheaper:collate")


def test_batches_of_the_users_own_sampler_have_as_many_samples_as_were_seen() -> None:
    """A batch sampler need not tell how many it gives: what a batch reads and waits for is that of all of its samples."""
    told, seen = (reading(1 << 20, 2, loader=dataclasses.replace(LOADER, **sizes)) for sizes in (
        {"batch_size": 8}, {"batch_size": None, "seen_batch_size": 8},
    ))  # fmt: skip
    assert needed(seen, "concurrent-reads") == needed(told, "concurrent-reads")
    assert judge(seen).needs == judge(told).needs


def test_few_waits_are_not_counted() -> None:
    """Where the workers could wait for all of them, no number of threads is given."""
    loader = dataclasses.replace(LOADER, num_workers=8)
    remedy = needed(reading(1 << 20, 2, loader=loader), "concurrent-reads")
    assert remedy.patch is None
    assert "at a time" not in remedy.advice


def test_large_reads_that_nobody_unpacks_may_be_compressed() -> None:
    """1 MB in 9 ms: decompression pays from twice that speed on, and then half is read."""
    remedy = needed(reading(MB, 2), "compress")
    assert "waits 9 ms for 1 MB (111 MB/s for each worker)" in remedy.advice
    assert "more than 222 MB/s" in remedy.advice
    assert remedy.predicted_gain is None


@pytest.mark.parametrize(
    ("size", "text", "cpu"),
    [(4096, "data = file.read()", 0.1), (MB, "data = file.read()", 1.0), (10 * MB, "data = file.read()", 0.1)],
    ids=["small", "computes", "fast"],
)
def test_other_reads_are_not_compressed(size: int, text: str, cpu: float) -> None:
    """Small ones wait for something else, and what comes fast is not worth a core."""
    assert given(reading(size, 2, text=text, cpu=cpu), "compress") is None


def test_what_is_unpacked_already_is_not_compressed_again() -> None:
    """A JPEG does not get smaller."""
    load = dataclasses.replace(make_stage("load", 10, cpu=0.1, kind="read"), read_bytes=10 * MB, read_calls=20)
    recording = make({"knockout:load": 25.0}, load, dataclasses.replace(DECODE, wall_ns=(MS,) * 10))
    assert given(recording, "compress") is None


UNZIP = dataclasses.replace(
    make_stage("decode", 10, kind="decode", name="gzip.decompress", text="data = gzip.decompress(packed)"),
    read_bytes=10 * 100_000,
)


def test_dear_decompression_is_weighed_against_reading_more() -> None:
    """3 MB instead of 100 kB for each of 400 samples a second."""
    remedy = needed(make(BLAMED, UNZIP, CROP, heads=(RAW,)), "lighter-codec")
    assert "takes 10 ms of a core" in remedy.advice
    told = re.search(r"is 3 MB instead of 100 kB: ([\d.]+) instead of ([\d.]+) MB/s", remedy.advice)
    assert told is not None
    assert [float(figure) for figure in told.groups()] == pytest.approx([1200, 40], rel=0.02)


@pytest.mark.parametrize(
    ("stage", "heads"),
    [(UNZIP, ()), (DECODE, (RAW,)), (dataclasses.replace(UNZIP, read_bytes=0), (RAW,))],
    ids=["unknown size", "a picture", "nothing read"],
)
def test_decompression_is_left_alone_where_the_sizes_are_not_known(stage: Stage, heads: tuple[Head, ...]) -> None:
    """Without both sizes nothing can be weighed; pictures are another matter."""
    assert given(make(BLAMED, stage, heads=heads), "lighter-codec") is None
