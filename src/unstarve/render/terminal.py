"""A report as text for a terminal, drawn with rich. What goes where is chosen in `unstarve.render`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstarve import render as view
from unstarve.report import Culprit, Estimate, Remedy, Report, RungResult, short_place

_BADGES = {"input": "bold white on red", "step": "bold white on green", "start": "bold black on yellow"}
_PARTS = {"steady": "█", "iterator starts": "▓", "other loaders": "▒", "elsewhere": "░"}
NARROWEST = 40
_WITH_STEPS = 76
_WITH_SOURCES = 110
_PATCH_LINES = 16
_LABEL = 10
_NO_NOTES: Mapping[str, str] = MappingProxyType({})


def render(report: Report, *, width: int = 100, color: bool = False) -> str:
    """The report as lines of at most `width` columns (never narrower than 40) but for code, which is never broken; with
    ANSI colours if asked."""
    width = max(width, NARROWEST)
    return drawn(_sections(view.cleaned(report), width), width=width, color=color)


def drawn(sections: Iterable[RenderableType], *, width: int, color: bool) -> str:
    """The sections as text, an empty line between any two, with ANSI colours if asked."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    with console.capture() as capture:
        for number, section in enumerate(sections):
            if number:
                console.print()
            for part in section.renderables if isinstance(section, Group) else (section,):
                console.print(Group(part), overflow="fold", crop=not _is_code(part))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def ladder_table(
    rungs: tuple[RungResult, ...],
    *,
    width: int,
    among: tuple[RungResult, ...] = (),
    baseline: float | None = None,
    notes: Mapping[str, str] = _NO_NOTES,
) -> RenderableType:
    """Rungs as bars of steps/s with their 95 % intervals, `width` columns wide; for reports and live progress alike.

    Args:
        rungs: in the order to draw them.
        width: columns to fill.
        among: rungs of other tables that must share scale and margins with this one.
        baseline: rate to mark in each bar with a line.
        notes: for a rung's id, a remark to print above it, where the drop to it is guilty of something.
    """
    top = view.top_rate(rungs + among)
    columns = _rung_columns(rungs + among, width)
    lines: list[RenderableType] = []
    for rung in rungs:
        if rung.id in notes:
            lines.append(_one_line(f"▼ {notes[rung.id]}", width, "bold red"))
        lines.append(_rung_line(rung, columns, top, baseline, is_guilty=rung.id in notes))
    return Group(*lines)


def interval_bar(estimate: Estimate, *, cells: int, top: float, baseline: float | None = None) -> str:
    """A bar of at most `cells` characters: solid up to the interval's low end, shaded (one cell or more) across it."""

    def cell(rate: float) -> int:
        return round(min(max(rate / top, 0.0), 1.0) * cells)

    high = max(cell(estimate.high), 1)
    low = min(cell(estimate.low), high - 1)
    bar = "█" * low + "▒" * (high - low)
    if baseline is None or cell(baseline) >= low:
        return bar
    return bar[: cell(baseline)] + "│" + bar[cell(baseline) + 1 :]


def _sections(report: Report, width: int) -> Iterator[RenderableType]:
    yield _headline(report)
    yield from _ladder(report, width)
    yield from _beside_the_ladder(report, width)
    yield from _stages(report, width)
    yield from _body(report, width)
    yield from _findings(report)
    yield from _wall_time(report, width)
    yield from _environment(report, width)


# Headline


def _headline(report: Report) -> RenderableType:
    style = _BADGES.get(report.verdict.bound, "bold reverse")
    line = Text.assemble((f" {view.badge(report.verdict)} ", style), " ", (view.answer(report.verdict), "bold"))
    news = [Text(view.good_news(report), "green")] if view.good_news(report) else []
    return Group(line, *news, *doubts(view.doubts(report).get("verdict", ())))


def doubts(sentences: Iterable[str]) -> Iterator[RenderableType]:
    """Doubts, one beneath the other."""
    for sentence in sentences:
        yield labelled("Doubt", Text(sentence, style="yellow"), style="yellow")


def labelled(label: str, content: RenderableType, *, style: str = "dim", indent: int = 0) -> RenderableType:
    """A short word and, beside it, a text that keeps its own left margin."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=_LABEL - 2, no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text(label, style=style), content)
    return Padding(table, (0, 0, 0, indent)) if indent else table


def heading(title: str, remark: str = "") -> Text:
    """The title of a section, with a remark beside it."""
    return Text.assemble((title, "bold underline"), (f"  {remark}" if remark else "", "dim"), overflow="fold")


# Ladder


def _ladder(report: Report, width: int) -> Iterator[RenderableType]:
    rungs = view.ladder(report.rungs)
    parts: list[RenderableType] = []
    if rungs:
        notes = {rung: _claim(culprit) for rung, culprit in view.guilty_drops(report).items()}
        parts.append(heading("Ladder", "steps/s when all before a point comes from cache; ▒ 95 % interval"))
        parts.append(ladder_table(rungs, width=width, among=report.rungs, notes=notes))
    else:
        known = (("now", report.baseline), ("possible", report.ceiling))
        parts.extend(labelled(name, Text(view.rate(value))) for name, value in known if value is not None)
    if report.headroom is not None:
        alone = view.beside_headroom(report)
        says = f"{view.ratio(report.headroom)}, ceiling over the loop as it is{alone and f'; {alone}'}"
        parts.append(labelled("Headroom", Text(says)))
    if report.limit is not None:
        parts.append(labelled("Limit", Text(f"{report.limit.binding}: {report.limit.explanation}")))
    parts.extend(labelled(name, Text(sentence)) for name, sentence in view.needs(report))
    parts.extend(doubts(view.doubts(report).get("ladder", ())))
    if parts:
        yield Group(*parts)


def _claim(culprit: Culprit) -> str:
    return f"{view.ratio(culprit.gain)} if free: {view.clip(culprit.name)}"


def _beside_the_ladder(report: Report, width: int) -> Iterator[RenderableType]:
    baseline = None if report.baseline is None else report.baseline.value
    remark = "steps/s" if baseline is None else "steps/s; │ the loop as it is"
    for title, rungs in view.beside(report.rungs):
        yield Group(heading(title, remark), ladder_table(rungs, width=width, among=report.rungs, baseline=baseline))


def _rung_columns(rungs: tuple[RungResult, ...], width: int) -> tuple[int, ...]:
    """Widths of label, bar, value, interval and number of steps (0 where it is left out); two columns lie between."""
    value = max((len(view.figure(rung.steps_per_s.value)) for rung in rungs), default=0)
    span = max((len(view.interval(rung.steps_per_s)) for rung in rungs), default=0)
    steps = max((len(_steps(rung)) for rung in rungs), default=0) if width >= _WITH_STEPS else 0
    free = width - value - span - steps - 2 * (4 if steps else 3)
    longest = max((cell_len(view.printable(rung.label)) for rung in rungs), default=0)
    label = min(longest, free * 2 // 3)
    return label, max(free - label, 1), value, span, steps


def _steps(rung: RungResult) -> str:
    return "" if rung.steps_per_s.steps is None else f"n {rung.steps_per_s.steps}"


def _rung_line(
    rung: RungResult, columns: tuple[int, ...], top: float, baseline: float | None, *, is_guilty: bool
) -> RenderableType:
    label, cells = columns[:2]
    style = "red" if is_guilty else "cyan"
    table = Table.grid(padding=(0, 2, 0, 0))
    for position, column in enumerate(columns):
        if column:
            table.add_column(width=column, justify="left" if position < 2 else "right", overflow="fold")
    estimate = rung.steps_per_s
    texts = [
        two_lines(view.printable(rung.label), label),
        Text(interval_bar(estimate, cells=cells, top=top, baseline=baseline), style=style, no_wrap=True),
        Text(view.figure(estimate.value), style="bold", no_wrap=True),
        Text(view.interval(estimate), style="dim", no_wrap=True),
        Text(_steps(rung), style="dim", no_wrap=True),
    ]
    table.add_row(*(text for text, column in zip(texts, columns, strict=True) if column))
    return table


def _one_line(text: str, width: int, style: str = "") -> Text:
    """`text` cut with an ellipsis where it is wider than `width` columns."""
    line = Text(text, style=style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def two_lines(text: str, width: int) -> Text:
    """`text` wrapped into at most two lines of `width` columns, the second cut with an ellipsis."""
    lines = [line.plain.rstrip() for line in Text(text).wrap(Console(width=width), width, overflow="fold")]
    kept = [Text(line) for line in lines[:1]]
    if len(lines) > 1:
        kept.append(_one_line(" ".join(lines[1:]), width))
    return Text("\n").join(kept)


# Stages


def _stages(report: Report, width: int) -> Iterator[RenderableType]:
    rows = view.stage_rows(report)
    remarks = list(doubts(view.doubts(report).get("stages", ())))
    if not rows:
        if remarks:
            yield Group(*remarks)
        return
    if any(row.stage and row.stage.gain_source == "ladder" for row in rows):
        remarks.insert(0, Text("≈ from the contrast of two rungs, not by knocking out the stage alone", style="dim"))
    yield Group(
        heading("Stages", "ms per sample; gain of the whole loop if the stage cost nothing"),
        _stage_table(rows, width),
        *remarks,
    )


def _stage_table(rows: tuple[view.StageRow, ...], width: int) -> Table:
    has_sources = width >= _WITH_SOURCES
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, header_style="dim")
    table.add_column("", ratio=3, no_wrap=True, overflow="ellipsis")
    if has_sources:
        table.add_column("source", ratio=1, no_wrap=True, overflow="ellipsis")
    for title, at_least in (("wall", 5), ("CPU", 5), ("share", 5), ("gain if free", 17)):
        table.add_column(title, justify="right", no_wrap=True, min_width=at_least)
    for row in rows:
        table.add_row(*_stage_cells(row, has_sources))
    return table


def _stage_cells(row: view.StageRow, has_sources: bool) -> list[Text]:
    mark = "▶ " if row.is_guilty else "  "
    style = "bold red" if row.is_guilty else ""
    stage = row.stage
    if stage is None:
        name = f"… {row.folded} more, {view.milliseconds(row.folded_wall_s)} ms"
        return [Text.assemble("  ", (_guides(row.guides), "dim"), (name, "dim"))]
    sign = "≈" if stage.gain_source == "ladder" else ""
    cells = [
        Text.assemble((mark, style), (_guides(row.guides), "dim"), (view.clip(stage.name), style)),
        Text(view.milliseconds(stage.wall_s_per_sample)),
        Text(view.milliseconds(stage.cpu_s_per_sample)),
        Text(view.percent(stage.share)),
        Text("" if stage.gain_if_free is None else sign + view.ratio(stage.gain_if_free), style=style),
    ]
    if has_sources:
        cells.insert(1, Text(stage.source or "", style="dim"))
    return cells


def _guides(guides: tuple[bool, ...]) -> str:
    """The lines that tie a stage to the one around it; outermost stages have none."""
    inner = guides[1:]
    stems = "".join("   " if is_last else "│  " for is_last in inner[:-1])
    return stems + ("" if not inner else "└─ " if inner[-1] else "├─ ")


# Loop body


def _body(report: Report, width: int) -> Iterator[RenderableType]:
    lines = view.body(report)
    if not lines:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, show_header=False)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for _ in ("source", "spent"):
        table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    for line in lines:
        text = "  " * (line.depth + 1) + view.clip(line.text)
        cells = (text, short_place(line.source), line.spent, view.percent(line.share))
        table.add_row(*map(Text, cells))
    yield Group(heading("Loop body", "share of a step fed from cache, in a line or what it calls"), table)


# Findings


def _findings(report: Report) -> Iterator[RenderableType]:
    for number, finding in enumerate(view.findings(report), 1):
        yield Group(*_finding(report, number, finding))
    left = report.verdict.culprits[view.MOST_FINDINGS :]
    if left:
        yield Text("Also guilty: " + "; ".join(_claim(culprit) for culprit in left), overflow="fold")
    others = view.other_remedies(report)[: view.MOST_FINDINGS]
    if others:
        title = "Also worth trying" if report.verdict.culprits else "What to change"
        yield Group(heading(title), *_actions(report, others, 0))


def _finding(report: Report, number: int, finding: view.Finding) -> Iterator[RenderableType]:
    culprit = finding.culprit
    claim = f"{view.ratio(culprit.gain)} for the whole loop if it cost nothing [{culprit.kind}, {culprit.resource}]"
    yield Text(f"{number}. {view.clip(culprit.name)}", style="bold", overflow="fold")
    for label, content in (
        ("Claim", claim),
        ("Where", view.where(culprit.source, None if culprit.text == culprit.name else culprit.text)),
        ("Inside", " › ".join(view.clip(step, 60) for step in culprit.path[:-1])),
        ("Evidence", culprit.evidence),
    ):
        if content:
            yield labelled(label, Text(content, overflow="fold"), indent=3)
    yield from _actions(report, finding.remedies, 3)
    for sentence in finding.doubts:
        yield labelled("Doubt", Text(sentence, style="yellow"), style="yellow", indent=3)


def _actions(report: Report, remedies: Iterable[Remedy], indent: int) -> Iterator[RenderableType]:
    for remedy in remedies:
        promised = "".join(f"  {word} {view.ratio(gain)}" for word, gain in view.promises(report, remedy))
        advice = Text.assemble(remedy.advice, (promised, "green"), overflow="fold")
        yield labelled("Action", advice, style="green", indent=indent)
        yield from code(remedy.patch or "", indent=indent + _LABEL, most=_PATCH_LINES)


def code(text: str, *, indent: int = 0, most: int | None = None) -> Iterator[RenderableType]:
    """Code or a patch, to be copied: its lines are never broken or cut, whatever the width; no more than `most` of them.

    It must stand in a section itself, not in a table there, which would cut them.
    """
    lines = text.splitlines()
    for line in lines[:most]:
        style = {"+": "green", "-": "red"}.get(line[:1], "dim")
        yield Text(" " * indent + line, style=style, no_wrap=True, overflow="ignore")
    if len(lines) > len(lines[:most]):
        yield Text(" " * indent + f"… {len(lines) - len(lines[:most])} more lines", style="dim")


def _is_code(part: RenderableType) -> bool:
    return isinstance(part, Text) and part.overflow == "ignore"


# Wall time and environment


def _wall_time(report: Report, width: int) -> Iterator[RenderableType]:
    parts = view.wall_parts(report.time)
    if not parts:
        return
    legend = [f"{_PARTS[name]} {name} {view.percent(fraction)}" for name, fraction in parts]
    one_line = "   ".join(legend)
    yield Group(
        heading("Wall time", "of an epoch as the script runs it by itself"),
        Text(_stacked_bar(parts, width), style="cyan", no_wrap=True),
        Text(one_line if len(one_line) <= width else "\n".join(legend)),
    )


def _stacked_bar(parts: tuple[tuple[str, float], ...], width: int) -> str:
    """The parts side by side; borders are rounded, not lengths, so that the whole is not a cell short."""
    bar, end = "", 0.0
    for name, fraction in parts:
        end += fraction
        bar += _PARTS[name] * (min(round(end * width), width) - len(bar))
    return bar


def _environment(report: Report, width: int) -> Iterator[RenderableType]:
    items = view.environment_items(report)
    if items:
        text = two_lines(" · ".join(f"{name} {value}" for name, value in items), width)
        text.stylize("dim")
        yield text
