"""The machine and the versions that the figures depend on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil
import torch


def describe(device: str | None) -> dict[str, Any]:
    """Facts about the machine, for the report."""
    memory, limit = psutil.virtual_memory().total, memory_limit_bytes()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(terse=True),
        "cpu_count": os.cpu_count(),
        "cores_available": round(cores_available(), 2),
        "memory_gib": round(memory / 2**30, 1),
        "memory_limit_gib": round(limit / 2**30, 1) if limit is not None and limit < memory else None,
        "device": device or "none in use",
        "torch_threads": torch.get_num_threads(),
        "sharing_strategy": torch.multiprocessing.get_sharing_strategy(),
        "unstarve": _version(),
    }


def _version() -> str:
    import unstarve

    return unstarve.__version__


def ranks_here() -> int:
    """Processes of a distributed training on this machine, as its launcher says: they share what there is."""
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError:
        return 1


def cores_available() -> float:
    """Cores that this process may use: the affinity mask, narrowed by a cgroup quota, shared by the ranks of this machine
    unless each has cores of its own."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    found = min(float(affinity), quota) if quota else float(affinity)
    return found if affinity < (os.cpu_count() or 1) else found / ranks_here()


def machine_cores() -> list[int]:
    """Numbers of the cores that are running, whatever this process may use; none where affinity cannot be set."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    try:
        spans = Path("/sys/devices/system/cpu/online").read_text().strip().split(",")
        ends = [[int(end) for end in span.split("-")] for span in spans]
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))
    return [core for span in ends for core in range(span[0], span[-1] + 1)]


def _cgroup_quota() -> float | None:
    """Cores granted by a cgroup's CPU quota (version 2, then 1); None without one."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError):
        return None


def memory_limit_bytes(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory, page cache included, that the cgroups around this process (version 2 or 1) grant; None without a limit."""
    found = []
    try:
        lines = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:  # not Linux
        return None
    for _, controllers, inner in lines:
        if controllers in ("", "memory"):
            top = root / controllers
            here = top / inner.strip("/")  # a container sees its own group at the top, and may not see the way to it
            folders = [folder for folder in (here, *here.parents) if folder.is_relative_to(top)]
            found += [
                _number(folder / ("memory.limit_in_bytes" if controllers else "memory.max")) for folder in folders
            ]
    return min((limit for limit in found if limit is not None), default=None)


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # there is no such group, or its limit is `max`
        return None


def memory_bytes() -> int:
    """Memory that can be used without swapping, by this rank where several share the machine: what is available, narrowed
    by a cgroup's limit."""
    free = int(psutil.virtual_memory().available)
    left = _cgroup_memory()
    return (free if left is None else min(free, left)) // ranks_here()


def _cgroup_memory(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory that a cgroup (version 2) has left, files that it caches included; None without a limit."""
    try:
        limit = (root / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((root / "memory.current").read_text())
        facts = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - used + int(facts["inactive_file"]) + int(facts["active_file"]))
    except (OSError, ValueError, KeyError):
        return None


def shared_memory_bytes() -> int:
    """Shared memory that is free for batches on their way from workers; all free memory where it is not limited."""
    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):  # not Linux
        return memory_bytes()
    return min(memory_bytes(), found.f_bavail * found.f_frsize // ranks_here())
