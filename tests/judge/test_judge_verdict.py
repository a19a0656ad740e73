"""What the report says beside its culprits, and loops that are hard to judge."""

from __future__ import annotations

import dataclasses

import pytest
from literals import (
    LOADER,
    MS,
    STARVED,
    VALID,
    WASTEFUL,
    after,
    kinds,
    leaner,
    make_blocks,
    make_recording,
    make_stage,
    make_start,
    tried,
    with_fetches,
    with_validation,
)

from unstarve.judge import judge
from unstarve.recording import Settings


def test_a_rung_with_settings_is_no_rung_of_the_ladder() -> None:
    """Trials stand beside it, so that the bars of the ladder are those of what was cached."""
    report = judge(tried(0, {Settings(num_workers=6): 30}))
    ranks = [rung.id for rung in report.rungs]
    assert ranks.index("none") < ranks.index("trial:6 workers")


def test_a_loop_that_was_never_fed_from_the_host_is_judged_all_the_same() -> None:
    """Its blocks may have met a validation each time; the sampler and the copy are then compared with nothing."""
    periods = {"none": 60.0, "device": 30.0, "control:sampler": 55.0, "knockout:collate": 40.0}
    collate = make_stage("collate", 10, kind="collate")
    recording = make_recording(periods, body_ms=30, has_device=True, stages=(collate,), payload=(WASTEFUL,))
    report = judge(recording)
    assert kinds(report) == ["collate"]
    assert [remedy.predicted_gain for remedy in leaner(report)] == [None]


def test_what_is_said_of_another_loader_tells_the_speed_over_whole_epochs() -> None:
    """1000 steps take 20 s, and the validation after them 10 s."""
    assert with_validation(0.9).verdict.sentence.startswith("Input-bound: 49.8 steps/s, 33.2 over whole epochs")


def test_needs_are_those_of_the_ceiling() -> None:
    """Feeding 50 steps/s with batches of 160 ms takes 8 cores and 8 workers; an epoch's price falls with its length."""
    needs = judge(make_recording(STARVED), price=3.6).needs
    assert needs is not None
    assert needs.cores == pytest.approx(8.0, rel=0.03)
    assert needs.steps_per_s == pytest.approx(50, rel=0.03)
    assert needs.workers in (8, 9)  # the ninth for what the rates scatter
    assert needs.epoch_price == pytest.approx(1000 * 0.08 * 3.6 / 3600, rel=0.03)
    assert needs.epoch_price_at_ceiling == pytest.approx(1000 * 0.02 * 3.6 / 3600, rel=0.03)
    assert {feed.workers: round(feed.step_ms) for feed in needs.feeds}[2] == 80


def test_a_loop_that_its_cache_feeds_no_faster_is_judged_all_the_same() -> None:
    """Noise can put the ceiling below the baseline: what is computed from the headroom is then no gain, and no error."""
    span = 10_000 * MS
    first = make_start(batches=1000)
    valid = after(first, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=int(0.9 * span)), span)
    blocks = make_blocks({"none": 20.0, "host": 20.4}, body_ms=20, workers=(0,) * 8)
    stream = dataclasses.replace(LOADER, kind="iterable")
    recording = make_recording(
        {"none": 20.0, "host": 20.4}, starts=(first, valid), loader=stream, loaders=(stream, VALID)
    )
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert report.verdict.bound == "input"
    assert [culprit.kind for culprit in report.verdict.culprits] == ["workers"]


@pytest.mark.parametrize(
    ("delay_ms", "cores", "binding", "words"),
    [
        (0, 4.0, "workers", "cores are left"),
        (20, 4.0, "workers", "for a core 12% of it"),
        (100, 4.0, "cores", "wait for a core 62% of the time, though the loop uses 1.1"),
        (100, 1.0, "cores", "The cores are used up"),
    ],
    ids=["free cores", "a little", "taken by others", "taken by the loop"],
)
def test_cores_that_others_take_are_not_called_left(delay_ms: int, cores: float, binding: str, words: str) -> None:
    """Workers that wait for a core most of the time are limited by that, whatever share of the cores the loop itself uses."""
    recording = with_fetches(make_recording(STARVED, environment={"cores_available": cores}), 160, 160 - delay_ms)
    blocks = tuple(
        dataclasses.replace(block, delays_ns=(delay_ms * MS,) * 8, main_cpu_ns=int(0.375 * block.end_ns))
        for block in recording.blocks
    )
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert report.limit is not None
    assert report.limit.binding == binding
    assert words in report.limit.explanation
    assert ("cores-taken" in {caveat.id for caveat in report.caveats}) is (delay_ms > 0 and cores > 1)


@pytest.mark.parametrize(
    ("period", "collated", "bound"), [(32.6, 32.5, "step"), (32.6, 30.4, "input"), (36.0, 35.9, "input")]
)
def test_what_every_loader_with_workers_costs_is_no_fault_of_the_input(
    period: float, collated: float, bound: str
) -> None:
    """A few percent that are left with finished batches in the workers are their way to the loop; that much of anything
    else, or more, is a matter of input."""
    report = judge(make_recording({"none": period, "collated": collated, "host": 30.0}, body_ms=30))
    assert report.verdict.bound == bound
    assert ("would gain 9%, which is what" in report.verdict.sentence) is (bound == "step")
