"""Threads that libraries use in this process: which of them work, and a limit to try."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import threadpoolctl
import torch

WORKING_SHARE = 0.01
"""Share of the process's CPU time from which on a thread is taken to work for the user."""

_KNOWN = re.compile(r"QueueFeederThread|\(_serve\)$|^unstarve-")
"""Names of threads that send batches and share memory in any worker, or that we started."""


class Limit:
    """A limit on the threads of torch, OpenCV, BLAS and OpenMP in this process, and a way back to what they had."""

    def __init__(self) -> None:
        self._own: tuple[int, int] | None = None
        self._pools: Any = None

    def set(self, count: int | None) -> None:
        """Let each library use so many threads; None for as many as it had before the first limit."""
        if self._own is None:
            if count is None:
                return
            self._own = torch.get_num_threads(), _opencv_threads() or 1
        self._limit_pools(count)
        torch.set_num_threads(count or self._own[0])
        if cv2 := sys.modules.get("cv2"):
            cv2.setNumThreads(count or self._own[1])
        if count is None:
            self._own = None

    def _limit_pools(self, count: int | None) -> None:
        if self._pools is not None:
            self._pools.restore_original_limits()
        self._pools = None if count is None else threadpoolctl.threadpool_limits(count)


def most_allowed() -> int:
    """The most threads that torch or OpenCV may use at once in this process."""
    return max(torch.get_num_threads(), _opencv_threads())


def in_pools() -> int:
    """The most threads that a BLAS or OpenMP library in this process may use at once."""
    return max((pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1)


def working() -> int:
    """Threads of this process beside its main one that have had a good part of its CPU time, and that are neither torch's
    for sending batches nor ours; 0 where the kernel does not say."""
    known = {thread.native_id for thread in threading.enumerate() if _KNOWN.search(thread.name)}
    times = _cpu_ns()
    least = WORKING_SHARE * sum(times.values())
    return sum(ns > least for tid, ns in times.items() if tid not in known | {os.getpid()})


def set_affinity(cores: list[int]) -> None:
    """Bind all threads of this process to these cores: the kernel binds one thread at a time."""
    os.sched_setaffinity(0, cores)
    for tid in _cpu_ns():
        try:
            os.sched_setaffinity(tid, cores)
        except OSError:  # it has ended meanwhile
            continue


def _cpu_ns() -> dict[int, int]:
    """CPU time of each thread by its number, from `/proc/self/task`; nothing where there is no such thing."""
    found: dict[int, int] = {}
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            found[int(task.parent.name)] = int(task.read_text().split()[0])
        except (OSError, ValueError, IndexError):  # it has ended meanwhile
            continue
    return found


def _opencv_threads() -> int:
    cv2 = sys.modules.get("cv2")
    return int(cv2.getNumThreads()) if cv2 is not None else 0
