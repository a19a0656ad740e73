"""What the machine has left, as far as files of the kernel tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.measure import environment


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
