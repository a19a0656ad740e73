"""What the instruments cost while nothing is served from cache: the baseline under the engine against the plain loader.

    python benchmarks/bench_overhead.py [--part toy|trivial] [--alternations N]

Both loops run in one process, in turns. Every alternation makes two fresh loaders, one plain and one under
`unstarve.measure.hook.installed`, throws away the batches of their start, then takes short bursts from one and from the
other, in an order drawn by lot; the workers whose turn it is not are asleep behind full queues. Batches that were ready
before the turn are thrown away. An alternation's figure is the lower quartile over its turns, the ones that the machine
disturbed least.

(a) Trivial samples, batch 64: at most 60 us per batch more, with two workers and with none.
(b) The toy pipeline with a step that sleeps: at most 1 % more.

The bound is one on wall time, and wall time is judged first. On a machine without a free core it cannot decide; then
CPU time beyond the plain loader's is judged: that of the loop's thread, and that of the workers over their number, since
they work side by side. It is no less than what a batch is late by where cores are free, as the loop's thread and the
workers do not wait for each other all the time. For (b) that is what (a) found with two workers, over the toy's time per
batch: the instruments do the same for every batch, whatever is in it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from _common import Figure, describe_machine, geometric_mean, judge, leave, median, process_cpu_clock, show
from torch.utils.data import DataLoader, TensorDataset

from unstarve.demo import toy
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.program import Options

TOY_BOUND, TRIVIAL_BOUND_US = 1.01, 60.0

WARM_UP = 12
"""Batches after which the engine has chosen its target and the experiment is past its warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a batch costs, in ns."""

    wall: float
    """Of the loop, from batch to batch."""
    main: float
    """CPU time of the thread that runs the loop."""
    workers: float
    """CPU time of all workers."""

    @property
    def cpu(self) -> float:
        """CPU time of loop and workers."""
        return self.main + self.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a pipeline is measured."""

    title: str
    """What it is."""
    make: Callable[[], DataLoader]
    """A fresh loader."""
    step: Callable[[], None]
    """The loop's body."""
    settle: int
    """Batches thrown away at the beginning of a turn."""
    batches: int
    """Batches measured in a turn."""
    turns: int
    """Turns of each loop in an alternation."""
    warm_up: int = WARM_UP
    """Batches of each loop before its first turn."""


class Loop:
    """One loop over one iterator."""

    def __init__(self, plan: Plan, batches: Any) -> None:
        self._plan = plan
        self._batches = batches
        self._run(plan.warm_up)
        self._clocks = [process_cpu_clock(worker.pid) for worker in getattr(batches, "_workers", ())]

    def turn(self) -> Cost:
        """Cost of a batch over one turn."""
        self._run(self._plan.settle)
        wall, main, workers = time.perf_counter_ns(), time.thread_time_ns(), self._workers_ns()
        self._run(self._plan.batches)
        return Cost(
            wall=(time.perf_counter_ns() - wall) / self._plan.batches,
            main=(time.thread_time_ns() - main) / self._plan.batches,
            workers=(self._workers_ns() - workers) / self._plan.batches,
        )

    def _run(self, count: int) -> None:
        batches, step = self._batches, self._plan.step
        for _ in range(count):
            next(batches)
            step()

    def _workers_ns(self) -> int:
        return sum(clock() for clock in self._clocks)


def baseline_engine() -> Engine:
    """An engine whose workers are instrumented and make every batch as they always do; it takes the loader for the training
    loader at once, which a loop that does nothing would not look like."""
    return Engine(Options(only_baseline=True, budget_s=1e6), loader="0")


def alternate(plan: Plan, lots: random.Random, make_engine: Callable[[], Engine]) -> tuple[Cost, Cost]:
    """Costs of a batch, plain and instrumented, of two fresh loaders."""
    plain = Loop(plan, iter(plan.make()))
    engine = make_engine()
    with installed(engine):
        instrumented = Loop(plan, iter(plan.make()))
        costs: dict[Loop, list[Cost]] = {plain: [], instrumented: []}
        for _ in range(plan.turns):
            for loop in lots.sample((plain, instrumented), 2):
                costs[loop].append(loop.turn())
    return _quartile_cost(costs[plain]), _quartile_cost(costs[instrumented])


def _quartile_cost(costs: list[Cost]) -> Cost:
    names = ("wall", "main", "workers")
    return Cost(**{name: statistics.quantiles([getattr(cost, name) for cost in costs], n=4)[0] for name in names})


def measure(
    plan: Plan, alternations: int, make_engine: Callable[[], Engine] = baseline_engine
) -> list[tuple[Cost, Cost]]:
    """Pairs of costs, plain and instrumented, one of each alternation."""
    lots = random.Random(0)
    return [alternate(plan, lots, make_engine) for _ in range(alternations)]


def ratio(pairs: list[tuple[Cost, Cost]], name: str) -> Figure:
    """Instrumented over plain."""
    return geometric_mean([getattr(ours, name) / getattr(plain, name) for plain, ours in pairs])


def difference_us(pairs: list[tuple[Cost, Cost]], name: str) -> Figure:
    """Instrumented less plain, in microseconds a batch."""
    return median([(getattr(ours, name) - getattr(plain, name)) / 1e3 for plain, ours in pairs])


def lateness_us(pairs: list[tuple[Cost, Cost]], workers: int) -> Figure:
    """Microseconds by which a batch is late at most, where every process has a core."""
    more = [(ours.main - plain.main, ours.workers - plain.workers) for plain, ours in pairs]
    return median([(main + made / max(1, workers)) / 1e3 for main, made in more])


def decide(wall: str, cpu: str) -> str:
    """The verdict on wall time, or that on CPU time where only this one could be reached."""
    return wall if wall == "holds" or cpu != "holds" else "holds by CPU time"


def report_trivial(workers: int, alternations: int) -> tuple[str, Figure]:
    """Measure and print part (a) for so many workers: the verdict, and by what a batch is late as CPU time tells it."""
    data = TensorDataset(torch.arange(64 * 8000, dtype=torch.float32))
    plan = Plan(
        title=f"(a) trivial samples, batch 64, {workers} workers",
        make=lambda: DataLoader(data, batch_size=64, num_workers=workers),
        step=lambda: None, settle=20, batches=100, turns=20,
    )  # fmt: skip
    pairs = measure(plan, alternations)
    wall, cpu = difference_us(pairs, "wall"), lateness_us(pairs, workers)
    verdict = decide(judge(wall, TRIVIAL_BOUND_US), judge(cpu, TRIVIAL_BOUND_US))
    print(f"{plan.title}: {statistics.median(plain.wall for plain, _ in pairs) / 1e3:.0f} us a batch, n = {wall.n}")
    print(f"  instrumented less plain, wall time   {show(wall, '.1f', 'us')}")
    print(f"  CPU time of the loop's thread        {show(difference_us(pairs, 'main'), '.1f', 'us')}")
    if workers:
        print(f"  CPU time of the workers              {show(difference_us(pairs, 'workers'), '.1f', 'us')}")
        print(f"  CPU time of the loop and one worker   {show(cpu, '.1f', 'us')}")
    print(f"  bound {TRIVIAL_BOUND_US:.0f} us: {verdict}")
    return verdict, cpu


def report_toy(alternations: int, more_us: Figure | None) -> str:
    """Measure and print part (b), given by what a batch is late as CPU time tells it."""
    plan = Plan(
        title="(b) toy pipeline, batch 4, 2 workers, a step that sleeps 5 ms",
        make=lambda: toy.make_loader(
            toy.transforms_as_published(), image_size=1024, batch_size=4, workers=2, pin_memory=False
        ),
        step=lambda: time.sleep(0.005), settle=8, batches=8, turns=8,
    )  # fmt: skip
    pairs = measure(plan, alternations)
    period_us = statistics.median(plain.wall for plain, _ in pairs) / 1e3
    wall = ratio(pairs, "wall")
    print(f"{plan.title}: {period_us / 1e3:.1f} ms a batch, n = {wall.n}")
    print(f"  instrumented over plain, wall time   {show(wall, '.4f')}")
    print(f"  CPU time of loop and workers         {show(ratio(pairs, 'cpu'), '.4f')}")
    cpu_verdict = "undecided"
    if more_us is not None:
        bounds = {name: 1 + getattr(more_us, name) / period_us for name in ("value", "low", "high")}
        carried = Figure(**bounds, n=more_us.n)
        cpu_verdict = judge(carried, TOY_BOUND)
        print(f"  what (a) found, over a batch here    {show(carried, '.4f')}")
    verdict = decide(judge(wall, TOY_BOUND), cpu_verdict)
    print(f"  bound {TOY_BOUND}: {verdict}")
    return verdict


def main() -> None:
    """Measure, print, leave with 1 if a bound fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("toy", "trivial"))
    parser.add_argument("--alternations", type=int, default=16)
    arguments = parser.parse_args()
    print(f"Overhead of the instrumented baseline. {describe_machine()}.")
    verdicts, more_us = [], None
    if arguments.part != "toy":
        (with_workers, more_us), (without, _) = (report_trivial(count, arguments.alternations) for count in (2, 0))
        verdicts += [with_workers, without]
    if arguments.part != "trivial":
        verdicts.append(report_toy(arguments.alternations, more_us))
    leave(verdicts)


if __name__ == "__main__":
    main()
