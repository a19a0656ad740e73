"""Where a step fed from cache spends its time: pure rules on sampled lines."""

from __future__ import annotations

import pytest

from unstarve.judge.stepping import MOST, body_times
from unstarve.recording import BodyLine


def line(number: int, depth: int, share: float, own: float = 0.0, **facts: float) -> BodyLine:
    return BodyLine(
        source=f"train.py:{number}", text=f"line {number}", wall_fraction=own, cpu_fraction=0.0, wall_inclusive=share,
        depth=depth, **facts,
    )  # fmt: skip


def test_lines_go_from_the_loop_inwards_without_what_leads_to_it() -> None:
    """The loop's own lines come first, largest first; `main()` and whatever else runs the loop is no part of it."""
    lines = [line(9, 3, 0.6, 0.6), line(90, 0, 1.0), line(80, 1, 1.0), line(50, 2, 0.3, 0.3), line(51, 2, 0.65)]
    found = body_times(lines)
    assert [(each.text, each.depth) for each in found] == [("line 51", 0), ("line 50", 0), ("line 9", 1)]


def test_a_line_that_is_all_of_the_step_is_told() -> None:
    """Where one call is everything that a step does, it is the innermost line there is."""
    assert [each.text for each in body_times([line(90, 0, 1.0), line(80, 1, 1.0, 1.0)])] == ["line 80"]


def test_only_lines_worth_looking_at_are_told() -> None:
    """Neither what takes next to nothing, nor the generator that hands out batches, nor more than a few."""
    lines = [line(1, 0, 0.04, 0.04), line(2, 0, 0.3, 0.3, in_iterator=0.3)]
    assert body_times(lines) == ()
    assert len(body_times([line(number, 0, 0.08, 0.08) for number in range(12)])) == MOST


@pytest.mark.parametrize(
    ("facts", "spent"),
    [
        ({}, "waiting"),
        ({"busy_inclusive": 0.45}, "in torch"),
        ({"busy_inclusive": 0.1, "delay_inclusive": 0.3}, "without a core"),
        ({"busy_inclusive": 0.1, "delay_inclusive": 0.1}, "waiting"),
        ({"busy_inclusive": 0.5, "cpu_inclusive": 0.4}, "computing"),
        ({"busy_inclusive": 0.5, "syncs": 1.0}, "waiting for the device"),
    ],
)
def test_what_a_line_spends_its_time_on_is_told(facts: dict[str, float], spent: str) -> None:
    """Waits for a device spin on a core, so they are known by their number."""
    assert body_times([line(5, 0, 0.5, 0.5, **facts)])[0].spent == spent
