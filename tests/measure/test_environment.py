"""Limits of the machine, as files of the kernel's tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

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
