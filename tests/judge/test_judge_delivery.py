"""Batches that come late."""

from __future__ import annotations

import dataclasses

import pytest
from literals import MS, blamed, kinds, tried, with_late

from unstarve.judge import judge
from unstarve.recording import Settings


def test_how_often_a_loop_stalls_is_told() -> None:
    """By the distance of the waits that are many times as long as a step, in the longest look."""
    recording = tried(2, {})
    fetches, waits = (*(MS,) * 14, 300 * MS, 300 * MS), [0] * 48
    waits[3] = waits[18] = waits[33] = 300 * MS
    blocks = tuple(
        dataclasses.replace(
            block, end_ns=block.start_ns + (900 + 48 * 20) * MS, fetches_ns=fetches, waits_ns=tuple(waits), bodies_ns=(20 * MS,) * 48,
        )
        if block.rung == "none" else block
        for block in recording.blocks
    )  # fmt: skip
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert "The loop stalls about once in 15 steps." in blamed(report, "scheduling").evidence


@pytest.mark.parametrize(("late_ms", "gain", "is_blamed"), [(300, None, True), (300, 1.0, False), (20, None, False)])
def test_a_slow_batch_holds_up_others_for_as_long_as_it_is_late(
    late_ms: int, gain: float | None, is_blamed: bool
) -> None:
    """What is waited for beyond that has other causes; and a trial that did not help says that it is not the order."""
    fetches = (*(MS,) * 14, late_ms * MS, late_ms * MS)
    recording = tried(2, {} if gain is None else {Settings(num_workers=2, in_order=False): 80 / gain})
    blocks = tuple(dataclasses.replace(block, fetches_ns=fetches) for block in recording.blocks)
    assert ("scheduling" in kinds(judge(dataclasses.replace(recording, blocks=blocks)))) is is_blamed


@pytest.mark.parametrize(("cpu_share", "kind", "resource"), [(0.0, "read", "wait"), (1.0, "code", "cpu")])
def test_a_line_that_is_rarely_slow_is_blamed_where_nothing_else_was_shown(
    cpu_share: float, kind: str, resource: str
) -> None:
    """Watching a few samples does not meet what happens once in a shard; looking at what runs in late batches does."""
    report = with_late(240, cpu_share=cpu_share)
    culprit = report.verdict.culprits[0]
    assert (culprit.stage, culprit.kind, culprit.resource) == ("late", kind, resource)
    assert culprit.source == "train.py:33"
    assert 1.2 < culprit.gain.value <= 1.55
    assert culprit.gain.is_computed


def test_batches_that_take_about_as_long_as_usual_are_not_late() -> None:
    assert "late" not in {culprit.stage for culprit in with_late(50).verdict.culprits}
