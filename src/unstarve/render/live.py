"""Progress on stderr while a loop is being measured: the ladder fills in, rung by rung."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from unstarve import estimate
from unstarve.render.terminal import ladder_table
from unstarve.report import RungResult

REDRAW_S = 0.25


class Progress:
    """Draws an engine's progress: a living ladder on a terminal, a line a round elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._drawn = 0.0
        self._text = ""
        self._began = time.monotonic()
        self._phase = ""

    def __call__(self, engine: Any, text: str) -> None:
        """Called by the engine when something happens; must be quick, since the loop waits."""
        self._text = text or self._text
        if not self._console.is_terminal:
            self._write_line()
            return
        now = time.monotonic()
        if now - self._drawn < REDRAW_S:
            return
        self._drawn = now
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._picture(engine), refresh=True)

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
        """Take the picture away."""
        if self._live is not None:
            self._live.stop()
            self._live = None
