"""Heads of a pipeline: which give the same every time, what they give, and that looking leaves nothing behind."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pipelines
import pytest
import torch
from pipelines import Brighten, Crop, Drawing, Frames, Jitter, MiddleCrop, Unrepeatable
from scripted import Bench
from test_experiment import STARVED
from test_worker import Worker
from torch.utils.data import DataLoader, Dataset

from unstarve import errors, judge
from unstarve.measure import plan
from unstarve.measure.cuts.observer import Known, Observer
from unstarve.measure.cuts.split import Address
from unstarve.measure.engine import Engine
from unstarve.measure.experiment import Experiment
from unstarve.measure.heads import SAMPLES, WHOLE, Making, Repeat, Repeats, repeated
from unstarve.measure.hook import installed
from unstarve.measure.program import Options
from unstarve.recording import Head, Stage


class Seldom:
    """Draws a number, and does something with it once in a million times."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image + 1 if torch.rand(1).item() < 1e-6 else image


class Statements(Dataset):
    """Samples that are made without transforms."""

    def __getitem__(self, index: int) -> torch.Tensor:
        raw = torch.arange(64.0) + index
        scaled = raw.double() / 64
        return scaled + torch.rand(64)


def ends_of(dataset: Any) -> dict[Address, str]:
    """The cut points behind the transforms of a dataset, with their names; behind its statements where it has none."""
    observer = Observer()
    observer.run(type(dataset).__getitem__, (dataset, 0))
    observer.close()
    costs = dict(sorted(observer.costs.items()))
    items = {address: cost.name for address, cost in costs.items() if cost.is_item}
    return items or {address: cost.text for address, cost in costs.items()}


def seen(dataset: Any, samples: int = SAMPLES) -> list[tuple[str, Repeat]]:
    """What is found of the head that ends behind each transform, and of the whole sample."""
    names = {**ends_of(dataset), WHOLE: "whole"}
    wanted = [address for address in names if address != WHOLE]
    found = repeated(Making(type(dataset).__getitem__, dataset, [], wanted, Known()), range(samples)).found
    return [(names[address], found[address]) for address in names if address in found]


def repeatable(dataset: Any) -> list[tuple[str, bool]]:
    return [(name, head.is_repeatable) for name, head in seen(dataset)]


# --- What repeats -----------------------------------------------------------------------------------------------------


def test_a_head_repeats_up_to_the_first_random_transform() -> None:
    """And no further: what is behind it gets other values each time, though it draws nothing itself."""
    data = Frames(MiddleCrop(), Brighten(0), Crop(), Brighten(0))
    names = [("MiddleCrop", True), ("Brighten", True), ("Crop", False), ("Brighten", False), ("whole", False)]
    assert repeatable(data) == names


def test_a_sample_without_random_numbers_repeats_as_a_whole() -> None:
    """What could be stored then is the finished sample."""
    assert repeatable(Frames(MiddleCrop(), Brighten(0))) == [("MiddleCrop", True), ("Brighten", True), ("whole", True)]


@pytest.mark.parametrize("step", [Seldom(), Jitter()], ids=["hardly ever", "own generator"])
def test_a_transform_that_draws_does_not_repeat_whatever_it_gives(step: Any) -> None:
    """A few samples would not show an augmentation that is applied to one in a million."""
    assert repeatable(Frames(MiddleCrop(), step)) == [
        ("MiddleCrop", True),
        (type(step).__name__, False),
        ("whole", False),
    ]


RNG, SYSTEM = np.random.default_rng(3), random.SystemRandom()


def jittered(image: torch.Tensor) -> torch.Tensor:
    return image + 1 if RNG.random() < 1e-6 else image


class ByModule:
    """Draws from a generator of its module, by way of a function."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return jittered(image)


class ByClass:
    """Draws from a generator of its class."""

    random = random.Random(3)

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image + 1 if self.random.random() < 1e-6 else image


@pytest.mark.parametrize("step", [ByModule(), ByClass(), jittered], ids=["module", "class", "function"])
def test_generators_that_no_object_keeps_are_seen_and_put_back(step: Any) -> None:
    """Those that a module or a class keeps under a name are drawn from like any other."""
    before = RNG.bit_generator.state, ByClass.random.getstate()
    data = Frames(MiddleCrop(), step)
    wanted = [address for address, name in ends_of(data).items() if name != "MiddleCrop"]
    assert wanted
    RNG.bit_generator.state = before[0]
    ByClass.random.setstate(before[1])
    found = repeated(Making(Frames.__getitem__, data, [], wanted, Known()), range(8)).found
    assert [found[address].is_repeatable for address in wanted] == [False]
    assert (RNG.bit_generator.state, ByClass.random.getstate()) == before


EPOCH = 3


def seed_of(index: int) -> tuple[int, int]:
    return EPOCH, index


class ByEpoch(Dataset):
    """Decodes, then augments under a generator that it makes for each sample and epoch."""

    def __init__(self) -> None:
        self.epoch = 3

    def __getitem__(self, index: int) -> Any:
        image = torch.arange(64.0) + index
        rng = np.random.default_rng((1, self.epoch, index))
        return image * rng.random()


class ByCall(ByEpoch):
    """The same by way of a method, and under the process's generator, which is put back."""

    def __getitem__(self, index: int) -> Any:
        image = torch.arange(64.0) + index
        noisy = self.noisy(image, index)
        return noisy

    def noisy(self, image: torch.Tensor, index: int) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(hash(seed_of(index)))
            return image + torch.rand(64)


class InBranch(ByEpoch):
    """Another crop in every second epoch, without random numbers."""

    def __getitem__(self, index: int) -> Any:
        image = torch.arange(64.0) + index
        if self.epoch % 2:
            image = image[:32]
        else:
            image = image[32:]
        small = image.half()
        return small


class Turning:
    """Turns by an angle that it makes of the epoch."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image * np.random.RandomState(EPOCH).rand()


@pytest.mark.parametrize("dataset", [ByEpoch(), ByCall(), InBranch()], ids=["statement", "method", "condition"])
def test_what_the_epoch_decides_does_not_repeat(dataset: Any) -> None:
    """Though it gives the same all through one epoch, and leaves no trace on any generator; what comes before it does."""
    found = seen(dataset)
    assert len({name for name, _ in found}) > 2
    assert all(head.is_repeatable is name.startswith("image = torch.arange") for name, head in found)


def test_a_transform_that_seeds_by_the_epoch_does_not_repeat() -> None:
    """Its own code says so, and that of transforms before it does not."""
    steps = seen(Frames(MiddleCrop(), Turning(), Brighten(0)))
    assert [(name, head.is_repeatable) for name, head in steps] == [
        ("MiddleCrop", True), ("Turning", False), ("Brighten", False), ("whole", False),
    ]  # fmt: skip


def test_what_seeds_a_generator_says_so() -> None:
    """Seeded by the index it repeats, and by what else cannot be known."""
    assert all(head.is_seeded and head.is_repeatable for _, head in seen(Frames(MiddleCrop(), Brighten(0))))
    assert not any(head.is_seeded for _, head in seen(Statements()))


def test_a_transform_that_gives_something_else_each_time_does_not_repeat() -> None:
    """Though no generator that is known was drawn from."""
    assert dict(repeatable(Frames(MiddleCrop(), Unrepeatable())))["Unrepeatable"] is False


def test_statements_are_heads_like_transforms() -> None:
    """Up to the first that draws; what they give is what later statements read."""
    found = {name: (head.is_repeatable, head.content_bytes) for name, head in seen(Statements())}
    assert found["raw = torch.arange(64.0) + index"] == (True, 4 * 64)
    assert found["scaled = raw.double() / 64"] == (True, 8 * 64)
    assert found["whole"] == (False, 8 * 64)


def test_a_dataset_that_draws_before_its_first_transform_has_no_repeatable_head() -> None:
    """Its own statements are part of every head."""
    assert not any(is_repeatable for _, is_repeatable in repeatable(Drawing()))


def test_the_bytes_are_those_of_what_a_head_gives() -> None:
    """Bytes of an image before it is cropped, and floats after it is brightened; what a view drags along is not stored."""
    sizes = {name: head.content_bytes for name, head in seen(Frames(MiddleCrop(), Brighten(0)))}
    assert sizes == {"MiddleCrop": 3 * 32 * 32, "Brighten": 4 * 3 * 32 * 32, "whole": 4 * 3 * 32 * 32}


def test_no_more_is_kept_than_there_is_memory_for() -> None:
    """Cut points behind that are given up: here the first image, with the two to compare it with, takes all there is."""
    data = Frames(MiddleCrop(), Brighten(0), Brighten(0))
    ends = list(ends_of(data))
    found = repeated(Making(Frames.__getitem__, data, [], ends, Known(), 3 * 3 * 32 * 32), range(8)).found
    assert [found[end].is_repeatable for end in (*ends, WHOLE)] == [True, False, False, False]


def test_with_too_few_samples_nothing_is_claimed() -> None:
    """Two samples say nothing; more than enough are not made."""
    assert seen(Frames(MiddleCrop()), samples=2) == []
    assert {head.samples for _, head in seen(Frames(MiddleCrop(), Brighten(0)), samples=50)} == {SAMPLES}


def test_generators_are_left_as_they_were_found() -> None:
    """Those of the process, and a transform's own."""

    def states() -> list[Any]:
        return [
            random.getstate(),
            np.random.get_state()[2],
            torch.get_rng_state().tolist(),
            jitter.random.get_state()[2],
        ]

    jitter = Jitter()
    data = Frames(jitter, Crop())
    data[0], random.random(), np.random.rand(), torch.rand(1)
    before = states()
    repeated(Making(Frames.__getitem__, data, [], [], Known()), range(8))
    assert states() == before


# --- Workers ----------------------------------------------------------------------------------------------------------


def told(worker: Worker, size: int, batches: int = 6) -> list[bool]:
    """For each of some batches, whether the worker told something."""
    sent = [worker.fetch(size=size).telemetry for _ in range(batches)]
    assert all(item.failure is None for item in sent)
    assert all(item.findings is None or isinstance(item.findings, Repeats) for item in sent)
    return [item.findings is not None for item in sent]


def test_a_worker_tells_once_it_has_seen_samples_enough() -> None:
    """With small batches after several of them, and never again."""
    data = Frames(MiddleCrop(), Brighten(0))
    order = {"mode": "heads", "opened": [], "wanted": list(ends_of(data)), "limit_bytes": 1 << 30}
    for size, expected in ((2, [False, False, False, True, False, False]), (8, [True] + [False] * 5)):
        worker = Worker(data)
        worker.order(**order)
        assert told(worker, size) == expected


def test_a_worker_tells_at_once_that_it_cannot_make_a_sample_twice() -> None:
    """Nobody waits for what will not come: here, samples that fail when they are made again."""

    class Once(Frames):
        def __init__(self, *steps: Any) -> None:
            super().__init__(*steps)
            self.made: set[int] = set()

        def __getitem__(self, index: int) -> Any:
            if index in self.made:
                raise ValueError("never again")
            self.made.add(index)
            return super().__getitem__(index)

    worker = Worker(Once(MiddleCrop()))
    worker.order(mode="heads", opened=[], wanted=[], limit_bytes=1 << 30)
    found = worker.fetch().telemetry.findings
    assert found == Repeats({})


# --- The programme ----------------------------------------------------------------------------------------------------


def node(number: int, name: str) -> plan.Node:
    stage = Stage(id=f"transform:{number}", kind="transform", name=name, wall_ns=(1,) * 10)
    return plan.Node((0, number), stage, is_item=True, share=0.3, is_leaf=True)


def test_the_rung_of_the_longest_repeatable_head_comes_on_the_plan() -> None:
    """Whatever the contrasts said of the stages around it; the heads are kept with the rungs that serve them."""

    class Telling(Bench):
        kept: tuple[Head, ...] = ()

        def issue(self, order: dict[str, Any]) -> int:
            if order["mode"] == "heads":
                lab._repeats = Repeats(
                    {(0, 0): Repeat(True, 8, 30), (0, 1): Repeat(True, 8, 10), (0, 2): Repeat(False, 8, 9), WHOLE: Repeat(False, 8, 9)}
                )  # fmt: skip
            return super().issue(order)

        def heads(self, heads: list[Head]) -> None:
            self.kept = tuple(heads)

    bench = Telling(STARVED)
    lab = Experiment(bench, Options(budget_s=20))
    lab._nodes = [node(0, "Decode"), node(1, "Resize"), node(2, "Crop")]
    lab._addresses = {each.stage.id: each.address for each in lab._nodes} | {"raw": (0, 0)}
    lab._ratio = lambda upper, lower: 2.0  # type: ignore[method-assign]
    lab._filled_fleet = bench.fleet
    assert bench.drive(lab._look_at_heads())
    assert [(head.rung, head.is_repeatable) for head in bench.kept] == [
        ("raw", True), ("after:transform:1", True), ("after:transform:2", False), ("samples", False),
    ]  # fmt: skip
    assert [rung.id for rung in lab.planned] == ["after:transform:1"]
    assert "after:transform:1" in lab._names_of_round(2)


# --- In the loop ------------------------------------------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.parametrize("is_random_first", [False, True])
def test_a_repeatable_head_that_gains_is_advised_with_its_measured_gain(is_random_first: bool) -> None:
    """Planted: a dear transform that gives the same every epoch, before or behind one that draws."""
    steps = [Crop(48), Brighten(3e-6)] if is_random_first else [Brighten(3e-6), Crop(48)]
    engine = Engine(Options(budget_s=30))
    loader = DataLoader(pipelines.Frames(*steps), batch_size=4, num_workers=2)
    with installed(engine), pytest.raises(errors.Finished):
        for _ in range(50):
            for _batch in loader:
                time.sleep(0.002)
    recording = engine.recording()
    heads = {head.rung: head for head in recording.heads}
    assert heads["samples"].is_repeatable is False
    advised = [item for item in judge.judge(recording).remedies if item.id == "cache-head"]
    assert len(advised) == (0 if is_random_first else 1)
    if advised:
        assert advised[0].measured_gain is not None
        assert advised[0].measured_gain.low > 1.05
        assert "Everything up to `Brighten`" in advised[0].advice
        assert "for 4000 samples" in advised[0].advice
