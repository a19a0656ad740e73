"""Causes that lie in memory, from literal recordings: collections, pages copied in workers, swap, shared memory."""

from __future__ import annotations

import dataclasses

import pytest
from literals import LOADER, MS, STARVED, make_recording, make_start, with_fetches
from test_payload import IMAGE

from unstarve import recording as recordings
from unstarve.judge import judge
from unstarve.recording import BodyLine, MemoryLook, Recording
from unstarve.report import Culprit, Report

MIB = 1 << 20
FED = {"none": 20.2, "host": 20.0}


def memory_culprits(report: Report) -> list[Culprit]:
    return [culprit for culprit in report.verdict.culprits if culprit.kind == "memory"]


# --- Collections ------------------------------------------------------------------------------------------------------


def without_collector(period_ms: float, periods: dict[str, float] = STARVED, *, share: float = 0.2) -> Report:
    recording = make_recording({**periods, "trial:collector": period_ms})
    blocks = tuple(
        dataclasses.replace(block, collections_ns=tuple(int(share * fetch) for fetch in block.fetches_ns))
        for block in recording.blocks
    )
    return judge(dataclasses.replace(recording, blocks=blocks))


def test_collections_are_blamed_where_the_loop_was_faster_without() -> None:
    """The gain is that of the trial; the shares of the time stand beside it, and the remedy is what was tried."""
    report = without_collector(60.0)
    (culprit,) = memory_culprits(report)
    assert (culprit.resource, culprit.stage) == ("memory", "trial:collector")
    assert culprit.gain.value == pytest.approx(80 / 60, rel=0.02)
    assert "take 20% of making a batch" in culprit.evidence
    remedy = next(item for item in report.remedies if item.id == "fewer-collections")
    assert remedy.measured_gain == culprit.gain


def test_collections_in_the_body_are_blamed_in_a_loop_that_is_fed() -> None:
    """The step is the limit, and the collector is what holds it back."""
    report = without_collector(15.0, FED)
    assert report.verdict.bound == "step"
    assert memory_culprits(report)


@pytest.mark.parametrize(("is_asked_for", "kinds"), [(True, ["step-host"]), (False, [])])
def test_a_collection_that_the_script_asks_for_is_work_of_its_line(is_asked_for: bool, kinds: list[str]) -> None:
    """It goes on while the collector is off; one that does not happens in whatever line makes an object."""
    recording = make_recording({**FED, "trial:collector": 20.1})
    line = BodyLine(source="train.py:77", text="gc.collect()", wall_fraction=0.4, cpu_fraction=0.4, cpu_inclusive=0.4)
    blocks = tuple(
        dataclasses.replace(
            block, main_cpu_ns=(block.end_ns - block.start_ns) // 2,
            main_collected_ns=(block.end_ns - block.start_ns) * 4 // 10
            if is_asked_for or block.rung != "trial:collector" else 0,
        )
        for block in recording.blocks
    )  # fmt: skip
    report = judge(with_fetches(dataclasses.replace(recording, blocks=blocks, body=(line,)), 10))
    assert [culprit.kind for culprit in report.verdict.culprits] == kinds
    assert [remedy.id for remedy in report.remedies] == ["fewer-collections"] * len(kinds)


IN_WORKERS, IN_LOOP = "    import gc\n    gc.disable()", "gc.disable()  # before the loop"


@pytest.mark.parametrize(
    ("workers", "made", "own", "places"),
    [
        (2, 0.2, 0.01, [IN_WORKERS]),
        (2, 0.01, 0.2, [IN_LOOP]),
        (2, 0.2, 0.1, [IN_WORKERS, IN_LOOP]),
        (0, 0.2, 0.2, [IN_LOOP]),
        (0, 0.2, 0.0, [IN_LOOP]),
    ],
)
def test_the_collector_is_switched_off_where_it_was_seen_to_run(
    workers: int, made: float, own: float, places: list[str]
) -> None:
    """The trial switched it off in the workers and in the loop's process: the patch does so wherever it took time."""
    recording = make_recording(
        {**STARVED, "trial:collector": 60.0}, loader=dataclasses.replace(LOADER, num_workers=workers)
    )
    blocks = tuple(
        dataclasses.replace(
            block,
            collections_ns=tuple(int(made * fetch) for fetch in block.fetches_ns),
            main_collected_ns=int(own * (block.end_ns - block.start_ns)),
        )
        for block in recording.blocks
    )
    report = judge(dataclasses.replace(recording, blocks=blocks))
    patch = next(item for item in report.remedies if item.id == "fewer-collections").patch or ""
    assert [place for place in (IN_WORKERS, IN_LOOP) if place in patch] == places
    assert ("gc.collect() once an epoch" in patch) is (IN_LOOP in places)


@pytest.mark.parametrize("period_ms", [78.0, 80.0, 90.0], ids=["little", "nothing", "a loss"])
def test_collections_whose_absence_gains_little_are_not_blamed(period_ms: float) -> None:
    """However much time they take: the loop does not wait for it."""
    assert not memory_culprits(without_collector(period_ms))


def test_a_gain_that_collections_cannot_explain_is_not_theirs() -> None:
    """Where they take a fiftieth of the time, something else made the trial fast."""
    assert not memory_culprits(without_collector(60.0, share=0.02))


# --- Copied pages -----------------------------------------------------------------------------------------------------


def look(
    fetches: int, copied: float, *, system_s: float, wall_s: float, new: float = 0, worker: int = 0, delay: float = 0
) -> MemoryLook:
    """A worker that has copied so many MiB of 1000 that it shared, and has written so many that were new."""
    return MemoryLook(
        loader=0, fleet=1, worker=worker, fetches=fetches, private_bytes=int((100 + copied + new) * MIB),
        shared_bytes=int((1000 - copied) * MIB), minor_faults=int((copied + new) * 256), major_faults=0,
        system_ns=int(system_s * 1e9), cpu_ns=int(wall_s * 1e9), delay_ns=int(delay * wall_s * 1e9), wall_ns=int(wall_s * 1e9),
    )  # fmt: skip


def forked(*looks: MemoryLook, length: int = 100, periods: dict[str, float] | None = None, **loader) -> Recording:
    facts = dataclasses.replace(LOADER, length=length, **loader)
    start = make_start(construct_ms=50, first_ms=1000, batches=length)
    return make_recording(periods or FED, loader=facts, starts=(start, start), memory=looks)


AT_START = (
    look(0, 0, system_s=0.1, wall_s=0),
    look(1, 600, system_s=0.9, wall_s=1.0),
    look(2, 800, system_s=1.2, wall_s=1.5),
    look(4, 800, system_s=1.2, wall_s=1.6),
)


def test_pages_that_every_new_worker_copies_are_blamed_for_the_start() -> None:
    """The kernel's time for 800 MiB in each epoch is what would be gained; packing the objects is advised."""
    report = judge(forked(*AT_START))
    assert report.verdict.bound == "start"
    (culprit,) = memory_culprits(report)
    assert report.verdict.culprits == (culprit,)
    epoch = 100 * 0.0202 + 1.05 - 0.0202 + 0.3
    assert culprit.gain.value == pytest.approx(epoch / (epoch - 1.1), rel=0.02)
    assert "800 MiB" in culprit.evidence
    assert [item.id for item in report.remedies] == ["packed-objects"]
    assert "persistent_workers=True" in (report.remedies[0].patch or "")


def test_new_memory_is_no_copy() -> None:
    """A worker that fills memory of its own takes as many page faults, but shares as much as before."""
    looks = (look(0, 0, system_s=0.1, wall_s=0), look(1, 0, new=800, system_s=1.2, wall_s=1.5))
    report = judge(forked(*looks))
    assert report.verdict.bound == "start"
    assert not memory_culprits(report)


def test_the_kernels_time_is_that_of_all_faults() -> None:
    """Where half of the pages are new, half of the kernel's time is not the copies'."""
    looks = (look(0, 0, system_s=0.0, wall_s=0), look(1, 400, new=400, system_s=1.2, wall_s=1.5))
    (culprit,) = memory_culprits(judge(forked(*looks)))
    epoch = 100 * 0.0202 + 1.05 - 0.0202
    assert culprit.gain.value == pytest.approx(epoch / (epoch - 0.6), rel=0.02)


def test_the_kernels_time_is_waited_for_too() -> None:
    """On a crowded machine, where a worker waits for a core as long as it runs, the copies take twice as long."""
    looks = (look(0, 0, system_s=0.0, wall_s=0), look(1, 400, system_s=0.4, wall_s=1.0, delay=1.0))
    (culprit,) = memory_culprits(judge(forked(*looks)))
    epoch = 100 * 0.0202 + 1.05 - 0.0202
    assert culprit.gain.value == pytest.approx(epoch / (epoch - 0.8), rel=0.02)


@pytest.mark.parametrize(
    ("looks", "loader"),
    [
        ((look(0, 0, system_s=0, wall_s=0), look(1, 100, system_s=0.05, wall_s=1)), {}),
        (AT_START, {"persistent_workers": True}),
        (AT_START, {"start_method": "spawn"}),
        ((), {}),
    ],
    ids=["cheap", "workers are kept", "nothing is shared", "nobody looked"],
)
def test_copies_that_cost_little_are_not_blamed(looks: tuple[MemoryLook, ...], loader: dict) -> None:
    """A start has other reasons where copying takes little of it, or comes once in a run."""
    report = judge(forked(*looks, **loader))
    assert report.verdict.bound == "start"
    assert not memory_culprits(report)


def test_workers_that_never_stop_copying_are_blamed_in_the_steady_state() -> None:
    """Long after their start they still spend a third of their time on it; the gain is computed from that."""
    looks = [
        look(count, 20 * count, system_s=0.03 * count, wall_s=0.09 * count, worker=worker)
        for worker in (0, 1)
        for count in (0, 1, 2, 4, 8, 16, 32)
    ]
    report = judge(forked(*looks, length=1000, periods=STARVED))
    (culprit,) = memory_culprits(report)
    assert culprit.gain.value == pytest.approx(1.5, rel=0.02)
    assert "For each batch a worker copies 20 MiB" in culprit.evidence


def test_kernel_time_of_other_calls_is_not_that_of_few_copies() -> None:
    """Opening and reading files takes the kernel's time too: a copied page is not charged with more than it can cost."""
    looks = [
        look(count, 0.05 * count, system_s=0.03 * count, wall_s=0.09 * count, worker=worker)
        for worker in (0, 1)
        for count in (0, 1, 2, 4, 8, 16, 32)
    ]
    assert not memory_culprits(judge(forked(*looks, length=1000, periods=STARVED)))


# --- Memory that runs short -------------------------------------------------------------------------------------------


def caveat(report: Report, ident: str) -> list[str]:
    return [item.sentence for item in report.caveats if item.id == ident]


@pytest.mark.parametrize(("share", "is_told"), [(0.3, True), (0.01, False)])
def test_waiting_for_memory_is_told_where_it_took_time(share: float, is_told: bool) -> None:
    """By the kernel's own clock; with what came back from swap."""
    facts = {"loop_ns": 10_000 * MS, "memory_stall_ns": int(share * 10_000 * MS), "swapped_bytes": 64 * MIB}
    found = caveat(judge(make_recording(STARVED, **facts)), "memory-pressure")
    assert bool(found) is is_told
    assert not found or "64 MiB were read back from swap" in found[0]


@pytest.mark.parametrize(("room_mib", "is_told"), [(4, True), (400, False), (0, False)])
def test_shared_memory_that_batches_nearly_fill_is_told(room_mib: int, is_told: bool) -> None:
    """Four batches of one MiB ahead of the loop; nothing is said where the room is not known."""
    facts = {"payload": (IMAGE,), "shared_memory_bytes": room_mib * MIB}
    assert bool(caveat(judge(make_recording(STARVED, **facts)), "shared-memory")) is is_told


def test_a_recording_from_before_looks_loads() -> None:
    """What an older release did not record has its default, and leads to nothing."""
    old = dataclasses.asdict(make_recording(STARVED))
    for name in ("memory", "page_bytes", "memory_stall_ns", "swapped_bytes", "shared_memory_bytes"):
        del old[name]
    for block in old["blocks"]:
        del block["collections_ns"], block["main_collected_ns"]
    old = {name: list(value) if isinstance(value, tuple) else value for name, value in old.items()}
    report = judge(recordings.from_json(old))
    assert not memory_culprits(report)
