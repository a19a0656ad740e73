"""Estimates with intervals from measured blocks. Pure functions; no torch, no clock.

The observation is the block, not the step: steps of one block share the state of the machine, so their scatter says
too little about the next block. Rates are compared on the logarithmic scale, where a slow machine shifts all rungs
alike; contrasts are paired by round, so that drift between rounds cancels.

Blocks are few (three to ten a rung), so the variance of each rung is moderated: it is a mean of the rung's own variance
and the variance pooled over the rungs of its sort (served from cache, or with the workers at work), weighted by degrees
of freedom (G. K. Smyth, "Linear models and empirical Bayes methods", Stat. Appl. Genet. Mol. Biol. 3(1), 2004, with a
fixed prior weight). Student's t with the summed degrees of freedom gives the interval. Assumption: block log-rates
scatter independently and about normally around the rung's rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from unstarve.recording import BUSY, Block
from unstarve.report import Estimate

PRIOR_WEIGHT = 4.0
"""Degrees of freedom that the pooled variance counts for beside a rung's own."""

LEAST_FREEDOM = 3.0
"""Degrees of freedom below which the scatter of steps within blocks is taken in."""


PARTS = 6
"""Parts of a block whose scatter stands for that of blocks, where there are too few of them."""

AHEAD = 0.8
"""Share of a block's time that its steps must add up to for their scatter to say something: a loop that runs ahead of its
device launches them in no time, and waits at the block's end."""

UNKNOWN_VARIANCE = 0.1**2
"""Variance of a block's log-rate where nothing tells it: chosen, wider than blocks of a loop usually scatter."""


def mean(figures: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing."""
    return sum(figures) / len(figures) if figures else 0.0


def differ(some: Sequence[float], others: Sequence[float], threshold: float) -> bool:
    """Whether the means of two sorts of rates are apart by more than the threshold, a share of the smaller."""
    low, high = sorted((mean(some), mean(others)))
    return low * (1 + threshold) < high


def is_beyond_scatter(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the geometric means of two sorts of rates are further apart than the scatter of the second sort lets expect in
    19 of 20 cases (Student's t with its degrees of freedom); the first are taken to scatter no more."""
    logs = [math.log(each) for each in others]
    if not some or len(logs) < 2:
        return False
    variance = sum((each - mean(logs)) ** 2 for each in logs) / (len(logs) - 1)
    apart = abs(mean([math.log(each) for each in some]) - mean(logs))
    return apart > student(len(logs) - 1) * math.sqrt(variance * (1 / len(some) + 1 / len(logs)))


def rate(block: Block) -> float:
    """Steps per second of one block."""
    return block.steps * 1e9 / max(1, block.end_ns - block.start_ns)


def rates(blocks: Sequence[Block]) -> dict[str, Estimate]:
    """Steps per second of each rung, as the geometric mean over its blocks, with a 95 % interval."""
    groups = _groups(blocks)
    sorts = {
        is_heavy: _pooled_variance([members for rung, members in groups.items() if _is_heavy(rung) is is_heavy])
        for is_heavy in (False, True)
    }
    found = {}
    for rung, members in groups.items():
        pooled, weight = sorts[_is_heavy(rung)]
        logs = [math.log(rate(block)) for block in members]
        steps = sum(block.steps for block in members)
        found[rung] = _interval(logs, pooled, weight, fallback=_within(members), steps=steps)
    return found


def contrast(blocks: Sequence[Block], upper: str, lower: str) -> Estimate | None:
    """Rate of `upper` over rate of `lower`, paired by round, with a 95 % interval; None if either was not measured.

    Where no round has both, all blocks of the one are shared out over those of the other.
    """
    groups = _groups(blocks)
    if upper not in groups or lower not in groups:
        return None
    differences = _differences(groups[upper], groups[lower])
    if not differences:
        differences = _shared_out(groups[upper], groups[lower])
    pooled, weight = _prior_of_difference(groups, upper, lower)
    within = _within(groups[upper]) + _within(groups[lower])
    return _interval(differences, pooled, weight, fallback=within)


def from_periods(periods_s: Sequence[float]) -> Estimate:
    """Steps per second from the periods of single steps, with a 95 % t interval on the logarithmic scale."""
    return _plain([-math.log(max(1e-9, period)) for period in periods_s], steps=len(periods_s))


def from_ratios(ratios: Sequence[float]) -> Estimate:
    """The geometric mean of ratios, with a 95 % t interval on the logarithmic scale."""
    return _plain([math.log(ratio) for ratio in ratios])


def computed(gain: float, *, down: float, up: float) -> Estimate:
    """A gain that was computed and not measured, with an interval by convention.

    Args:
        gain: the loop's speed-up as a ratio; below 1 there is nothing to gain.
        down: how much of the excess over 1 is sure.
        up: how many times the excess it may be.
    """
    excess = max(0.0, gain - 1)
    return Estimate(value=1 + excess, low=1 + down * excess, high=1 + up * excess, is_computed=True)


def of_part(gain: Estimate, part: float) -> Estimate:
    """The gain of the whole where only this part of its time gains so much."""
    value, low, high = (1 / (1 - part + part / max(1e-6, each)) for each in (gain.value, gain.low, gain.high))
    return replace(gain, value=value, low=low, high=high, is_computed=gain.is_computed or part < 1)


def _plain(logs: Sequence[float], steps: int | None = None) -> Estimate:
    return _interval(logs, 0.0, 0.0, fallback=0.04, steps=steps)


def _groups(blocks: Iterable[Block]) -> dict[str, list[Block]]:
    groups: dict[str, list[Block]] = {}
    for block in blocks:
        if block.steps:
            groups.setdefault(block.rung, []).append(block)
    return groups


def _differences(upper: Sequence[Block], lower: Sequence[Block]) -> list[float]:
    by_round = {block.round: rate(block) for block in lower}
    return [math.log(rate(block) / by_round[block.round]) for block in upper if block.round in by_round]


def _shared_out(upper: Sequence[Block], lower: Sequence[Block]) -> list[float]:
    """Differences of log-rates, as many as the rung with fewer blocks has: against each a mean of some of the other's."""
    count = min(len(upper), len(lower))
    above, below = ([math.log(rate(block)) for block in some] for some in (upper, lower))
    return [mean(above[place::count]) - mean(below[place::count]) for place in range(count)]


def _pooled_variance(groups: Iterable[Sequence[Block]]) -> tuple[float, float]:
    """Variance of block log-rates within rungs, pooled over rungs, and the weight it deserves as a prior."""
    squares, freedom = 0.0, 0
    for members in groups:
        logs = [math.log(rate(block)) for block in members]
        centre = mean(logs)
        squares += sum((item - centre) ** 2 for item in logs)
        freedom += len(logs) - 1
    if freedom <= 0:
        return 0.0, 0.0
    return squares / freedom, min(PRIOR_WEIGHT, float(freedom))


def _prior_of_difference(groups: dict[str, list[Block]], upper: str, lower: str) -> tuple[float, float]:
    """Variance to expect of a paired difference, from rungs of the same two sorts, and the weight it deserves.

    Rungs under which the workers do most of their work scatter more than those served from cache, so the variance is
    pooled within each sort, and weighs only as much as the *other* rungs of the sort tell about it.
    """
    residuals = _residuals(groups)
    variance, weight = 0.0, PRIOR_WEIGHT
    for rung in (upper, lower):
        sort = [name for name in groups if _is_heavy(name) is _is_heavy(rung)]
        freedom = sum(len(groups[name]) - 1 for name in sort)
        squares = sum(residuals[name, block.round] ** 2 for name in sort for block in groups[name])
        variance += squares / max(1, freedom)
        weight = min(weight, float(freedom - (len(groups[rung]) - 1)))
    return variance, max(0.0, weight)


def _is_heavy(rung: str) -> bool:
    """Whether the workers do (nearly) all of their work under the rung."""
    return rung in ("none", "bytes", BUSY) or rung.startswith(("knockout:", "trial:"))


def _residuals(groups: dict[str, list[Block]]) -> dict[tuple[str, int], float]:
    """What neither the rung nor the round explains of each block's log-rate.

    Two-way additive model, fitted by removing rung and round means in turn; it converges at once for complete rounds.
    """
    residuals = {(name, block.round): math.log(rate(block)) for name, members in groups.items() for block in members}
    for _ in range(8):
        for axis in (0, 1):
            for level in {key[axis] for key in residuals}:
                keys = [key for key in residuals if key[axis] == level]
                centre = mean([residuals[key] for key in keys])
                for key in keys:
                    residuals[key] -= centre
    return residuals


def _within(members: Sequence[Block]) -> float:
    """Variance of one block's log-rate guessed from the scatter of its steps, for when there is only one block."""
    figures = [_block_variance(block) for block in members]
    return mean(figures)


def _block_variance(block: Block) -> float:
    """Variance of a block's log-rate by the scatter of its parts.

    Single steps would not do: workers deliver in turns and a device's queue takes several launches at once, so that
    steps of no time and steps of many times the mean alternate in a perfectly steady loop.
    """
    periods = [wait + body for wait, body in zip(block.waits_ns, block.bodies_ns, strict=True)]
    size = max(len(set(block.workers)), len(periods) // PARTS, 1)
    parts = [sum(periods[start : start + size]) for start in range(0, len(periods) - size + 1, size)]
    centre = mean(parts)
    is_ahead = sum(periods) < AHEAD * (block.end_ns - block.start_ns)
    if len(parts) < 3 or centre <= 0 or is_ahead:
        return UNKNOWN_VARIANCE
    variance = sum((item - centre) ** 2 for item in parts) / (len(parts) - 1)
    return max(variance / centre**2 / len(parts), 0.02**2)


def _interval(
    logs: Sequence[float], pooled: float, weight: float, *, fallback: float, steps: int | None = None
) -> Estimate:
    count = len(logs)
    centre = mean(logs)
    own = sum((item - centre) ** 2 for item in logs)
    freedom = (count - 1) + weight
    guess = max(0.0, LEAST_FREEDOM - freedom)  # too few blocks: the scatter of steps makes up for what is missing
    variance = (own + weight * pooled + guess * fallback) / (freedom + guess)
    freedom += guess
    half = student(freedom) * math.sqrt(variance / count)
    return Estimate(value=math.exp(centre), low=math.exp(centre - half), high=math.exp(centre + half), steps=steps)


def student(freedom: float) -> float:
    """Two-sided 95 % quantile of Student's t, interpolated in 1/freedom between tabulated values.

    Table: any statistics text; the error of the interpolation is below 2 %.
    """
    for low, high in itertools.pairwise(_TABLE):
        if freedom <= high[0]:
            share = (1 / max(freedom, 1.0) - 1 / low[0]) / (1 / high[0] - 1 / low[0])
            return low[1] + share * (high[1] - low[1])
    return 1.96


_TABLE = (
    (1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (4.0, 2.776), (5.0, 2.571), (6.0, 2.447), (7.0, 2.365), (8.0, 2.306),
    (10.0, 2.228), (12.0, 2.179), (15.0, 2.131), (20.0, 2.086), (30.0, 2.042), (60.0, 2.000), (1e9, 1.960),
)  # fmt: skip
