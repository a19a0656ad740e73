"""The throughput law: what sets the pace of a loop, from the clocks of its workers. Pure; no torch, no clock.

A step cannot be faster than the loop body, than the workers together, or than the cores allow:

    rate <= min(1 / step, workers / fetch, cores / (cpu + main * step))

with `step` the loop body's time fed from cache (beside busy workers, where that was measured), `fetch` a worker's time for one batch while it has a core, `cpu` the
core time of that, and `main` the cores that the loop's own process uses while it steps. Without workers both take
turns: 1 / (step + fetch) in place of the first two. This is the bottleneck law of closed queueing networks
(D. Lazowska et al., "Quantitative System Performance", 1984, ch. 5); it leaves out variance, so real loops are somewhat
slower near the corner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from unstarve import estimate
from unstarve.recording import BUSY, Block, Recording, Start

AS_FAST = 0.9
"""No workers are tried where the law gives them this share of what any number may reach: it is off by so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What the law needs to know."""

    step_s: float
    """Seconds of a step fed from cache."""
    fetch_s: float
    """Seconds that a worker with a core of its own needs for a batch."""
    cpu_s: float
    """Core seconds of that."""
    cores: float
    """Cores that may be used."""
    main_cores: float = 0.0
    """Cores that the loop's own process uses while it steps."""
    busy_step_s: float = 0.0
    """Seconds of a step fed from cache while the workers are busy; 0 where that was not measured."""

    def rate(self, workers: int) -> float:
        """Steps per second with so many workers."""
        step, fetch = max(1e-9, self.step_s), max(1e-9, self.fetch_s)
        pace = min(1 / max(step, self.busy_step_s), workers / fetch) if workers else 1 / (step + fetch)
        # the loop's own process needs `main_cores * step` core seconds of every step
        needed = self.cpu_s + self.main_cores * step
        return min(pace, self.cores / needed) if needed > 0 else pace

    def capacity(self, workers: int) -> float:
        """Batches per second that so many workers could make if the loop took them at once and needed no core itself."""
        pace = workers / max(1e-9, self.fetch_s)
        return min(pace, self.cores / self.cpu_s) if self.cpu_s > 0 else pace

    def shorter(self, less_s: float) -> Loop:
        """The loop with a body that is shorter by so many seconds. Its speed beside workers that never rest is no bound for
        that: those of a loop that is held back by its body rest most of the time."""
        return replace(self, step_s=max(0.0, self.step_s - less_s), busy_step_s=0.0)

    def enough_workers(self) -> int:
        """The fewest workers after which more would gain nothing."""
        best = self.rate(1 << 16)
        return max(1, math.ceil(best * self.fetch_s - 1e-6))


def of_blocks(blocks: Sequence[Block], workers: int, cores: float) -> Loop:
    """The law's figures, from blocks of the untouched loop and of the loop fed from host memory; and, where there are
    such, of the loop fed from cache beside busy workers.

    Args:
        blocks: measured blocks, of the rungs `none` and `host` at least.
        workers: worker processes of the untouched loop.
        cores: cores that may be used.
    """
    none = [block for block in blocks if block.rung == "none"]
    host = [block for block in blocks if block.rung == "host"] or none
    fetch_s = _mean_s(fetch for block in none for fetch in block.fetches_ns)
    delay_s = _mean_s(delay for block in none for delay in block.delays_ns) if workers else 0.0
    span = sum(block.end_ns - block.start_ns for block in host)
    busy = [block for block in blocks if block.rung == BUSY]
    return Loop(
        step_s=_period_s(host),
        fetch_s=max(0.0, fetch_s - delay_s),
        cpu_s=_mean_s(cpu for block in none for cpu in block.fetches_cpu_ns),
        cores=cores,
        main_cores=sum(block.main_cpu_ns for block in host) / span if span else 0.0,
        busy_step_s=_period_s(busy),
    )


def _period_s(blocks: Sequence[Block]) -> float:
    return sum(block.end_ns - block.start_ns for block in blocks) / 1e9 / max(1, sum(block.steps for block in blocks))


def _mean_s(figures: Iterable[int]) -> float:
    return estimate.mean(list(figures)) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCost:
    """What an epoch takes longer because its iterator begins with nothing ready, in seconds."""

    setup_s: float
    """Until the workers are at their first batch, which workers spare that outlive the epoch."""
    sampler_s: float
    """Of the sampler, before its first index."""
    idle_s: float
    """Of the loop that waits for first batches, or of workers that have no more to make while it works on the last."""
    dropped_s: float = 0.0
    """Until the first batch that the loop did not drop, where that is longer."""

    @property
    def total_s(self) -> float:
        """All together."""
        return max(self.setup_s + self.sampler_s, self.dropped_s) + self.idle_s


def recurring_starts(recording: Recording) -> list[Start]:
    """Natural starts of the loader that was diagnosed which stand for that of every epoch: without the first where there
    is another. Of a lone first start of workers that outlive the epoch only the sampler's part comes again."""
    loader = recording.loader
    natural = [item for item in recording.starts_of(loader) if item.natural] if loader is not None else []
    if loader is None or natural[1:] or not loader.keeps_workers:
        return natural[1:] or natural
    return [
        replace(
            item, construct_ns=0, first_wait_ns=0, dropped_ns=item.dropped_ns - item.construct_ns - item.first_wait_ns
        )
        for item in natural
    ]


def start_costs(recording: Recording, *, batches: float | None = None) -> list[StartCost]:
    """What each of the starts costs that stand for those of all epochs.

    Args:
        recording: a diagnosis.
        batches: batches of an epoch; None for as many as the loader says, or the longest of the starts had.
    """
    workers, length = (0, None) if recording.loader is None else (recording.loader.num_workers, recording.loader.length)
    starts = recurring_starts(recording)
    count = batches or length or max((start.batches for start in starts), default=0) or math.inf
    return [start_cost(start, recording.blocks, workers=workers, batches=count) for start in starts]


def start_cost(start: Start, blocks: Sequence[Block], *, workers: int, batches: float) -> StartCost:
    """What a start costs an epoch of so many batches.

    Args:
        start: the iterator.
        blocks: measured blocks, of the rung `none` at least.
        workers: worker processes.
        batches: batches of an epoch.
    """
    none = [block for block in blocks if block.rung == "none"]
    fetch_s = _mean_s(fetch for block in none for fetch in block.fetches_ns)
    known_s = fetch_s or _period_s(none)
    sampler_s = start.sampler_ns / 1e9
    return StartCost(
        setup_s=max(0.0, (start.construct_ns + start.first_wait_ns) / 1e9 - known_s - sampler_s),
        sampler_s=sampler_s,
        idle_s=idle_s(none, workers=workers, batches=batches),
        dropped_s=start.dropped_ns / 1e9 - known_s,
    )


def idle_s(blocks: Sequence[Block], *, workers: int, batches: float) -> float:
    """What an epoch takes longer than so many steps of a long run, of which the blocks are: the first batch is waited for
    as long as it takes to make, but a loop that waits for its workers anyway has that back at the end, when they need not
    be waited for."""
    body_s = _mean_s(body for block in blocks for body in block.bodies_ns)
    fetch_s = _mean_s(fetch for block in blocks for fetch in block.fetches_ns)
    if not workers or not fetch_s or math.isinf(batches):
        return 0.0
    turns = math.ceil(batches / workers)
    last = batches - workers * (turns - 1)
    whole_s = max(fetch_s + batches * body_s, fetch_s * turns + last * body_s)
    return max(0.0, whole_s - batches * max(body_s, fetch_s / workers))


def spared_share(costs: Sequence[StartCost]) -> float:
    """Part of what starts cost that workers spare which outlive the epoch."""
    total_s = sum(cost.total_s for cost in costs)
    return sum(cost.setup_s for cost in costs) / total_s if total_s else 0.0


def worker_counts(loop: Loop, own: int, *, rate: float, most: int, count: int = 5) -> list[int]:
    """Numbers of workers worth trying: around where the law says that more gain nothing, and the script's own.

    None at all are among them where the loop has workers and hardly any number of them can be faster: the law leaves out
    what it costs to receive batches from workers, and `rate`, the loop's steps per second, shows by how much it is off.
    """
    enough = min(loop.enough_workers(), most)
    cores = max(1, int(loop.cores))
    grid = {1, 2, cores - 1, cores, cores + 1, enough, enough + 1, 2 * enough, (enough + 1) // 2, 2 * own, own // 2}
    near = sorted({number for number in grid if 1 <= number <= most} | {own})
    best = max(loop.rate(number) for number in near)
    worth = [number for number in near if loop.rate(number) >= 0.6 * best and number != own]
    worth.sort(key=lambda number: (abs(math.log((number + 0.5) / (enough + 0.5))), number))
    if own and loop.rate(0) >= AS_FAST * best * rate / loop.rate(own):
        worth.insert(1, 0)  # behind the law's choice
    return sorted({own, *worth[: count - 1]})
