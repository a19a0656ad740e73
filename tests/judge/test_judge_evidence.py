"""Questions that several rules ask."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from literals import STARVED, make_blocks, make_recording, make_stage

from unstarve import estimate
from unstarve.judge.evidence import Evidence, at_length, gain_by_share
from unstarve.recording import Block
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


def _looked_at(rates: Sequence[float], long_rate: float) -> tuple[Block, ...]:
    """Short blocks of the loop as it is at these rates, and one of many times their steps, all of steady steps."""
    pattern = make_blocks({"none": 20.0}, body_ms=20)[0]
    sizes = [(rate, 6) for rate in rates] + [(long_rate, 60)]
    return tuple(
        dataclasses.replace(
            pattern, round=place, end_ns=int(steps * 1e9 / rate), waits_ns=(0,) * steps,
            bodies_ns=(int(1e9 / rate),) * steps,
        )
        for place, (rate, steps) in enumerate(sizes)
    )  # fmt: skip


def test_a_long_look_within_the_scatter_of_short_ones_is_one_of_them() -> None:
    """A machine whose blocks scatter by a fifth says nothing by a long one that is a tenth off."""
    scattered = _looked_at([50, 42, 58, 46, 54, 40, 60.0], 55.5)
    assert at_length(scattered, 0.05) == scattered
    steady = _looked_at([50, 50.5, 49.5, 50.2, 49.8, 50.1, 49.9], 45.5)
    assert at_length(steady, 0.05) == steady[-1:]
