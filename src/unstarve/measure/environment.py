"""The machine and the versions that the figures depend on."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
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
    """Cores that this process may use: its share of the affinity mask, narrowed by its share of a cgroup's quota."""
    if not hasattr(os, "sched_getaffinity"):
        return (os.cpu_count() or 1) / ranks_here()
    cores = os.sched_getaffinity(0)
    share = float(len(cores)) if _is_of_this_rank(cores) else len(cores) / ranks_here()
    quota = _cgroup_quota()
    return share if quota is None else min(share, quota / ranks_here())


def _is_of_this_rank(cores: set[int]) -> bool:
    """Whether the rank has these cores for itself, and not together with the others that its launcher started."""
    try:
        return cores < os.sched_getaffinity(_launcher())
    except OSError:  # the launcher is out of sight
        return len(cores) < (os.cpu_count() or 1)


def _launcher() -> int:
    """The process that started this rank: the parent, or one above it where that is a wrapper of the rank's own."""
    with contextlib.suppress(psutil.Error):
        return next((p.pid for p in psutil.Process().parents() if "LOCAL_RANK" not in p.environ()), os.getppid())
    return os.getppid()


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


_GROUPS, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Where the kernel says in which cgroups a process is, and where these are."""


def _folders(controller: str, groups: Path, root: Path) -> Iterator[tuple[Path, bool]]:
    """Folders of the cgroups around this process that may limit it, each with whether it is one of version 1.

    A container sees its own group at the top, and may not see the way to it: the top always counts.
    """
    found = {(root, root, False), (root / controller, root / controller, True)}
    with contextlib.suppress(OSError, ValueError):  # not Linux
        for _, controllers, inner in (line.split(":", 2) for line in groups.read_text().splitlines()):
            if not controllers or controller in controllers.split(","):
                top = root / controller if controllers else root
                found.add((top, top / inner.strip("/"), bool(controllers)))
    for top, here, is_first in found:
        for folder in (here, *here.parents):
            if folder.is_relative_to(top):
                yield folder, is_first


def _cgroup_quota(groups: Path = _GROUPS, root: Path = _ROOT) -> float | None:
    """Cores that the CPU quotas of the cgroups around this process grant; None without one."""
    return min(filter(None, (_quota(folder) for folder, _ in _folders("cpu", groups, root))), default=None)


def _quota(folder: Path) -> float | None:
    """Cores granted by a group's CPU quota, in either version's files."""
    with contextlib.suppress(OSError, ValueError):  # no such file, or `max`
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us is not None and quota_us > 0 and period_us else None


def memory_limit_bytes(groups: Path = _GROUPS, root: Path = _ROOT) -> int | None:
    """Memory, page cache included, that the cgroups around this process (version 2 or 1) grant; None without a limit."""
    found = [_limit(folder, is_first) for folder, is_first in _folders("memory", groups, root)]
    return min((limit for limit in found if limit is not None), default=None)


def _limit(folder: Path, is_first: bool) -> int | None:
    return _number(folder / ("memory.limit_in_bytes" if is_first else "memory.max"))


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


def _cgroup_memory(groups: Path = _GROUPS, root: Path = _ROOT) -> int | None:
    """Memory that the cgroups around this process have left, files that they cache included; None without a limit."""
    found = [_left(folder, is_first) for folder, is_first in _folders("memory", groups, root)]
    return min((left for left in found if left is not None), default=None)


def _left(folder: Path, is_first: bool) -> int | None:
    limit = _limit(folder, is_first)
    used = _number(folder / ("memory.usage_in_bytes" if is_first else "memory.current"))
    if limit is None or used is None:
        return None
    prefix = "total_" if is_first else ""
    try:
        facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(facts[f"{prefix}inactive_file"]) + int(facts[f"{prefix}active_file"]))
    except (OSError, ValueError, KeyError):
        return None


def shared_memory_bytes() -> int:
    """Shared memory that is free for batches on their way from workers; all free memory where it is not limited."""
    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):  # not Linux
        return memory_bytes()
    return min(memory_bytes(), found.f_bavail * found.f_frsize // ranks_here())
