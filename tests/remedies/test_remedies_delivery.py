"""How many batches are advised to be ordered ahead."""

from __future__ import annotations

import dataclasses

import pytest
from literals import MIB, MS, kinds, tried, with_late
from test_payload import IMAGE

from unstarve.judge import judge
from unstarve.report import Remedy


@pytest.mark.parametrize(
    ("torch", "patch"),
    [
        ("2.4.1+cu121", "DataLoader(..., prefetch_factor=9)"),
        ("2.6.0", "DataLoader(..., in_order=False, prefetch_factor=9)"),
        ("2.10.0a0+git1", "DataLoader(..., in_order=False, prefetch_factor=9)"),
        (None, "DataLoader(..., in_order=False, prefetch_factor=9)"),
    ],
)
def test_arguments_that_this_torch_lacks_are_not_advised(torch: str | None, patch: str) -> None:
    """`in_order`, which came with torch 2.6, is no remedy for a slow batch that holds up the others in an older one."""
    assert patch == stalled(environment={"torch": torch} if torch else {}).patch


def stalled(**facts) -> Remedy:
    """The remedy for two workers whose batches are held up by slow ones."""
    recording = tried(2, {}, **facts)
    fetches = (*(MS,) * 14, 300 * MS, 300 * MS)
    blocks = tuple(dataclasses.replace(block, fetches_ns=fetches) for block in recording.blocks)
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert "scheduling" in kinds(report)
    return next(remedy for remedy in report.remedies if remedy.about == "scheduling")


@pytest.mark.parametrize(
    ("batch_mib", "torch", "patch"),
    [
        (2, "2.5", "DataLoader(..., prefetch_factor=9)"),
        (5, "2.5", "DataLoader(..., prefetch_factor=4)"),
        (6, "2.5", "DataLoader(..., prefetch_factor=3)"),
        (8, "2.5", None),
        (8, "2.7", "DataLoader(..., in_order=False)"),
    ],
)
def test_no_more_batches_are_ordered_ahead_than_shared_memory_has_room_for(
    batch_mib: int, torch: str, patch: str | None
) -> None:
    """Two workers with so many batches ahead each, and one in the making, take most of 64 MiB at most."""
    image = dataclasses.replace(IMAGE, bytes=batch_mib * MIB, storage_bytes=batch_mib * MIB)
    remedy = stalled(environment={"torch": torch}, payload=(image,), shared_memory_bytes=64 * MIB)
    assert remedy.patch == patch
    assert ("--shm-size" in remedy.advice) is (batch_mib > 2)


def test_batches_ahead_are_advised_that_bridge_a_slow_one() -> None:
    """Twelve steps fit into the slow batch, and each of two workers has its share of these ready."""
    remedy = next(remedy for remedy in with_late(240).remedies if remedy.id == "prefetch")
    assert remedy.patch == "DataLoader(..., prefetch_factor=7)"
