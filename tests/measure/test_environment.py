"""Limits of the machine, as files of the kernel's tell them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstarve.measure import environment
from unstarve.measure.environment import memory_limit_bytes

GIB = 1 << 30


def limit(folder: Path, groups: str, **limits: int | str) -> int | None:
    """The limit where the process is in these groups, and these files exist (`__` stands for a slash)."""
    (folder / "groups").write_text(groups)
    for name, value in limits.items():
        version = "memory.limit_in_bytes" if name.startswith("memory") else "memory.max"
        file = folder / "cgroup" / name.replace("root", "").replace("__", "/") / version
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    return memory_limit_bytes(folder / "groups", folder / "cgroup")


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/job/step\n", {"job": 8 * GIB, "job__step": "max"}, 8 * GIB),
        ("0::/job/step\n", {"job": 8 * GIB, "job__step": 4 * GIB}, 4 * GIB),
        ("0::/\n", {"root": 2 * GIB}, 2 * GIB),
        ("0::/out/of/sight\n", {"root": 2 * GIB}, 2 * GIB),
        ("0::/job\n", {"job": "max"}, None),
        ("0::/job\n", {"another": 2 * GIB}, None),
        ("5:cpu:/job\n4:memory:/job\n0::/\n", {"memory__job": 3 * GIB, "memory": 1 << 62}, 3 * GIB),
        ("4:memory:/docker/1\n", {"memory": 2 * GIB}, 2 * GIB),
        ("5:cpu:/job\n", {"memory__job": 3 * GIB}, None),
    ],
    ids=["outer", "least", "container", "unseen", "max", "other", "version 1", "version 1 in a container", "no memory"],
)
def test_the_least_limit_of_the_groups_around_counts(
    tmp_path: Path, groups: str, limits: dict[str, int | str], expected: int | None
) -> None:
    """Groups lie in each other, in two versions of files, and a container sees its own at the top."""
    assert limit(tmp_path, groups, **limits) == expected


def test_without_groups_there_is_no_limit(tmp_path: Path) -> None:
    """Other systems have no such files."""
    assert memory_limit_bytes(tmp_path / "none", tmp_path) is None


def group(folder: Path, name: str, **files: object) -> None:
    """A group's folder with these files, `_` in names standing for a dot where the first one is."""
    place = folder / "cgroup" / name
    place.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (place / file.replace("_", ".", 1)).write_text(f"{content}\n")


def left(folder: Path, groups: str) -> int | None:
    (folder / "groups").write_text(groups)
    return environment._cgroup_memory(folder / "groups", folder / "cgroup")


@pytest.mark.parametrize(("limit", "expected"), [("1000", 1000 - 700 + 250), ("600", 150), ("max", None)])
def test_a_cgroup_has_left_what_its_limit_and_its_file_cache_leave(
    tmp_path: Path, limit: str, expected: int | None
) -> None:
    """Files that are cached can be dropped; without a limit nothing is left out."""
    stat = "anon 450\ninactive_file 200\nactive_file 50"
    group(tmp_path, "", memory_max=limit, memory_current=700, memory_stat=stat)
    assert left(tmp_path, "0::/\n") == expected


def test_the_group_with_least_left_counts(tmp_path: Path) -> None:
    """A job may have a limit below that of its machine, or be beside others in a group that is nearly full."""
    stat = "inactive_file 20\nactive_file 5"
    group(tmp_path, "job", memory_max=1000, memory_current=900, memory_stat=stat)
    group(tmp_path, "job/step", memory_max=600, memory_current=300, memory_stat=stat)
    assert left(tmp_path, "0::/job/step\n") == 125
    group(tmp_path, "job", memory_current=500)
    assert left(tmp_path, "0::/job/step\n") == 325


def test_a_cgroup_of_version_1_has_left_what_all_in_it_leave(tmp_path: Path) -> None:
    """Its figures of the group alone are not those of the groups inside it, which count against its limit."""
    stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 200\ntotal_active_file 50"
    group(tmp_path, "memory/job", memory_limit_in_bytes=1000, memory_usage_in_bytes=700, memory_stat=stat)
    assert left(tmp_path, "5:cpu:/job\n4:memory:/job\n0::/\n") == 550


@pytest.mark.parametrize(
    ("groups", "quotas", "cores"),
    [
        ("0::/\n", {"": "150000 100000"}, 1.5),
        ("0::/job/step\n", {"job": "200000 100000", "job/step": "max 100000"}, 2.0),
        ("0::/job/step\n", {"job": "800000 100000", "job/step": "100000 50000"}, 2.0),
        ("3:cpu,cpuacct:/job\n", {"cpu/job": 300_000, "cpu": -1}, 3.0),
        ("3:cpuset:/job\n", {"cpu/job": 300_000}, None),
        ("0::/job\n", {"job": "max 100000"}, None),
    ],
    ids=["container", "outer", "least", "version 1", "another controller", "max"],
)
def test_the_least_quota_of_the_groups_around_counts(
    tmp_path: Path, groups: str, quotas: dict[str, str | int], cores: float | None
) -> None:
    """As for memory: groups lie in each other, in two versions of files."""
    (tmp_path / "groups").write_text(groups)
    for name, quota in quotas.items():
        if isinstance(quota, int):
            group(tmp_path, name, cpu_cfs_quota_us=quota, cpu_cfs_period_us=100_000)
        else:
            group(tmp_path, name, cpu_max=quota)
    assert environment._cgroup_quota(tmp_path / "groups", tmp_path / "cgroup") == cores


def test_a_machine_without_cgroups_has_no_such_limit(tmp_path: Path) -> None:
    """Where the files are not there, or read otherwise, what is available counts."""
    assert environment._cgroup_memory(tmp_path / "none", tmp_path) is None
    assert environment._cgroup_quota(tmp_path / "none", tmp_path) is None
    assert environment.memory_bytes() > 0


@pytest.mark.parametrize(
    ("own", "launchers", "ranks", "quota", "cores"),
    [
        (8, 32, 4, None, 8.0),
        (32, 32, 4, None, 8.0),
        (64, 64, 4, None, 16.0),
        (8, None, 4, None, 8.0),
        (64, None, 4, None, 16.0),
        (8, 32, 4, 16.0, 4.0),
        (16, 64, 1, 4.0, 4.0),
    ],
    ids=["bound", "in a cpuset", "all", "bound, out of sight", "all, out of sight", "quota", "alone"],
)
def test_ranks_share_the_cores_that_their_launcher_was_given(
    monkeypatch: pytest.MonkeyPatch, own: int, launchers: int | None, ranks: int, quota: float | None, cores: float
) -> None:
    """A job in a part of the machine has fewer cores than that; a rank has some of its own only if it has fewer still."""

    def affinity(process: int) -> set[int]:
        if process == 0:
            return set(range(own))
        if launchers is None:
            raise ProcessLookupError
        return set(range(launchers))

    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(environment.os, "sched_getaffinity", affinity)
    monkeypatch.setattr(environment.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(environment, "_cgroup_quota", lambda: quota)
    assert environment.cores_available() == cores


def test_a_wrapper_that_a_rank_was_started_in_is_not_its_launcher() -> None:
    """The shell that binds a rank to its cores has the rank's own mask; what started the shell is asked for its cores."""
    code = "from unstarve.measure import environment; print(environment._launcher())"
    shell = ["sh", "-c", f"'{sys.executable}' -c '{code}'; true"]
    found = subprocess.run(
        shell, env={**os.environ, "LOCAL_RANK": "0"}, capture_output=True, text=True, check=True, timeout=60
    )
    assert int(found.stdout) == os.getpid()


ELSEWHERE = """
import importlib, os, pkgutil, sys, time
import psutil, rich.console, torch
from torch.utils.data import DataLoader

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: "O_CLOEXEC O_NONBLOCK MFD_CLOEXEC fork getloadavg getuid killpg memfd_create pread register_at_fork "
    "sched_getaffinity sched_setaffinity sysconf",
    time: "clock_gettime clock_gettime_ns pthread_getcpuclockid",
}.items():
    for name in names.split():
        vars(module).pop(name, None)
plainly = os.open
os.open = lambda path, *rest, **more: plainly(
    "nowhere" if str(path).startswith("/proc") else path, *rest, **more
)

import unstarve
for found in pkgutil.walk_packages(unstarve.__path__, "unstarve."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
loader = DataLoader(torch.arange(400.0), batch_size=4)
print(unstarve.diagnose(loader, lambda batch: time.sleep(0.002), budget=2, quiet=True).verdict.bound)
"""


@pytest.mark.live
def test_a_system_without_what_is_posixs_alone_gets_a_verdict() -> None:
    """Every module can be imported, and a loop be diagnosed, without the modules and functions that Windows lacks."""
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("step", "input", "unresolved")
