"""The page cache, from literal recordings: what was read from it, and what that says of other epochs."""

from __future__ import annotations

import dataclasses

import pytest
from literals import LOADER, STARVED, make_recording, make_stage

from unstarve import recording as recordings
from unstarve.judge import judge
from unstarve.judge.caching import cached_share
from unstarve.recording import Stage
from unstarve.report import Caveat

FED = {"none": 20.2, "host": 20.0}
SAMPLE = 1_000_000
"""Bytes that a sample reads."""
GB = 1e9 / 2**30
"""A gigabyte in the unit of the environment."""


def load(stored: float | None, *, cpu: float = 1.0, ms: float = 10, read: float = 1.0, kind: str = "decode") -> Stage:
    """A stage that reads so much of `SAMPLE`, so much of it from storage; None for a recording that does not tell."""
    counted = None if stored is None else int(10 * SAMPLE * stored)
    stage = make_stage("load", ms, cpu=cpu, kind=kind)
    return dataclasses.replace(stage, read_bytes=int(10 * SAMPLE * read), read_calls=20, storage_bytes=counted)


def caveats(
    *stages: Stage, samples: int | None = 100_000, memory_gb: float = 32, periods=STARVED, **facts
) -> list[Caveat]:
    loader = dataclasses.replace(LOADER, length=None, dataset_length=samples)
    environment = {"cores_available": 2.0, "memory_gib": memory_gb * GB, **facts.pop("environment", {})}
    facts = {"loader": loader, "environment": environment, **facts}
    report = judge(make_recording(periods, stages=stages, **facts))
    return [caveat for caveat in report.caveats if caveat.id in ("page-cache", "cold-cache")]


# --- The share --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "share"), [(0.0, 1.0), (0.05, 0.95), (0.6, 0.4), (1.0, 0.0), (3.0, 0.0)],
    ids=["none", "little", "most", "all", "read ahead, or mapped"],
)  # fmt: skip
def test_what_storage_did_not_deliver_was_in_the_cache(stored: float, share: float) -> None:
    """The share is that of the bytes that system calls read, and never less than nothing."""
    assert cached_share(load(stored)) == pytest.approx(share)


@pytest.mark.parametrize(
    "stage",
    [
        load(None),
        load(0.0, read=0),
        load(0.0, read=0.0001),
        load(1.0, read=0),
        load(0.0, cpu=0.5),
        load(0.02, cpu=0.5),
        load(0.0, cpu=1.8),
    ],
    ids=["old recording", "reads nothing", "no data", "mapped", "waits", "waits, with a stray read", "many threads"],
)
def test_no_cache_is_claimed_without_evidence(stage: Stage) -> None:
    """A network file system may count nothing as storage; what waits, or whose threads hide it, may come from there."""
    assert cached_share(stage) is None


def test_a_wait_that_storage_explains_leaves_the_count_alone() -> None:
    """What the kernel counts as coming from storage did, however long it took."""
    assert cached_share(load(0.8, cpu=0.1)) == pytest.approx(0.2)


def test_waiting_for_a_core_is_no_waiting_for_storage() -> None:
    """On a crowded machine reading from memory takes long, too; but the delay of one sample hides no wait of another."""
    stage = load(0.0, cpu=0.2)
    ready = int(0.8 * stage.wall_ns[0])
    assert cached_share(dataclasses.replace(stage, delay_ns=(ready,) * 10)) == 1.0
    assert cached_share(dataclasses.replace(stage, delay_ns=(10 * ready,) + (0,) * 9)) is None


def test_a_large_read_that_waits_little_for_its_size_is_no_evidence_if_it_waits_half_its_time() -> None:
    """A fast parallel file system gives several gigabytes a second; copying from memory does not wait at all."""
    assert cached_share(load(0.0, cpu=0.5, ms=1.0)) is None
    assert cached_share(load(0.0, cpu=0.95, ms=10.0)) == 1.0


def test_stages_of_the_report_tell_the_share() -> None:
    """Beside what a stage reads."""
    report = judge(make_recording(STARVED, stages=(load(0.25), make_stage("crop", 1))))
    assert {stage.id: stage.cached_share for stage in report.stages} == {"load": 0.75, "crop": None}


# --- Warm, and too large for memory -----------------------------------------------------------------------------------


def test_a_warm_run_of_a_data_set_beyond_memory_is_doubted_with_figures() -> None:
    """100 GB at 1 MB a sample against 32 GB: 8 MB a batch, at 12.5 steps/s now and 50.1 at the ceiling."""
    (caveat,) = caveats(load(0.02))
    assert caveat.id == "page-cache"
    for figure in ("98%", "100 GB", "32 GB", "100 MB/s", "401 MB/s"):
        assert figure in caveat.sentence


def test_the_doubt_stands_beside_the_stage_that_is_blamed() -> None:
    """Where reading is a finding, its gain is that of a warm cache."""
    (caveat,) = caveats(load(0.0), periods={**STARVED, "knockout:load": 25.0})
    assert caveat.about == "load"


def test_a_loop_that_is_fed_is_doubted_too() -> None:
    """From storage it may starve."""
    (caveat,) = caveats(load(0.0), periods=FED)
    assert (caveat.id, caveat.about) == ("page-cache", "verdict")


@pytest.mark.parametrize(
    ("stored", "facts"),
    [
        (0.0, {"samples": 20_000}),
        (0.0, {"samples": None}),
        (0.0, {"memory_gb": 0}),
        (0.3, {}),
        (1.0, {}),
        (None, {}),
    ],
    ids=["fits", "unknown length", "unknown memory", "partly from storage", "from storage", "old recording"],
)
def test_a_run_that_says_what_an_epoch_will_be_like_is_not_doubted(stored: float | None, facts: dict) -> None:
    """A data set that memory holds, bytes that came from storage, or too little known."""
    assert caveats(load(stored), **facts) == []


def test_a_stage_that_waits_without_a_count_silences_the_doubt() -> None:
    """Its bytes may have come across a network, which is measured already."""
    assert caveats(load(0.0, cpu=0.3)) == []


def test_other_stages_than_readers_say_nothing() -> None:
    """They import modules, once, and these are in memory."""
    assert caveats(load(0.0, kind="transform")) == []


def test_without_a_length_of_the_data_set_that_of_an_epoch_counts() -> None:
    """Batches times their size: 10 000 of 8 samples are 80 GB."""
    (caveat,) = caveats(load(0.0), loader=dataclasses.replace(LOADER, length=10_000))
    assert "80 GB" in caveat.sentence


def test_a_limit_of_the_container_is_the_memory_that_counts() -> None:
    """A page cache is charged to the group that reads."""
    assert caveats(load(0.0), memory_gb=512) == []
    (caveat,) = caveats(load(0.0), memory_gb=512, environment={"memory_limit_gib": 16 * GB})
    assert "16 GB" in caveat.sentence


# --- Cold, and small enough for memory --------------------------------------------------------------------------------


def test_a_cold_run_of_a_data_set_that_memory_holds_is_doubted() -> None:
    """10 GB against 32: later epochs find it in memory."""
    (caveat,) = caveats(load(0.9, cpu=0.2), samples=10_000)
    assert caveat.id == "cold-cache"
    for figure in ("10%", "10 GB", "32 GB"):
        assert figure in caveat.sentence


@pytest.mark.parametrize(
    ("stage", "facts"),
    [
        (load(0.9, cpu=0.2), {"samples": 20_000}),
        (load(0.9, cpu=0.2), {"periods": FED}),
        (load(0.9, cpu=1.0), {}),
        (load(0.4, cpu=0.2), {}),
        (load(1.0, cpu=0.2, read=0.001), {}),
    ],
    ids=["leaves no room", "fed", "hardly waits", "half warm", "mapped"],
)
def test_a_cold_run_whose_later_epochs_are_the_same_is_not_doubted(stage: Stage, facts: dict) -> None:
    """Nothing is gained from memory where it cannot hold the data, or where reading costs the loop nothing; and how large
    files are that are mapped, system calls do not tell."""
    assert caveats(stage, **{"samples": 10_000, **facts}) == []


# --- The file ---------------------------------------------------------------------------------------------------------


def test_recordings_without_the_count_are_read(tmp_path) -> None:
    """Those of earlier releases lack the fields, and are not taken for cold or warm."""
    data = dataclasses.asdict(make_recording(STARVED, stages=(load(0.5),)))
    del data["stages"][0]["storage_bytes"], data["loader"]["dataset_length"]
    found = recordings.from_json(data)
    assert found.stages[0].storage_bytes is None
    assert found.loader is not None
    assert found.loader.dataset_length is None
