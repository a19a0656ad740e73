"""What is advised of the number of workers, and of their starts."""

from __future__ import annotations

import dataclasses

import pytest
from literals import (
    FED,
    LOADER,
    MIB,
    MS,
    STARVED,
    VALID,
    after,
    begun_in_steps,
    blamed,
    kinds,
    make_blocks,
    make_recording,
    make_stage,
    make_start,
    started,
    tried,
    with_idle_cores,
)
from test_payload import IMAGE

from unstarve.judge import judge
from unstarve.recording import Note, Settings


@pytest.mark.parametrize(
    ("batch_mib", "free_mib", "number", "told"),
    [(1, 64, 4, ""), (5, 64, 3, "no room for the batches of more"), (77, 64, 4, "Make room in shared memory"), (77, 0, 4, "")],
    ids=["fits", "fits in part", "does not fit", "unknown"],
)  # fmt: skip
def test_no_more_workers_are_advised_than_shared_memory_has_room_for(
    batch_mib: int, free_mib: int, number: int, told: str
) -> None:
    """Each may have three batches ready or in the making, and where there is no room for one worker's there must be more."""
    image = dataclasses.replace(IMAGE, bytes=batch_mib * MIB, storage_bytes=batch_mib * MIB)
    facts = {"payload": (image,), "shared_memory_bytes": free_mib * MIB}
    remedy = next(item for item in judge(with_idle_cores(tried(0, {}, **facts))).remedies if item.id == "workers")
    assert f"num_workers={number}," in (remedy.patch or "")
    assert told in remedy.advice
    assert ("shared memory" in remedy.advice) is bool(told)
    assert ("--shm-size=2g" in (remedy.patch or "")) is (told.startswith("Make room"))


@pytest.mark.parametrize("is_guarded", [True, False])
def test_workers_that_would_run_the_script_are_advised_behind_a_guard(is_guarded: bool) -> None:
    """Where nothing was tried since each worker would run the script, so would each of those that are advised."""
    notes = () if is_guarded else (Note(id="no-main-guard", sentence="Worker processes were not tried."),)
    report = judge(with_idle_cores(tried(0, {}, notes=notes)))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert ("if __name__ == '__main__':" in remedy.advice) is not is_guarded
    assert ("if __name__ == '__main__':" in (remedy.patch or "")) is not is_guarded


def test_the_gain_of_more_workers_is_that_of_as_many_as_are_advised() -> None:
    """Workers that need 60 ms for a batch feed steps of 20 ms if there are enough; the two for which there is room gain
    less."""
    image = dataclasses.replace(IMAGE, bytes=8 * MIB, storage_bytes=8 * MIB)
    narrow = with_idle_cores(tried(0, {}, payload=(image,), shared_memory_bytes=64 * MIB))
    gains = [
        next(item for item in judge(recording).remedies if item.id == "workers").predicted_gain
        for recording in (with_idle_cores(tried(0, {})), narrow)
    ]
    assert [gain.value for gain in gains if gain is not None] == pytest.approx([80 / 20, 80 / 30], rel=0.05)


@pytest.mark.parametrize(("own", "number"), [(0, 6), (16, 3)])
def test_the_gain_of_a_trial_that_is_not_certain_goes_with_the_number_that_was_tried(own: int, number: int) -> None:
    """A gain that is blamed for its size, though its interval reaches below one, is predicted, and of no other number."""
    recording = tried(own, {Settings(num_workers=number): 50.0})
    ident = next(rung.id for rung in recording.rungs if rung.settings is not None)
    noisy = make_blocks({ident: 50.0}, body_ms=20, jitter=0.7)
    kept = tuple(block for block in recording.blocks if block.rung != ident)
    report = judge(dataclasses.replace(recording, blocks=kept + noisy))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert blamed(report, "workers").gain.low < 1.0
    assert remedy.patch == f"DataLoader(..., num_workers={number}, persistent_workers=True)"
    assert remedy.predicted_gain == blamed(report, "workers").gain


def test_fewer_workers_are_advised_where_fewer_were_tried() -> None:
    """A loader with too many workers is not told to take as many as there are cores."""
    report = judge(tried(16, {Settings(num_workers=4): 60}, environment={"cores_available": 8.0}))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert "num_workers=4" in (remedy.patch or "")


def test_of_several_numbers_of_workers_the_best_is_blamed_and_advised() -> None:
    """The evidence and the remedy speak of the same trial, in whatever order they were made."""
    report = judge(tried(1, {Settings(num_workers=8): 27.0, Settings(num_workers=4): 24.0}))
    assert "with 4 workers it runs 3.3" in blamed(report, "workers").evidence
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert remedy.patch == "DataLoader(..., num_workers=4)"


@pytest.mark.parametrize("jitter", [0.01, 0.35], ids=["certain", "promising"])
def test_a_loader_that_is_better_without_workers_is_told_to_have_none(jitter: float) -> None:
    """The call loses what a `DataLoader` refuses without workers."""
    recording = tried(2, {Settings(num_workers=0): 50.0})
    loader = dataclasses.replace(LOADER, prefetch_factor=4, persistent_workers=True)
    blocks = make_blocks({**STARVED, "trial:no workers": 50.0}, body_ms=20, jitter=jitter)
    report = judge(dataclasses.replace(recording, loader=loader, blocks=blocks))
    assert kinds(report) == ["workers"]
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert remedy.patch == "DataLoader(..., num_workers=0, prefetch_factor=None, persistent_workers=False)"
    assert "Give the loader no workers" in remedy.advice


def test_another_loader_without_workers_is_given_some_of_its_own() -> None:
    """The remedy names it and its line, and takes nothing from what was measured of the loader that was diagnosed."""
    first = make_start(batches=1000)
    valid = after(first, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=9_000 * MS), 10_000 * MS)
    recording = tried(2, {Settings(num_workers=6): 15.0}, FED, starts=(first, valid), loaders=(LOADER, VALID))
    found = {item.id: item for item in judge(recording).remedies}
    assert {"workers", "workers:loader:1"} <= set(found)
    remedy = found["workers:loader:1"]
    assert remedy.about == "loader:1"
    assert "DataLoader(Valid) (train.py:95) has no workers" in remedy.advice
    assert remedy.patch == "DataLoader(..., num_workers=2, persistent_workers=True)"
    assert remedy.measured_gain is None
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(1 / (1 - 0.5 * 0.3), rel=0.05)  # two make batches twice as fast


@pytest.mark.parametrize(
    ("construct_ms", "first_ms", "facts", "told"),
    [
        (50, 6000, {"start_method": "spawn"}, "persistent-workers:loader:1"),
        (6000, 50, {}, "persistent-workers:loader:1"),
        (50, 6000, {}, None),
        (50, 6000, {"start_method": "spawn", "persistent_workers": True}, None),
        (50, 500, {}, "workers:loader:1"),
    ],
    ids=["spawned", "forked", "slow batches", "kept", "too few"],
)
def test_another_loader_with_workers_is_told_what_spares_its_waiting(
    construct_ms: float, first_ms: float, facts: dict, told: str | None
) -> None:
    """Keeping its workers spares their start, more of them the later batches, and neither the making of a first batch."""
    first = make_start(batches=1000)
    valid = make_start(loader=1, batches=50, construct_ms=construct_ms, first_ms=first_ms)
    valid = after(first, dataclasses.replace(valid, wait_ns=int(9000 - construct_ms) * MS), 10_000 * MS)
    loaders = (LOADER, dataclasses.replace(VALID, **{"num_workers": 2, **facts}))
    report = judge(make_recording(FED, starts=(first, valid), loaders=loaders, environment={"cores_available": 4.0}))
    found = [remedy for remedy in report.remedies if remedy.about == "loader:1"]
    assert [remedy.id for remedy in found] == ([told] if told else [])
    for remedy in found:
        assert "DataLoader(Valid) (train.py:95)" in remedy.advice
        assert remedy.predicted_gain is not None
        assert 1.05 < remedy.predicted_gain.value < blamed(report, "loader").gain.value


def test_kept_workers_are_promised_what_they_spare() -> None:
    """Of a start of four seconds three go into starting the workers: the fourth makes a batch, and comes again."""
    report = started(1000, construct_ms=0, start_method="spawn")
    assert report.verdict.culprits[0].name == "starting the workers"
    (remedy,) = report.remedies
    assert (remedy.id, remedy.patch) == ("persistent-workers", "DataLoader(..., persistent_workers=True)")
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(1 / (1 - 0.75 * report.time.start))


@pytest.mark.parametrize(
    ("length", "facts", "is_advised"),
    [(1000, {}, True), (100_000, {}, False), (1000, {"persistent_workers": True}, False)],
    ids=["short epochs", "long epochs", "kept"],
)
def test_starts_that_cost_a_part_of_an_epoch_are_told_beside_another_culprit(
    length: int, facts: dict, is_advised: bool
) -> None:
    """Three seconds of a start are worth a line of the loader, though a stage holds the loop back far more."""
    start = make_start(batches=length, construct_ms=0, first_ms=4000)
    loader = dataclasses.replace(LOADER, length=length, start_method="spawn", **facts)
    stage = make_stage("decode", 10)
    recording = make_recording(
        {**STARVED, "knockout:decode": 25}, stages=(stage,), loader=loader, starts=(start, start)
    )
    report = judge(recording)
    assert kinds(report)[0] == "code"
    found = [remedy for remedy in report.remedies if remedy.id == "persistent-workers"]
    assert len(found) == is_advised
    assert all("of an epoch" in remedy.advice and remedy.about == "loader" for remedy in found)


@pytest.mark.parametrize(("period_ms", "is_kept"), [(60, False), (160, True)])
def test_workers_that_are_better_done_without_are_not_told_to_be_kept(period_ms: float, is_kept: bool) -> None:
    """One report does not advise both."""
    start = make_start(batches=1000, construct_ms=0, first_ms=4000)
    recording = tried(2, {Settings(num_workers=0): period_ms}, starts=(start, start))
    recording = dataclasses.replace(
        recording, loader=dataclasses.replace(LOADER, num_workers=2, length=1000, start_method="spawn")
    )
    report = judge(recording)
    assert ("persistent-workers" in {remedy.id for remedy in report.remedies}) is is_kept


def test_workers_are_not_kept_by_a_loader_that_is_made_anew() -> None:
    """Each epoch starts workers all the same, and the loader must be kept for them to be."""
    report = started(1000, persistent_workers=True, made=3)
    assert (report.verdict.bound, report.verdict.culprits[0].name) == ("start", "starting the workers")
    (remedy,) = report.remedies
    assert remedy.id == "persistent-workers"
    assert remedy.advice.startswith("Make the loader once")


def test_another_loader_of_one_batch_is_given_no_workers_that_fill_up_for_it() -> None:
    """Workers of its own would start for one batch, and one iterator has no second."""
    for wait_ms, sampler_ms in ((10, 0.1), (10, 9)):
        report = begun_in_steps(100, sampler_ms=sampler_ms, wait_ms=wait_ms, length=1)
        assert report.verdict.culprits[0].name == "DataLoader(Valid), epochs of a single batch"
        assert {remedy.id for remedy in report.remedies if remedy.about == "loader:1"} == {"epochs-run-on"}


def test_a_loader_whose_batches_are_dear_is_not_given_workers_for_every_step() -> None:
    """Workers of an iterator that is made for one batch would fill up in each step for nothing."""
    report = begun_in_steps(100, sampler_ms=0.1, wait_ms=10)
    assert {remedy.id for remedy in report.remedies if remedy.about == "loader:1"} == {"one-iterator"}
    assert report.verdict.culprits[0].kind == "workers"
