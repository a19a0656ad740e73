"""Limits of the machine, as files of the kernel's tell them."""

from __future__ import annotations

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


@pytest.mark.parametrize(("limit", "left"), [("1000", 1000 - 700 + 250), ("600", 150), ("max", None)])
def test_a_cgroup_has_left_what_its_limit_and_its_file_cache_leave(
    tmp_path: Path, limit: str, left: int | None
) -> None:
    """Files that are cached can be dropped; without a limit nothing is left out."""
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 450\ninactive_file 200\nactive_file 50\n")
    assert environment._cgroup_memory(tmp_path) == left


def test_a_machine_without_cgroups_has_no_such_limit(tmp_path: Path) -> None:
    """Where the files are not there, or read otherwise, what is available counts."""
    assert environment._cgroup_memory(tmp_path) is None
    assert environment.memory_bytes() > 0
