"""What other processes of the machine do meanwhile: they take cores from the loop and from its workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from unstarve.measure import environment


class CpuTime(NamedTuple):
    """CPU time until a moment, in seconds."""

    at_s: float
    machine_s: float
    """Of all processes, on the cores that this one may use, and what a hypervisor took from them."""
    own_s: float
    """Of this process and those that it has started."""


class OtherProcesses:
    """Cores that processes which are none of ours use between two moments.

    Nothing is counted where a quota or other ranks share the cores: then the machine's figure says nothing about ours.
    """

    def __init__(self, read: Callable[[], CpuTime | None] | None = None) -> None:
        self.cores = 0.0
        """Cores that they used on average."""
        self._read = read or cpu_time
        self._began: CpuTime | None = None

    def begin(self) -> None:
        """Count from here."""
        self._began = self._read()

    def end(self) -> None:
        """Count to here."""
        ended = self._read() if self._began is not None else None
        if ended is not None and self._began is not None and ended.at_s > self._began.at_s:
            used = ended.machine_s - self._began.machine_s - (ended.own_s - self._began.own_s)
            self.cores = max(0.0, used / (ended.at_s - self._began.at_s))


def cpu_time() -> CpuTime | None:
    """CPU time used so far; None where the machine's cores are not ours alone to use, or nobody counts."""
    if not hasattr(os, "sched_getaffinity") or environment.ranks_here() > 1:
        return None
    cores = os.sched_getaffinity(0)
    if environment.cores_available() < len(cores):
        return None
    try:
        every = psutil.cpu_times(percpu=True)
        machine = sum(_busy_s(every[core]) for core in cores)
        return CpuTime(time.monotonic(), machine, _tree_s())
    except (OSError, IndexError, psutil.Error):
        return None


def _busy_s(times: NamedTuple) -> float:
    idle = ("idle", "iowait", "guest", "guest_nice")  # what guests use is within `user` as well
    return float(sum(value for name, value in times._asdict().items() if name not in idle))


def _tree_s() -> float:
    """CPU time of this process, of those that it has started and of those that these have waited for."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has ended meanwhile
            continue
        total += times.user + times.system + getattr(times, "children_user", 0) + getattr(times, "children_system", 0)
    return total


__all__ = ["CpuTime", "OtherProcesses", "cpu_time"]
