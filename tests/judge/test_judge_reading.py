"""Reading told from decoding by the rung with files' bytes in memory: verdicts from literal recordings."""

from __future__ import annotations

import dataclasses

import pytest
from literals import make_recording, make_stage

from unstarve.judge import judge
from unstarve.recording import Stage
from unstarve.render import guilty_drops
from unstarve.report import Culprit, Report

PERIODS = {"none": 80.0, "samples": 22.0, "host": 20.0, "knockout:load": 30.0}
"""Without the loading statement the loop gains 50 of 80 ms a step."""


def load(kind: str, *, cpu: float = 0.9, calls: int = 3, decodes: bool = True, **facts) -> Stage:
    """`Image.open(path).convert("RGB")`, as the workers' clocks may see it."""
    stage = make_stage("load", 10, cpu=cpu, kind=kind, text='Image.open(path).convert("RGB")', **facts)
    return dataclasses.replace(stage, read_calls=10 * calls, read_bytes=10**6, decodes=decodes)


def report_of(bytes_ms: float | None, *stages: Stage) -> Report:
    """The report where a step takes so long with files' bytes in memory."""
    periods = PERIODS if bytes_ms is None else {**PERIODS, "bytes": bytes_ms}
    return judge(make_recording(periods, stages=stages))


def first(report: Report) -> Culprit:
    assert report.verdict.bound == "input"
    return report.verdict.culprits[0]


@pytest.mark.parametrize("kind", ["read", "decode", "code"])
def test_a_stage_that_gains_nothing_from_free_reading_decodes(kind: str) -> None:
    """Whatever name and clocks suggest, what is left with the bytes in memory is decoding; line and gain stay."""
    culprit = first(report_of(78, load(kind)))
    assert (culprit.stage, culprit.kind, culprit.resource, culprit.source) == ("load", "decode", "cpu", "train.py:41")
    assert culprit.gain.value == pytest.approx(80 / 30, rel=0.02)
    assert "done to the bytes" in culprit.evidence


@pytest.mark.parametrize("kind", ["read", "decode", "code"])
def test_a_stage_that_gains_most_from_free_reading_reads(kind: str) -> None:
    """40 of the 50 ms that the stage costs are gone with the bytes in memory: the storage is to blame."""
    report = report_of(40, load(kind))
    culprit = first(report)
    assert (culprit.stage, culprit.kind, culprit.resource, culprit.source) == ("load", "read", "wait", "train.py:41")
    assert "reading is most of what it costs" in culprit.evidence
    assert "concurrent-reads" in {remedy.id for remedy in report.remedies}


@pytest.mark.parametrize(
    ("kind", "cpu", "told", "resource"),
    [("read", 0.1, "read", "wait"), ("decode", 0.9, "decode", "cpu"), ("read", 0.9, "decode", "cpu")],
)
def test_without_the_rung_the_clocks_say_what_it_is(kind: str, cpu: float, told: str, resource: str) -> None:
    """Where bytes were not served from memory, name and waiting decide; what its name says reads and decodes, such as
    `np.loadtxt` or `imread`, decodes where it computes."""
    culprit = first(report_of(None, load(kind, cpu=cpu)))
    assert (culprit.kind, culprit.resource) == (told, resource)
    assert "bytes" not in culprit.evidence


def test_waiting_for_something_else_than_files_stays_a_wait() -> None:
    """A stage that waits, though its files are in memory, waits for a service or a lock: that is no decoding."""
    culprit = first(report_of(79, load("read", cpu=0.1, decodes=False)))
    assert (culprit.kind, culprit.resource) == ("read", "wait")
    assert "hardly waits for the bytes" in culprit.evidence


def test_a_read_that_computes_and_decodes_nothing_stays_a_read() -> None:
    """Many small reads, or a whole file for one row, cost a core with the bytes in memory, too."""
    culprit = first(report_of(78, load("read", decodes=False)))
    assert (culprit.kind, culprit.resource) == ("read", "cpu")


def test_a_transform_that_reads_files_is_told_apart_too() -> None:
    """One that mixes in noise from other files is a read if these are what it waits for."""
    culprit = first(report_of(40, load("transform", cpu=0.1, decodes=False)))
    assert (culprit.kind, culprit.resource) == ("read", "wait")


def test_a_stage_that_reads_nothing_is_left_alone() -> None:
    """Free reading in one stage says nothing about another that computes."""
    crop = make_stage("load", 10, kind="code", text="x = crop(x)")
    small = dataclasses.replace(make_stage("open", 5, cpu=0.1, kind="read"), read_calls=30)
    culprit = first(report_of(40, crop, small))
    assert (culprit.stage, culprit.kind, culprit.resource) == ("load", "code", "cpu")


def test_free_reading_is_shared_out_over_the_stages_that_wait_for_it() -> None:
    """A statement that decodes in the same loop as a slow read of another file is not blamed for that read."""
    other = dataclasses.replace(make_stage("annotate", 10, cpu=0.0, kind="read"), read_calls=30)
    culprit = first(report_of(50, load("decode", cpu=0.99), other))
    assert (culprit.stage, culprit.kind) == ("load", "decode")


def test_the_ladder_marks_the_drop_below_the_bytes_for_a_read() -> None:
    """The rung stands above the one with nothing cached, and a guilty read is what lies between the two."""
    report = report_of(40, load("decode"))
    assert [rung.id for rung in report.rungs][-3:] == ["bytes", "none", "knockout:load"]
    assert guilty_drops(report)["none"].kind == "read"


@pytest.mark.parametrize("others", [{}, {"knockout:crop": 78}], ids=["nothing else", "another stage"])
def test_a_read_that_could_not_be_knocked_out_is_blamed_by_the_rung(others: dict[str, float]) -> None:
    """A stage that gives an open file is never served from cache; what free reading gains is its gain."""
    opens = dataclasses.replace(make_stage("open", 10, cpu=0.05, kind="read"), read_calls=0)
    crop = make_stage("crop", 1, kind="code")
    periods = {"none": 80, "samples": 22, "host": 20, "bytes": 32, **others}
    report = judge(make_recording(periods, stages=(opens, crop)))
    assert [each.stage for each in report.verdict.culprits] == ["open"]
    culprit = first(report)
    assert (culprit.stage, culprit.kind, culprit.resource) == ("open", "read", "wait")
    assert culprit.gain.value == pytest.approx(80 / 32, rel=0.02)
    assert culprit.evidence.startswith("With the bytes of files in memory")


def opening(ident: str, ms: float) -> Stage:
    """A stage that gives an open file, for which it waits."""
    return dataclasses.replace(make_stage(ident, ms, cpu=0.0, kind="read"), read_calls=30)


def test_one_of_two_stages_that_read_gains_its_part_of_free_reading() -> None:
    """Of a gain by images and masks in memory the images have no more than they are waited for, and nothing is said to have
    been removed."""
    stages = (opening("image", 29), opening("mask", 25), *(make_stage(f"step {n}", 11.5) for n in range(4)))
    report = judge(make_recording({"none": 80, "samples": 26, "host": 24, "bytes": 80 * 0.46}, stages=stages))
    culprit = first(report)
    assert culprit.stage == "image"
    assert culprit.gain.value == pytest.approx(1 / (1 - 0.29), rel=0.02)
    assert culprit.gain.is_computed
    assert "its part of that, 54%" in culprit.evidence
    assert "evidence-disagrees" not in {caveat.id for caveat in report.caveats}


def test_one_of_two_stages_that_wait_may_be_the_only_one_that_reads_files() -> None:
    """What free reading gains is that of the stage which waits for as long, though another waits for a service."""
    stages = (opening("image", 50), opening("service", 30), make_stage("crop", 20, kind="code"))
    report = judge(make_recording({"none": 80, "samples": 22, "host": 20, "bytes": 40}, stages=stages))
    assert first(report).stage == "image"
    assert first(report).gain.value == pytest.approx(2, rel=0.02)
    assert not first(report).gain.is_computed


def test_a_read_that_was_knocked_out_is_blamed_once() -> None:
    """The knock-out of the stage, or of one around it, says what it gains; the rung adds no second culprit."""
    outer = make_stage("load", 10, kind="code", cpu=0.2)
    inner = dataclasses.replace(make_stage("read", 9, cpu=0.05, kind="read", parent="load"), read_calls=30)
    report = report_of(40, outer, inner)
    assert [culprit.stage for culprit in report.verdict.culprits] == ["load"]
    assert first(report).kind == "read"


def test_free_reading_that_gains_nothing_blames_nobody() -> None:
    """The stage that waits longest is no culprit where the loop is as slow with its bytes in memory."""
    opens = dataclasses.replace(make_stage("open", 1, cpu=0.5, kind="read"), read_calls=30)
    assert "open" not in {culprit.stage for culprit in report_of(80, load("decode"), opens).verdict.culprits}


def test_a_stage_that_reads_next_to_nothing_is_not_told_from_decoding() -> None:
    """Some calls read a few bytes of the system's: those in memory say nothing of a stage that reads no data."""
    stage = dataclasses.replace(load("code", decodes=False), read_bytes=182)
    culprit = first(report_of(78, stage))
    assert (culprit.kind, culprit.resource) == ("code", "cpu")
    assert "bytes" not in culprit.evidence
