"""The Python interface on real loops."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

import unstarve  # noqa: E402
from unstarve.report import Report  # noqa: E402

pytestmark = pytest.mark.live


class Slow:
    """An iterable that is no DataLoader."""

    def __iter__(self):
        for _ in range(4000):
            time.sleep(0.012)
            yield torch.rand(4)


def test_any_iterable_is_diagnosed_by_the_outer_rungs() -> None:
    """A slow iterable is blamed as a whole, and the report says that only the outer rungs were measured."""
    report = unstarve.diagnose(Slow(), lambda batch: time.sleep(0.002), budget=8, quiet=True)
    assert report.verdict.bound == "input"
    assert report.verdict.culprits[0].kind == "loader"
    assert "outer-rungs-only" in {caveat.id for caveat in report.caveats}


def test_an_iterable_that_begins_only_once_is_judged_by_what_it_gave() -> None:
    """A generator that is used up before the budget is over has its verdict."""
    batches = (time.sleep(0.008) or torch.rand(4) for _ in range(60))
    report = unstarve.diagnose(batches, lambda batch: time.sleep(0.002), budget=60, full=True, quiet=True)
    assert report.verdict.bound == "input"


def test_probe_serves_ones_own_loop_and_hands_over_the_report() -> None:
    """The loop ends by itself when the diagnosis is done, and the report is given to `on_report`."""
    reports: list[Report] = []
    count = 0
    for _batch in unstarve.probe([torch.rand(4)] * 60, budget=4, quiet=True, on_report=reports.append):
        time.sleep(0.004)
        count += 1
    assert count > 60
    assert reports[0].verdict.bound == "step"


@pytest.mark.parametrize(("steps", "is_judged"), [(8, False), (250, True)])
def test_a_probed_loop_that_is_left_early_has_what_it_was_measured_for(
    steps: int, is_judged: bool, capsys: pytest.CaptureFixture
) -> None:
    """A verdict where both ends of the ladder are there, else a word that there is none."""
    reports: list[Report] = []
    batches = unstarve.probe([torch.rand(4)] * 60, budget=60, quiet=True, on_report=reports.append)
    for number, _ in enumerate(batches):
        time.sleep(0.004)
        if number + 1 == steps:
            break
    del batches
    assert [report.verdict.bound for report in reports] == ["step"] * is_judged
    said = capsys.readouterr().err
    assert ("no verdict: the loop was left after 8 steps" in said) is not is_judged


def test_a_loader_is_probed_once() -> None:
    """In a loop over epochs the first is diagnosed; later ones get the loader's own batches. Another loader is diagnosed."""
    reports: list[Report] = []

    def epoch(loader: torch.utils.data.DataLoader) -> list[int]:
        found = []
        for batch in unstarve.probe(loader, budget=1.5, quiet=True, on_report=reports.append):
            time.sleep(0.002)
            found += batch.tolist()
        return found

    loader = torch.utils.data.DataLoader(range(120), batch_size=2)
    assert len(epoch(loader)) != 120
    with pytest.warns(UserWarning, match="diagnosed before"):
        assert epoch(loader) == list(range(120))
    assert len(reports) == 1
    epoch(torch.utils.data.DataLoader(range(120), batch_size=2))
    assert len(reports) == 2


def test_watching_serves_every_batch_once() -> None:
    """`watch` gives exactly the batches of the loader, and an account at the end."""
    reports: list[Report] = []
    seen = list(unstarve.watch([1, 2, 3, 4], on_report=reports.append))
    assert seen == [1, 2, 3, 4]
    assert reports[0].verdict.culprits == ()


def test_watching_a_loop_that_is_left_early_gives_the_account() -> None:
    """Of what it took until then, and once."""
    reports: list[Report] = []
    for number in unstarve.watch([1, 2, 3, 4], on_report=reports.append):
        if number == 2:
            break
    assert len(reports) == 1


@pytest.mark.parametrize(
    ("loader", "step", "error", "message"),
    [
        (3, print, unstarve.UsageError, "loader is 3"),
        ([1], "step", unstarve.UsageError, "step is 'step'"),
        ([], print, unstarve.MeasurementError, "empty"),
        (iter([1, 2, 3]), print, unstarve.MeasurementError, "gave 3 batches"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused_with_a_reason(loader, step, error, message) -> None:
    """Wrong arguments and empty loaders raise the documented errors, saying what was given."""
    with pytest.raises(error, match=message):
        unstarve.diagnose(loader, step, quiet=True, budget=2)


def test_a_budget_that_is_too_small_is_answered_with_one_that_is_enough() -> None:
    """Where it is over before the rungs can be compared, the error names the wall time of a hundred steps, in tens of seconds."""
    with pytest.raises(
        unstarve.MeasurementError, match=r"budget was over after \d+ steps.* budget=10 should be enough"
    ):
        unstarve.diagnose([torch.rand(4)] * 60, lambda batch: time.sleep(0.02), budget=0.01, quiet=True)


def test_an_exception_of_the_step_comes_through() -> None:
    """What the step raises passes unchanged."""

    def step(batch: object) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        unstarve.diagnose([1, 2, 3], step, quiet=True, budget=2)
