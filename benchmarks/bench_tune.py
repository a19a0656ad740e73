"""Does `unstarve tune` find settings about as good as an exhaustive grid does, in a quarter of the trials?

    python benchmarks/bench_tune.py [--pipeline NAME] [--pairs 6] [--seconds 0.6]

Six pipelines, each limited by something else, in a loop whose step sleeps like one that waits for an accelerator. The
grid has all numbers of workers, batches ahead and orders of delivery that the search may come to (`tuner.space`). Each
of its settings is timed in a fresh `DataLoader` whose first batches are thrown away, in rounds whose order is drawn by
lot: all settings in the first round, and the faster half of them once more in the second. Then the command line tunes
this very file, which runs the same loop under the script's own settings, and its JSON says what it would use.

The fastest of many settings owes something to chance. So the best of the grid and what tune chose are timed again, in
pairs in turns, and the ratio of these rates is judged: at least 95 %. Trials are the different settings that were tried
besides the script's own, and a quarter of those in the grid are allowed. For the pipeline that no settings help, tune
must change nothing and say so.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import Figure, describe_machine, geometric_mean, judge_least, leave, show
from torch.utils.data import DataLoader, Dataset

from unstarve.measure import environment, tuner
from unstarve.measure.bench import workers_by_cores, workers_by_memory
from unstarve.measure.cuts import values
from unstarve.recording import Settings

BOUND = 0.95
SHARE_OF_TRIALS = 0.25
LENGTH = 1_000_000
"""Samples of an epoch: none ends while anything is timed."""

RARE_EVERY = 11
"""Batches from one with an expensive sample to the next: whatever the number of workers, each gets its share of them."""

CAN_REORDER = "in_order" in inspect.signature(DataLoader).parameters
"""Whether this torch knows delivery in any order (2.6 and later)."""


# --- The pipelines ----------------------------------------------------------------------------------------------------


class Samples(Dataset):
    """Samples that a function of the index makes."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def read_slowly(index: int) -> int:
    """A read that waits for 4 ms."""
    time.sleep(0.004)
    return index


def compute(index: int) -> int:
    """A transform that needs a core for a few milliseconds."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 8000)
    return index


def read_quickly(index: int) -> int:
    """A read that waits for half a millisecond."""
    time.sleep(0.0005)
    return index


IMAGE = np.full((256, 256, 3), 7, dtype=np.uint8)


def show_image(index: int) -> np.ndarray:
    """An image that is in memory already."""
    return IMAGE


def read_with_exceptions(index: int) -> int:
    """A read that waits for 1.5 ms; one in 88 waits for 130 ms more."""
    time.sleep(0.0015 + (0.13 if index % (8 * RARE_EVERY) == 0 else 0))
    return index


def number_in_six_fields(index: int) -> dict[str, float]:
    """Six numbers under their names: six small tensors in a batch."""
    return {name: float(index) for name in "abcdef"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A loop that is limited by one thing."""

    what: str
    """What limits it, and by how much."""
    make: Callable[[int], Any]
    """Makes a sample."""
    own: Settings
    """The script's own settings."""
    step_s: float
    """How long the step sleeps."""
    batch_size: int = 8
    """Samples of a batch."""
    collate: Callable[[list[Any]], Any] | None = None
    """Makes a batch of samples; None for torch's own way."""
    cycle: int = 1
    """Batches after which the work repeats itself."""
    can_be_helped: bool = True
    """Whether other settings gain anything."""

    def loader(self, settings: Settings) -> DataLoader:
        """A fresh loader with these settings."""
        arguments: dict[str, Any] = {"num_workers": settings.num_workers, "pin_memory": settings.pin_memory}
        if settings.num_workers:
            arguments["prefetch_factor"] = settings.prefetch_factor
        if CAN_REORDER:
            arguments["in_order"] = settings.in_order
        return DataLoader(Samples(self.make), self.batch_size, collate_fn=self.collate, **arguments)

    def space(self) -> list[Settings]:
        """All settings that the search may come to."""
        batch_bytes = values.size_bytes(next(iter(self.loader(Settings(num_workers=0)))))
        room = workers_by_memory(environment.shared_memory_bytes(), batch_bytes)
        most = max(self.own.num_workers, min(workers_by_cores(environment.cores_available()), room))
        return tuner.space(self.own, most_workers=most, can_reorder=CAN_REORDER)


PIPELINES = {
    "reads": Pipeline(
        what="waiting reads of 4 ms, 16 a batch: many workers",
        make=read_slowly, own=Settings(num_workers=2), step_s=0.004, batch_size=16,
    ),
    "transform": Pipeline(
        what="a transform that computes: as many workers as cores",
        make=compute, own=Settings(num_workers=0), step_s=0.003,
    ),
    "step": Pipeline(
        what="the step, with a worker that keeps up: nothing helps",
        make=read_quickly, own=Settings(num_workers=1), step_s=0.02, can_be_helped=False,
    ),
    "transport": Pipeline(
        what="arrays of 12.6 MB a batch, pickled: no workers",
        make=show_image, own=Settings(num_workers=2), step_s=0.005, batch_size=64, collate=np.stack,
    ),
    "rare": Pipeline(
        what="a sample of 130 ms in every 11th batch: batches further ahead, or in any order",
        make=read_with_exceptions, own=Settings(num_workers=2), step_s=0.01, cycle=RARE_EVERY,
    ),
    "tiny": Pipeline(
        what="tiny data, six tensors a batch: no workers",
        make=number_in_six_fields, own=Settings(num_workers=2), step_s=0.0005, batch_size=16,
    ),
}  # fmt: skip


def train(pipeline: Pipeline) -> None:
    """The loop that is tuned, without an end of its own."""
    loader = pipeline.loader(pipeline.own)
    while True:
        for _ in loader:
            time.sleep(pipeline.step_s)


# --- Timing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clock:
    """Times the loop under any settings."""

    pipeline: Pipeline
    """What runs."""
    seconds: float
    """Least time of a measured run."""

    def rate(self, settings: Settings) -> float:
        """Steps per second of a fresh loader; its workers end with it."""
        workers = max(1, settings.num_workers)
        batches = iter(self.pipeline.loader(settings))
        self._run(batches, workers * (settings.prefetch_factor + 1))
        turn = self.pipeline.cycle * math.ceil(workers / self.pipeline.cycle)  # workers may deliver all at once
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < self.seconds:
            self._run(batches, turn)
            steps += turn
        return steps / (time.perf_counter() - began)

    def _run(self, batches: Iterator[Any], count: int) -> None:
        for _ in range(count):
            next(batches)
            time.sleep(self.pipeline.step_s)


def grid_rates(clock: Clock, grid: Sequence[Settings], lots: random.Random) -> dict[Settings, float]:
    """Steps per second of the faster half of the settings, each the mean of two runs; the others ran once."""
    first = {settings: clock.rate(settings) for settings in lots.sample(grid, len(grid))}
    faster = sorted(grid, key=lambda settings: -first[settings])[: math.ceil(len(grid) / 2)]
    second = {settings: clock.rate(settings) for settings in lots.sample(faster, len(faster))}
    return {settings: statistics.fmean((first[settings], second[settings])) for settings in faster}


def ratio(clock: Clock, upper: Settings, lower: Settings, pairs: int, lots: random.Random) -> Figure:
    """Rate under `upper` over rate under `lower`, from pairs of runs in turns; exactly 1 for the same settings."""
    if upper == lower:
        return Figure(value=1.0, low=1.0, high=1.0, n=0)
    ratios = []
    for _ in range(pairs):
        rates = {settings: clock.rate(settings) for settings in lots.sample((upper, lower), 2)}
        ratios.append(rates[upper] / rates[lower])
    return geometric_mean(ratios)


# --- The search -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What the command line printed as JSON."""

    data: dict[str, Any]
    """All of it."""

    @property
    def best(self) -> Settings:
        """The settings to use."""
        return Settings(**self.data["best"])

    @property
    def trials(self) -> int:
        """Different settings that were tried, the script's own left out."""
        return len({Settings(**tried["settings"]) for tried in self.data["tried"] if not tried["is_own"]})

    @property
    def says_that_nothing_helps(self) -> bool:
        """Whether nothing is to be changed, and this is said."""
        is_change = bool(self.data["arguments"]) or self.data["snippet"] is not None
        return not is_change and self.data["sentence"].startswith("Nothing that was tried is better")


def tune(name: str) -> Found:
    """Run `unstarve tune` on the pipeline's loop, in a process of its own.

    Raises:
        RuntimeError: it found nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuning.json"
        command = ["tune", "--quiet", "--json", str(path), __file__, "--loop", name]
        done = subprocess.run([sys.executable, "-m", "unstarve", *command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"`unstarve tune` left with {done.returncode} on the pipeline {name!r}: {done.stderr}")
        return Found(json.loads(path.read_text(encoding="utf-8")))


# --- The comparison ---------------------------------------------------------------------------------------------------


def compare(name: str, seconds: float, pairs: int, lots: random.Random) -> list[str]:
    """Measure and print one pipeline; its verdicts."""
    pipeline = PIPELINES[name]
    clock, grid = Clock(pipeline, seconds), pipeline.space()
    print(f"{name}: {pipeline.what}; the script has {pipeline.own}")
    rates = grid_rates(clock, grid, lots)
    best = max(rates, key=lambda settings: rates[settings])
    print(f"  grid of {len(grid)} settings: best {best} ({rates[best]:.3g} steps/s)")
    found = tune(name)
    print(f"  tune, in {found.data['seconds']:.0f} s: {found.best}. “{found.data['sentence']}”")
    figure = ratio(clock, found.best, best, pairs, lots)
    verdicts = [judge_least(figure, BOUND), judge_trials(found.trials, len(grid))]
    text = f"{show(figure)}, n = {figure.n}" if figure.n else "1, the same settings"
    print(f"  chosen over best: {text}; bound {BOUND}: {verdicts[0]}")
    allowed = SHARE_OF_TRIALS * (len(grid) - 1)
    print(f"  trials: {found.trials} of {len(grid) - 1} besides the script's own; bound {allowed:.1f}: {verdicts[1]}")
    if not pipeline.can_be_helped:
        verdicts.append("holds" if found.says_that_nothing_helps else "FAILS")
        print(f"  says that nothing helps: {verdicts[-1]}")
    return verdicts


def judge_trials(trials: int, grid: int) -> str:
    """Whether they are at most the share of the grid, the script's own settings left out of both."""
    return "holds" if trials <= SHARE_OF_TRIALS * (grid - 1) else "FAILS"


def main() -> None:
    """Measure, print, leave with 1 if a bound fails; or be the script that is tuned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipeline", choices=PIPELINES, help="this one only")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of runs of the best and the chosen settings")
    parser.add_argument("--seconds", type=float, default=0.6, help="least time of a run")
    parser.add_argument("--loop", choices=PIPELINES, help="only run this pipeline's loop, to be tuned")
    arguments = parser.parse_args()
    if arguments.loop:
        train(PIPELINES[arguments.loop])
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    print(f"`unstarve tune` against an exhaustive grid. {describe_machine()}.")
    lots = random.Random(0)
    verdicts = []
    for name in [arguments.pipeline] if arguments.pipeline else PIPELINES:
        verdicts += compare(name, arguments.seconds, arguments.pairs, lots)
    leave(verdicts)


if __name__ == "__main__":
    main()
