"""Does a pipeline written as statements get the same ladder as the one written as a Compose of transforms?

    python benchmarks/bench_inline.py [--rounds 10]

The toy pipeline twice: with its Compose, and with the transforms' code written out in `__getitem__`. The raw image has
512 pixels a side instead of 1024, so that no other line is as dear as that of `convolve2d`. Both make the same sample
from the same random state, which is checked first. Each has an experiment of its own, with its own two workers, in one
process: whenever one has measured a block the other measures the same rung, in an order drawn by lot, while the workers
whose turn it is not are asleep behind full queues; what was ready before is thrown away.

Compared are the rungs at the ends of the transforms, the rung of finished samples, and two statements served alone. The
figure of a rung is its gain over the baseline of its own experiment. The tool itself would leave out cheap rungs, so the
experiment plans them all. Copies made to serve from cache are part of every figure, in both experiments alike.

Bound, for every rung: the gains agree within 10 %; it `holds` where the interval of their ratio lies in that range and
`FAILS` where it lies outside. Then the tool is run on each as a user would, and must blame the same line first.
"""

from __future__ import annotations

import argparse
import inspect
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from _common import Figure, describe_machine, geometric_mean, leave, show
from PIL import Image
from scipy.signal import convolve2d
from torch.utils.data import DataLoader
from torchvision.transforms import RandomCrop
from torchvision.transforms import functional as transforms

from unstarve import diagnose, estimate
from unstarve.demo import toy
from unstarve.errors import Finished
from unstarve.measure.cuts.split import Address
from unstarve.measure.engine import Engine
from unstarve.measure.experiment import Experiment
from unstarve.measure.program import Options, Program
from unstarve.measure.rungs import NONE, SAMPLES
from unstarve.recording import Rung

TOLERANCE = 0.10
FORMS = ("Compose", "inline")
TRANSFORMS = ("PILToTensor", "RandomCrop", "RandomMask", "RGBToYUV")
ALONE = {"convolve2d": "convolve2d", "np.random.randint": "pixels"}
"""Calls that are served alone, as they are written, and what the rung is called."""

IMAGE_SIZE, BATCH_SIZE, WORKERS, PREFETCH = 512, 4, 2, 2


class InlineDataset(toy.ToyDataset):
    """The same samples without a container and without a transform."""

    def __init__(self) -> None:
        super().__init__(transform=toy.Scale(), image_size=IMAGE_SIZE)  # a transform that is not used
        self.fraction = toy.RandomMask().fraction
        self.neighbourhood = toy.RandomMask().neighbourhood
        self.matrix, self.offset = toy.RGBToYUV().matrix, toy.RGBToYUV().offset

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.random.randint(0, 256, (self.image_size, self.image_size, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)  # ends: raw
        image = transforms.pil_to_tensor(image)  # ends: PILToTensor
        top, left, height, width = RandomCrop.get_params(image, (256, 256))
        image = transforms.crop(image, top, left, height, width)  # ends: RandomCrop
        seeds = np.random.random(image.shape[-2:]) < self.fraction
        mask = convolve2d(seeds, self.neighbourhood, mode="same") > 0
        image[:, torch.from_numpy(mask)] = 0  # ends: RandomMask
        yuv = torch.tensordot(self.matrix, image.float(), dims=1)
        image = yuv + self.offset[:, None, None]  # ends: RGBToYUV
        image = image / 255
        return image, index % 10


def make_loader(form: str) -> DataLoader:
    """The toy loader of one form."""
    with_compose = toy.ToyDataset(toy.transforms_as_published(), image_size=IMAGE_SIZE)
    dataset = with_compose if form == "Compose" else InlineDataset()
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=WORKERS, drop_last=True)


def are_same_samples() -> bool:
    """Whether both forms make the same sample from the same random state."""
    made = []
    for form in FORMS:
        torch.manual_seed(1)
        np.random.seed(1)
        made.append(make_loader(form).dataset[7])
    return torch.equal(made[0][0], made[1][0]) and made[0][1] == made[1][1]


def train_step(batch: Any) -> None:
    """The loop's body: too short to hide the input, too long to pass for dropping the batch."""
    time.sleep(0.005)


# The ladder --------------------------------------------------------------------------------------


class Ladder(Experiment):
    """Every rung that both forms have, in rounds; in each round in the same random order for both."""

    def run(self) -> Program:
        yield from self.warm_up()
        self._bench.collect_batches(fewest=True)
        yield from self._look()
        self._addresses = {**self._ends(), **self._calls()}
        self._wanted = list(self._addresses.values())
        yield from self._fill()
        self._plan()
        for number in range(self._options.max_rounds):
            names = sorted(self._rungs)
            self._random.shuffle(names)
            for name in names:
                yield from self.block(name, number)

    def _plan(self) -> None:
        self.add(NONE, "loader", {"mode": "run"})
        self.add(SAMPLES, "loader", {"mode": "samples"})
        for name, address in self._addresses.items():  # refused ones have left by now
            mode = "knockout" if name in ALONE.values() else "cut"
            self.add(Rung(id=name, label=name, kind=mode), "loader", {"mode": mode, "address": address})

    def _ends(self) -> dict[str, Address]:
        """Where the raw image is ready and where each transform ends: at an item, or at a marked line."""
        marked = dict(_marks())
        found: dict[str, Address] = {}
        for address, cost in sorted(self._costs().items()):
            if cost.is_item and cost.name in TRANSFORMS:
                found[cost.name] = address
            elif cost.callee == "Image.fromarray":
                found["raw"] = address
            elif len(address) == 1 and cost.source in marked:
                found[marked[cost.source]] = address  # of several units of a line the last
        return found

    def _calls(self) -> dict[str, Address]:
        """Where the calls are that are served alone."""
        costs = self._costs()
        return {ALONE[cost.callee]: address for address, cost in sorted(costs.items()) if cost.callee in ALONE}

    def _settle_steps(self, source: str) -> int:
        return WORKERS * (PREFETCH + 1)  # what lay ready through the other's turn too


def _marks() -> Iterator[tuple[str, str]]:
    """`file:line` at which a transform ends in the inline form, and what it is called."""
    lines, first = inspect.getsourcelines(InlineDataset.__getitem__)
    filename = InlineDataset.__getitem__.__code__.co_filename
    for number, line in enumerate(lines, start=first):
        _, mark, name = line.partition("# ends: ")
        if mark:
            yield f"{filename}:{number}", name.strip()


Rates = dict[tuple[str, int], float]
"""Steps per second by rung and round."""


def measure(rounds: int) -> dict[str, Rates]:
    """The rates of both forms."""
    options = Options(budget_s=1e5, max_rounds=rounds)
    engines = {form: Engine(options, program=lambda bench, given: Ladder(bench, given).run()) for form in FORMS}
    lots = random.Random(0)
    try:
        batches = {form: epochs(engines[form], make_loader(form)) for form in FORMS}
        is_going = True
        while is_going:
            turns = [take_turn(engines[form], batches[form]) for form in lots.sample(FORMS, len(FORMS))]
            is_going = all(turns)  # asked when both have had theirs: their last blocks are a pair too
    finally:
        for engine in engines.values():
            engine.close()
    for form in FORMS:
        for note in engines[form].recording().notes:
            print(f"  {form}: {note.sentence}")
    return {form: {(block.rung, block.round): estimate.rate(block) for block in engines[form].blocks} for form in FORMS}


def epochs(engine: Engine, loader: DataLoader) -> Iterator[Any]:
    """The batches of as many epochs as it takes."""
    while True:
        yield from engine.iterate(loader, DataLoader.__iter__)


def take_turn(engine: Engine, batches: Any) -> bool:
    """Run the loop until one more block was measured; whether the experiment goes on."""
    before = len(engine.blocks)
    while len(engine.blocks) == before:
        try:
            train_step(next(batches))
        except Finished:
            return False
    return True


def agree(ratio: Figure) -> str:
    """Whether two gains are within the tolerance of each other."""
    low, high = 1 - TOLERANCE, 1 + TOLERANCE
    if low <= ratio.low and ratio.high <= high:
        return "holds"
    return "FAILS" if ratio.high < low or ratio.low > high else "undecided"


def compare(rates: dict[str, Rates], rung: str) -> str:
    """Print the gains of one rung; the verdict on them."""
    rounds = sorted(set.intersection(*({n for name, n in rates[form] if name == rung} for form in FORMS)))
    if not rounds:
        print(f"{rung:20} not measured in both: FAILS")
        return "FAILS"
    gains = {form: [rates[form][rung, n] / rates[form][NONE.id, n] for n in rounds] for form in FORMS}
    ratio = geometric_mean([left / right for left, right in zip(*gains.values(), strict=True)])
    columns = "".join(f"{show(geometric_mean(gains[form]), '.2f'):>26}" for form in FORMS)
    verdict = agree(ratio)
    print(f"{rung:20}{columns}{show(ratio):>28}{ratio.n:5}  {verdict}")
    return verdict


# The story ---------------------------------------------------------------------------------------


def tell(budget_s: float) -> str:
    """Run the tool on both forms and print whom it blames; whether that is the same line."""
    lines = []
    for form in FORMS:
        report = diagnose(make_loader(form), train_step, budget=budget_s, quiet=True)
        first = report.verdict.culprits[0] if report.verdict.culprits else None
        lines.append(first.text if first is not None else None)
        if first is not None:
            gain = Figure(value=first.gain.value, low=first.gain.low, high=first.gain.high, n=0)
            print(f"{form:8} blames {first.name}: `{first.text}`, gain {show(gain, '.2f')}")
    is_same = lines[0] == lines[1] and "convolve2d" in (lines[0] or "")
    verdict = "holds" if is_same else "FAILS"
    print(f"the same line, that of convolve2d: {verdict}")
    return verdict


def main() -> None:
    """Measure, print, leave with 1 if a gain or the blame disagrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for each of the two diagnoses")
    arguments = parser.parse_args()
    print(f"The ladder over statements and over a Compose. {describe_machine()}.")
    print(f"the same sample from the same random state: {are_same_samples()}")
    rates = measure(arguments.rounds)
    baselines = [rates[FORMS[0]][NONE.id, n] / rates[FORMS[1]][NONE.id, n] for n in range(arguments.rounds)]
    print(f"baseline, {FORMS[0]} over {FORMS[1]}: {show(geometric_mean(baselines))}")
    print(f"{'gain of':20}{FORMS[0]:>26}{FORMS[1]:>26}{'ratio':>28}    n  within {TOLERANCE:.0%}")
    verdicts = [compare(rates, rung) for rung in ("raw", *TRANSFORMS, SAMPLES.id, *ALONE.values())]
    verdicts.append(tell(arguments.budget))
    verdicts.append("holds" if are_same_samples() else "FAILS")
    leave(verdicts)


if __name__ == "__main__":
    main()
