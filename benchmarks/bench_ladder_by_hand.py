"""Does each rung of the tool run as fast as the same loop edited by hand, as the article's reader would edit it?

    python benchmarks/bench_ladder_by_hand.py [--rounds 8]

The toy pipeline, two workers, a simulated accelerator. The tool runs its experiment; whenever it measures a block of a
rung, the loop written by hand for that rung runs right beside it, before the block in every other round and after it in
the rest, with fresh workers of its own while the tool's are asleep behind full queues. Both synchronise the accelerator
at the borders and discard what was ready before. Compared are the two rates of each pair, as a paired log-ratio.

By hand: nothing cached is the plain loop; raw and processed samples are kept by the data set, the first 16 of each
worker as in the tool's pools; batches are taken from a loader that is then given up, four of them as in the tool.

Bound, for every rung: the ratio is within 5 % of 1, or its 95 % interval includes 1.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from _common import Figure, describe_machine, geometric_mean, leave, show
from PIL import Image
from torch.utils.data import DataLoader

from unstarve import estimate, simulate
from unstarve.demo import journey, toy
from unstarve.errors import Finished
from unstarve.measure import rungs
from unstarve.measure.bench import HOST_BATCHES
from unstarve.measure.engine import Engine
from unstarve.measure.program import Options

POOL = 16
"""Samples that the tool keeps in each worker."""

TOLERANCE = 0.05
RUNGS = (rungs.DEVICE, rungs.HOST, rungs.SAMPLES, rungs.RAW, rungs.NONE)
WORKERS = 2
Batches = Iterator[Any]


class SampleCachedDataset(toy.ToyDataset):
    """Serves the first finished samples of this worker over and over."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.cache: list[Any] = []
        self.served = 0

    def __getitem__(self, index: int) -> Any:
        if len(self.cache) < POOL:
            self.cache.append(super().__getitem__(index))
        self.served += 1
        return self.cache[self.served % len(self.cache)]  # stacking copies it


class RawCachedDataset(toy.ToyDataset):
    """Serves the first images of this worker over and over, and transforms them each time."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.cache: list[Image.Image] = []
        self.served = 0
        self.whole = self.transform

    def __getitem__(self, index: int) -> Any:
        if len(self.cache) < POOL:
            self.transform = self._keep
            super().__getitem__(index)
        self.served += 1
        return self.whole(self.cache[self.served % len(self.cache)]), index % 10  # PILToTensor copies it

    def _keep(self, image: Image.Image) -> Image.Image:
        self.cache.append(image)
        return image


@dataclass(slots=True)
class ByHand:
    """The loops edited by hand."""

    batch_size: int
    """Samples of a batch."""
    train_step: Callable[[Any], None]
    """The loop's body."""
    accelerator: simulate.SimulatedAccelerator
    """What it runs on."""
    seconds: float = 0.7
    """Least time of a measured run."""

    def rate(self, rung: str) -> float:
        """Steps per second of the loop for that rung; its workers end with it."""
        batches, discarded = self._batches(rung)
        for batch in itertools.islice(batches, discarded):
            self.train_step(batch)
        self.accelerator.synchronize()
        began, steps = time.perf_counter(), 0
        while steps < 4 or time.perf_counter() - began < self.seconds:
            for batch in itertools.islice(batches, WORKERS):
                self.train_step(batch)
            steps += WORKERS
        self.accelerator.synchronize()
        return steps / (time.perf_counter() - began)

    def _batches(self, rung: str) -> tuple[Batches, int]:
        """Batches for the loop, and how many of them to discard: those ready at the start, those that fill caches."""
        if rung in ("host", "device"):
            kept = list(itertools.islice(self._loader(toy.ToyDataset), HOST_BATCHES))
            if rung == "device":
                kept = [self.accelerator.to_device(batch) for batch in kept]
            return itertools.cycle(kept), 1
        kind = {"samples": SampleCachedDataset, "raw": RawCachedDataset, "none": toy.ToyDataset}[rung]
        fills = WORKERS * math.ceil(POOL / self.batch_size) if rung != "none" else 0
        return iter(self._loader(kind)), WORKERS * 2 + fills

    def _loader(self, kind: type[toy.ToyDataset]) -> DataLoader:
        return DataLoader(
            kind(toy.transforms_as_published()), batch_size=self.batch_size, shuffle=True, num_workers=WORKERS,
            drop_last=True,
        )  # fmt: skip


@dataclass(slots=True)
class Pairs:
    """Rates by the tool and by hand, side by side; told of the tool's progress."""

    by_hand: ByHand
    """The loops edited by hand."""
    rounds: int
    """Rounds to measure."""
    rates: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {rung.id: [] for rung in RUNGS})
    """Tool's and hand's rate of each pair, by rung."""
    early: float | None = None
    """Rate by hand of the rung whose block follows, where it was taken first."""
    seen: int = 0
    """Blocks of the tool so far."""

    def __call__(self, engine: Engine, text: str) -> None:
        """Run the loop by hand before or after the tool's block."""
        if text.startswith("round "):
            number, _, label = text.removeprefix("round ").partition(": ")
            if int(number) > self.rounds:
                raise Finished("enough rounds")
            rung = next((rung.id for rung in RUNGS if rung.label == label), None)
            self.early = self.by_hand.rate(rung) if rung is not None and int(number) % 2 else None
        elif not text and len(engine.blocks) > self.seen:
            self.seen = len(engine.blocks)
            block = engine.blocks[-1]
            if block.rung in self.rates:
                hand = self.early if self.early is not None else self.by_hand.rate(block.rung)
                self.rates[block.rung].append((estimate.rate(block), hand))


def measure(batch_size: int, step_s: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Pairs of rates by rung."""
    with simulate.use(simulate.SimulatedAccelerator(depth=journey.SIMULATED_DEPTH)) as accelerator:
        train_step = functools.partial(journey._simulated_step, accelerator, step_s)
        pairs = Pairs(ByHand(batch_size, train_step, accelerator), rounds)
        # No threshold at all: the coarse ladder alone, and never decided before its last round.
        options = Options(budget_s=1e5, max_rounds=rounds + 1, threshold=math.nan)
        engine = Engine(options, on_progress=pairs)
        loader = toy.make_loader(
            toy.transforms_as_published(), image_size=1024, batch_size=batch_size, workers=WORKERS, pin_memory=False
        )
        try:
            for batch in engine.iterate(loader, DataLoader.__iter__):
                train_step(batch)
        except Finished:
            pass
        finally:
            engine.close()
    return pairs.rates


def judge(ratio: Figure) -> str:
    """Whether tool and hand agree."""
    if abs(ratio.value - 1) <= TOLERANCE:
        return "holds"
    return "holds (within the interval)" if ratio.low <= 1 <= ratio.high else "FAILS"


def main() -> None:
    """Measure, print, leave with 1 if a rung disagrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=8)
    arguments = parser.parse_args()
    loader = toy.make_loader(
        toy.transforms_as_published(), image_size=1024, batch_size=arguments.batch_size, workers=WORKERS,
        pin_memory=False,
    )  # fmt: skip
    step_s = journey.measure_batch_time(loader) / journey.ARTICLE_HEADROOM
    print(f"Ladder by the tool and by hand. {describe_machine()}; step of {step_s * 1e3:.1f} ms.")
    rates = measure(
        arguments.batch_size, step_s, 3 * arguments.rounds
    )  # some rungs have a block in every third one only
    print(f"{'rung':26}{'tool steps/s':>26}{'by hand steps/s':>26}{'tool / hand':>28}   n  agree")
    verdicts = []
    for rung in RUNGS:
        pairs = rates[rung.id]
        tool, hand = (geometric_mean(side) for side in zip(*pairs, strict=True))
        ratio = geometric_mean([ours / theirs for ours, theirs in pairs])
        verdicts.append(judge(ratio))
        columns = f"{show(tool, '.2f'):>26}{show(hand, '.2f'):>26}{show(ratio):>28}{ratio.n:4}"
        print(f"{rung.label:26}{columns}  {verdicts[-1]}")
    leave(verdicts)


if __name__ == "__main__":
    main()
