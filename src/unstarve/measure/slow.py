"""Where the few batches lose their time that take far longer than most: a thread looks at what is running, but only while a
batch is late.

Watching a few samples statement by statement does not meet what happens once in a shard, or in one read out of a
thousand.
"""

from __future__ import annotations

import contextlib
import linecache
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from unstarve.measure.body import cpu_clock, running, user_line
from unstarve.recording import LATE, SlowLine

LOOK_S = 0.02
"""Between two looks."""

LEAST_NS = 20_000_000
"""A batch that takes less is not late, however quick others are."""

RECENT = 32
"""Batches whose median is what is usual."""

FEWEST = 8
"""Batches from which on something is usual."""


class Late(NamedTuple):
    """What a line of the user's took of a late batch; a tuple, since it travels with the batch."""

    filename: str
    line: int
    wall_ns: int
    cpu_ns: int


class LateWatch:
    """Looks at the thread that makes it, between `begin` and `end`, once there was a late batch: most loaders never have
    one, and then nothing wakes up."""

    def __init__(self) -> None:
        self._target = threading.get_ident()
        self._thread: threading.Thread | None = None
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._count = 0
        self._limit_ns = 0
        self._began_ns = 0
        self._spent: dict[tuple[str, int], list[int]] = {}

    def begin(self, now_ns: int) -> None:
        """A batch is begun, at this time of `perf_counter_ns`."""
        self._began_ns = now_ns

    def abandon(self) -> None:
        """The batch was not made: what runs from now on is none of it."""
        self._began_ns = 0

    def end(self, taken_ns: int) -> tuple[Late, ...]:
        """The batch is made, in so long; the lines in which it was seen while it was late."""
        self._began_ns = 0
        self._recent.append(taken_ns)
        if self._thread is None and self._limit_ns and taken_ns > max(self._limit_ns, LEAST_NS):
            self._thread = threading.Thread(target=self._run, name="unstarve-late", daemon=True)
            self._thread.start()
        self._count += 1
        if self._count % FEWEST == 0:
            self._limit_ns = int(LATE * statistics.median(self._recent))
        if not self._spent:
            return ()
        spent, self._spent = self._spent, {}
        return tuple(Late(*place, *figures) for place, figures in list(spent.items()))  # the thread may still add one

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # a worker that is a thread has ended, and its clock with it
            self._look()

    def _look(self) -> None:
        cpu_ns = cpu_clock(self._target)
        while True:
            now, used = time.perf_counter_ns(), cpu_ns()
            time.sleep(LOOK_S)
            began = self._began_ns
            if not began or time.perf_counter_ns() - began < max(self._limit_ns, LEAST_NS):
                continue
            place = user_line(running(self._target))
            if place is not None and began == self._began_ns:  # still the same batch
                figures = self._spent.setdefault(place, [0, 0])
                figures[0] += time.perf_counter_ns() - now
                figures[1] += cpu_ns() - used


def gathered(found: Iterable[Late]) -> tuple[SlowLine, ...]:
    """Each line once, the one that took most first."""
    lines: dict[tuple[str, int], SlowLine] = {}
    for late in found:
        place = (late.filename, late.line)
        known = lines.get(place)
        lines[place] = SlowLine(
            source=f"{late.filename}:{late.line}",
            text=linecache.getline(*place).strip(),
            wall_ns=late.wall_ns + (known.wall_ns if known is not None else 0),
            cpu_ns=late.cpu_ns + (known.cpu_ns if known is not None else 0),
        )
    return tuple(sorted(lines.values(), key=lambda line: -line.wall_ns))


__all__ = ["Late", "LateWatch", "gathered"]
