"""The journey: its table from literal reports, its sizes, its calibration, and its walk with a scripted `diagnose`."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from rich.console import Console

from unstarve import simulate
from unstarve.demo import journey
from unstarve.demo.journey import (
    ARTICLE,
    LEGS,
    choose_sizes,
    compare,
    doubt_calibration,
    draw,
    measure_batch_time,
    run_journey,
)
from unstarve.report import Caveat, Estimate, Remedy, Report, RungResult, Verdict, WallTime


def make_report(sentence: str = "Input-bound.", **rates: float) -> Report:
    """A report whose rungs have the given rates, each within 5 %."""
    return Report(
        verdict=Verdict(bound="input", sentence=sentence),
        baseline=None,
        ceiling=None,
        time=WallTime(steady=1.0, start=0.0, other_loaders=0.0),
        rungs=tuple(
            RungResult(
                id=name,
                label=name,
                after=None,
                steps_per_s=Estimate(value=rate, low=rate * 0.95, high=rate * 1.05, steps=20),
            )
            for name, rate in rates.items()
        ),
    )


def article_reports() -> dict[str, Report]:
    """Reports of a machine that is ten times the article's."""
    return {
        "published": make_report("RandomMask.", device=34.5, host=33.3, samples=32.3, raw=17.2, none=8.9),
        "optimised": make_report("Raw data.", device=34.5, raw=32.3, none=12.8),
        "small": make_report("Step-bound.", device=34.5, none=32.3),
    }


def printed(renderable: Any, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_articles_table_is_whole() -> None:
    """All eight published rates are there, in the article's order, and each belongs to a leg."""
    assert [row.steps_per_s for row in ARTICLE] == [3.45, 3.33, 3.23, 1.72, 0.89, 3.23, 1.28, 3.23]
    assert {row.leg for row in ARTICLE} == {leg.name for leg in LEGS}


def test_a_machine_like_the_articles_shows_its_ratios() -> None:
    """On a machine that is the article's but ten times as fast, every ratio of ours is the article's."""
    for row in compare(article_reports()):
        assert row.steps_per_s is not None
        assert row.ratio is not None
        assert row.steps_per_s.value == pytest.approx(10 * row.article.steps_per_s)
        assert row.ratio.value == pytest.approx(row.article_ratio)
        assert row.ratio.low <= row.article_ratio <= row.ratio.high


def test_the_ceiling_is_one_of_itself() -> None:
    """The ratio of the device rung to itself is exactly one, without an interval."""
    ratio = compare(article_reports())[0].ratio
    assert ratio == Estimate(value=1.0, low=1.0, high=1.0)


def test_each_leg_has_its_own_ceiling() -> None:
    """A leg that ran while the machine was slower is compared with the ceiling it measured itself."""
    reports = {**article_reports(), "small": make_report(device=20.0, none=10.0)}
    ratio = compare(reports)[-1].ratio
    assert ratio is not None
    assert ratio.value == pytest.approx(0.5)


@pytest.mark.parametrize(
    "reports",
    [{}, {"published": make_report()}, {"published": make_report(none=8.9)}],
    ids=["no legs", "no rungs", "no ceiling"],
)
def test_what_was_not_measured_is_left_open(reports: dict[str, Report]) -> None:
    """Missing legs, rungs or ceilings leave gaps in eight whole rows, and the table still draws."""
    rows = compare(reports)
    assert len(rows) == 8
    assert all(row.ratio is None for row in rows)
    assert "not measured" in printed(draw(rows))


def test_an_interval_that_reaches_zero_gives_no_ratio() -> None:
    """A rate that may be zero has no ratio that could be stated with an interval."""
    report = make_report(device=10.0, none=1.0)
    doubtful = replace(report.rungs[1], steps_per_s=Estimate(value=1.0, low=0.0, high=2.0))
    rows = compare({"published": replace(report, rungs=(report.rungs[0], doubtful))})
    assert rows[4].steps_per_s == doubtful.steps_per_s
    assert rows[4].ratio is None


def test_ratio_intervals_cover() -> None:
    """Of 2000 simulated ratios of independent rates, 95 % lie inside the interval, give or take 1.5 %."""
    source = random.Random(1)

    def estimate(rate: float) -> Estimate:
        blocks = [source.gauss(rate, rate * 0.08) for _ in range(40)]
        half = 2.02 * stdev(blocks) / len(blocks) ** 0.5
        return Estimate(value=fmean(blocks), low=fmean(blocks) - half, high=fmean(blocks) + half)

    hits = 0
    for _ in range(2000):
        ratio = journey._ratio(estimate(0.89), estimate(3.45))
        assert ratio is not None
        hits += ratio.low <= 0.89 / 3.45 <= ratio.high
    assert abs(hits / 2000 - 0.95) < 0.015


def test_the_table_shows_both_sides_and_the_source() -> None:
    """The drawn table holds the published rate and ratio, ours with its interval, and the published ones' source."""
    text = printed(draw(compare(article_reports())))
    (nothing_cached,) = (line for line in text.splitlines() if "nothing cached" in line and "optimised" not in line)
    assert [cell.strip() for cell in nothing_cached.split("│")[1:-1]] == [
        "nothing cached", "0.89", "0.26", "8.9", "0.26 (0.24 to 0.28)",
    ]  # fmt: skip
    assert "C. Rand" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_the_terminal(width: int) -> None:
    """No line is wider than the terminal, and no experiment is lost at a narrow one."""
    lines = printed(draw(compare(article_reports())), width).splitlines()
    assert max(map(len, lines)) <= width
    assert "0.26" in "".join(lines)


@pytest.mark.parametrize(
    ("cores", "has_accelerator", "expected"),
    [
        (8, True, (256, 4)),
        (4, True, (256, 4)),
        (2, True, (16, 2)),
        (2, False, (16, 2)),
        (64, False, (16, 4)),
        (1, False, (16, 1)),
    ],
)
def test_sizes_follow_the_machine(cores: int, has_accelerator: bool, expected: tuple[int, int]) -> None:
    """The article's sizes need an accelerator and four cores; else batches are small and cores bound the workers."""
    sizes = choose_sizes(cores=cores, has_accelerator=has_accelerator, quick=False)
    assert (sizes.batch_size, sizes.workers) == expected
    assert choose_sizes(cores=cores, has_accelerator=has_accelerator, quick=True).budget_s < sizes.budget_s


class ScriptedLoader:
    """A loader whose batches take scripted times on a clock of its own."""

    num_workers = 2
    prefetch_factor = 2

    def __init__(self, seconds: list[float]) -> None:
        self.now = 0.0
        self.seconds = seconds

    def __iter__(self) -> Iterator[None]:
        for second in self.seconds:
            self.now += second
            yield None


def test_calibration_ignores_the_start_and_counts_whole_turns() -> None:
    """Start-up and prefetched batches do not count, and two workers' alternating pace is averaged over whole turns."""
    loader = ScriptedLoader([9.0, 0.0, 9.0, 0.0] + [0.7, 0.1] * 20)
    seconds = measure_batch_time(loader, seconds=2.0, clock=lambda: loader.now)  # type: ignore[arg-type]
    assert seconds == pytest.approx(0.4)
    assert loader.now == pytest.approx(18.0 + 3 * 0.8)


def test_calibration_survives_a_disturbance() -> None:
    """A stretch in which another program takes the cores does not make the accelerator slow."""
    loader = ScriptedLoader([0.0] * 4 + [0.1, 0.1] * 6 + [0.5, 0.5] * 3 + [0.1] * 20)
    seconds = measure_batch_time(loader, seconds=4.0, clock=lambda: loader.now)  # type: ignore[arg-type]
    assert seconds == pytest.approx(0.1)


@pytest.mark.parametrize(("none", "is_doubtful"), [(8.9, False), (10.0, False), (3.0, True), (25.0, True)])
def test_a_drifted_calibration_is_said(none: float, is_doubtful: bool) -> None:
    """A loop that comes to quite another ratio than its step was set for carries that doubt, in either direction."""
    doubt = doubt_calibration(compare({"published": make_report(device=34.5, none=none)}))
    assert (doubt is not None) == is_doubtful
    assert doubt is None or f"{none / 34.5:.2f}" in doubt


def test_an_unmeasured_ratio_raises_no_doubt() -> None:
    """Without a measured ratio there is nothing to hold against the calibration."""
    assert doubt_calibration(compare({})) is None


@pytest.fixture
def without_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journey, "_find_accelerator", lambda: None)
    monkeypatch.setattr(journey, "measure_batch_time", lambda loader: 0.345)


@pytest.mark.usefixtures("without_accelerator")
def test_the_journey_visits_every_leg() -> None:
    """Each leg's pipeline is diagnosed under a simulated accelerator, and table and sentences come out in order."""
    visits: list[tuple[Any, ...]] = []
    sentences = iter(["RandomMask holds it back.", "Raw data [red]holds[/red] it back.", "Well fed."])

    def diagnose(loader: Any, step: Callable[[Any], None], **options: Any) -> Report:
        accelerator = simulate.current()
        assert accelerator is not None
        before = accelerator.free_at
        step([torch.zeros(1)])
        dataset = loader.dataset
        names = [type(transform).__name__ for transform in dataset.transform.transforms[:3]]
        visits.append((names, dataset.image_size, accelerator.free_at > before, sorted(options)))
        report = make_report(next(sentences), device=34.5, none=8.9)
        return replace(
            report, caveats=(Caveat(id="few", sentence="Few steps."), Caveat(id="x", sentence="No.", about="raw"))
        )

    shown: list[Any] = []
    reports = run_journey(quick=True, console_print=shown.append, progress_print=lambda line: None, diagnose=diagnose)
    assert [(visit[:2]) for visit in visits] == [
        (["PILToTensor", "RandomCrop", "RandomMask"], 1024),
        (["RandomCrop", "PILToTensor", "FastRandomMask"], 1024),
        (["RandomCrop", "PILToTensor", "FastRandomMask"], 256),
    ]
    assert all(visit[2:] == (True, ["budget", "quiet"]) for visit in visits)
    assert list(reports) == ["published", "optimised", "small"]
    text = "".join(map(printed, shown))
    assert "No accelerator here" in text
    assert "89.0 ms a step" in text  # 345 ms over 3.45 / 0.89
    assert "transforms optimised: Raw data [red]holds[/red] it back." in text
    assert text.index("C. Rand") < text.index("as published: RandomMask") < text.index("Well fed.")
    assert text.count("Doubt: Few steps.") == 3
    assert "No." not in text.replace("No accelerator", "")
    assert simulate.current() is None


@pytest.mark.usefixtures("without_accelerator")
def test_an_order_that_was_tried_is_told() -> None:
    """The article's crop before the conversion, where the tool found it, with the gain that it measured."""
    gain = Estimate(value=1.25, low=1.2, high=1.3)
    remedy = Remedy(id="reorder", advice="Put `RandomCrop` before `PILToTensor`.", measured_gain=gain)
    shown: list[Any] = []
    run_journey(
        quick=True,
        console_print=shown.append,
        progress_print=lambda text: None,
        diagnose=lambda loader, step, **options: replace(make_report(), remedies=(remedy,)),
    )
    assert "Tried in the loop, x1.25: Put `RandomCrop` before `PILToTensor`." in str(shown[-1])


@pytest.mark.usefixtures("without_accelerator")
def test_a_failing_leg_leaves_no_accelerator_behind() -> None:
    """When a diagnosis raises, its exception passes through and the simulated accelerator is put away."""

    def diagnose(loader: Any, step: Any, **options: Any) -> Report:
        raise LookupError("no verdict")

    with pytest.raises(LookupError, match="no verdict"):
        run_journey(console_print=lambda line: None, progress_print=lambda line: None, diagnose=diagnose)
    assert simulate.current() is None


def test_a_real_accelerator_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a device, the step trains the model on it and nothing is simulated or calibrated."""
    monkeypatch.setattr(journey, "_find_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(journey, "measure_batch_time", lambda loader: pytest.fail("calibrated"))

    def diagnose(loader: Any, step: Callable[[Any], None], **options: Any) -> Report:
        assert simulate.current() is None
        assert loader.pin_memory
        step((torch.zeros(1, 3, 256, 256), torch.zeros(1, dtype=torch.long)))
        return make_report(device=2.0, none=1.0)

    shown: list[Any] = []
    run_journey(console_print=shown.append, progress_print=lambda line: None, diagnose=diagnose)
    assert "The model trains on cpu." in printed(shown[0])


def test_comparing_needs_no_torch() -> None:
    """The table can be made from stored reports on a machine without torch."""
    code = "import sys; from unstarve.demo import journey as j; j.draw(j.compare({})); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
