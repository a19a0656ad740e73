"""Scoring is judged from literals: no torch, no run."""

import pytest
from score import (
    case_table,
    confusion,
    gain_error,
    gain_range,
    is_false_conviction,
    is_right,
    matches,
    quantile,
    reported_kind,
    results_page,
    score,
    share,
    summarise,
)

READ_CASE = {
    "id": "ST01",
    "bound": ["input"],
    "culprit": {"kind": ["read", "code"], "name": "read", "line": r"\.read\(", "resource": ["wait"]},
    "must_not": {"kind": ["collate"], "name": "Normalise"},
}
HEALTHY_CASE = {"id": "H01", "bound": ["step"], "culprit": None, "must_not": {"kind": ["read"]}}


def report(bound="input", *culprits):
    return {"verdict": {"bound": bound, "culprits": list(culprits)}}


def culprit(kind="read", name="Share.read", resource="wait", gain=2.0):
    return {"kind": kind, "name": name, "source": "train.py:3", "resource": resource, "gain": {"value": gain}}


def test_the_right_verdict_earns_every_mark():
    marks = score(READ_CASE, report("input", culprit()), "data = share.read(path)")
    assert all(marks.values())
    assert is_right(marks)


def test_an_accepted_kind_that_is_not_the_ideal_one_is_told_apart():
    marks = score(READ_CASE, report("input", culprit(kind="code")), "data = share.read(path)")
    assert marks["kind"]
    assert not marks["first_kind"]


def test_unresolved_is_wrong_even_with_the_right_culprit():
    marks = score(READ_CASE, report("unresolved", culprit()), "share.read(path)")
    assert not marks["bound"]
    assert not is_right(marks)


def test_no_report_is_wrong_everywhere():
    marks = score(READ_CASE, None)
    assert not any(marks[mark] for mark in ("bound", "kind", "name", "line", "resource"))
    assert not score(HEALTHY_CASE, None)["kind"]


def test_only_the_first_culprit_counts_for_the_kind():
    marks = score(READ_CASE, report("input", culprit(kind="transform"), culprit()), "x")
    assert not marks["kind"]


def test_an_innocent_may_not_be_named_even_second():
    assert not score(READ_CASE, report("input", culprit(), culprit(kind="collate")))["must_not"]
    assert not score(READ_CASE, report("input", culprit(), culprit(name="normalise")))["must_not"]


def test_a_case_without_a_line_does_not_ask_for_it():
    case = {**READ_CASE, "culprit": {**READ_CASE["culprit"], "line": None}}
    marks = score(case, report("input", culprit()))
    assert marks["line"] is None
    assert is_right(marks)


def test_the_step_may_be_named_on_a_step_bound_case_but_nothing_else():
    assert score(HEALTHY_CASE, report("step", culprit(kind="step-device")))["kind"]
    assert score(HEALTHY_CASE, report("step"))["kind"]
    assert not score(HEALTHY_CASE, report("step", culprit(kind="transform")))["kind"]


@pytest.mark.parametrize(
    ("case", "found", "convicted"),
    [
        (HEALTHY_CASE, report("step"), False),
        (HEALTHY_CASE, report("unresolved"), False),
        (HEALTHY_CASE, report("input"), True),
        (HEALTHY_CASE, report("start"), True),
        (HEALTHY_CASE, report("step", culprit(kind="ipc")), True),
        (READ_CASE, report("input", culprit()), False),
    ],
)
def test_a_false_conviction_is_guilt_found_where_there_is_none(case, found, convicted):
    assert is_false_conviction(case, found) is convicted


def test_the_reported_kind_says_why_there_is_none():
    assert reported_kind(None) == "failed"
    assert reported_kind(report("unresolved", culprit())) == "unresolved"
    assert reported_kind(report("step")) == "none"
    assert reported_kind(report("input", culprit())) == "read"


def test_patterns_ignore_case_and_absence_is_not_asked():
    assert matches("READ", "Share.read")
    assert matches("read", None) is False
    assert matches(None, "anything") is None


def test_gain_error_is_relative():
    assert gain_error(2.2, 2.0) == pytest.approx(0.1)
    assert gain_error(1.8, 2.0) == pytest.approx(0.1)
    assert gain_error(None, 2.0) is None
    assert gain_error(2.0, None) is None


def test_the_expected_range_holds_every_measured_ratio():
    assert gain_range([2.0, 2.1, 1.9]) == [1.5, 2.5]
    assert gain_range([2.0, 3.0, 1.0]) == [1.0, 3.0]


def test_quantiles_are_nearest_rank():
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.9) == 10
    assert quantile([], 0.5) is None


def test_shares_leave_out_what_was_not_asked():
    assert share([True, None, False]) == (1, 2)


def test_the_confusion_matrix_counts_pairs():
    lines = confusion([("read", "read"), ("read", "code"), ("none", "none")]).splitlines()
    assert lines[0] == "| expected \\ reported | code | none | read |"
    assert lines[2:] == ["| none | · | 1 | · |", "| read | 1 | · | 1 |"]


def row(case=READ_CASE, found=None, text="share.read(path)", **changes):
    found = found or report("input", culprit())
    marks = score(case, found, text)
    facts = {
        "id": case["id"],
        "title": "a title",
        "guilty": case["culprit"] is not None,
        "expected": "read" if case["culprit"] else "none",
        "reported": reported_kind(found),
        "bound": found["verdict"]["bound"],
        "name": "read|x",
        "source": "train.py:3",
        "marks": marks,
        "right": is_right(marks),
        "false_conviction": is_false_conviction(case, found),
        "predicted": 2.0,
        "measured": 2.5,
        "gain_error": 0.2,
        "seconds": 30.0,
    }
    return {**facts, **changes}


def test_the_summary_counts_healthy_controls_apart():
    figures = summarise([row(), row(HEALTHY_CASE, report("step")), row(HEALTHY_CASE, report("input"))])
    assert figures["right bound"] == "2/3 (67%)"
    assert figures["right kind (faulty cases)"] == "1/1 (100%)"
    assert figures["false convictions on healthy controls"] == "1/2 (50%)"
    assert figures["gain error, median and p90"] == "20%, 20% (n=1)"


def test_the_page_names_its_command_and_escapes_bars():
    page = results_page([row()], "python bench/score.py --cases ST01")
    assert "python bench/score.py --cases ST01" in page
    assert "read\\|x" in case_table([row()])
