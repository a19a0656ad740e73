"""The account of an epoch's wall time."""

from __future__ import annotations

import dataclasses

import pytest
from literals import (
    FED,
    LOADER,
    MS,
    STARVED,
    VALID,
    after,
    blamed,
    make_recording,
    make_stage,
    make_start,
    with_fetches,
    zipped,
)

from unstarve.judge import account, judge
from unstarve.recording import Start
from unstarve.report import Report


def many_validations(*, is_inside: bool) -> Report:
    """A fed loop of 1000 batches an epoch, stopped after 300, in which two validations of 3 s were seen."""
    first = dataclasses.replace(make_start(batches=300), ended_ns=20_000 * MS)
    begins = (5_000 * MS, 10_000 * MS) if is_inside else (21_000 * MS, 25_000 * MS)
    valids = tuple(
        dataclasses.replace(
            make_start(loader=1, batches=50), created_ns=begin, ended_ns=begin + 3_000 * MS, wait_ns=2_700 * MS
        )
        for begin in begins
    )
    return judge(make_recording(FED, starts=(first, *valids), loaders=(LOADER, VALID)))


def test_validations_every_so_many_steps_count_for_the_whole_epoch() -> None:
    """Two in 300 of 1000 batches are seven an epoch; two between epochs are two."""
    inside, between = many_validations(is_inside=True).time, many_validations(is_inside=False).time
    assert inside.other_loaders == pytest.approx(20 / (20 + 20), rel=0.05)
    assert between.other_loaders == pytest.approx(6 / (20 + 6), rel=0.05)


def test_a_loader_that_is_drawn_from_beside_the_loop_takes_what_it_is_waited_for() -> None:
    """The second loader of a zip is open as long as the first, and costs only its waits."""
    first = make_start(batches=1000)
    beside = dataclasses.replace(
        make_start(loader=1, batches=1000), created_ns=1, ended_ns=first.ended_ns - 1, wait_ns=100 * MS, beside=1000
    )
    report = judge(make_recording(FED, starts=(first, beside), loaders=(LOADER, VALID)))
    assert report.time.other_loaders < 0.02


def many_epochs(count: int, batches: int) -> tuple[Start, ...]:
    """Epochs of 20 ms a step, each followed by a validation of 3 s that is mostly spent on waiting."""
    starts, now = [], 0
    for _ in range(count):
        ours = dataclasses.replace(make_start(batches=batches), created_ns=now, ended_ns=now + batches * 20 * MS)
        valid = after(ours, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=2_900 * MS), 3_000 * MS)
        starts += [ours, valid]
        now = valid.ended_ns
    return (*starts, dataclasses.replace(make_start(batches=10), created_ns=now, ended_ns=now + 200 * MS))


@pytest.mark.parametrize("length", [None, 10_000, 1000])
def test_a_validation_is_in_the_price_of_an_epoch(length: int | None) -> None:
    """Epochs of 1000 steps end with 3 s of it, and would with steps of 20 ms in place of 80 as well; batches that the loop
    never takes cost nothing."""
    loader = dataclasses.replace(LOADER, length=length)
    recording = make_recording(STARVED, starts=many_epochs(3, 1000), loader=loader, loaders=(loader, VALID))
    needs = judge(recording, price=3600.0).needs
    assert needs is not None
    assert needs.epoch_price == pytest.approx(80 + 3, rel=0.02)
    assert needs.epoch_price_at_ceiling == pytest.approx(20 + 3, rel=0.02)


@pytest.mark.parametrize("length", [None, 10_000, 1200, 1000])
def test_a_validation_counts_once_for_each_epoch_that_was_seen(length: int | None) -> None:
    """Also where the loader tells no length, or where the loop leaves its epochs early."""
    loader = dataclasses.replace(LOADER, length=length)
    report = judge(make_recording(FED, starts=many_epochs(6, 1000), loader=loader, loaders=(loader, VALID)))
    assert report.time.other_loaders == pytest.approx(3 / (3 + (length or 1000) % 9000 * 0.0201), rel=0.05)


def test_a_look_at_a_batch_is_no_epoch() -> None:
    """What is drawn from the training loader before the loop begins leaves the share of validations as it is."""
    look = dataclasses.replace(make_start(batches=1), ended_ns=1)
    shares = [
        judge(make_recording(FED, starts=(*looks, *many_epochs(1, 1000)), loaders=(LOADER, VALID))).time.other_loaders
        for looks in ((), (look, look))
    ]
    assert shares[0] == pytest.approx(shares[1])


def test_an_evaluation_before_training_is_no_part_of_an_epoch() -> None:
    """It happens once in a run, however long it takes."""
    valid = dataclasses.replace(make_start(loader=1, batches=500), ended_ns=60_000 * MS, wait_ns=60_000 * MS)
    first = dataclasses.replace(make_start(batches=300), created_ns=60_000 * MS, ended_ns=66_000 * MS)
    report = judge(make_recording(FED, starts=(valid, first), loaders=(LOADER, VALID)))
    assert report.time.other_loaders == 0
    assert report.verdict.bound == "step"


@pytest.mark.parametrize("length", [1000, None])
def test_waiting_for_a_loader_beside_the_loop_is_a_part_of_the_step(length: int | None) -> None:
    """Half of the body is half of the time: it is not added to the body once more."""
    loader = dataclasses.replace(LOADER, length=length)
    starts = (dataclasses.replace(make_start(batches=1000), ended_ns=20_000 * MS), zipped(10.0))
    report = judge(with_fetches(make_recording(FED, starts=starts, loader=loader, loaders=(loader, VALID)), 10))
    assert report.time.other_loaders == pytest.approx(0.5, rel=0.02)
    assert blamed(report, "workers").gain.value == pytest.approx(2.0, rel=0.05)


def test_parts_of_a_watched_run_add_up_to_the_whole() -> None:
    """Validations in the middle of an epoch, and loaders beside the loop, lie within the loop's own time."""
    ours = dataclasses.replace(make_start(batches=1000), ended_ns=20_000 * MS)
    inside = dataclasses.replace(make_start(loader=1, batches=50), created_ns=5_000 * MS, ended_ns=10_000 * MS)
    for other, share in ((inside, 0.25), (zipped(10.0), 0.5)):
        time = account(make_recording({}, blocks=(), rungs=(), starts=(ours, other))).time
        assert time.other_loaders == pytest.approx(share)
        assert time.steady + time.start + time.other_loaders == pytest.approx(1)


def with_checkpoints(validation_s: int) -> tuple[Start, ...]:
    """Three epochs of 20 s, each followed by a validation and by ten seconds of saving."""
    starts, now = [], 0
    for _ in range(3):
        ours = dataclasses.replace(make_start(batches=1000), created_ns=now, ended_ns=now + 20_000 * MS)
        starts += [ours, after(ours, make_start(loader=1, batches=50), validation_s * 1000 * MS)]
        now = starts[-1].ended_ns + 10_000 * MS
    return tuple(starts)


@pytest.mark.parametrize("validation_s", [0, 5])
def test_time_between_epochs_outside_of_any_loader_is_accounted_for(validation_s: int) -> None:
    """Ten seconds of saving after each epoch are a part of it, and no other loader's."""
    starts, loaders = with_checkpoints(validation_s), (LOADER, VALID)
    time = judge(make_recording(FED, starts=starts, loaders=loaders)).time
    assert time.other == pytest.approx(10 / (20 + validation_s + 10), rel=0.02)
    assert time.steady + time.start + time.other_loaders + time.other == pytest.approx(1)
    watched = account(make_recording({}, blocks=(), rungs=(), starts=starts, loaders=loaders)).time
    assert watched.other == pytest.approx(20 / (3 * (20 + validation_s) + 20), rel=0.02)
    assert watched.steady + watched.start + watched.other_loaders + watched.other == pytest.approx(1)


def test_what_follows_a_look_at_a_batch_is_outside_of_no_epoch() -> None:
    """Building the model between a look at a batch and the loop happens once in a run."""
    look = dataclasses.replace(make_start(batches=1), ended_ns=1)
    running = dataclasses.replace(make_start(batches=300), created_ns=60_000 * MS, ended_ns=66_000 * MS)
    assert judge(make_recording(FED, starts=(look, running))).time.other == 0


def test_workers_that_outlive_an_epoch_start_once() -> None:
    """Where they are kept, their start says nothing of later epochs, and does not hide what every step waits for."""
    start = make_start(construct_ms=200, first_ms=6000, batches=150)
    periods = {"none": 50.0, "host": 40.0, "knockout:decode": 40.5}
    stages = (make_stage("decode", 10, kind="decode"),)
    for is_kept, bound in ((False, "start"), (True, "input")):
        loader = dataclasses.replace(LOADER, length=200, persistent_workers=is_kept)
        report = judge(make_recording(periods, body_ms=40, stages=stages, loader=loader, starts=(start,)))
        assert report.verdict.bound == bound
        assert (report.time.start < 0.01) == is_kept


@pytest.mark.parametrize("length", [10_000, None])
def test_looks_at_a_batch_before_training_are_no_epochs(length: int | None) -> None:
    """A script that takes a first batch twice, for its shape and for a picture, has not left two epochs early."""
    looks = tuple(make_start(first_ms=1000, batches=1) for _ in range(2))
    running = dataclasses.replace(make_start(batches=300), created_ns=10**12, ended_ns=2 * 10**12)
    loader = dataclasses.replace(LOADER, length=length)
    report = judge(make_recording(FED, starts=(*looks, running), loader=loader))
    assert report.verdict.bound == "step"
