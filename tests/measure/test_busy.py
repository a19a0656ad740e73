"""Workers kept busy while the loop is fed from cache: the engine with real workers."""

from __future__ import annotations

import multiprocessing
import time

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from unstarve import errors
from unstarve.measure.engine import Engine
from unstarve.measure.experiment import Experiment
from unstarve.measure.hook import installed
from unstarve.measure.program import Bench, Options, Program
from unstarve.measure.rungs import BUSY, HOST

pytestmark = pytest.mark.live


class Counted(Dataset):
    """Counts the samples that all workers together have made."""

    def __init__(self, length: int = 400) -> None:
        self.length = length
        self.made = multiprocessing.Value("q", 0)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.made.get_lock():
            self.made.value += 1
        time.sleep(0.0005)
        return torch.full((4,), index)


def drive(dataset: Counted, program, *, prefetch: int = 2, steps: int = 5000) -> list[int]:
    """Run the programme in a loop; returns the numbers of batches in its epochs."""
    engine = Engine(Options(budget_s=20), program=lambda bench, options: program(bench))
    loader = DataLoader(dataset, batch_size=4, num_workers=2, prefetch_factor=prefetch)
    counts = []
    with installed(engine), pytest.raises(errors.Finished):
        while sum(counts) < steps:
            counts.append(0)
            for _ in loader:
                time.sleep(0.001)
                counts[-1] += 1
    return counts


@pytest.mark.parametrize("prefetch", [1, 2, 4])
def test_workers_work_while_the_loop_is_fed_from_cache_and_rest_afterwards(prefetch: int) -> None:
    """During the control they make batch after batch, though the loop takes none; after it they make nothing at all."""
    dataset = Counted()
    seen: list[int] = []

    def program(bench: Bench) -> Program:
        lab = Experiment(bench, Options(budget_s=20))
        yield from lab.warm_up()
        bench.collect_batches(fewest=False)
        lab.add(HOST, "host", {})
        lab.add(BUSY, "host", {"mode": "busy"})
        for rung in (HOST, HOST, BUSY, HOST):
            yield from lab.block(rung.id, len(seen) + 1)
            seen.append(dataset.made.value)
        assert [block.rung for block in lab.blocks] == ["host", "host", "control:busy", "host"]

    drive(dataset, program, prefetch=prefetch)
    assert seen[2] - seen[1] > 4 * 2 * 4 * prefetch
    assert seen[3] == seen[2]


def test_epochs_keep_their_length_though_workers_were_kept_busy() -> None:
    """What the workers made for nothing is neither handed out nor missed, also where epochs end in the control."""
    dataset = Counted(length=120)

    def program(bench: Bench) -> Program:
        lab = Experiment(bench, Options(budget_s=20))
        yield from lab.warm_up()
        bench.collect_batches(fewest=False)
        lab.add(BUSY, "host", {"mode": "busy"})
        for number in range(1, 5):
            yield from lab.block(BUSY.id, number)

    counts = drive(dataset, program)
    assert len(counts) > 2
    assert set(counts[:-1]) == {30}


def test_busy_workers_end_with_the_loop() -> None:
    """A script that fails in the middle of the control leaves no process behind."""
    before = len(psutil.Process().children(recursive=True))
    dataset = Counted(length=100_000)

    def program(bench: Bench) -> Program:
        lab = Experiment(bench, Options(budget_s=20))
        yield from lab.warm_up()
        bench.collect_batches(fewest=False)
        lab.add(BUSY, "host", {"mode": "busy"})
        for number in range(1, 50):
            yield from lab.block(BUSY.id, number)

    engine = Engine(Options(budget_s=20), program=lambda bench, options: program(bench))
    with installed(engine), pytest.raises(RuntimeError, match="the script's own"):
        for _ in DataLoader(dataset, batch_size=4, num_workers=2):
            time.sleep(0.001)
            if engine.serving == "host" and dataset.made.value > 300:
                raise RuntimeError("the script's own")
    assert len(psutil.Process().children(recursive=True)) == before
