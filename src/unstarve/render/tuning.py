"""The result of trying loader settings as text for a terminal, drawn with rich."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unstarve import render as view
from unstarve.render.terminal import NARROWEST, code, doubts, drawn, heading, labelled
from unstarve.report import Estimate
from unstarve.tuning import AGAIN, Tried, Tuning


def render(tuning: Tuning, *, width: int = 100, color: bool = False) -> str:
    """The result as lines of at most `width` columns (never narrower than 40) but for code, which is never broken; with
    ANSI colours if asked."""
    width = max(width, NARROWEST)
    cleaned: Tuning = view.clean(tuning)
    return drawn(_sections(cleaned, width), width=width, color=color)


def _sections(tuning: Tuning, width: int) -> Iterator[RenderableType]:
    badge = Text(
        " CHANGE " if tuning.is_change else " KEEP ",
        "bold black on yellow" if tuning.is_change else "bold white on green",
    )
    yield Group(Text.assemble(badge, "  ", tuning.sentence), *doubts(caveat.sentence for caveat in tuning.caveats))
    yield Group(
        heading("Tried", "steps/s of the loop; gain against the script's own settings; 95 % intervals"),
        _table(tuning),
        *_notes(tuning),
    )
    if tuning.is_change:
        yield Group(*_change(tuning))
    yield Text(f"command {tuning.command} · {tuning.loader} · {tuning.steps} steps in {tuning.seconds:.0f} s", "dim")


def _notes(tuning: Tuning) -> Iterator[RenderableType]:
    """What the table does not say of itself: why its rates and gains need not agree, and what was measured twice."""
    if any(item.gain is not None for item in tuning.tried):
        yield Text(
            "A gain compares the same rounds; steps/s are of all rounds, in which the machine's speed varies.", "dim"
        )
    if any(item.label.endswith(AGAIN) for item in tuning.tried):
        yield Text(f"“{AGAIN.strip(', ')}”: what looked best, on fresh blocks, which alone decide.", "dim")


def _table(tuning: Tuning) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "left", "right", "left", "right"):
        table.add_column(justify=justify, no_wrap=justify == "right")  # type: ignore[arg-type]
    for item in tuning.tried:
        table.add_row(*_row(item, tuning))
    return table


def _row(item: Tried, tuning: Tuning) -> tuple[str | Text, ...]:
    rate, gain = item.steps_per_s, item.gain
    is_best = item.settings == tuning.best
    label = f"{item.label} (the script's own)" if item.is_own else item.label
    style = "bold" if is_best else ""
    return (
        "▶" if is_best else " ",
        Text(label, style),
        f"{rate.value:.3g}",
        Text(f"{rate.low:.3g}–{rate.high:.3g}", "dim"),
        "" if gain is None else f"×{gain.value:.2f}",
        Text("" if gain is None else _interval(gain), "dim"),
        Text(f"n {rate.steps}", "dim"),
    )


def _interval(estimate: Estimate) -> str:
    return f"({estimate.low:.2f}–{estimate.high:.2f})"


def _change(tuning: Tuning) -> Iterator[RenderableType]:
    yield heading("Change", tuning.source or "")
    if tuning.diff:
        yield from code(tuning.diff)
    elif tuning.arguments:
        arguments = ", ".join(f"{name}={value!r}" for name, value in tuning.arguments.items())
        yield from code(f"DataLoader(..., {arguments})")
    if tuning.snippet:
        yield from code(tuning.snippet)
    if tuning.gain is not None:
        yield labelled("Measured", Text(f"×{tuning.gain.value:.2f} {_interval(tuning.gain)} for the whole loop"))
