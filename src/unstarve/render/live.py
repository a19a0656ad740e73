"""Progress on stderr while a loop is being measured: the ladder fills in, rung by rung."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from unstarve import estimate
from unstarve.render.terminal import ladder_table
from unstarve.report import RungResult

REDRAW_S = 0.25


def _is_terminal(stream: Any) -> bool:
    """Whether the stream draws on a terminal; what a script puts in its place may not be able to tell, or be closed."""
    with contextlib.suppress(Exception):
        return bool(stream.isatty())
    return False


class _Above:
    """A stream to the terminal, written to by the script as if there were no picture: that is taken away before."""

    def __init__(self, stream: Any, clear: Callable[[], None]) -> None:
        self.stream = stream
        self._clear = clear
        self.is_line_open = False
        """Whether the last line written is to go on, as those of progress bars are."""

    def write(self, text: str) -> Any:
        self._clear()
        if text:
            self.is_line_open = not text.endswith("\n")
        return self.stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Progress:
    """Draws an engine's progress: a living ladder on a terminal, a line a round elsewhere.

    What the script prints goes where it goes without us, as it is. The ladder is drawn below it, unless the script is in
    the middle of a line.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        self._live: Live | None = None
        self._streams: dict[str, _Above] = {}
        self._pid = os.getpid()
        self._drawn = 0.0
        self._text = ""
        self._began = time.monotonic()
        self._phase = ""

    def __call__(self, engine: Any, text: str) -> None:
        """Called by the engine when something happens; must be quick, since the loop waits."""
        self._text = text or self._text
        if not self._console.is_terminal or any(stream.is_line_open for stream in self._streams.values()):
            self._write_line()
            return
        now = time.monotonic()
        if now - self._drawn < REDRAW_S:
            return
        self._drawn = now
        if self._live is None:
            self._watch_streams()
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(self._picture(engine), refresh=True)

    def _watch_streams(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, _Above) and _is_terminal(stream):
                self._streams[name] = _Above(stream, self._clear)
                setattr(sys, name, self._streams[name])

    def _clear(self) -> None:
        if self._live is not None and os.getpid() == self._pid:  # a forked worker has no picture
            self._live.stop()
            self._live = None

    def _write_line(self) -> None:
        phase = self._text.partition(":")[0]
        if phase != self._phase:
            self._phase = phase
            sys.stderr.write(f"unstarve: {phase} ({time.monotonic() - self._began:.0f} s)\n")
            sys.stderr.flush()

    def _picture(self, engine: Any) -> Group:
        rates = estimate.rates(engine.blocks)
        results = tuple(
            RungResult(id=rung.id, label=rung.label, after=rung.after, kind=rung.kind, steps_per_s=rates[rung.id])
            for rung in sorted(engine.rungs, key=lambda rung: rung.rank)
            if rung.id in rates
        )
        head = Text(
            f"unstarve  {self._text}  ·  {engine.steps_total} steps  ·  {time.monotonic() - self._began:.0f} s", "bold"
        )
        if not results:
            return Group(head)
        return Group(head, ladder_table(results, width=min(100, self._console.width)))

    def close(self) -> None:
        """Take the picture away, and leave the streams as they were."""
        self._clear()
        for name, stream in self._streams.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, stream.stream)
        self._streams.clear()
