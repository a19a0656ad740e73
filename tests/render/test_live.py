"""Progress on a terminal beside what the script prints to it."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from unstarve.render import live

ENGINE: Any = SimpleNamespace(blocks=(), rungs=(), steps_total=7)


class Terminal(io.StringIO):
    """A terminal that keeps all that is sent to it."""

    def isatty(self) -> bool:
        return True


def terminals(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, Terminal]:
    """What the script's stdout and stderr go to from now on; pictures are drawn as often as asked for."""
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(live, "REDRAW_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return out, err


def test_what_the_script_prints_goes_where_it_goes_and_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """To its own stream, with what would be markup to us left as it is, and nothing is added."""
    out, err = terminals(monkeypatch)
    progress = live.Progress()
    progress(ENGINE, "measuring")
    print("[/loss] 0.3", flush=True)
    assert print("[/", end="", flush=True) is None
    assert sys.stdout.write("]\n") == 2
    sys.stdout.writelines(["one\n", "two\n"])
    print("[red]told", file=sys.stderr)
    progress(ENGINE, "measuring")
    progress.close()
    assert out.getvalue() == "[/loss] 0.3\n[/]\none\ntwo\n"
    assert "[red]told\n" in err.getvalue()
    assert (sys.stdout, sys.stderr) == (out, err)


def test_the_picture_is_taken_away_before_the_script_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the script's would otherwise go on in the picture's last line, and be wiped out with it."""
    err = terminals(monkeypatch)[1]
    progress = live.Progress()
    progress(ENGINE, "measuring")
    assert "7 steps" in err.getvalue().rsplit("\x1b[2K", 1)[-1]
    print("loss 0.3")
    assert "7 steps" not in err.getvalue().rsplit("\x1b[2K", 1)[-1]
    progress(ENGINE, "measuring")
    assert "7 steps" in err.getvalue().rsplit("\x1b[2K", 1)[-1]
    progress.close()


def test_no_picture_is_drawn_into_a_line_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a progress bar: phases are told as lines meanwhile, as where there is no terminal."""
    err = terminals(monkeypatch)[1]
    progress = live.Progress()
    progress(ENGINE, "measuring: first")
    print("\r 10 %", end="", file=sys.stderr, flush=True)
    before = len(err.getvalue())
    progress(ENGINE, "measuring: second")
    assert err.getvalue()[before:] == "unstarve: measuring (0 s)\n"
    progress.close()


def test_a_stream_that_the_script_replaced_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end only what is ours is taken back."""
    terminals(monkeypatch)
    progress = live.Progress()
    progress(ENGINE, "measuring")
    own = sys.stdout = io.StringIO()
    progress.close()
    assert sys.stdout is own


class Tee:
    """What scripts put in place of a stream to keep a log: it can be written to, and no more."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()


def test_a_stream_that_cannot_tell_what_it_is_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is drawn all the same, and the script's own stream stays in its place."""
    out, err = terminals(monkeypatch)
    tee = Tee(out)
    monkeypatch.setattr(sys, "stdout", tee)
    progress = live.Progress()
    progress(ENGINE, "measuring")
    assert sys.stdout is tee
    progress.close()
    assert "7 steps" in err.getvalue()
