"""Comparisons and the history in a terminal: the answer first, no line too long, nothing hostile."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from literals import CROP, DECODE, make_recording, make_stage

from unstarve.comparison import Comparison, compare
from unstarve.render.comparison import render, render_history
from unstarve.report import Estimate
from unstarve.store import Run

WIDTHS = (60, 80, 120)
PERIODS = {"none": 80, "samples": 22, "host": 20, "knockout:decode": 25, "knockout:crop": 72}
BEFORE = make_recording(PERIODS, stages=(CROP, DECODE))
AFTER = make_recording(
    {**PERIODS, "none": 27, "knockout:crop": 24},
    stages=(make_stage("flip", 2, text=None), CROP, make_stage("decode", 3, kind="decode")),
    created="2026-01-02T10:30:00+0000",
    command="unstarve run fixed.py",
)
HOSTILE = (
    "[red]x[/red]",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07\x00\x9b2J\nand a line",
    "界" * 150,
    "n" * 300,
    "\u202egnitrevni\u202c",
)


def columns(line: str) -> int:
    """Columns a terminal needs, counted without rich."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def without_ansi(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def hostile(name: str) -> Comparison:
    """A comparison with `name` wherever a name of the user's can stand."""
    sides = []
    for recording in (BEFORE, AFTER):
        stages = tuple(replace(stage, name=name, text=name, source=f"{name}:1") for stage in recording.stages)
        rungs = tuple(replace(rung, label=name) for rung in recording.rungs)
        sides.append(replace(recording, stages=stages, rungs=rungs, command=f"{name}{len(sides)}"))
    return compare(*sides)


def make_run(number: int = 7, **facts) -> Run:
    values = {
        "id": number,
        "created": "2026-01-02T10:30:00+0000",
        "project": "/home/me/project",
        "command": "unstarve run train.py --epochs 3",
        "bound": "input",
        "sentence": "Input-bound.",
        "baseline": Estimate(value=0.89, low=0.87, high=0.91),
        "ceiling": Estimate(value=3.45, low=3.41, high=3.49),
        **facts,
    }
    return Run(**values)


def listing(*runs: Run, width: int, **options) -> str:
    return render_history(runs, location=Path("/home/me/history.db"), width=width, **options)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_line_is_the_answer(width: int) -> None:
    """A reader who stops after the first line knows whether it is faster, by how much, and within which interval."""
    first = render(compare(BEFORE, AFTER), width=width).splitlines()[0]
    assert re.fullmatch(r" FASTER  From 12\.5 to 37\.1 steps/s, ×2\.96 \(2\.9\d–3\.0\d\)\.", first)


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [*WIDTHS, 41])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_line_is_wider_than_asked(name: str, width: int, color: bool) -> None:
    """Wide characters, markup, escapes and endless names push no line past the width."""
    text = without_ansi(render(hostile(name), width=width, color=color))
    assert max(columns(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing(name: str) -> None:
    """No control character of a name reaches the terminal, in comparisons and in the history."""
    runs = (make_run(command=name, project=name, created=name, sentence=name),)
    for text in (render(hostile(name), width=80), listing(*runs, width=80), listing(*runs, width=120, project=name)):
        assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"]


def test_markup_is_text() -> None:
    """Square brackets in a name are shown, not obeyed."""
    assert "[red]x[/red]" in render(hostile("[red]x[/red]"), width=120, color=True)


def test_color_changes_no_word() -> None:
    """The coloured text says what the plain one says."""
    comparison = compare(BEFORE, AFTER)
    plain, colored = render(comparison, width=80), render(comparison, width=80, color=True)
    assert "\x1b[" in colored
    assert [line.rstrip() for line in without_ansi(colored).splitlines()] == plain.splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_that_matters_is_shown(width: int) -> None:
    """Prediction, arrival, what is left, what binds now, every rung, changed stages and every doubt are there."""
    comparison = compare(BEFORE, AFTER)
    text = " ".join(render(comparison, width=width).split())
    assert "Expected ×3.20" in text
    assert "Arrived ×2.96" in text
    assert "less than if it cost nothing" in text
    assert "Left 3.00 ms a sample (n 10), ×0.30" in text
    assert "Now Input-bound: the loop reaches 37.1" in text
    assert "1 more without a notable difference" in text
    assert all(doubt.sentence in text for doubt in comparison.doubts)
    assert re.search(r"flip.*new", text)


def test_no_difference_and_no_figures_can_be_drawn() -> None:
    """A comparison that shows nothing, and one without any figure, still give their sentence."""
    empty = make_recording({}, blocks=(), rungs=())
    assert " ".join(render(compare(BEFORE, BEFORE), width=80).split()).startswith("NO DIFFERENCE SHOWN 12.5, then 12.5")
    assert " ".join(render(compare(empty, BEFORE), width=80).split()).startswith("UNRESOLVED The first run")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_history_shows_each_run_with_its_intervals(width: int) -> None:
    """Id, time, command, verdict and both rates with their intervals; the last line is the file's place."""
    text = listing(make_run(12), make_run(7, bound="step"), width=width, project="/home/me/project")
    lines = text.splitlines()
    assert max(columns(line) for line in lines) <= width
    assert lines[-1] == "/home/me/history.db"
    words = " ".join(text.split())
    for expected in ("2 runs of /home/me/project", "12 2026-01-02", "10:30", "train.py", "input-bound", "step-bound"):
        assert expected in words
    assert "0.89 (0.87–0.91)" in text
    assert "of 3.45 (3.41–3.49)" in text
    assert "unstarve run" not in text


def test_runs_of_several_projects_are_told_apart() -> None:
    """In the list of all projects each command bears its project's name."""
    assert "project: train.py" in listing(make_run(), width=120)


def test_an_empty_history_says_how_to_begin() -> None:
    """Without runs there is advice instead of a table, and still the place of the file."""
    text = listing(width=80, project="/p")
    assert "No runs of /p yet" in text
    assert text.splitlines()[-1] == "/home/me/history.db"


@pytest.mark.parametrize("width", [*WIDTHS, 41])
@pytest.mark.parametrize("name", HOSTILE)
def test_the_history_is_not_wider_than_asked(name: str, width: int) -> None:
    """Hostile commands push no line of the history past the width."""
    runs = (make_run(10**9, command=name, project=name), make_run(1, baseline=None, ceiling=None))
    text = listing(*runs, width=width)
    assert max(columns(line) for line in text.splitlines()) <= width
