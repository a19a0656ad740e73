"""The result of a search in a terminal: what it says, and lines that never overflow."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from test_terminal import columns, without_ansi

from unstarve.recording import Settings
from unstarve.render.tuning import render
from unstarve.report import Caveat, Estimate
from unstarve.tuning import Tried, Tuning

OWN, BEST = Settings(num_workers=2), Settings(num_workers=6, in_order=False)
GAIN = Estimate(value=1.9, low=1.8, high=2.0)
DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x = DataLoader(ds)\n+x = DataLoader(ds, num_workers=6)\n"


def tried(settings: Settings, rate: float, gain: Estimate | None) -> Tried:
    figure = Estimate(value=rate, low=rate - 1, high=rate + 1, steps=64)
    return Tried(
        settings=settings, label=str(settings), steps_per_s=figure, gain=gain, rounds=4, is_own=settings == OWN
    )


CHANGED = Tuning(
    sentence="With 6 workers, any order instead of 2 workers the loop runs 1.90 times as fast.",
    own=OWN,
    best=BEST,
    gain=GAIN,
    tried=(tried(BEST, 38, GAIN), tried(OWN, 20, None)),
    arguments={"num_workers": 6, "in_order": False},
    source="train.py:41",
    diff=DIFF,
    caveats=(Caveat(id="order", sentence="It cannot be repeated exactly."),),
    command="unstarve tune train.py",
    loader="DataLoader(Toy)",
    steps=300,
    seconds=31.4,
)
KEPT = replace(CHANGED, sentence="Nothing is better.", best=OWN, gain=None, arguments={}, diff=None, caveats=())


@pytest.fixture
def hostile(hostile_name: str) -> Tuning:
    """A result in which everything that comes from outside is called so."""
    return replace(
        CHANGED,
        sentence=hostile_name,
        source=f"{hostile_name}.py:3",
        diff=f"--- {hostile_name}\n+++ {hostile_name}\n+{hostile_name}\n",
        snippet=hostile_name,
        command=hostile_name,
        loader=hostile_name,
        tried=(replace(CHANGED.tried[0], label=hostile_name), CHANGED.tried[1]),
        caveats=(Caveat(id="x", sentence=hostile_name),),
    )


def test_the_answer_comes_first() -> None:
    """The first line says whether to change anything, in a word and a sentence; doubts stand right beneath."""
    lines = render(CHANGED, width=120).splitlines()
    assert lines[0].split() == ["CHANGE", *CHANGED.sentence.split()]
    assert "It cannot be repeated exactly." in lines[1]
    assert render(KEPT, width=120).splitlines()[0].split()[0] == "KEEP"


def test_every_figure_has_an_interval_and_a_number_of_steps() -> None:
    """What was tried, with rate, gain and how much they rest on; the best is marked, the script's own named."""
    text = render(CHANGED, width=120)
    best = next(line for line in text.splitlines() if line.startswith("▶"))
    assert best.split() == ["▶", "6", "workers,", "any", "order", "38", "37–39", "×1.90", "(1.80–2.00)", "n", "64"]
    assert "2 workers (the script's own)" in text


def test_what_the_table_does_not_say_of_itself_stands_beneath() -> None:
    """Why rates and gains need not agree, and what is there twice."""
    again = replace(CHANGED.tried[0], label=f"{BEST}, again")
    text = render(replace(CHANGED, tried=(again, *CHANGED.tried)), width=120)
    assert "A gain compares the same rounds" in text
    assert "“again”: what looked best" in text
    assert "“again”" not in render(CHANGED, width=120)


def test_the_change_is_a_diff_where_the_call_is_known() -> None:
    """Place and lines; the measured gain beneath."""
    text = render(CHANGED, width=120)
    assert "Change  train.py:41" in text
    assert "-x = DataLoader(ds)\n+x = DataLoader(ds, num_workers=6)\n" in text
    assert "×1.90 (1.80–2.00) for the whole loop" in text


def test_the_change_is_a_call_where_the_script_cannot_be_edited() -> None:
    """The arguments to give, and code for what is no argument."""
    snippet = "def worker_init_fn(worker_id):\n    torch.set_num_threads(1)"
    text = render(replace(CHANGED, diff=None, snippet=snippet), width=120)
    assert "DataLoader(..., num_workers=6, in_order=False)" in text
    assert snippet in text


def test_nothing_to_change_shows_no_change() -> None:
    """Neither heading nor gain."""
    text = render(KEPT, width=120)
    assert "Change" not in text
    assert "Measured" not in text


@pytest.mark.parametrize("width", [41, 60, 120])
@pytest.mark.parametrize("tuning", [CHANGED, KEPT])
def test_no_line_is_wider_than_asked(tuning: Tuning, width: int) -> None:
    """Tables and sentences are wrapped."""
    assert max(columns(line) for line in render(tuning, width=width).splitlines()) <= width


@pytest.mark.parametrize("color", [False, True])
def test_a_diff_can_be_applied_and_a_call_copied(color: bool) -> None:
    """However narrow the terminal, their lines are never broken."""
    line = f"loader = DataLoader({'dataset, ' * 20}num_workers=6)"
    text = without_ansi(render(replace(CHANGED, diff=f"-x\n+{line}\n", snippet=line), width=60, color=color))
    assert {f"+{line}", line} <= set(text.splitlines())
    arguments = {f"argument_{number}": 6 for number in range(9)}
    text = without_ansi(render(replace(CHANGED, diff=None, arguments=arguments), width=60, color=color))
    assert any(line.startswith("DataLoader(") and line.endswith("argument_8=6)") for line in text.splitlines())


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [41, 80])
def test_hostile_names_do_nothing(hostile: Tuning, width: int, color: bool) -> None:
    """They push no line but those of code past the width, and no control character of theirs reaches the terminal."""
    codeless = without_ansi(render(replace(hostile, diff="+x", snippet=None), width=width, color=color))
    assert max(columns(line) for line in codeless.splitlines()) <= width
    text = without_ansi(render(hostile, width=width, color=color))
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"]
