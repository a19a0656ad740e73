"""How many steps of the loop until the tool knows something, against the article's five runs of 100 steps.

    python benchmarks/bench_steps_to_verdict.py [--runs 2] [--batch-size N]

The toy pipeline, two workers, and a simulated accelerator calibrated to the article's ratio of 3.9 between ceiling and
baseline, with a batch at which the step comes near the article's 0.29 s. A block lasts half a second, four steps at
least, so a loop of shorter steps takes more of them; `--batch-size 4` shows how many.

Counted are the batches handed to the loop from the script's first, until (a) every rung of the coarse ladder has one
block, (b) with `full=True` so has every cut of the chain of transforms. Batches made under an order that is over are
thrown away before the loop sees them and not counted; the seconds contain them.

Bounds: (a) at most 60 steps, (b) at most 200.
"""

from __future__ import annotations

import argparse
import functools
import time
from dataclasses import dataclass, field

from _common import describe_machine, leave
from torch.utils.data import DataLoader

from unstarve import simulate
from unstarve.demo import journey, toy
from unstarve.errors import Finished
from unstarve.measure.engine import Engine
from unstarve.measure.program import Options

COARSE = ("none", "raw", "samples", "collated", "host", "device")
TRANSFORMS = ("PILToTensor", "RandomCrop", "RandomMask", "RGBToYUV", "Scale")
COARSE_BOUND, FULL_BOUND, ARTICLE_STEPS = 60, 200, 500
ARTICLE_STEP_S, TRIAL_BATCH = 0.29, 16
LARGEST_BATCH = 128  # so that a run takes minutes, though the shorter step errs against us
EPOCHS = 10  # more than enough: 78 steps each at that batch


@dataclass(slots=True)
class Count:
    """What it took until the needed blocks were there."""

    needs_cuts: bool
    """Whether the cuts of the transforms are needed too."""
    steps: int = 0
    """Batches handed to the loop; 0 while blocks are missing."""
    seconds: float = 0.0
    """Wall time since the first batch."""
    cuts: dict[str, str] = field(default_factory=dict)
    """Labels of the measured cuts by id."""
    began: float = field(default_factory=time.perf_counter)

    def __call__(self, engine: Engine, text: str) -> None:
        """Take note of the first block after which nothing is missing."""
        if self.steps or text:  # a text says what comes; a block that was measured is announced without one
            return
        measured = {block.rung for block in engine.blocks}
        needed = {rung.id: rung.label for rung in engine.rungs if rung.kind == "cut"} if self.needs_cuts else {}
        if measured.issuperset(COARSE) and measured.issuperset(needed):
            self.steps = engine.steps_total
            self.seconds = time.perf_counter() - self.began
            self.cuts = needed
            raise Finished("counted")


def count(loader: DataLoader, step_s: float, *, full: bool) -> Count:
    """Run the loop until the ladder, or with `full` the whole table, is there."""
    found = Count(needs_cuts=full)
    engine = Engine(Options(full=full, budget_s=120.0), on_progress=found)
    with simulate.use(simulate.SimulatedAccelerator(depth=journey.SIMULATED_DEPTH)) as accelerator:
        train_step = functools.partial(journey._simulated_step, accelerator, step_s)
        try:
            for _ in range(EPOCHS):
                for batch in engine.iterate(loader, DataLoader.__iter__):
                    train_step(batch)
        except Finished:
            pass
        finally:
            engine.close()
    return found


def make_loader(batch_size: int) -> DataLoader:
    """The toy loader."""
    transform = toy.transforms_as_published()
    return toy.make_loader(transform, image_size=1024, batch_size=batch_size, workers=2, pin_memory=False)


def step_of(batch_size: int) -> float:
    """Seconds of a step that such batches starve as the article's were."""
    return journey.measure_batch_time(make_loader(batch_size)) / journey.ARTICLE_HEADROOM


def report(title: str, bound: int, counts: list[Count]) -> str:
    """Print the counts of one ladder; the verdict on the worst."""
    worst = max(found.steps for found in counts)
    is_reached = all(found.steps for found in counts)
    verdict = "holds" if is_reached and worst <= bound else "FAILS"
    each = ", ".join(f"{found.steps} ({found.seconds:.0f} s)" for found in counts)
    print(f"{title}: {each} steps, n = {len(counts)} runs; the article takes {ARTICLE_STEPS}.")
    print(f"  worst {worst}, bound {bound}: {verdict}")
    return verdict


def main() -> None:
    """Count, print, leave with 1 if a bound fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--batch-size", type=int)
    arguments = parser.parse_args()
    size = arguments.batch_size or min(LARGEST_BATCH, round(TRIAL_BATCH * ARTICLE_STEP_S / step_of(TRIAL_BATCH)))
    step_s = step_of(size)
    make = functools.partial(make_loader, size)
    print(f"Steps to a verdict. {describe_machine()}; batch {size}, step of {step_s * 1e3:.0f} ms.")
    coarse = [count(make(), step_s, full=False) for _ in range(arguments.runs)]
    full = [count(make(), step_s, full=True) for _ in range(arguments.runs)]
    verdicts = [
        report("(a) coarse ladder, one block each", COARSE_BOUND, coarse),
        report("(b) whole table of transforms", FULL_BOUND, full),
    ]
    labels = ["raw sample cached", *(f"cached after {name}" for name in TRANSFORMS[:-1])]
    missing = [label for label in labels if any(label not in found.cuts.values() for found in full)]
    print(f"  cuts of every run: {', '.join(sorted(full[0].cuts.values()))}, processed sample cached (after Scale)")
    if missing:
        print(f"  not cut in every run: {', '.join(missing)}: FAILS")
        verdicts.append("FAILS")
    leave(verdicts)


if __name__ == "__main__":
    main()
