"""Numbers of workers that are blamed, as tried in the loop or computed."""

from __future__ import annotations

import dataclasses

import pytest
from literals import (
    FED,
    LOADER,
    STARVED,
    blamed,
    kinds,
    make_recording,
    make_stage,
    tried,
    with_fetches,
    with_idle_cores,
)

from unstarve.judge import judge
from unstarve.recording import Settings


@pytest.mark.parametrize(("own", "number", "period"), [(0, 2, 40), (1, 4, 30), (8, 4, 60)])
def test_a_trial_of_another_number_of_workers_decides(own: int, number: int, period: float) -> None:
    """Far too few or too many workers are blamed with the gain that was measured, not a computed one."""
    culprit = blamed(judge(tried(own, {Settings(num_workers=number): period})), "workers")
    assert culprit.gain.value == pytest.approx(80 / period, rel=0.02)
    assert culprit.evidence.startswith("Tried in the loop")
    assert culprit.name == f"num_workers={own}"


@pytest.mark.parametrize(
    ("own", "number", "period"), [(0, 2, 80), (1, 2, 90), (8, 4, 78)], ids=["same", "slower", "saves little"]
)
def test_workers_whose_number_was_tried_in_vain_are_not_blamed(own: int, number: int, period: float) -> None:
    """What the law expects, which is much, does not count where the trial said otherwise."""
    assert "workers" not in kinds(judge(with_idle_cores(tried(own, {Settings(num_workers=number): period}))))


def test_workers_that_keep_up_by_their_clocks_are_not_too_few() -> None:
    """What slows such a loop down, the law does not know, and so not that more workers would mend it."""
    recording = with_fetches(
        make_recording({"none": 30.0, "host": 25.0}, loader=dataclasses.replace(LOADER, num_workers=1)), 10
    )
    assert "workers" not in kinds(judge(recording))


def test_a_stage_that_gains_what_a_second_worker_gains_goes_before_it() -> None:
    """It is what that worker would have to do."""
    periods = {**STARVED, "knockout:step0": 45.0}
    stages = (make_stage("step0", 40), make_stage("step1", 10))
    first = judge(tried(1, {Settings(num_workers=2): 45.0}, periods, stages=stages)).verdict.culprits[0]
    assert first.stage == "step0"


@pytest.mark.parametrize(("cpu_ms", "resource"), [(4, "wait"), (70, "cpu")])
def test_more_workers_are_wanted_for_what_the_present_ones_do(cpu_ms: float, resource: str) -> None:
    """One that waits for answers most of the time is no matter of cores."""
    recording = with_fetches(tried(1, {Settings(num_workers=4): 30}), 80, cpu_ms)
    assert blamed(judge(recording), "workers").resource == resource


@pytest.mark.parametrize("own", [0, 1])
def test_too_few_workers_are_blamed_by_computation_where_nothing_was_tried(own: int) -> None:
    """The throughput law stands in, says so, and its interval is wide."""
    culprit = blamed(judge(with_idle_cores(tried(own, {}))), "workers")
    assert "Computed, not tried" in culprit.evidence
    assert culprit.gain.value == pytest.approx(80 / 20, rel=0.05)
    assert culprit.gain.high - culprit.gain.low > 1


def test_one_worker_is_too_few_though_none_at_all_were_tried() -> None:
    """That trial says nothing of more workers."""
    assert "workers" in kinds(judge(with_idle_cores(tried(1, {Settings(num_workers=0): 120.0}))))


@pytest.mark.parametrize(("period", "kind"), [(25.0, "ipc"), (60.0, "workers")])
def test_no_workers_at_all_gain_because_nothing_is_sent(period: float, kind: str) -> None:
    """Where free transport gains as much, it is to blame, and not that there are workers."""
    recording = tried(
        2, {Settings(num_workers=0): 26.0}, {**STARVED, "knockout:ipc": period}, stages=(make_stage("ipc", 0),)
    )
    assert judge(recording).verdict.culprits[0].kind == kind


def test_several_workers_are_not_blamed_by_computation() -> None:
    """Where there are workers enough to share the work, stages are to blame."""
    stage = make_stage("decode", 10)
    report = judge(make_recording({**STARVED, "knockout:decode": 25}, stages=(stage,)))
    assert kinds(report) == ["code"]


SIXTH = {f"knockout:step{number}": 67.0 for number in range(6)}

SIXTHS = tuple(make_stage(f"step{number}", 1) for number in range(6))


def test_two_workers_are_too_few_where_more_gain_far_more_than_any_stage() -> None:
    """Six stages of a sixth of the time each gain 1.19, eight workers 3.9: the stages are named behind them."""
    report = judge(tried(2, {Settings(num_workers=8): 20.5}, {**STARVED, **SIXTH}, stages=SIXTHS))
    first, *others = report.verdict.culprits
    assert (first.kind, first.name) == ("workers", "num_workers=2")
    assert first.gain.value == pytest.approx(80 / 20.5, rel=0.02)
    assert {culprit.stage for culprit in others} <= {stage.id for stage in SIXTHS}
    assert others
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert (remedy.patch, remedy.about) == ("DataLoader(..., num_workers=8)", "workers")


@pytest.mark.parametrize(
    ("number", "period", "periods"),
    [(8, 20.5, {"knockout:step0": 35.0}), (3, 20.5, {}), (8, 62, {}), (8, 20.5, {"trial:affinity": 25.0})],
    ids=["a stage gains as much", "hardly more workers", "they gain little", "another setting gains as much"],
)  # fmt: skip
def test_several_workers_are_not_too_few_for_less(number: int, period: float, periods: dict[str, float]) -> None:
    """Whatever gains half as much on a log scale, or more, keeps its place."""
    recording = tried(2, {Settings(num_workers=number): period}, {**STARVED, **SIXTH, **periods}, stages=SIXTHS)
    report = judge(recording)
    assert report.verdict.culprits
    assert "workers" not in kinds(report)


def test_several_workers_are_not_too_few_for_a_data_set_that_no_removal_explains() -> None:
    """A data set of many small steps is blamed as a whole, by what finished samples gain, however much more workers do."""
    stages = tuple(make_stage(f"step{number}", 1) for number in range(20))
    report = judge(tried(2, {Settings(num_workers=8): 20.5}, stages=stages))
    assert [culprit.stage for culprit in report.verdict.culprits] == ["dataset"]


def test_another_delivery_alone_says_nothing_of_the_number_of_workers() -> None:
    """A trial of any order with as many workers is no trial of their number."""
    report = judge(tried(2, {Settings(num_workers=2, in_order=False): 40}))
    assert "workers" not in kinds(report)


def test_a_loader_without_workers_is_not_said_what_they_could_make() -> None:
    """The loop's own process makes its batches, and what that takes of a step is told instead."""
    report = judge(with_fetches(make_recording(FED, loader=dataclasses.replace(LOADER, num_workers=0)), 0.5))
    assert report.verdict.bound == "step"
    assert report.limit is not None
    assert "making a batch takes 0.5 ms of a step in the same process" in report.limit.explanation
    assert "workers" not in report.limit.explanation + report.verdict.sentence


def test_figures_of_small_machines_and_quick_loaders_are_no_zeros() -> None:
    """Half a core is not none, a batch of 0.3 ms takes something, and two thousand steps are no 2e+03."""
    periods = {"none": 0.5, "samples": 0.3, "host": 0.2}
    recording = make_recording(periods, body_ms=0.2, loader=dataclasses.replace(LOADER, num_workers=1))
    report = judge(with_fetches(dataclasses.replace(recording, environment={"cores_available": 0.5}), 0.3, 0.3))
    assert report.limit is not None
    assert "of 0.5): a batch takes 0.3 ms of a worker (0.3 ms CPU), 1 worker, 0.5 cores." in report.limit.explanation
    assert "e+" not in report.verdict.sentence
