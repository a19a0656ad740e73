"""The report in a terminal: golden texts, and lines that never overflow."""

from __future__ import annotations

import io
import os
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from unstarve.render.terminal import interval_bar, ladder_table, render
from unstarve.report import Estimate, Report

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (60, 80, 120)


def columns(line: str) -> int:
    """Columns a terminal needs, counted without rich: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def without_ansi(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["toy", "stepping", "minimal"])
def test_golden(name: str, width: int, request: pytest.FixtureRequest) -> None:
    """The text is what was last looked at and approved (UNSTARVE_GOLDEN=write stores it anew, to be looked at)."""
    path = GOLDEN / f"{name}-{width}.txt"
    text = render(request.getfixturevalue(name), width=width)
    if os.environ.get("UNSTARVE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [*WIDTHS, 41])
def test_no_line_is_wider_than_asked(hostile: Report, width: int, color: bool) -> None:
    """Wide characters, markup, escapes and endless names do not push a line past the width; only code is as wide as it is."""
    codeless = replace(hostile, remedies=tuple(replace(remedy, patch=None) for remedy in hostile.remedies))
    text = without_ansi(render(codeless, width=width, color=color))
    assert max(columns(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [*WIDTHS, 41])
def test_code_can_be_copied(toy: Report, width: int, color: bool) -> None:
    """However narrow the terminal, each line of a patch stays one line, and none loses its place beside the others."""
    lines = ["def collate(samples):", f"    # {'why ' * 40}once", f"    return {'first(samples) + ' * 9}()"]
    remedies = tuple(replace(remedy, patch="\n".join(lines)) for remedy in toy.remedies)
    text = without_ansi(render(replace(toy, remedies=remedies), width=width, color=color)).splitlines()
    first = next(number for number, line in enumerate(text) if line.strip() == lines[0])
    margin = " " * text[first].index("def")
    assert text[first : first + 3] == [margin + line for line in lines]


def test_hostile_names_do_nothing(hostile: Report) -> None:
    """No control character of a name reaches the terminal."""
    text = render(hostile, width=80)
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"]


def test_markup_is_text(named: Callable[[str], Report]) -> None:
    """Square brackets in a name are shown, not obeyed."""
    assert "[red]x[/red]" in render(named("[red]x[/red]"), width=80, color=True)


def test_color_changes_no_word(toy: Report) -> None:
    """The coloured text says what the plain one says."""
    plain, colored = render(toy, width=80), render(toy, width=80, color=True)
    assert "\x1b[" in colored
    assert [line.rstrip() for line in without_ansi(colored).splitlines()] == plain.splitlines()


def test_color_is_not_left_to_the_environment(toy: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller alone decides on colour and width."""
    expected = render(toy, width=80)
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "33"), ("TERM", "dumb"), ("JUPYTER_COLUMNS", "20")):
        monkeypatch.setenv(name, value)
    assert render(toy, width=80) == expected


def test_first_line_is_the_answer(toy: Report) -> None:
    """A reader who stops after the first line knows the verdict."""
    assert render(toy, width=120).splitlines()[0].startswith(" INPUT-BOUND  The loop reaches 0.89")


@pytest.mark.parametrize("width", WIDTHS)
def test_culprit_shows_where_it_stands(toy: Report, width: int) -> None:
    """Each finding shows the file, the line and the statement."""
    lines = [" ".join(line.split()) for line in render(toy, width=width).splitlines()]
    assert "Where train.py:33 image = make_image(index)" in lines
    assert 'dilated = convolve2d(mask, kernel, mode="same") > 0' in " ".join(lines)
    assert "Where train.py:48" in lines


def test_every_caveat_is_printed_once(toy: Report) -> None:
    """No doubt is lost, none is repeated."""
    text = " ".join(render(toy, width=120).split())
    assert [text.count(caveat.sentence) for caveat in toy.caveats] == [1] * len(toy.caveats)


def test_nothing_is_lost_beyond_three_findings(toy: Report) -> None:
    """A fourth culprit is named in a line of its own instead of a finding."""
    more = tuple(replace(toy.verdict.culprits[0], stage=f"x{n}", name=f"Culprit{n}") for n in range(4))
    text = render(replace(toy, verdict=replace(toy.verdict, culprits=more)), width=120)
    assert "3. Culprit2" in text
    assert "4. " not in text
    assert "Also guilty: ×1.93 (1.88–1.98) if free: Culprit3" in text


def test_bars_shorten_down_the_ladder(toy: Report) -> None:
    """A lower rate never has a longer bar, and every bar shows its interval."""
    bars = [interval_bar(rung.steps_per_s, cells=40, top=3.49) for rung in toy.rungs[:10]]
    assert [len(bar) for bar in bars] == sorted((len(bar) for bar in bars), reverse=True)
    assert all(bar.endswith("▒") and len(bar) <= 40 for bar in bars)


def test_bar_spans_its_interval() -> None:
    """Solid up to the low end, shaded to the high end, with the baseline marked where the bar is solid."""
    estimate = Estimate(value=5.0, low=4.0, high=6.0)
    assert interval_bar(estimate, cells=10, top=10.0) == "████▒▒"
    assert interval_bar(estimate, cells=10, top=10.0, baseline=2.0) == "██│█▒▒"
    assert interval_bar(estimate, cells=10, top=10.0, baseline=5.0) == "████▒▒"


def test_ladder_table_serves_live_progress(toy: Report) -> None:
    """The first rungs can be drawn before the others are known; with all of them in sight the margins agree."""

    def drawn(count: int) -> list[str]:
        console = Console(file=io.StringIO(), width=80, color_system=None)
        with console.capture() as capture:
            console.print(ladder_table(toy.rungs[:count], width=80, among=toy.rungs))
        return [line.rstrip() for line in capture.get().splitlines()]

    assert drawn(0) == []
    assert drawn(3) == drawn(10)[:3]


def test_zero_rates_can_be_drawn(toy: Report) -> None:
    """A loop that never moved is drawn like any other."""
    zero = Estimate(value=0.0, low=0.0, high=0.0, steps=1)
    text = render(replace(toy, rungs=tuple(replace(rung, steps_per_s=zero) for rung in toy.rungs)), width=80)
    assert "0.00–0.00" in text
