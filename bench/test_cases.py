"""A handful of quick cases of the bench, run for real: clear faults that a busy machine does not hide, and a fed loop."""

import pytest
from score import CASES, diagnose, is_false_conviction, load_json, score, source_line

pytestmark = [pytest.mark.live, pytest.mark.timeout(150)]


@pytest.mark.parametrize("case", ["ST01", "ST03", "ST07", "NG03"])
def test_a_clear_fault_is_named(case):
    """The tool, which sees the script only, finds bound, kind and line of the fault, and convicts no innocent."""
    expected = load_json(CASES / case / "expect.json")
    report, _, errors = diagnose(case, budget_s=12)
    assert report is not None, errors
    first = (report["verdict"]["culprits"] or [{}])[0]
    marks = score(expected, report, source_line(first.get("source"), case))
    wrong = [mark for mark in ("bound", "kind", "line", "must_not") if marks[mark] is False]
    assert not wrong, report["verdict"]


def test_a_fed_loop_is_not_accused():
    """A healthy script of the same shape is step-bound, or in doubt on a busy machine, and no stage is named."""
    expected = load_json(CASES / "H13" / "expect.json")
    report, _, errors = diagnose("H13", budget_s=12)
    assert report is not None, errors
    assert report["verdict"]["bound"] == "unresolved" or not is_false_conviction(expected, report), report["verdict"]
