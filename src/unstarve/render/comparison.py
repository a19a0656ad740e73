"""Runs beside each other as text for a terminal, drawn with rich: two that were compared, or a list of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unstarve import render as view
from unstarve.comparison import Comparison, Prediction, RungChange, Side, StageChange
from unstarve.render.terminal import NARROWEST, doubts, drawn, heading, labelled, two_lines
from unstarve.report import Estimate
from unstarve.store import Run

MOST_STAGES = 12
NOTABLE = 0.02
"""A stage is worth a line if it changed by this share of the most expensive stage."""

_OUTCOMES = {"faster": "bold white on green", "slower": "bold white on red", "same": "bold reverse"}
_ARRIVALS = {
    "within": "within the predicted interval",
    "compatible": "outside the predicted interval, but by no more than the noise of both runs",
    "less": "less than if it cost nothing",
    "more": "more than if it cost nothing",
}
_SIDE_BY_SIDE = 76
"""From this width on a figure and its interval stand on one line."""
_ONE_LINE_A_RUN = 110
_ABSENT = "—"


def render(comparison: Comparison, *, width: int = 100, color: bool = False) -> str:
    """The comparison as lines of at most `width` columns (never narrower than 40), with ANSI colours if asked."""
    width = max(width, NARROWEST)
    cleaned: Comparison = view.clean(comparison)
    return drawn(_sections(cleaned, width), width=width, color=color)


def render_history(
    runs: Sequence[Run], *, location: Path, width: int = 100, color: bool = False, project: str | None = None
) -> str:
    """Runs of the history as lines of at most `width` columns, except that the last one gives the file's whole path.

    Args:
        runs: newest first.
        location: the history's file.
        width: columns to fill, never fewer than 40.
        color: whether to use ANSI colours.
        project: the project whose runs these are; None for several, which are then named.
    """
    width = max(width, NARROWEST)
    cleaned: tuple[Run, ...] = view.clean(tuple(runs))
    text = drawn(_history(cleaned, width, project), width=width, color=color)
    return f"{text}\n{view.printable(str(location))}\n"


def _sections(comparison: Comparison, width: int) -> Iterator[RenderableType]:
    yield _headline(comparison)
    yield _runs(comparison, width)
    if comparison.prediction is not None:
        yield _prediction(comparison.prediction)
    yield labelled("Now", Text(comparison.after.verdict.sentence, overflow="fold"))
    yield from _rungs(comparison, width)
    yield from _stages(comparison.stages, width)


def _headline(comparison: Comparison) -> RenderableType:
    word, _, rest = comparison.sentence.partition(":")
    rest = rest.strip()
    style = _OUTCOMES.get(comparison.outcome, "bold reverse")
    line = Text.assemble((f" {word.upper()} ", style), " ", (rest[:1].upper() + rest[1:], "bold"), overflow="fold")
    return Group(line, *doubts(doubt.sentence for doubt in comparison.doubts))


def _runs(comparison: Comparison, width: int) -> RenderableType:
    is_stacked = width < _SIDE_BY_SIDE
    table = _table(width, comparison.unit)
    before, after = comparison.before, comparison.after
    epoch = comparison.epoch_ratio if comparison.basis == "epoch" else None
    for name, old, new, change in (
        ("as it is", before.baseline, after.baseline, comparison.steady_ratio),
        ("possible", before.ceiling, after.ceiling, comparison.ceiling_ratio),
    ):
        table.add_row(Text(name), _rate(old, is_stacked), _rate(new, is_stacked), _change(change, is_stacked))
    if epoch is not None:
        rates = (
            Text(_ABSENT if rate is None else view.figure(rate))
            for rate in (before.epoch_steps_per_s, after.epoch_steps_per_s)
        )
        table.add_row(Text("whole epoch"), *rates, _change(epoch, is_stacked))
    table.add_row(Text("headroom"), _factor(before.headroom, is_stacked), _factor(after.headroom, is_stacked), Text(""))
    table.add_row(Text("bound"), *(Text(view.badge(side.verdict).lower()) for side in (before, after)), Text(""))
    return Group(_run_line("Before", before, width), _run_line("After", after, width), Text(""), table)


def _run_line(label: str, side: Side, width: int) -> RenderableType:
    return labelled(label, two_lines(f"{_when(side.created)}  {side.command}", width - 10))


def _prediction(prediction: Prediction) -> RenderableType:
    culprit, left = prediction.culprit, prediction.left
    place = f" ({culprit.source})" if culprit.source else ""
    lines = [
        ("Expected", f"{view.ratio(culprit.gain)} if {view.clip(culprit.name)}{place} cost nothing"),
        ("Arrived", f"{view.ratio(prediction.arrived)}: {_ARRIVALS[prediction.arrival]}"),
    ]
    if left is not None and left.ratio is not None:
        past = f"{view.milliseconds(left.before_s)} ms before (n {left.before_samples})"
        now = f"{view.milliseconds(left.after_s)} ms a sample (n {left.after_samples})"
        lines.append(("Left", f"{now}, {view.ratio(left.ratio)} of the {past}"))
    return Group(*(labelled(label, Text(text, overflow="fold")) for label, text in lines))


def _rungs(comparison: Comparison, width: int) -> Iterator[RenderableType]:
    for title, kinds in (
        ("Ladder", view.LADDER_KINDS),
        ("If it alone were free", ("knockout",)),
        ("Beside the ladder", ("trial", "control")),
    ):
        rungs = [rung for rung in comparison.rungs if rung.kind in kinds]
        if rungs:
            yield Group(heading(title, "steps/s"), _rung_table(rungs, width, comparison.unit))


def _rung_table(rungs: Sequence[RungChange], width: int, unit: str) -> Table:
    is_stacked = width < _SIDE_BY_SIDE
    table = _table(width, unit)
    for rung in rungs:
        table.add_row(
            two_lines(rung.label, max(8, width - (39 if is_stacked else 62))),
            _rate(rung.before, is_stacked),
            _rate(rung.after, is_stacked),
            _change(rung.ratio, is_stacked),
        )
    return table


def _stages(stages: Sequence[StageChange], width: int) -> Iterator[RenderableType]:
    notable = _notable(stages)
    if not stages:
        return
    table = _table(width, "time")
    for stage in notable[:MOST_STAGES]:
        table.add_row(*_stage_cells(stage, width))
    left = len(stages) - len(notable[:MOST_STAGES])
    rest = Text(f"{left} more without a notable difference" if left else "", style="dim")
    parts: list[RenderableType] = [heading("Stages", "ms a sample, with the number of samples timed")]
    if notable:
        parts.append(table)
    yield Group(*parts, *([rest] if left else []))


def _notable(stages: Sequence[StageChange]) -> list[StageChange]:
    """Stages whose cost changed for certain and by enough to matter, the greatest change first."""
    largest = max((max(stage.before_s or 0.0, stage.after_s or 0.0) for stage in stages), default=0.0)
    changed = [stage for stage in stages if stage.status in ("cheaper", "dearer", "new", "vanished")]
    return sorted((stage for stage in changed if _moved(stage) > NOTABLE * largest), key=lambda stage: -_moved(stage))


def _moved(stage: StageChange) -> float:
    return abs((stage.after_s or 0.0) - (stage.before_s or 0.0))


def _stage_cells(stage: StageChange, width: int) -> list[Text]:
    is_stacked = width < _SIDE_BY_SIDE
    place = f"  {stage.source}" if stage.source and not is_stacked else ""
    cells = [two_lines(f"{view.clip(stage.name)}{place}", max(8, width - (39 if is_stacked else 62)))]
    for seconds, samples in ((stage.before_s, stage.before_samples), (stage.after_s, stage.after_samples)):
        gap = "\n" if is_stacked else " "
        cells.append(Text(_ABSENT if seconds is None else f"{view.milliseconds(seconds)}{gap}(n {samples})"))
    word = stage.status if stage.ratio is None else ""
    cells.append(Text(word, style="yellow") if word else _change(stage.ratio, is_stacked, is_cost=True))
    return cells


# Cells


def _table(width: int, unit: str) -> Table:
    """Name, before, after and change; the last three as wide as their figures and intervals need."""
    is_stacked = width < _SIDE_BY_SIDE
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, header_style="dim")
    table.add_column("", ratio=1, overflow="fold")
    each, change = (11, 12) if is_stacked else (19, 19)
    for title, at_least in (("before", each), ("after", each), (f"change of {unit}", change)):
        table.add_column(title, justify="right", width=at_least, overflow="fold")
    return table


def _rate(estimate: Estimate | None, is_stacked: bool) -> Text:
    return _cell(estimate, "", is_stacked)


def _factor(estimate: Estimate | None, is_stacked: bool) -> Text:
    return _cell(estimate, "×", is_stacked)


def _change(estimate: Estimate | None, is_stacked: bool, *, is_cost: bool = False) -> Text:
    """A ratio, green where it is for the better beyond doubt and red where for the worse."""
    cell = _cell(estimate, "×", is_stacked)
    if estimate is not None and not estimate.low <= 1 <= estimate.high:
        cell.stylize("green" if (estimate.low > 1) != is_cost else "red")
    return cell


def _cell(estimate: Estimate | None, sign: str, is_stacked: bool) -> Text:
    if estimate is None:
        return Text(_ABSENT)
    return Text(f"{sign}{view.figure(estimate.value)}{chr(10) if is_stacked else ' '}({view.interval(estimate)})")


# History


def _history(runs: Sequence[Run], width: int, project: str | None) -> Iterator[RenderableType]:
    place = "all projects" if project is None else view.printable(project)
    if not runs:
        yield two_lines(f"No runs of {place} yet: `unstarve run train.py` adds one", width)
        return
    yield two_lines(f"{len(runs)} run{'' if len(runs) == 1 else 's'} of {place}, newest first", width)
    is_stacked = width < _ONE_LINE_A_RUN
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, header_style="dim")
    number = max(2, *(len(str(run.id)) for run in runs))
    table.add_column("id", justify="right", width=number)
    table.add_column("when", width=10 if is_stacked else 16)
    table.add_column("command", ratio=1, overflow="fold")
    table.add_column("verdict", width=11 if is_stacked else 12)
    table.add_column("steps/s of possible", justify="right", width=19 if is_stacked else 42)
    fixed = number + (40 if is_stacked else 70) + 5
    for run in runs:
        table.add_row(*_history_cells(run, is_stacked, max(8, width - fixed), is_named=project is None))
    yield table


def _history_cells(run: Run, is_stacked: bool, width: int, *, is_named: bool) -> list[Text]:
    command = run.command.removeprefix("unstarve run ")
    where = f"{Path(run.project).name}: " if is_named else ""
    bound = "unresolved" if run.bound == "unresolved" else f"{run.bound}-bound"
    return [
        Text(str(run.id)),
        Text(_when(run.created).replace(" ", "\n") if is_stacked else _when(run.created)),
        two_lines(f"{where}{command}", width),
        Text(bound),
        _speeds(run, is_stacked),
    ]


def _speeds(run: Run, is_stacked: bool) -> Text:
    if run.baseline is None or run.ceiling is None:
        return Text(_ABSENT)
    gap = "\n" if is_stacked else " "
    base, top = (f"{view.figure(found.value)} ({view.interval(found)})" for found in (run.baseline, run.ceiling))
    return Text(f"{base}{gap}of {top}")


def _when(created: str) -> str:
    """Date and time to the minute, as the machine that ran had it."""
    return created[:16].replace("T", " ")
