"""What memory costs the process that makes batches: garbage collections, and pages of the parent copied on write."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import time
from typing import Any, NamedTuple

from unstarve.measure.counters import RunDelay, usage


class Collector:
    """Clocks Python's garbage collector in this process, and can switch it off for a trial.

    Clocking a collection takes about a microsecond; a collection of 700 new objects, the smallest there usually is, takes
    ten.
    """

    def __init__(self) -> None:
        self.ns = 0
        """Time that collections have taken since the clock was started."""
        self._began_ns = 0
        self._is_off = False

    def start(self) -> None:
        """Clock collections from now on; a process that was forked from one with a clock has it already."""
        if self.note not in gc.callbacks:
            gc.callbacks.append(self.note)

    def stop(self) -> None:
        """Leave the collector as it was found."""
        self.allow(True)
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self.note)

    def allow(self, is_allowed: bool) -> None:
        """Switch the collector off, or on again where it was on: a script that has switched it off keeps it off."""
        if not is_allowed and gc.isenabled():
            gc.disable()
            self._is_off = True
        elif is_allowed and self._is_off:
            gc.enable()
            self._is_off = False

    def note(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector when it starts and when it has ended."""
        now = time.perf_counter_ns()
        if phase == "start":
            self._began_ns = now
        elif self._began_ns:
            self.ns += now - self._began_ns


COLLECTOR = Collector()
"""The one of this process."""


class Look(NamedTuple):
    """The memory of a process at one moment; all figures count from its birth, or are levels."""

    fetches: int
    """Batches that it has made."""
    private_bytes: int
    """Memory that it has written and shares with nobody."""
    shared_bytes: int
    """Written memory that it shares with another process, such as what a fork left in common."""
    minor_faults: int
    """Page faults that read nothing."""
    major_faults: int
    """Page faults that read from storage or swap."""
    system_ns: int
    """CPU time in the kernel."""
    cpu_ns: int
    """CPU time, the kernel's included."""
    delay_ns: int
    """Time in which it was ready to run but had no core."""
    wall_ns: int
    """Wall time of making the batches."""


RARE = 50
"""Batches must have taken so many times what a look takes before the next look."""


class MemoryWatch:
    """Looks at this process's memory at its birth and after its 1st, 2nd, 4th, 8th … batch.

    The kernel walks all pages for a look, which takes some ten milliseconds for each gigabyte; so looks are few, and fewer
    where they take long. Looks at nothing where the kernel does not tell (not Linux).
    """

    def __init__(self, run_delay: RunDelay) -> None:
        self._run_delay = run_delay
        self._fetches = 0
        self._wall_ns = 0
        self._next = 1
        self._not_before_ns = 0
        first = self._look()
        self._is_blind = first is None
        self._unsent = (first,) if first is not None else ()

    def after(self, wall_ns: int) -> tuple[Look, ...]:
        """Count a batch that took so long to make; the looks that were taken since some were returned last."""
        self._fetches += 1
        self._wall_ns += wall_ns
        if self._is_blind or self._fetches < self._next or self._wall_ns < self._not_before_ns:
            return ()
        self._next = 2 * self._fetches
        found = self._look()
        looks, self._unsent = (*self._unsent, *((found,) if found is not None else ())), ()
        return looks

    def _look(self) -> Look | None:
        began = time.perf_counter_ns()
        levels = _levels()
        if levels is None:
            return None
        self._not_before_ns = self._wall_ns + RARE * (time.perf_counter_ns() - began)
        used = usage()
        return Look(
            self._fetches, levels["Private_Dirty"], levels["Shared_Dirty"], used.minor_faults, used.major_faults,
            int(used.system_s * 1e9), int((used.user_s + used.system_s) * 1e9), self._run_delay.read_ns(),
            self._wall_ns,
        )  # fmt: skip


def _levels() -> dict[str, int] | None:
    """Bytes of this process's memory by kind, from `/proc/self/smaps_rollup`; None where there is no such thing."""
    found = {"Private_Dirty": 0, "Shared_Dirty": 0}
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            lines = file.read().decode().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name in found:
            found[name] = int(rest.split()[0]) * 1024
    return found


class MachineMemory:
    """How much the machine lacked memory between two moments, as far as the kernel tells."""

    def __init__(self) -> None:
        self.stalled_ns = 0
        """Time in which some process waited for memory."""
        self.swapped_bytes = 0
        """Memory read back from swap."""
        self.shared_bytes = 0
        """Shared memory that was free at the beginning."""
        self._began: tuple[int, int] | None = None

    def begin(self) -> None:
        """Count from here."""
        self._began = _stalled_ns(), _swapped_pages()
        self.shared_bytes = _free_shared_bytes()

    def end(self) -> None:
        """Count to here."""
        if self._began is not None:
            self.stalled_ns = _stalled_ns() - self._began[0]
            self.swapped_bytes = (_swapped_pages() - self._began[1]) * mmap.PAGESIZE


def _stalled_ns() -> int:
    """Time in which some process of this machine waited for memory, since it started; 0 where nobody counts it."""
    try:
        with open("/proc/pressure/memory", "rb") as file:
            return int(file.readline().decode().split()[-1].removeprefix("total=")) * 1000
    except (OSError, ValueError, IndexError):
        return 0


def _swapped_pages() -> int:
    """Pages that this machine has read back from swap; 0 where nobody counts them."""
    try:
        with open("/proc/vmstat", "rb") as file:
            counters = dict(line.split() for line in file.read().decode().splitlines())
        return int(counters.get("pswpin", 0))
    except (OSError, ValueError):
        return 0


def _free_shared_bytes() -> int:
    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):  # not Linux
        return 0
    return found.f_bavail * found.f_frsize


__all__ = ["COLLECTOR", "Collector", "Look", "MachineMemory", "MemoryWatch"]
