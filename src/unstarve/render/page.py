"""A report as a self-contained HTML page. Geometry and words are made here, markup in `page.html.j2`.

Text becomes HTML in one place only: the template, which escapes everything it prints. Nothing here returns markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from unstarve import render as view
from unstarve.report import Culprit, Report, RungResult, StageResult

_PATCH_CLASSES = {"+": "add", "-": "del", "@": "hunk"}
_PART_CLASSES = {"steady": "p0", "iterator starts": "p1", "other loaders": "p2", "elsewhere": "p3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One rung as the template draws it; lengths are percentages of the full bar."""

    rung: RungResult
    """The rung itself."""
    value: float
    """Length up to the estimate."""
    low: float
    """Lower end of the whisker."""
    high: float
    """Upper end of the whisker."""
    lost_to: float | None
    """Length of the rung above, where this one falls short of it."""
    culprit: Culprit | None
    """What is guilty of the drop from the rung above."""
    spoken: str
    """The bar in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One line of the stage table; lengths are percentages of the dearest stage."""

    row: view.StageRow
    """Where it stands in the tree."""
    depth: int
    """Levels of indentation."""
    wall: float
    """Length for its wall time."""
    cpu: float
    """Length for its CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the stacked bar of wall time; lengths are percentages."""

    name: str
    """What the time was spent on."""
    css: str
    """Class that colours it."""
    start: float
    """Where it begins."""
    length: float
    """How long it is."""
    share: str
    """The same as a text."""


def render(report: Report) -> str:
    """The report as a complete page that needs no network, no script and no other file."""
    return _draw(report, is_page=True)


def render_fragment(report: Report) -> str:
    """The report as one `<div>` with styles that touch nothing outside it, for notebooks."""
    return _draw(report, is_page=False)


def _draw(report: Report, *, is_page: bool) -> str:
    report = view.cleaned(report)
    text = _template().render(
        is_page=is_page,
        report=report,
        view=view,
        doubts=view.doubts(report),
        ladder=ladder_bars(report),
        beside=[
            (title, [_bar(rung, view.top_rate(report.rungs)) for rung in some])
            for title, some in view.beside(report.rungs)
        ],
        baseline=None if report.baseline is None else _length(report.baseline.value, view.top_rate(report.rungs)),
        summary=_summary(report),
        costs=stage_costs(report),
        body=view.body(report),
        findings=view.findings(report),
        others=view.other_remedies(report),
        needs=view.needs(report),
        parts=wall_time(report),
        environment=view.environment_items(report),
        patch_lines=patch_lines,
    )
    return text.lstrip()


@cache
def _template() -> Template:
    source = files("unstarve.render").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source)


def ladder_bars(report: Report) -> tuple[Bar, ...]:
    """The ladder's bars, each with the length it lost against the rung above."""
    rungs = view.ladder(report.rungs)
    drops = view.guilty_drops(report)
    top = view.top_rate(report.rungs)
    above: tuple[RungResult | None, ...] = (None, *rungs)
    return tuple(_bar(rung, top, previous, drops.get(rung.id)) for rung, previous in zip(rungs, above, strict=False))


def _bar(rung: RungResult, top: float, above: RungResult | None = None, culprit: Culprit | None = None) -> Bar:
    estimate = rung.steps_per_s
    is_lower = above is not None and above.steps_per_s.value > estimate.value
    spoken = f"{rung.label}: {view.rate(estimate)}"
    if culprit is not None:
        spoken += f"; the drop from the rung above is due to {culprit.name}"
    return Bar(
        rung=rung,
        value=_length(estimate.value, top),
        low=_length(estimate.low, top),
        high=_length(estimate.high, top),
        lost_to=_length(above.steps_per_s.value, top) if above is not None and is_lower else None,
        culprit=culprit,
        spoken=spoken,
    )


def _length(value: float, top: float) -> float:
    return round(100 * min(max(value / top, 0.0), 1.0), 2)


def _summary(report: Report) -> tuple[tuple[str, str, str, str], ...]:
    """The key figures as name, figure, unit and what stands beside it."""
    rates = (("The loop as it is", report.baseline), ("When input costs nothing", report.ceiling))
    tiles = [
        (name, view.figure(value.value), "steps/s", view.interval(value) + _n(value.steps))
        for name, value in rates
        if value is not None
    ]
    if report.headroom is not None:
        alone = view.beside_headroom(report)
        span = f"{view.interval(report.headroom)}{alone and f'; {alone}'}"
        tiles.append(("Headroom", f"×{view.figure(report.headroom.value)}", "", span))
    return tuple(tiles)


def _n(steps: int | None) -> str:
    return "" if steps is None else f", n {steps}"


def stage_costs(report: Report) -> tuple[Cost, ...]:
    """The stage tree with bar lengths."""
    top = max((stage.wall_s_per_sample or 0.0 for stage in report.stages), default=0.0) or 1.0
    return tuple(
        Cost(
            row=row,
            depth=min(len(row.guides) - 1, 8),
            wall=_length(_wall_s(row.stage), top) if row.stage else 0.0,
            cpu=_length(min(row.stage.cpu_s_per_sample or 0.0, _wall_s(row.stage)), top) if row.stage else 0.0,
        )
        for row in view.stage_rows(report)
    )


def _wall_s(stage: StageResult) -> float:
    return stage.wall_s_per_sample or 0.0


def wall_time(report: Report) -> tuple[Part, ...]:
    """The account of wall time as parts of one bar; empty where it is not worth showing."""
    parts: list[Part] = []
    start = 0.0
    for name, fraction in view.wall_parts(report.time):
        length = _length(fraction, 1.0)
        parts.append(
            Part(name=name, css=_PART_CLASSES[name], start=round(start, 2), length=length, share=view.percent(fraction))
        )
        start += length
    return tuple(parts)


def patch_lines(patch: str) -> tuple[tuple[str, str], ...]:
    """The lines of a patch, each with the class that colours it."""
    return tuple((_PATCH_CLASSES.get(line[:1], "same"), line) for line in patch.splitlines())
