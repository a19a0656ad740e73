"""Loaders that a thread of the script drains into a queue."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from unstarve import errors, judge
from unstarve.measure import drained
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.program import Options
from unstarve.recording import Block

pytestmark = pytest.mark.live


class Photos(Dataset):
    """Samples of which each takes some time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.tensor(index)


def drain(loader: Any, batches: queue.Queue[Any]) -> None:
    for batch in loader:
        batches.put(batch)
    batches.put(None)


def fetched_ahead(loader: Any, room: int, *, is_made_here: bool = False) -> Iterator[Any]:
    """The loader's batches by way of a thread, which makes the iterator itself or is given one."""
    batches: queue.Queue[Any] = queue.Queue(room)
    source = iter(loader) if is_made_here else loader
    threading.Thread(target=drain, args=(source, batches), daemon=True).start()
    while (batch := batches.get()) is not None:
        yield batch


@pytest.mark.parametrize("is_made_here", [False, True])
@pytest.mark.parametrize("room", [1, 4])
def test_a_loop_whose_loader_a_thread_drains_is_diagnosed(room: int, is_made_here: bool) -> None:
    """The line that the thread waits for is named, with the gain of the loop, which is ended where it waits for a batch."""
    engine = Engine(Options(budget_s=10))
    with installed(engine), pytest.raises(errors.Finished):
        for _ in range(50):
            for _batch in fetched_ahead(DataLoader(Photos(0.004), batch_size=5), room, is_made_here=is_made_here):
                time.sleep(0.01)
    report = judge.judge(engine.recording())
    assert report.verdict.bound == "input"
    (waiting,) = (found for found in report.verdict.culprits if found.kind != "workers")
    assert waiting.text == "time.sleep(self.seconds)"
    assert 1.4 < waiting.gain.value < 2.6
    assert "drained" in {note.id for note in engine.recording().notes}
    assert not engine.was_in_thread


def test_a_loop_that_a_thread_keeps_fed_is_step_bound() -> None:
    """What the thread waits for its queue is the step, whose lines are those of the loop's thread."""
    engine = Engine(Options(budget_s=8))
    with installed(engine), pytest.raises(errors.Finished):
        for _ in range(50):
            for _batch in fetched_ahead(DataLoader(Photos(0.0005), batch_size=4), 2):
                time.sleep(0.02)
    report = judge.judge(engine.recording())
    assert (report.verdict.bound, report.verdict.culprits) == ("step", ())
    assert report.body[0].text == "time.sleep(0.02)"


class Ahead:
    """Fetches ahead over and over, and completes each batch as it does."""

    def __init__(self, loader: DataLoader, seconds: float) -> None:
        self.loader, self.seconds = loader, seconds
        self.batches: queue.Queue[Any] = queue.Queue(maxsize=3)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def complete(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return batch

    def run(self) -> None:
        while True:
            for batch in self.loader:
                self.batches.put(self.complete(batch))


@pytest.mark.parametrize(("seconds", "bound"), [(0.02, "input"), (0.002, "step")])
def test_what_the_thread_does_with_a_batch_is_input_where_the_loop_waits_for_it(seconds: float, bound: str) -> None:
    """Its line is named; where the step takes longer it costs nothing. The thread gives no word of an end."""
    engine = Engine(Options(budget_s=8))
    with installed(engine), pytest.raises(errors.Finished):
        ahead = Ahead(DataLoader(Photos(0.0001), batch_size=4), seconds)
        while True:
            ahead.batches.get()
            time.sleep(0.01)
    report = judge.judge(engine.recording())
    assert report.verdict.bound == bound
    named = [(found.kind, found.text) for found in report.verdict.culprits]
    assert named == ([("loader", "self.batches.put(self.complete(batch))")] if bound == "input" else [])


def test_a_thread_that_trains_is_not_taken_for_one_that_fetches_ahead() -> None:
    """Though it has a queue at hand, such as one of orders."""
    engine, orders, seen = Engine(Options(budget_s=2)), queue.Queue[str](4), list[int]()

    def train() -> None:
        for batch in DataLoader(Photos(0), batch_size=100):
            assert orders.empty()
            seen.extend(batch.tolist())

    with installed(engine):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert seen == list(range(400))
    assert engine.was_in_thread


@pytest.mark.parametrize("room", [0, None])
def test_a_thread_without_a_bounded_queue_is_left_alone(room: int | None) -> None:
    """It goes at no pace but its own, and all batches are the loader's."""
    engine, seen = Engine(Options(budget_s=2)), []
    batches: queue.Queue[Any] | queue.SimpleQueue[Any] = queue.SimpleQueue() if room is None else queue.Queue(room)
    with installed(engine):
        thread = threading.Thread(target=drain, args=(DataLoader(Photos(0), batch_size=100), batches))
        thread.start()
        while (batch := batches.get()) is not None:
            seen += batch.tolist()
        thread.join()
    assert seen == list(range(400))
    assert engine.was_in_thread
    assert engine.target is None


def test_a_thread_is_not_taken_for_the_loop_that_is_only_watched() -> None:
    """It waits whenever its queue has room, which says nothing of how long the loop does."""
    engine = Engine(passive=True)
    with installed(engine):
        for _batch in fetched_ahead(DataLoader(Photos(0.0005), batch_size=4), 2):
            time.sleep(0.001)
    assert engine.was_in_thread
    assert engine.recording().starts == ()


def test_the_script_goes_on_with_its_own_batches() -> None:
    """When the diagnosis is over, epochs are whole again."""
    engine = Engine(Options(budget_s=4), stop=False)
    with installed(engine):
        for _ in range(100):
            for _batch in fetched_ahead(DataLoader(Photos(0.001), batch_size=10), 1):
                time.sleep(0.005)
            if engine.is_finished:
                break
        epoch = [
            number for batch in fetched_ahead(DataLoader(Photos(0), batch_size=10), 1) for number in batch.tolist()
        ]
    assert engine.is_finished
    assert epoch == list(range(400))


def test_other_loaders_are_left_alone() -> None:
    """Of a loader that the main thread goes through between epochs all batches are the script's."""
    engine, other = Engine(Options(budget_s=3)), DataLoader(Photos(0), batch_size=40)
    with installed(engine), pytest.raises(errors.Finished):
        for _ in range(100):
            for _batch in fetched_ahead(DataLoader(Photos(0.001), batch_size=16), 2):
                time.sleep(0.005)
            assert [number for batch in other for number in batch.tolist()] == list(range(400))


def test_waits_and_bodies_are_those_of_the_loop() -> None:
    """A step that took longer than one that is fed has waited for the rest."""
    common = {"round": 0, "start_ns": 0, "main_cpu_ns": 0}
    fed = Block(rung="host", end_ns=20, waits_ns=(1, 1), bodies_ns=(9, 9), **common)
    starved = Block(rung="none", end_ns=35, waits_ns=(24, 0), bodies_ns=(1, 8), **common)
    _, seen = drained.as_the_loop_sees([fed, starved], "host")
    assert (seen.waits_ns, seen.bodies_ns) == ((15, 0), (10, 8))
    assert drained.as_the_loop_sees([starved], "host") == (starved,)
