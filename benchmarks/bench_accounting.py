"""What accounting costs the loop: some samples watched statement by statement now and then, nothing served from cache.

    python benchmarks/bench_accounting.py [--part toy|stages] [--alternations N]

The tool watches six samples in each worker in a pass, and makes a pass for every level of calls that it goes into: at
most five passes in the hundred steps that it takes at least. Here the passes never end. Once the tool has gone as deep as
it would, another pass at that depth begins every twenty batches, and the batches in between are made as they always are.
Both loops, the untouched one and this one, run in one process, in turns, as `bench_overhead.py` describes; a turn takes
twenty batches, so that each has its share of watching. The orders that rungs need and the batches that are thrown away
when they change are no part of accounting and do not occur.

(a) The toy pipeline, batch 4. (b) The forty stages of `bench_search.py` as statements, batch 8, which has more to
watch in less time.

Bound: at most 2 % more. It is judged by wall time, or, where that cannot decide, by the CPU time of loop and workers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from _common import describe_machine, judge, leave, show
from bench_overhead import Plan, decide, measure, ratio
from bench_search import LONG, make_pipeline

from unstarve.demo import toy
from unstarve.measure.engine import Engine
from unstarve.measure.experiment import STEPS_NEEDED, Experiment
from unstarve.measure.program import Bench, Give, Options, Program, Step

BOUND = 1.02
SAMPLES = 6
"""Samples watched by each worker in a pass, as in a diagnosis."""

EVERY = STEPS_NEEDED // (1 + Options().depth)
"""Batches from pass to pass."""


class Accounting(Experiment):
    """Looks into the workers as a diagnosis does, then watches some samples again and again and does nothing else."""

    def __init__(self, bench: Bench, options: Options) -> None:
        super().__init__(bench, options)
        self.batches = 0
        """Batches given so far."""

    def run(self) -> Program:
        yield from self.warm_up()
        yield from self._look()
        while True:
            yield from self._watch(samples=SAMPLES, skip=0, limit=0, wanted=[])
            while self.batches % EVERY:
                yield from self._give("loader")

    @property
    def watched(self) -> int:
        """Samples watched so far."""
        return sum(len(findings.sample_wall_ns) for findings in self._findings)

    @property
    def units(self) -> int:
        """Units timed in every sample of the last pass."""
        return max((len(findings.costs) for findings in self._findings), default=0)

    def _give(self, source: str) -> Generator[Give, Step | None, Step]:
        self.batches += 1
        return (yield from super()._give(source))


def report(plan: Plan, batch_size: int, alternations: int) -> str:
    """Measure and print one pipeline; its verdict."""
    programs: list[Accounting] = []

    def program(bench: Any, options: Options) -> Program:
        programs.append(Accounting(bench, options))
        return programs[-1].run()

    # Batches of the workers' own are never thrown away with a fleet that does not repeat itself.
    options = Options(only_baseline=True, budget_s=1e6)
    pairs = measure(plan, alternations, lambda: Engine(options, program=program))
    wall, cpu = ratio(pairs, "wall"), ratio(pairs, "cpu")
    watched = sum(program.watched for program in programs) / sum(program.batches for program in programs) / batch_size
    period_ms = sum(plain.wall for plain, _ in pairs) / len(pairs) / 1e6
    print(f"{plan.title}: {period_ms:.1f} ms a batch, n = {wall.n}")
    print(f"  units timed in a watched sample      {max(program.units for program in programs)}")
    print(f"  samples that were watched            {watched:.0%}")
    print(f"  with accounting over plain, wall     {show(wall, '.4f')}")
    print(f"  CPU time of loop and workers         {show(cpu, '.4f')}")
    verdict = decide(judge(wall, BOUND), judge(cpu, BOUND))
    print(f"  bound {BOUND}: {verdict}")
    return verdict


def toy_plan(turns: int) -> Plan:
    """The toy pipeline."""
    return Plan(
        title="(a) toy pipeline, batch 4, 2 workers, a step that sleeps 5 ms",
        make=lambda: toy.make_loader(
            toy.transforms_as_published(), image_size=1024, batch_size=4, workers=2, pin_memory=False
        ),
        step=lambda: time.sleep(0.005), settle=8, batches=EVERY, turns=turns, warm_up=60,
    )  # fmt: skip


def stages_plan(folder: Path, turns: int) -> Plan:
    """Forty stages."""
    return Plan(
        title=f"(b) {LONG} stages, batch 8, 2 workers, a step that sleeps 5 ms",
        make=lambda: make_pipeline("inline", LONG, folder)[0],
        step=lambda: time.sleep(0.005), settle=8, batches=EVERY, turns=turns, warm_up=60,
    )  # fmt: skip


def main() -> None:
    """Measure, print, leave with 1 if a bound fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("toy", "stages"))
    parser.add_argument("--alternations", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5, help="turns of each loop in an alternation")
    arguments = parser.parse_args()
    print(f"Cost of accounting, one pass every {EVERY} batches. {describe_machine()}.")
    verdicts = []
    if arguments.part != "stages":
        verdicts.append(report(toy_plan(arguments.turns), 4, arguments.alternations))
    if arguments.part != "toy":
        with tempfile.TemporaryDirectory() as folder:
            sys.path.insert(0, folder)
            verdicts.append(report(stages_plan(Path(folder), arguments.turns), 8, arguments.alternations))
    leave(verdicts)


if __name__ == "__main__":
    main()
