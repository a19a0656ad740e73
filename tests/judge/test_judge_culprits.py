"""Which of several culprits goes first, and which of them are named at all."""

from __future__ import annotations

import dataclasses

import pytest
from literals import LOADER, MS, STARVED, VALID, kinds, make_blocks, make_recording, make_stage, make_start, tried

from unstarve.judge import judge
from unstarve.recording import Settings
from unstarve.report import Report


def test_where_no_removal_is_beyond_doubt_the_likeliest_is_named() -> None:
    """Too few rounds to be sure of any stage still tell which gained most; no other is named beside it."""
    stages = (make_stage("decode", 10, kind="decode"), make_stage("crop", 9, kind="transform"))
    recording = make_recording({**STARVED, "knockout:decode": 40, "knockout:crop": 50}, stages=stages)
    noisy = make_blocks({"knockout:decode": 40, "knockout:crop": 50}, body_ms=20, jitter=1.5)
    kept = tuple(block for block in recording.blocks if not block.rung.startswith("knockout:"))
    report = judge(dataclasses.replace(recording, blocks=kept + noisy))
    assert report.verdict.bound == "input"
    assert [culprit.stage for culprit in report.verdict.culprits] == ["decode"]
    assert report.verdict.culprits[0].gain.low <= 1 < report.verdict.culprits[0].gain.value


@pytest.mark.parametrize(("jitter", "named"), [(0.3, ["decode"]), (0.0, ["decode", "read"])])
def test_a_stage_that_takes_little_is_named_second_only_where_its_gain_is_sure(jitter: float, named: list[str]) -> None:
    """A twentieth of the time cannot gain 1.4 by being free; few blocks that scatter may say so, many must be believed."""
    stages = (make_stage("decode", 19), make_stage("read", 1))
    recording = make_recording({**STARVED, "knockout:decode": 35, "knockout:read": 57}, stages=stages)
    kept = tuple(block for block in recording.blocks if block.rung != "knockout:read")
    scattered = make_blocks({"knockout:read": 57}, body_ms=20, jitter=jitter)
    report = judge(dataclasses.replace(recording, blocks=kept + scattered))
    assert [culprit.stage for culprit in report.verdict.culprits] == named


def tried_with_doubt(period: float, jitter: float) -> Report:
    """A loop in which one stage is worth a little for certain, and the threads of the workers were tried few times."""
    recording = make_recording(
        {**STARVED, "knockout:decode": 65, "trial:worker-threads": period},
        stages=(make_stage("decode", 10, kind="decode"),),
    )
    noisy = make_blocks({"trial:worker-threads": period}, body_ms=20, jitter=jitter)
    kept = tuple(block for block in recording.blocks if block.rung != "trial:worker-threads")
    return judge(dataclasses.replace(recording, blocks=kept + noisy))


def test_a_setting_that_gained_much_is_named_despite_doubt() -> None:
    """Its interval may reach below one: what it gained on average is more than the stage, and trying it costs nothing."""
    culprits = tried_with_doubt(52, jitter=0.7).verdict.culprits
    assert (culprits[0].kind, culprits[0].stage) == ("cpu", "trial:worker-threads")
    assert culprits[0].gain.low < 1.05


@pytest.mark.parametrize(("period", "named"), [(70, ["decode"]), (55, ["decode", "ipc"])])
def test_transport_is_named_beside_a_stage_only_if_it_gains_about_as_much(period: float, named: list[str]) -> None:
    """Every loader has some, so a small gain without it accuses nobody."""
    periods = {**STARVED, "knockout:decode": 45, "knockout:ipc": period}
    stages = (make_stage("decode", 10, kind="decode"), make_stage("ipc", 0, kind="ipc"))
    assert [culprit.kind for culprit in judge(make_recording(periods, stages=stages)).verdict.culprits] == named


@pytest.mark.parametrize(("own", "first"), [(20, "workers"), (4, "decode")])
def test_a_crowd_of_workers_goes_before_a_stage_that_it_makes_dear(own: int, first: str) -> None:
    """Where two gain a good part of what the stage gains, many times as many as there are cores are to blame."""
    periods = {**STARVED, "knockout:decode": 25}
    recording = tried(own, {Settings(num_workers=2): 40}, periods, stages=(make_stage("decode", 10, kind="decode"),))
    assert kinds(judge(recording))[0] == first


@pytest.mark.parametrize(("period", "named"), [(56, ["cpu"]), (45, ["cpu", "decode"])])
def test_stages_are_symptoms_of_a_setting(period: float, named: list[str]) -> None:
    """Where threads fight for cores any work spared helps: a stage is named beside them only if it gains clearly more."""
    periods = {**STARVED, "knockout:decode": period, "trial:worker-threads": 55}
    report = judge(make_recording(periods, stages=(make_stage("decode", 10, kind="decode"),)))
    assert [culprit.kind for culprit in report.verdict.culprits] == named


@pytest.mark.parametrize(("period", "jitter"), [(70, 0.7), (79, 0.01)])
def test_a_setting_that_gained_little_or_by_chance_is_not_named(period: float, jitter: float) -> None:
    """With doubt a small gain is chance."""
    assert [culprit.kind for culprit in tried_with_doubt(period, jitter).verdict.culprits] == ["decode"]


def test_torchs_threads_go_first_where_they_are_more_than_the_cores() -> None:
    """A trial of one thread that gained less than a stage still names the cause, if threads crowd the cores."""
    periods = {**STARVED, "knockout:decode": 50, "trial:threads": 58}
    stages = (make_stage("decode", 10, kind="decode"),)
    for threads, first in ((32, "cpu"), (2, "decode")):
        facts = {"environment": {"cores_available": 2.0, "torch_threads": threads}}
        assert judge(make_recording(periods, stages=stages, **facts)).verdict.culprits[0].kind == first


def test_a_setting_that_was_tried_and_helped_goes_before_a_stage_that_gains_more() -> None:
    """What a wrong setting makes of a stage is not the stage's fault."""
    stage = make_stage("blur", 10, kind="transform")
    report = judge(make_recording({**STARVED, "knockout:blur": 36.0, "trial:affinity": 45.0}, stages=(stage,)))
    assert [culprit.kind for culprit in report.verdict.culprits[:2]] == ["cpu", "transform"]


@pytest.mark.parametrize(("setting", "period", "first"), [
    ("trial:worker-threads", 70.0, "transform"), ("trial:worker-threads", 60.0, "cpu"),
    (Settings(num_workers=2, in_order=False), 71.0, "transform"), (Settings(num_workers=2, in_order=False), 45.0, "scheduling"),
])  # fmt: skip
def test_a_setting_goes_before_a_stage_of_about_the_same_gain_only(
    setting: str | Settings, period: float, first: str
) -> None:
    """A stage that gains x2.4 is not hidden by a setting that gains x1.12."""
    stage = make_stage("blur", 10, kind="transform")
    periods = {**STARVED, "knockout:blur": 80 / 2.4 if first == "transform" else 38.0}
    if isinstance(setting, str):
        recording = make_recording({**periods, setting: period}, stages=(stage,))
    else:
        recording = tried(2, {setting: period}, periods, stages=(stage,))
    assert judge(recording).verdict.culprits[0].kind == first


def test_a_small_certain_culprit_does_not_hide_a_large_uncertain_one() -> None:
    """A computed gain of six per cent is sure, and no answer to a loop that could run four times as fast."""
    stage = make_stage("transform:1", 30.0)
    recording = make_recording(
        {"none": 80.0, "host": 20.0, "knockout:transform:1": 24.0}, stages=(stage,), loaders=(LOADER, VALID),
        starts=(
            dataclasses.replace(make_start(batches=1000), ended_ns=80_000 * MS),
            dataclasses.replace(make_start(loader=1, batches=50), created_ns=81_000 * MS, ended_ns=86_000 * MS, wait_ns=5_000 * MS),
        ),
    )  # fmt: skip
    noisy = tuple(block for block in recording.blocks if block.round == 0)
    report = judge(dataclasses.replace(recording, blocks=noisy))
    assert report.verdict.culprits[0].stage == "transform:1"
