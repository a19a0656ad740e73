"""Intervals must tell the truth about as often as they claim."""

from __future__ import annotations

import random

import pytest
from scipy import stats

from unstarve import estimate
from unstarve.recording import Block


def make_block(rung: str, number: int, rate: float, *, steps: int = 8, scatter: float = 0.0, seed: int = 0) -> Block:
    """A block of `steps` steps at `rate` steps per second, its steps scattered by the fraction `scatter`."""
    draw = random.Random(seed * 7919 + number)
    period = 1e9 / rate
    bodies = tuple(int(period * max(0.1, draw.gauss(1, scatter))) for _ in range(steps))
    return Block(
        rung=rung, round=number, start_ns=0, end_ns=int(period * steps), waits_ns=(0,) * steps, bodies_ns=bodies
    )


def simulate(
    draw: random.Random, rates: dict[str, float], *, rounds: int, noise: dict[str, float], drift: float
) -> list[Block]:
    """Blocks of interleaved rounds on a machine whose speed wanders by `drift` from round to round."""
    blocks = []
    for number in range(rounds):
        speed = 2.718281828 ** draw.gauss(0, drift)
        for rung, rate in rates.items():
            factor = 2.718281828 ** draw.gauss(0, noise[rung])
            blocks.append(make_block(rung, number, rate * speed * factor, scatter=0.1, seed=draw.randrange(10**6)))
    return blocks


RATES = {"none": 10.0, "raw": 12.0, "samples": 20.0, "collated": 21.0, "host": 22.0, "device": 23.0}


@pytest.mark.parametrize("rounds", [3, 5, 8])
@pytest.mark.parametrize("uneven", [False, True])
def test_intervals_of_contrasts_cover_95_percent(rounds: int, uneven: bool) -> None:
    """The 95 % interval of a ratio covers the true ratio in 92 to 98.5 % of simulated runs, with drift between rounds."""
    draw = random.Random(1)
    noise = {rung: (0.02 + 0.03 * position if uneven else 0.04) for position, rung in enumerate(RATES)}
    hits = total = 0
    for _ in range(600):
        blocks = simulate(draw, RATES, rounds=rounds, noise=noise, drift=0.05)
        for upper in ("device", "samples"):
            found = estimate.contrast(blocks, upper, "none")
            assert found is not None
            hits += found.low <= RATES[upper] / RATES["none"] <= found.high
            total += 1
    assert 0.92 <= hits / total <= 0.985


def test_intervals_of_rates_cover_95_percent() -> None:
    """Without drift the interval of a rung's own rate covers the truth in 92 to 98.5 % of simulated runs."""
    draw = random.Random(2)
    hits = total = 0
    for _ in range(400):
        blocks = simulate(draw, RATES, rounds=4, noise=dict.fromkeys(RATES, 0.05), drift=0.0)
        for rung, found in estimate.rates(blocks).items():
            hits += found.low <= RATES[rung] <= found.high
            total += 1
    assert 0.92 <= hits / total <= 0.985


def test_equal_rungs_are_told_apart_at_the_stated_rate() -> None:
    """Two identical rungs are called different in 1.5 to 8 % of runs, not more: the tool is quiet on A/A comparisons."""
    draw = random.Random(3)
    rates = {"none": 10.0, "samples": 10.0, "host": 10.0}
    alarms = 0
    for _ in range(800):
        blocks = simulate(draw, rates, rounds=4, noise=dict.fromkeys(rates, 0.06), drift=0.1)
        found = estimate.contrast(blocks, "host", "none")
        assert found is not None
        alarms += not found.low <= 1.0 <= found.high
    assert 0.015 <= alarms / 800 <= 0.08


@pytest.mark.parametrize("rounds", [3, 4, 8])
def test_a_noisy_baseline_among_quiet_rungs_raises_no_false_alarms(rounds: int) -> None:
    """Where the untouched loop scatters three times as much as cached rungs, A/A alarms stay below 8 %."""
    draw = random.Random(5)
    rates = {"none": 10.0, "raw": 10.0, "samples": 10.0, "collated": 10.0, "host": 10.0}
    noise = {**dict.fromkeys(rates, 0.025), "none": 0.08}
    alarms = 0
    for _ in range(600):
        found = estimate.contrast(simulate(draw, rates, rounds=rounds, noise=noise, drift=0.05), "host", "none")
        assert found is not None
        alarms += not found.low <= 1.0 <= found.high
    assert alarms / 600 <= 0.08


def test_drift_between_rounds_cancels_in_contrasts() -> None:
    """A machine that halves its speed in every round changes no ratio."""
    blocks = [make_block(rung, number, rate / 2**number) for number in range(4) for rung, rate in RATES.items()]
    found = estimate.contrast(blocks, "device", "none")
    assert found is not None
    assert found.value == pytest.approx(2.3, rel=1e-6)


def test_order_of_blocks_does_not_change_estimates() -> None:
    """Shuffling the blocks of a recording leaves every estimate as it was."""
    draw = random.Random(4)
    blocks = simulate(draw, RATES, rounds=4, noise=dict.fromkeys(RATES, 0.05), drift=0.05)
    shuffled = list(blocks)
    draw.shuffle(shuffled)
    assert estimate.contrast(shuffled, "host", "none") == estimate.contrast(blocks, "host", "none")


def test_one_block_a_rung_still_gives_an_interval() -> None:
    """After a single round the interval comes from the scatter of steps, and is not empty."""
    blocks = [make_block("none", 0, 10.0, scatter=0.1), make_block("host", 0, 20.0, scatter=0.1)]
    found = estimate.contrast(blocks, "host", "none")
    assert found is not None
    assert found.low < 1.95 < 2.05 < found.high


def test_a_loop_that_runs_ahead_of_its_device_is_not_uncertain_for_that() -> None:
    """Its steps are launched in no time, all waiting being at the block's end: their scatter says nothing."""
    ahead = Block(
        rung="device", round=0, start_ns=0, end_ns=10**9, waits_ns=(0,) * 20, bodies_ns=(10_000, 3_000_000) * 10
    )
    found = estimate.contrast([ahead, make_block("none", 0, 10.0)], "device", "none")
    assert found is not None
    assert found.high / found.low < 2.5


def test_rungs_without_a_common_round_are_compared_all_the_same() -> None:
    """Rungs that never ran in the same round are compared by their blocks; a rung never measured is not compared."""
    blocks = [make_block("none", 0, 1.0), make_block("host", 1, 2.0)]
    gain = estimate.contrast(blocks, "host", "none")
    assert gain is not None
    assert gain.low < 2.0 < gain.high
    assert gain.value == pytest.approx(2.0)
    assert estimate.contrast(blocks, "device", "none") is None


@pytest.mark.parametrize("freedom", [1, 2, 2.5, 3, 4.5, 6, 9, 14, 25, 50, 200])
def test_student_quantiles_agree_with_scipy(freedom: float) -> None:
    """The interpolated table is within 2 % of the exact quantile, and exact where tabulated."""
    assert estimate.student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.02)


def test_rungs_that_share_no_round_are_compared_by_all_their_blocks() -> None:
    """The ratio is that of their geometric means, with as many differences as the rung with fewer blocks gives."""
    upper = [make_block("host", number, rate) for number, rate in enumerate((20.0, 22.0, 24.0))]
    lower = [make_block("none", 10, 10.0)]
    found = estimate.contrast([*upper, *lower], "host", "none")
    assert found is not None
    assert found.value == pytest.approx((20 * 22 * 24) ** (1 / 3) / 10)
    assert found.low < found.value < found.high
