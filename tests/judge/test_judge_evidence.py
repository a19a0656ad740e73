"""Questions that several rules ask."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from literals import STARVED, make_blocks, make_recording, make_stage

from unstarve import estimate
from unstarve.judge.evidence import Evidence, at_length, gain_by_share
from unstarve.report import Estimate


@given(wall=st.floats(0, 50), others=st.floats(0, 50), most=st.floats(0.5, 20), spread=st.floats(1, 2))
def test_a_gain_by_share_is_an_interval_below_the_most(wall: float, others: float, most: float, spread: float) -> None:
    """It is at least nothing, at most what no input at all would gain, and lies within its interval."""
    stage, other = make_stage("a", wall), make_stage("b", others)
    recording = make_recording(STARVED, stages=(stage, other))
    evidence = Evidence(
        recording=recording, blocks=recording.blocks, rates=estimate.rates(recording.blocks), ceiling_id="host",
        threshold=0.05,
    )  # fmt: skip
    limit = Estimate(value=most, low=most / spread, high=most * spread)
    gain = gain_by_share(evidence, stage, limit)
    assert 1 <= gain.low <= gain.value <= gain.high
    assert gain.value <= max(1, most)
    assert gain.high <= max(1, limit.high)


def test_half_of_the_time_doubles_the_speed_at_best() -> None:
    """The gain of a stage with half of a sample's time is two, where nothing else limits it."""
    recording = make_recording(STARVED, stages=(make_stage("a", 5), make_stage("b", 5)))
    evidence = Evidence(recording=recording, blocks=(), rates={}, ceiling_id="host", threshold=0.05)
    gain = gain_by_share(evidence, recording.stages[0], Estimate(value=9, low=8, high=10))
    assert gain.value == pytest.approx(2)
    assert gain.low == pytest.approx(1.7)


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.4])
def test_a_long_look_at_the_loop_stands_for_the_short_ones_that_it_contradicts(ratio: float) -> None:
    """Stalls that come once in many batches are missed by short blocks, or met by chance; where it agrees all count."""
    short = make_blocks({"none": 20.0, "host": 20.0}, body_ms=20)
    one = next(block for block in short if block.rung == "none")
    many, span = 6, int((one.end_ns - one.start_ns) * 6 / ratio)
    long = dataclasses.replace(
        one, round=9, end_ns=one.start_ns + span, waits_ns=one.waits_ns * many, bodies_ns=one.bodies_ns * many
    )
    kept = [block for block in at_length([*short, long], 0.05) if block.rung == "none"]
    assert kept == ([block for block in short if block.rung == "none"] if ratio == 1.0 else []) + [long]
