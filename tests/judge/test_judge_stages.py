"""Stages that are blamed, alone or as a whole, with collation and the sampler."""

from __future__ import annotations

import dataclasses

import pytest
from literals import LOADER, MS, STARVED, blamed, kinds, make_blocks, make_recording, make_stage, with_fetches

from unstarve.judge import judge
from unstarve.recording import BodyLine


@pytest.mark.parametrize(
    ("cpu", "delay", "resource"), [(50, 0, "cpu"), (2, 0, "wait"), (20, 30, "cpu")], ids=["works", "asks", "crowded"]
)
def test_a_collate_function_that_waits_is_told_so(cpu: int, delay: int, resource: str) -> None:
    """Asking a data base for 50 ms is no computing; waiting for a core is no waiting for something else."""
    stage = make_stage("collate", 10, kind="collate")
    recording = make_recording({**STARVED, "knockout:collate": 30.0}, stages=(stage,))
    figures = {"none": (60, 10 + cpu, delay), "knockout:collate": (10, 10, 0)}
    blocks = tuple(
        dataclasses.replace(
            block, **{
                name: (ms * MS,) * 8
                for name, ms in zip(("fetches_ns", "fetches_cpu_ns", "delays_ns"), figures[block.rung], strict=True)
            },
        )
        if block.rung in figures
        else block
        for block in recording.blocks
    )  # fmt: skip
    culprit = blamed(judge(dataclasses.replace(recording, blocks=blocks)), "collate")
    assert culprit.resource == resource
    assert culprit.evidence.startswith("With collation free")


@pytest.mark.parametrize("periods", [{}, {"knockout:step0": 76.0}], ids=["none tried", "one tried"])
def test_a_data_set_of_many_small_steps_is_blamed_as_a_whole(periods: dict[str, float]) -> None:
    """Forty statements with a fortieth of the time each: none of them is named, and the gain is that of all."""
    stages = tuple(make_stage(f"step{number}", 1, source=f"train.py:{40 + number}") for number in range(40))
    report = judge(make_recording({**STARVED, **periods}, stages=stages))
    culprit = report.verdict.culprits[0]
    assert (culprit.name, culprit.kind, culprit.source, culprit.text) == ("Toy", "code", "train.py:40", None)
    assert culprit.gain.value == pytest.approx(80 / 22, rel=0.02)
    assert not culprit.gain.is_computed
    assert "of the 40 statements that make a sample none takes more than 2%" in culprit.evidence


@pytest.mark.parametrize(("count", "jitter", "name"), [(5, 0.01, "Toy"), (3, 0.01, "Toy"), (3, 0.9, "step0")])
def test_a_stage_is_not_named_where_its_removal_gained_nothing(count: int, jitter: float, name: str) -> None:
    """The data set as a whole was shown to cost something; a third of it is worth a guess, unless it was measured."""
    stages = tuple(make_stage(f"step{number}", 5 - (number > 0) / 10) for number in range(count))
    removed = {"knockout:step0": 81.0, "knockout:step1": 81.0}
    recording = make_recording({**STARVED, **removed}, stages=stages)
    kept = tuple(block for block in recording.blocks if block.rung not in removed)
    blocks = kept + make_blocks(removed, body_ms=20, jitter=jitter)
    culprits = judge(dataclasses.replace(recording, blocks=blocks)).verdict.culprits
    assert [culprit.name for culprit in culprits] == [name]


def test_where_the_only_suspect_is_acquitted_nobody_is_named() -> None:
    """It takes nine tenths of a sample's time, and the loop without it is no faster; finished samples were not tried."""
    stages = (make_stage("decode", 9), make_stage("crop", 1))
    report = judge(make_recording({"none": 80.0, "host": 20.0, "knockout:decode": 81.0}, stages=stages))
    assert report.verdict.bound == "input"
    assert report.verdict.culprits == ()
    assert report.verdict.sentence.endswith("No single stage was shown to hold it back.")


def test_a_computed_gain_is_no_more_than_the_removal_of_the_stage_allows() -> None:
    """Its share says x4; without it the loop was measured, with doubt, to be 1.1 to 1.3 times as fast."""
    recording = make_recording({"none": 80.0, "host": 20.0, "knockout:decode": 72.0}, stages=(make_stage("decode", 9),))
    kept = tuple(block for block in recording.blocks if block.rung != "knockout:decode")
    blocks = kept + make_blocks({"knockout:decode": 72.0}, body_ms=20, jitter=0.5)
    report = judge(dataclasses.replace(recording, blocks=blocks))
    (culprit,) = report.verdict.culprits
    assert culprit.gain.is_computed
    assert culprit.gain.value == pytest.approx(report.stages[0].gain_if_free.high)
    assert culprit.gain.value < 3


def test_what_a_loop_gains_is_claimed_for_the_loop_and_its_part_that_takes_most_is_named() -> None:
    """The loop alone was served: its gain is no statement's, but the line to look at is that of the dearest statement."""
    loop = make_stage("loop", 9, name="for frame in frames:", text="for frame in frames:")
    inside = {"parent": "loop", "is_servable": False}
    read = make_stage("read", 1.5, kind="read", source="train.py:42", **inside)
    flow = make_stage("flow", 7, kind="decode", source="train.py:43", **inside)
    recording = make_recording({**STARVED, "knockout:loop": 24.0}, stages=(loop, read, flow, make_stage("crop", 1)))
    (culprit,) = judge(recording).verdict.culprits
    assert (culprit.stage, culprit.kind, culprit.source) == ("loop", "decode", "train.py:43")
    assert culprit.name == "for frame in frames: flow"
    assert culprit.path == ("for frame in frames:", "flow")
    assert "78% of that is `flow`, which cannot be served alone" in culprit.evidence


@pytest.mark.parametrize(("part", "name"), [("transform:1.~1", "T: part"), ("code:1.*.0", "T")])
def test_a_transform_is_named_itself_for_its_own_statements(part: str, name: str) -> None:
    """A choice among transforms is named with the dear one; a transform's own loop is the transform's."""
    inner = make_stage(part, 8, name="part", parent="transform:1", kind="transform", is_servable=False)
    stages = (make_stage("transform:1", 9, name="T", kind="transform"), inner, make_stage("crop", 1))
    assert (
        judge(make_recording({**STARVED, "knockout:transform:1": 24.0}, stages=stages)).verdict.culprits[0].name == name
    )


def test_a_choice_without_a_dear_one_is_blamed_itself() -> None:
    """Of several transforms that cost about the same, of which each sample meets one, none is named."""
    choices = tuple(make_stage(f"t{number}", 3, parent="choice", is_servable=False) for number in range(3))
    recording = make_recording({**STARVED, "knockout:choice": 24.0}, stages=(make_stage("choice", 9), *choices))
    assert [culprit.name for culprit in judge(recording).verdict.culprits] == ["choice"]


@pytest.mark.parametrize("inner", [True, False], ids=["its call was tried", "refused"])
def test_the_largest_stage_is_named_where_it_could_not_be_served_alone(inner: bool) -> None:
    """What others gained stands beside it, with the computed gain of the stage that was refused before them."""
    decode = make_stage("decode", 7, parent="load" if inner else None)
    stages = (make_stage("load", 7), decode, make_stage("crop", 3))
    periods = {**STARVED, "knockout:crop": 55.0} | ({"knockout:load": 50.0} if inner else {})
    culprits = judge(make_recording(periods, stages=stages if inner else stages[1:])).verdict.culprits
    assert [culprit.stage for culprit in culprits] == (["load", "crop"] if inner else ["decode", "crop"])
    assert culprits[0].gain.is_computed is (not inner)


def test_a_statement_that_once_had_no_core_is_not_blamed_for_it() -> None:
    """Of many small steps one took long because its worker had to wait: it is still one of many."""
    stages = [make_stage(f"step{number}", 1) for number in range(40)]
    stages[7] = dataclasses.replace(
        stages[7], wall_ns=(*stages[7].wall_ns[1:], 90 * MS), delay_ns=(0,) * 9 + (89 * MS,)
    )
    assert judge(make_recording(STARVED, stages=tuple(stages))).verdict.culprits[0].name == "Toy"


def test_ten_stages_that_share_the_time_are_named_one_by_one() -> None:
    """A tenth of the time is worth a word of its own."""
    stages = tuple(make_stage(f"step{number}", 1) for number in range(10))
    periods = {**STARVED, "knockout:step0": 65.0, "knockout:step1": 70.0, "knockout:step2": 79.0}
    report = judge(make_recording(periods, stages=stages))
    assert [culprit.stage for culprit in report.verdict.culprits] == ["step0", "step1"]


@pytest.mark.parametrize(
    ("fetch_ms", "gain"), [(120, None), (90, 60 / 45), (5, 60 / 35)], ids=["hidden", "half", "bare"]
)
def test_a_sampler_that_works_beside_the_workers_gains_what_they_leave(fetch_ms: int, gain: float | None) -> None:
    """What it takes of the loop's own process is lost only as far as the workers would be ready sooner."""
    recording = make_recording({"none": 60.0, "host": 30.0, "control:sampler": 55.0}, body_ms=30)
    blocks = tuple(
        dataclasses.replace(b, fetches_ns=(fetch_ms * MS,) * 8, fetches_cpu_ns=(MS,) * 8) if b.rung == "none" else b
        for b in recording.blocks
    )
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert [round(c.gain.value, 1) for c in report.verdict.culprits] == ([] if gain is None else [round(gain, 1)])
    assert kinds(report) == ([] if gain is None else ["sampler"])
    assert [remedy.id for remedy in report.remedies] == ([] if gain is None else ["quicker-sampler"])


@pytest.mark.parametrize(("share", "source"), [(0.7, "train.py:60"), (0.3, "train.py:50")], ids=["one line", "many"])
def test_a_sampler_is_blamed_at_the_line_that_takes_its_time(share: float, source: str) -> None:
    line = BodyLine(source="train.py:60", text="order = weigh(seen)", wall_fraction=share, cpu_fraction=share)
    loader = dataclasses.replace(LOADER, sampler="Balanced", sampler_source="train.py:50")
    recording = make_recording({"none": 60.0, "host": 30.0, "control:sampler": 55.0}, body_ms=30, loader=loader)
    culprit = blamed(judge(with_fetches(dataclasses.replace(recording, sampler=(line,)), 5)), "sampler")
    assert (culprit.name, culprit.source) == ("Balanced", source)
    assert (culprit.text == line.text) is (source == line.source)


def test_a_stage_that_could_not_be_served_alone_gains_no_more_than_all_up_to_it() -> None:
    """It takes seven tenths of the time, yet with it and all before it from cache the loop is only 1.6 times as fast."""
    stages = (make_stage("decode", 7), make_stage("crop", 3))
    periods = {**STARVED, "knockout:crop": 60.0, "after:decode": 50.0}
    (first, *_) = judge(make_recording(periods, stages=stages)).verdict.culprits
    assert (first.stage, first.gain.value) == ("decode", pytest.approx(1.6, rel=0.02))


def test_transport_that_was_not_tried_is_told_by_the_ladder() -> None:
    """Batches cached in the workers that still come slowly are held up on their way; as far as workers could make more."""
    periods = {"none": 100.0, "samples": 90.0, "collated": 80.0, "host": 25.0}
    recording = make_recording(periods, stages=(make_stage("ipc", 0, kind="ipc"),))
    culprit = blamed(judge(with_fetches(recording, 30)), "ipc")
    assert culprit.gain.is_computed
    assert culprit.gain.value == pytest.approx(4.0, rel=0.05)
    assert "ipc" not in kinds(judge(with_fetches(recording, 199)))
