"""The engine between a real loop and real workers."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pipelines
import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, Subset

from unstarve import errors, judge, simulate
from unstarve.measure.engine import Engine, natural_period_ns
from unstarve.measure.hook import installed
from unstarve.measure.program import Bench, Give, Options, Program, Step

pytestmark = pytest.mark.live


def batches_of(loader: DataLoader, epochs: int = 2) -> list:
    """Everything a loop sees over some epochs, tensors as bytes, from fixed seeds; and what the generators give next."""
    torch.manual_seed(11)
    np.random.seed(12)
    random.seed(13)
    seen = [_plain(batch) for _ in range(epochs) for batch in loader]
    return [*seen, torch.rand(1).item(), np.random.rand(), random.random()]


def _plain(batch):
    if isinstance(batch, torch.Tensor):
        return (str(batch.dtype), tuple(batch.shape), batch.numpy().tobytes())
    if isinstance(batch, dict):
        return {key: _plain(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_plain(value) for value in batch]
    if isinstance(batch, pipelines.Pair):
        return _plain([batch.image, batch.names])
    return batch


class Weighing(Sampler):
    """Ten thousand batches, each drawn by weights that are summed up for it."""

    def __iter__(self):
        for number in range(10_000):
            yield self.drawn(number)

    def drawn(self, number: int) -> list[int]:
        total = sum(weight * weight for weight in range(200_000))
        return [(number + total) % 10_000, number]

    def __len__(self) -> int:
        return 10_000


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_is_looked_into(workers: int) -> None:
    """Its line is named that takes the time of the loop's process, with workers and without."""
    engine = Engine(Options(budget_s=12))
    loader = DataLoader(pipelines.Slow(0.0001, 10_000), batch_sampler=Weighing(), num_workers=workers)
    diagnose_slow(engine, loader)
    culprits = judge.judge(engine.recording()).verdict.culprits
    (culprit,) = [culprit for culprit in culprits if culprit.kind == "sampler"]
    assert culprit.text == "total = sum(weight * weight for weight in range(200_000))"


FORKED = [(kind, workers, "fork") for kind in ("map", "masked", "iterable", "sampler") for workers in (0, 1, 3)]
SPAWNED = [("map", 3, "spawn"), ("masked", 1, "spawn"), ("iterable", 1, "forkserver")]


@pytest.mark.parametrize(("kind", "workers", "method"), FORKED + SPAWNED)
def test_batches_under_the_full_rung_are_byte_identical(kind: str, workers: int, method: str) -> None:
    """With the same seeds the instrumented loader gives exactly the batches of the untouched one."""
    options = {"num_workers": workers, "multiprocessing_context": method if workers else None}
    if kind == "map":
        loader = DataLoader(
            pipelines.Drawing(), batch_size=8, shuffle=True, collate_fn=pipelines.collate_pair, **options
        )
    elif kind == "masked":
        loader = DataLoader(
            pipelines.Masked(), batch_size=5, shuffle=True, worker_init_fn=pipelines.seed_worker, **options
        )
    elif kind == "iterable":
        loader = DataLoader(pipelines.Counting(), batch_size=4, **options)
    else:
        data = Subset(pipelines.Drawing(), range(30))
        loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, False), **options)
    epochs = 2 if method == "fork" else 1
    plain = batches_of(loader, epochs)
    engine = Engine(Options(only_baseline=True))
    with installed(engine):
        watched = batches_of(loader, epochs)
    assert watched == plain


def workers_running() -> set[int]:
    """Processes below this one, but for the servers that Python keeps once spawn or forkserver was used."""
    below = psutil.Process().children(recursive=True)
    commands = {}
    for child in below:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends just now
            commands[child.pid] = " ".join(child.cmdline())
    return {pid for pid, text in commands.items() if "resource_tracker" not in text and "forkserver" not in text}


def diagnose_slow(engine: Engine, loader: DataLoader, step_s: float = 0.005, epochs: int = 50) -> None:
    with installed(engine), pytest.raises(errors.Finished):
        for _ in range(epochs):
            for _batch in loader:
                time.sleep(step_s)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_waiting_statement_is_convicted(workers: int) -> None:
    """A loop starved by a sleep in `__getitem__` is input-bound, and the line of the sleep is named with its gain."""
    engine = Engine(Options(budget_s=15))
    diagnose_slow(engine, DataLoader(pipelines.Slow(0.006), batch_size=8, num_workers=workers))
    report = judge.judge(engine.recording())
    assert report.verdict.bound == "input"
    waiting = next(c for c in report.verdict.culprits if c.kind != "workers")
    assert waiting.resource == "wait"
    assert waiting.text == "time.sleep(self.wait_s)"
    assert waiting.gain.value > 1.8
    assert {rung.id for rung in report.rungs} >= {"none", "samples", "host"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_statement_of_a_generator_is_convicted(workers: int) -> None:
    """A stream starved by one statement of its loop is input-bound, and that line is named with a gain that was measured
    by a knock-out."""
    engine = Engine(Options(budget_s=15))
    diagnose_slow(engine, DataLoader(pipelines.Trickle(0.006), batch_size=8, num_workers=workers))
    recording = engine.recording()
    report = judge.judge(recording)
    assert report.verdict.bound == "input"
    waiting = next(c for c in report.verdict.culprits if c.kind != "workers")
    assert (waiting.resource, waiting.text) == ("wait", "array = self.fetch(index)")
    assert waiting.gain.value > 1.8
    assert {rung.id for rung in recording.rungs} >= {f"knockout:{waiting.stage}", "samples"}


def test_what_copying_ahead_would_gain_is_measured() -> None:
    """A loop that waits for its copies is as slow as both together from host memory, and as fast as the slower of them with
    the next copy begun a step before."""
    accelerator = simulate.SimulatedAccelerator(bandwidth_bytes_per_s=8 * 8 * 1000 / 0.015)
    engine = Engine(Options(budget_s=12))
    loader = DataLoader(pipelines.Slow(0.0001), batch_size=8, num_workers=2)
    loader.collate_fn = lambda samples: torch.zeros(8, 1000, dtype=torch.float64)
    with simulate.use(accelerator), installed(engine), pytest.raises(errors.Finished):
        while True:
            for batch in loader:
                accelerator.to_device(batch)
                accelerator.launch(0.02)
    recording = engine.recording()
    rates = {rung.id: rung.steps_per_s.value for rung in judge.judge(recording).rungs}
    assert rates["device"] > 1.4 * rates["host"]
    assert rates["control:side-stream"] > 1.3 * rates["host"]
    remedy = next(remedy for remedy in judge.judge(recording).remedies if remedy.id == "overlapped-copy")
    assert remedy.predicted_gain is not None
    assert "Tried with batches from host memory" in remedy.advice


def test_a_fed_loop_has_no_culprit() -> None:
    """A loop whose workers are faster than its step is not called input-bound, and nobody is convicted."""
    engine = Engine(Options(budget_s=12))
    diagnose_slow(engine, DataLoader(pipelines.Slow(0.0001), batch_size=4, num_workers=2), step_s=0.04)
    report = judge.judge(engine.recording())
    assert report.verdict.bound in ("step", "unresolved")  # a busy machine may leave too much doubt
    assert report.verdict.culprits == ()


def test_nothing_is_left_behind() -> None:
    """After a diagnosis no process, no file descriptor and no shared-memory segment remains, and the hook is gone."""
    before = DataLoader.__iter__
    diagnose_slow(Engine(Options(budget_s=3)), DataLoader(pipelines.Slow(0.001), batch_size=4, num_workers=2))
    gc.collect()
    open_files, segments = len(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))
    diagnose_slow(Engine(Options(budget_s=3)), DataLoader(pipelines.Slow(0.001), batch_size=4, num_workers=2))
    gc.collect()
    assert DataLoader.__iter__ is before
    assert not multiprocessing.active_children()
    assert not workers_running()
    assert set(os.listdir("/dev/shm")) <= segments
    assert len(os.listdir("/proc/self/fd")) <= open_files + 1


def test_an_epoch_has_as_many_batches_as_without_us() -> None:
    """During the experiment each epoch of an indexed loader gives the loop exactly `len(loader)` batches."""
    loader = DataLoader(pipelines.Slow(0.0005, length=160), batch_size=4, num_workers=2)
    engine = Engine(Options(budget_s=4))
    counts = []
    with installed(engine):
        try:
            while True:
                count = 0
                for _batch in loader:
                    count += 1
                    time.sleep(0.002)
                counts.append(count)
        except errors.Finished:
            pass
    assert len(counts) >= 2
    assert set(counts) == {40}


class Failing(pipelines.Slow):
    def __getitem__(self, index: int):
        if index == 21:
            raise KeyError("sample 21 is broken")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_of_the_dataset_comes_through_unchanged(workers: int) -> None:
    """Type and message, the worker's traceback text included, are what the untouched loader raises."""

    def caught(with_engine: bool) -> BaseException:
        loader = DataLoader(Failing(0.0001), batch_size=4, num_workers=workers)
        engine = Engine(Options(only_baseline=True))
        try:
            if with_engine:
                with installed(engine):
                    list(loader)
            else:
                list(loader)
        except Exception as error:
            return error
        raise AssertionError("nothing was raised")

    plain, ours = caught(False), caught(True)
    assert type(ours) is type(plain)
    assert str(ours).replace("Pid", "") == str(plain).replace("Pid", "")


@pytest.mark.parametrize("handling", ["Python's", "ignored", "the script's"])
def test_a_worker_that_hangs_ends_the_wait(handling: str, request: pytest.FixtureRequest) -> None:
    """When no batch arrives within the patience, the loop is ended with `Stalled`, and the workers are gone; also where
    the process was started with interrupts ignored, as from a script in the background, and where the script saves its
    work on Ctrl-C, which nobody has pressed."""
    called: list[int] = []
    handlers = {
        "Python's": signal.default_int_handler,
        "ignored": signal.SIG_IGN,
        "the script's": lambda number, frame: called.append(number),
    }
    former = signal.signal(signal.SIGINT, handlers[handling])
    request.addfinalizer(functools.partial(signal.signal, signal.SIGINT, former))
    before = workers_running()
    engine = Engine(Options(budget_s=5), patience_s=1.5)
    loader = DataLoader(pipelines.Slow(600.0), batch_size=1, num_workers=1)
    with installed(engine), pytest.raises(errors.Stalled, match="no batch arrived"):
        for _batch in loader:
            pass
    assert not called
    assert not workers_running() - before


def ending(bench: Bench) -> Program:
    """A program that has what it wants at once."""
    yield Give("loader")


class Rarely(pipelines.Slow):
    """One sample takes as long as a hanging file system does."""

    def __getitem__(self, index: int) -> object:
        time.sleep(3.0 if index == 40 else 0.001)
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("is_passive", [True, False])
def test_a_loop_that_is_left_alone_waits_as_long_as_without_us(is_passive: bool, workers: int) -> None:
    """One that is only watched, and one that goes on after its diagnosis."""
    engine = Engine(passive=is_passive, stop=False, patience_s=1.0, program=lambda bench, options: ending(bench))
    count = 0
    with installed(engine):
        for _batch in DataLoader(Rarely(0.0, 60), num_workers=workers):
            time.sleep(0.002)
            count += 1
    assert count == 60
    assert engine.is_finished != is_passive


def natural_step(wait: int, body: int) -> Step:
    return Step(wait * 1_000_000, body * 1_000_000, True, None)


def test_batches_that_lay_ready_do_not_make_the_untouched_loop_look_fast() -> None:
    ready = [natural_step(0, 30)] * 3
    assert natural_period_ns(ready, num_workers=2, prefetch_factor=2) == 0
    assert natural_period_ns([*ready, natural_step(170, 30)], num_workers=2, prefetch_factor=2) == 0  # half a turn
    starved = [natural_step(70, 30), natural_step(0, 30)]
    assert natural_period_ns([*ready, *starved], num_workers=2, prefetch_factor=2) == 65_000_000
    assert natural_period_ns([natural_step(0, 60)] * 6, num_workers=2, prefetch_factor=2) == 60_000_000
    assert natural_period_ns([natural_step(0, 60)] * 2, num_workers=0, prefetch_factor=2) == 60_000_000
    assert natural_period_ns([natural_step(0, 6)] * 9, num_workers=0, prefetch_factor=2) == 0


class Uneven:
    """A batch sampler that does not tell how many it gives."""

    def __iter__(self):
        return iter([[0, 1, 2], [3, 4, 5, 6, 7]] * 200)

    def __len__(self) -> int:
        return 400


def test_the_workers_tell_how_many_samples_a_batch_has_where_the_loader_does_not() -> None:
    """Batches of three and of five samples have about four."""
    engine = Engine(Options(budget_s=3))
    diagnose_slow(engine, DataLoader(pipelines.Slow(0.001), batch_sampler=Uneven(), num_workers=2))
    facts = engine.recording().loader
    assert facts is not None
    assert facts.batch_size is None
    assert facts.seen_batch_size in (3, 4, 5)
