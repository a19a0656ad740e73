"""The article's journey from a starved loop to a fed one, on whatever machine this is, beside the article's figures.

The comparison is a pure function of the reports (`compare`), the table a function of the comparison (`draw`); only
`run_journey` trains, measures and prints.
"""

from __future__ import annotations

import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstarve import simulate
from unstarve.report import Estimate, Report

if TYPE_CHECKING:
    import torch

    Loader = torch.utils.data.DataLoader[tuple[torch.Tensor, int]]

ARTICLE_SOURCE = (
    'C. Rand, "A Caching Strategy for Identifying Bottlenecks on the Data Input Pipeline", Towards Data Science, '
    "June 2025 (A10G, 4 vCPU, PyTorch 2.6, batch 256, 4 workers)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One stretch of the journey: the pipeline after the mends so far."""

    name: str
    """Key of the leg's report."""
    title: str
    """How a person reads it."""
    is_optimised: bool
    """Whether the transforms are the optimised ones."""
    image_size: int
    """Height and width of the raw image, in pixels."""


LEGS = (
    Leg(name="published", title="as published", is_optimised=False, image_size=1024),
    Leg(name="optimised", title="transforms optimised", is_optimised=True, image_size=1024),
    Leg(name="small", title="transforms optimised, raw image 256x256", is_optimised=True, image_size=256),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArticleRow:
    """One experiment of the article."""

    experiment: str
    """What was run."""
    leg: str
    """`Leg.name` of the pipeline it was run on."""
    rung: str
    """`RungResult.id` of our equivalent."""
    steps_per_s: float
    """The article's rate."""


# Figures of ARTICLE_SOURCE; the first row is its ceiling.
ARTICLE = (
    ArticleRow(experiment="batch cached on the device", leg="published", rung="device", steps_per_s=3.45),
    ArticleRow(experiment="batch cached on the host", leg="published", rung="host", steps_per_s=3.33),
    ArticleRow(experiment="processed sample cached", leg="published", rung="samples", steps_per_s=3.23),
    ArticleRow(experiment="raw sample cached", leg="published", rung="raw", steps_per_s=1.72),
    ArticleRow(experiment="nothing cached", leg="published", rung="none", steps_per_s=0.89),
    ArticleRow(experiment="optimised, raw sample cached", leg="optimised", rung="raw", steps_per_s=3.23),
    ArticleRow(experiment="optimised, nothing cached", leg="optimised", rung="none", steps_per_s=1.28),
    ArticleRow(experiment="and a raw image of 256x256", leg="small", rung="none", steps_per_s=3.23),
)
ARTICLE_CEILING_PER_S = ARTICLE[0].steps_per_s
ARTICLE_HEADROOM = ARTICLE_CEILING_PER_S / ARTICLE[4].steps_per_s

# A real step is hundreds of launches, so that a launch queue of about a thousand lets the host run a few steps ahead;
# here a step is two launches, the copy and the model.
SIMULATED_DEPTH = 4

# Chosen, not measured: meant to be wider than a quiet machine's drift within a minute.
CALIBRATION_TOLERANCE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One experiment, the article's figures beside ours."""

    article: ArticleRow
    """The experiment and its published rate."""
    article_ratio: float
    """The published rate over the published ceiling."""
    steps_per_s: Estimate | None
    """Our rate; None where the rung was not measured."""
    ratio: Estimate | None
    """Our rate over the ceiling of the same leg; None where either is missing or not positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the journey is on this machine."""

    batch_size: int
    """Samples of a batch."""
    workers: int
    """Worker processes."""
    budget_s: float
    """Seconds for the diagnosis of one leg."""


def choose_sizes(*, cores: int, has_accelerator: bool, quick: bool) -> Sizes:
    """The article's sizes where the machine can bear them, else small ones: about 80 s in all, 40 s if `quick`."""
    if has_accelerator and cores >= 4:
        return Sizes(batch_size=256, workers=4, budget_s=30.0 if quick else 60.0)
    return Sizes(batch_size=16, workers=max(1, min(cores, 4)), budget_s=10.0 if quick else 24.0)


def compare(reports: Mapping[str, Report]) -> tuple[Row, ...]:
    """The article's rows beside what the reports, by `Leg.name`, say of the same experiments."""
    return tuple(_compare_row(article, reports.get(article.leg)) for article in ARTICLE)


def _compare_row(article: ArticleRow, report: Report | None) -> Row:
    rates = {} if report is None else {rung.id: rung.steps_per_s for rung in report.rungs}
    rate, ceiling = rates.get(article.rung), rates.get("device")
    return Row(
        article=article,
        article_ratio=article.steps_per_s / ARTICLE_CEILING_PER_S,
        steps_per_s=rate,
        ratio=None if rate is None or ceiling is None else _ratio(rate, ceiling),
    )


def _ratio(rate: Estimate, ceiling: Estimate) -> Estimate | None:
    """`rate` over `ceiling` with a 95 % interval, from the two intervals by the MOVER method on the log scale.

    Assumes independent estimates; blocks paired by round are positively correlated, so the interval is too wide
    rather than too narrow. Reference: Zou and Donner, Statistics in Medicine 27 (2008) 1693-1702.
    """
    if min(rate.low, ceiling.low) <= 0:
        return None
    ratio = rate.value / ceiling.value
    if rate is ceiling:
        return Estimate(value=ratio, low=ratio, high=ratio)
    down = math.hypot(math.log(rate.value / rate.low), math.log(ceiling.high / ceiling.value))
    up = math.hypot(math.log(rate.high / rate.value), math.log(ceiling.value / ceiling.low))
    return Estimate(value=ratio, low=ratio * math.exp(-down), high=ratio * math.exp(up))


def doubt_calibration(rows: tuple[Row, ...]) -> str | None:
    """What to say where a simulated run did not come to the ratio that its step was set for, else None."""
    (ratio,) = (row.ratio for row in rows if (row.article.leg, row.article.rung) == (LEGS[0].name, "none"))
    if ratio is None or abs(math.log(ratio.value * ARTICLE_HEADROOM)) < math.log(1 + CALIBRATION_TOLERANCE):
        return None
    return (
        f"Doubt: the step was set for {1 / ARTICLE_HEADROOM:.2f} of the ceiling with nothing cached, and the loop came "
        f"to {ratio.value:.2f}. The speed of this machine's cores changed in between, so compare each leg with itself "
        "only, or run again while nothing else does."
    )


def draw(rows: tuple[Row, ...]) -> Table:
    """The comparison as a table."""
    table = Table(caption=f"Intervals are 95 %. Article: {ARTICLE_SOURCE}.", caption_justify="left")
    table.add_column("experiment")
    for heading in ("article steps/s", "of its ceiling", "here steps/s", "of its ceiling (interval)"):
        table.add_column(heading, justify="right")
    for row, following in zip(rows, (*rows[1:], None), strict=True):
        article, rate = row.article, row.steps_per_s
        table.add_row(
            article.experiment,
            f"{article.steps_per_s:.2f}",
            f"{row.article_ratio:.2f}",
            "not measured" if rate is None else f"{rate.value:.3g}",
            "-" if row.ratio is None else f"{row.ratio.value:.2f} ({row.ratio.low:.2f} to {row.ratio.high:.2f})",
            end_section=following is not None and following.article.leg != article.leg,
        )
    return table


def run_journey(
    *,
    quick: bool = False,
    console_print: Callable[[Any], None] | None = None,
    progress_print: Callable[[Any], None] | None = None,
    diagnose: Callable[..., Report] | None = None,
) -> dict[str, Report]:
    """Diagnose the toy pipeline as published and after each mend, print both beside the article, return the reports.

    Args:
        quick: spend less time, for wider intervals.
        console_print: receives what belongs on stdout, as text or rich renderables.
        progress_print: receives a line before each long wait; stderr by default.
        diagnose: stands in for `unstarve.api.diagnose`.

    Raises:
        UsageError: torchvision, SciPy or Pillow is missing.
        MeasurementError: a leg reached no verdict.
    """
    from unstarve.demo import toy

    if diagnose is None:
        from unstarve.api import diagnose as diagnose_in_loop

        diagnose = diagnose_in_loop
    show = console_print or Console().print
    progress = progress_print or Console(stderr=True).print

    device = _find_accelerator()
    sizes = choose_sizes(cores=_usable_cores(), has_accelerator=device is not None, quick=quick)
    make_loader = functools.partial(
        toy.make_loader,
        batch_size=sizes.batch_size,
        workers=sizes.workers,
        pin_memory=device is not None and device.type != "mps",  # which has none and warns
    )
    with _training_step(device, functools.partial(make_loader, **_pipeline(LEGS[0])), progress) as (step, setting):
        show(Text(f"Batch {sizes.batch_size}, {sizes.workers} workers. {setting}"))
        reports = {}
        for number, leg in enumerate(LEGS, start=1):
            progress(Text(f"Leg {number} of {len(LEGS)}: {leg.title} (about {sizes.budget_s:.0f} s)"))
            reports[leg.name] = diagnose(make_loader(**_pipeline(leg)), step, budget=sizes.budget_s, quiet=True)
    rows = compare(reports)
    show(draw(rows))
    if device is None and (doubt := doubt_calibration(rows)):
        show(Text(doubt))
    for leg in LEGS:
        show(_sum_up(leg, reports[leg.name]))
    return reports


def _sum_up(leg: Leg, report: Report) -> Text:
    """The leg's verdict, with what to mend in order and the doubts that weaken it."""
    lines = [f"{leg.title}: {report.verdict.sentence}"]
    if len(report.verdict.culprits) > 1:
        ranked = (f"{culprit.name} x{culprit.gain.value:.2f}" for culprit in report.verdict.culprits)
        lines.append(f"  To mend, each by what it alone would gain: {', '.join(ranked)}.")
    lines += [
        f"  Tried in the loop, x{remedy.measured_gain.value:.2f}: {remedy.advice}"
        for remedy in report.remedies
        if remedy.measured_gain is not None and remedy.id.startswith("reorder")
    ]
    lines += [f"  Doubt: {caveat.sentence}" for caveat in report.caveats if caveat.about == "verdict"]
    return Text("\n".join(lines))


def _pipeline(leg: Leg) -> dict[str, Any]:
    from unstarve.demo import toy

    transform = toy.transforms_optimised() if leg.is_optimised else toy.transforms_as_published()
    return {"transform": transform, "image_size": leg.image_size}


@contextmanager
def _training_step(
    device: torch.device | None, make_loader: Callable[[], Loader], progress: Callable[[Any], None]
) -> Iterator[tuple[Callable[[Any], None], str]]:
    """The step, real or simulated, and a sentence about it; a simulated accelerator is in use while the block runs."""
    if device is not None:
        from unstarve.demo import toy

        yield toy.make_train_step(device), f"The model trains on {device}."
        return
    progress(Text("Calibrating a simulated accelerator against this machine's workers (about 5 s)"))
    batch_s = measure_batch_time(make_loader())
    step_s = batch_s / ARTICLE_HEADROOM
    with simulate.use(simulate.SimulatedAccelerator(depth=SIMULATED_DEPTH)) as accelerator:
        yield (
            functools.partial(_simulated_step, accelerator, step_s),
            f"No accelerator here: a simulated one takes {step_s * 1e3:.1f} ms a step, set so that the pipeline as "
            f"published, nothing cached, comes to the article's {1 / ARTICLE_HEADROOM:.2f} of the ceiling. The other "
            "ratios are this machine's own.",
        )


def _simulated_step(accelerator: simulate.SimulatedAccelerator, step_s: float, batch: Any) -> None:
    accelerator.to_device(batch, non_blocking=True)
    accelerator.launch(step_s)


def measure_batch_time(
    loader: Loader, *, seconds: float = 3.0, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds per batch that the loader needs when nothing holds it back, in its steady state.

    The batches that the workers start with are discarded. A turn is one batch of each worker, since delivery repeats
    with their number; the median turn counts, since other programs on the machine make some turns much longer.
    """
    workers = max(1, loader.num_workers)
    batches = iter(loader)
    for _ in range(workers * (loader.prefetch_factor or 1)):
        next(batches)
    turns_s: list[float] = []
    begin = end = clock()
    while not turns_s or end - begin < seconds:
        start = end
        for _ in range(workers):
            next(batches)
        end = clock()
        turns_s.append(end - start)
    return statistics.median(turns_s) / workers


def _find_accelerator() -> torch.device | None:
    import torch

    if hasattr(torch, "accelerator"):  # torch 2.6 and later
        return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps") if torch.backends.mps.is_available() else None


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
