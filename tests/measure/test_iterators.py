"""Loops in other shapes than one iterator at a time: what a script gets is what it would get without us."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import importlib
import inspect
import itertools
import random
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from unstarve import errors, judge
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.program import Bench, Give, Options, Program
from unstarve.recording import Settings

pytestmark = pytest.mark.live


class Numbers(Dataset):
    """The numbers from `first` on; at `bad` it raises, once."""

    def __init__(self, length: int, first: int = 0, bad: int = -1) -> None:
        self.length = length
        self.first = first
        self.bad = bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            self.bad = -1
            raise ValueError("a sample that cannot be read")
        return self.first + index


class Stream(IterableDataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        yield from range(self.length)


def plain(bench: Bench) -> Program:
    """A program that leaves the loop alone, for ever."""
    while True:
        yield Give("loader")


def engines() -> list[Any]:
    return [
        pytest.param(lambda: Engine(passive=True), id="watch"),
        pytest.param(lambda: Engine(Options(), program=lambda bench, options: plain(bench)), id="run"),
    ]


Make = Callable[[], Engine]


def numbers(batches: Any) -> list[int]:
    """All numbers of a loop that does something with each batch."""
    found = []
    for batch in batches:
        time.sleep(0.0005)
        found += batch.tolist()
    return found


@pytest.mark.parametrize("make", engines())
def test_loaders_made_by_one_line_are_told_apart(make: Make) -> None:
    """Training and validation from one helper: each loop gets its own data, in every epoch."""
    data = {"train": Numbers(12), "val": Numbers(12, first=100)}
    loaders = {name: DataLoader(dataset, batch_size=2) for name, dataset in data.items()}
    with installed(make()):
        for _ in range(3):
            assert numbers(loaders["train"]) == list(range(12))
            with torch.no_grad():
                assert numbers(loaders["val"]) == list(range(100, 112))


@pytest.mark.parametrize("make", engines())
def test_loaders_made_anew_for_each_epoch_are_one(make: Make) -> None:
    """Several epochs, each with a loader of its own from the same line, are an account of one loader."""
    dataset = Numbers(12)
    engine = make()
    with installed(engine):
        for _ in range(3):
            assert numbers(DataLoader(dataset, batch_size=2)) == list(range(12))
    assert len(engine.loaders) == 1
    assert engine.most_batches == 18


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("make", engines())
def test_shards_of_different_lengths_are_one_loader_of_ever_new_data(make: Make, workers: int) -> None:
    """Each epoch has the batches of its own shard, all of them, in one account; validation, too, stays what it is."""
    engine = make()
    with installed(engine):
        for first, length in ((0, 12), (100, 16), (200, 8)):
            for data, with_grad in ((Numbers(length, first), True), (Numbers(6, first), False)):
                loader = DataLoader(data, batch_size=2, num_workers=workers)
                with torch.set_grad_enabled(with_grad):
                    assert numbers(loader) == list(range(first, first + len(data)))
                del loader
    assert [(loader.made, loader.length) for loader in engine.loaders] == [(3, 4), (3, 3)]
    assert [start.batches for start in engine.recording().starts if start.loader == 0] == [6, 8, 4]


@pytest.mark.parametrize("make", engines())
def test_loaders_of_one_line_with_other_batches_are_told_apart(make: Make) -> None:
    """As in a search for the best batch size, each with a loader of its own: every loop gets batches of the size it asks for."""
    data = Numbers(24)
    engine = make()
    with installed(engine):
        for size in (2, 4, 8):
            sizes = {len(batch) for batch in DataLoader(data, batch_size=size) if not time.sleep(0.0005)}
            assert sizes == {size}
    assert [loader.batch_size for loader in engine.loaders] == [2, 4, 8]


class Pictures(Dataset):
    """Samples of so many numbers, all the same."""

    def __init__(self, size: int, value: float) -> None:
        self.size, self.value = size, value

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.size,), self.value)


def from_cache(bench: Bench) -> Program:
    """A program that keeps some batches and gives them again, for ever."""
    yield Give("loader")
    bench.collect_batches(fewest=False)
    while True:
        yield Give("host")


class Interrupted(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 6:
            raise KeyboardInterrupt
        return index


@pytest.mark.parametrize("make", engines())
def test_an_interruption_that_the_script_catches_is_noted(make: Make) -> None:
    """It passes through as it is; the loop may be left for it, or go on."""
    engine = make()
    with installed(engine), pytest.raises(KeyboardInterrupt):
        numbers(DataLoader(Interrupted(12), batch_size=2))
    assert engine.was_interrupted


class Promised(Stream):
    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_gives_as_many_batches_as_it_promises(workers: int) -> None:
    """A schedule may rest on that number: batches from cache come in place of the stream's own, not on top of them."""
    engine = Engine(Options(), program=lambda bench, options: from_cache(bench))
    loader = DataLoader(Promised(40), batch_size=2, num_workers=workers)
    counts = []
    with installed(engine), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _epoch in range(3):
            counts.append(sum(time.sleep(0.0005) is None for _batch in itertools.islice(loader, 50)))
    assert counts == [20, 20, 20]


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_kept_is_served_only_to_a_loop_over_data_of_its_form(workers: int) -> None:
    """The first batch of every data set is its own. A script that goes on to larger pictures ends the diagnosis, which says so;
    one that goes on to other pictures does not."""
    engine = Engine(Options(), program=lambda bench, options: from_cache(bench))
    seen = []
    with installed(engine), pytest.raises(errors.Finished):
        for value, size in enumerate((4, 4, 4, 8)):
            for batch in DataLoader(Pictures(size, value), batch_size=4, num_workers=workers):
                time.sleep(0.0005)
                seen.append(tuple(batch[0].tolist()))
    assert len(seen) == 31
    assert seen[10::10] == [(1.0,) * 4, (2.0,) * 4, (3.0,) * 8]
    assert [note.id for note in engine.recording().notes] == ["data-changed"]


def made_in_a_function(length: int, *, shuffle: bool) -> DataLoader:
    """A loader of data of a class of its own, as a well-known framework makes it of arrays."""

    class Data(Numbers):
        pass

    return DataLoader(Data(length), batch_size=2, shuffle=shuffle)


@pytest.mark.parametrize("make", engines())
def test_loaders_whose_classes_are_defined_anew_for_each_epoch_are_one(make: Make) -> None:
    """The next epoch's is made at the end of the last and again at its beginning; validation is told by its sampler."""
    engine = make()
    with installed(engine):
        for _ in range(4):
            iterator = iter(made_in_a_function(12, shuffle=True))
            assert sorted(numbers(itertools.islice(iterator, 6))) == list(range(12))
            iterator = iter(made_in_a_function(12, shuffle=True))
            with torch.no_grad():
                assert numbers(made_in_a_function(12, shuffle=False)) == list(range(12))
    per_loader = collections.Counter(start.loader for start in engine.recording().starts)
    assert sorted(per_loader.values()) == [4, 4]
    assert engine.most_batches == 24


def test_a_loader_that_is_gone_stays_in_the_account() -> None:
    """Python may give its number to the next one at once."""
    engine = Engine(passive=True)
    with installed(engine):
        for size in range(1, 20):
            assert len(numbers(DataLoader(Numbers(40), batch_size=size))) == 40
    assert [loader.number for loader in engine.loaders] == list(range(19))


@pytest.mark.parametrize("make", engines())
def test_a_loader_may_be_iterated_twice_at_a_time(make: Make) -> None:
    """Pairs of batches, and a look at the first batch in the middle of an epoch."""
    loader = DataLoader(Numbers(12), batch_size=2)
    with installed(make()):
        pairs = [(left.tolist(), right.tolist()) for left, right in zip(loader, loader, strict=True)]
        seen = []
        for batch in loader:
            time.sleep(0.0005)
            seen += batch.tolist()
            assert next(iter(loader)).tolist() == [0, 1]
    assert pairs == [([first, first + 1],) * 2 for first in range(0, 12, 2)]
    assert seen == list(range(12))


def test_an_iterator_that_is_dropped_for_another_is_followed() -> None:
    """A loop that begins again before the end of an epoch is clocked all the same."""
    loader = DataLoader(Numbers(40), batch_size=2)
    engine = Engine(passive=True)
    with installed(engine):
        iterator = iter(loader)
        for _ in range(4):
            for _ in range(5):
                next(iterator)
                time.sleep(0.0005)
            iterator = iter(loader)
    assert engine.most_batches >= 15


class Fetcher:
    """As in a well-known trainer: it counts batches, and makes an epoch's iterator before it drops the last one's."""

    def __init__(self, loader: DataLoader, limit: int) -> None:
        self.loader = loader
        self.limit = limit
        self.iterator: Any = None

    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self.loader)
        self.iterator = iterator
        del iterator
        for _ in range(min(self.limit, len(self.loader))):
            yield next(self.iterator)


@pytest.mark.parametrize("make", engines())
@pytest.mark.parametrize("limit", [100, 4])
@pytest.mark.parametrize("workers", [0, 1])
def test_every_epoch_of_a_loop_that_never_asks_past_the_last_batch_is_clocked(
    make: Make, limit: int, workers: int
) -> None:
    """The iterator of the epoch before is still there when the next one's is made; so it is with a validation."""
    engine, before = make(), set(psutil.Process().children())
    fetchers = [
        Fetcher(DataLoader(Numbers(12, first=first), batch_size=2, num_workers=workers), limit) for first in (0, 100)
    ]
    with installed(engine):
        for _ in range(3):
            for fetcher, first in zip(fetchers, (0, 100), strict=True):
                with torch.set_grad_enabled(first == 0):
                    assert {number // 100 * 100 for number in numbers(fetcher)} == {first}
    starts = engine.recording().starts
    for number in range(2):
        assert [start.batches for start in starts if start.loader == number] == [min(limit, 6)] * 3
    assert len(set(psutil.Process().children()) - before) <= 2 * workers


@pytest.mark.parametrize("limit", [100, 4])
def test_a_loop_that_only_watches_draws_as_without_us_whatever_it_drops(limit: int) -> None:
    """Shuffled epochs come in the same order though each one's iterator is made before the last one is gone."""

    def drawn() -> list[int]:
        torch.manual_seed(3)
        fetcher = Fetcher(DataLoader(Numbers(40), batch_size=2, shuffle=True, num_workers=1), limit)
        return [number for _ in range(3) for number in numbers(fetcher)]

    plain = drawn()
    with installed(Engine(passive=True)):
        assert drawn() == plain


class InfiniteLoader(DataLoader):
    """As in a well-known detector: one iterator for all epochs, made with the loader."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self)):
            yield next(self.iterator)

    def reset(self) -> None:
        self.iterator = self._get_iterator()


class OwningLoader(InfiniteLoader):
    """As that one does, it ends the workers of the iterator it keeps when it is gone itself."""

    def __del__(self) -> None:
        for worker in getattr(getattr(self, "iterator", None), "_workers", ()):
            worker.terminate()


FASTAI = """
from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

class Fake:
    _IterableDataset_len_called, _auto_collation, collate_fn, drop_last = None, False, staticmethod(lambda b: b), False
    _index_sampler, generator, prefetch_factor, num_workers = range(10**9), None, 2, 0
    pin_memory, timeout, persistent_workers = False, 0, False
    _dataset_kind = _DatasetKind.Iterable

    def __init__(self, batches):
        self.dataset, self.batches = self, batches

    def __iter__(self):
        return iter(self.batches)

class DataLoader:
    def __init__(self, batches):
        self.fake_l = Fake(batches)

    def __iter__(self):
        yield from _SingleProcessDataLoaderIter(self.fake_l)

class TfmdDL(DataLoader):
    pass
"""
"""A loader that makes torch's iterators itself, in the module of a well-known library."""


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_loader_that_is_none_of_torchs_is_clocked(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an iterable like another, whether it is imported before the loop runs or by it."""
    folder = tmp_path / "fastai" / "data"
    folder.mkdir(parents=True)
    (folder / "load.py").write_text(FASTAI)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("fastai", "fastai.data", "fastai.data.load"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if when == "before":
        importlib.import_module("fastai.data.load")
    engine = Engine(passive=True)
    with installed(engine):
        loader = importlib.import_module("fastai.data.load").TfmdDL([torch.arange(2)] * 5)
        assert len(numbers(loader)) == 10
    assert [(found.name, found.kind) for found in engine.recording().loaders] == [("TfmdDL", "other")]
    assert engine.most_batches == 5


class Repeated:
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


@pytest.mark.parametrize("make", engines())
def test_a_loader_that_keeps_one_iterator_for_ever_works(make: Make) -> None:
    engine = make()
    with installed(engine):
        loader = InfiniteLoader(Numbers(12), batch_size=2)
        for _ in range(3):
            assert numbers(loader) == list(range(12))
    assert engine.most_batches == 18


@pytest.mark.parametrize("is_passive", [True, False])
@pytest.mark.parametrize("epochs_before", [0, 1])
def test_a_loader_that_replaces_the_iterator_it_keeps_works(is_passive: bool, epochs_before: int) -> None:
    """Each epoch has its own batches and ends, before the workers were made anew past us and after."""
    engine = Engine(Options(), passive=is_passive, stop=False, program=lambda bench, options: plain(bench))
    with installed(engine):
        loader = InfiniteLoader(Numbers(12), batch_size=2, num_workers=1)
        for _ in range(epochs_before):
            assert numbers(loader) == list(range(12))
        dropped = enumerate(loader)
        loader.reset()
        for _ in range(2):
            dropped = enumerate(loader)
            assert numbers(batch for _, batch in dropped) == list(range(12))


def test_a_diagnosis_ends_where_the_loader_replaces_its_workers() -> None:
    """Its new workers obey no order, so nothing that came from them would be what a rung says."""
    engine = Engine(Options(), program=lambda bench, options: plain(bench))
    with installed(engine), pytest.raises(errors.Finished):
        loader = InfiniteLoader(Numbers(12), batch_size=2, num_workers=1)
        numbers(loader)
        loader.reset()
        numbers(loader)
    assert "by itself" in " ".join(note.sentence for note in engine.recording().notes)


def test_what_a_loader_does_at_its_end_is_not_done_when_workers_on_trial_end() -> None:
    """A loader that ends the workers it keeps has those of its own as long as it is there."""

    def program(bench: Bench) -> Program:
        for _ in range(3):
            for settings in (Settings(num_workers=2), None):
                bench.use(settings)
                yield Give("loader")
            bench.dismiss(Settings(num_workers=2))
            gc.collect()
        while True:
            yield Give("loader")

    with installed(Engine(Options(), program=lambda bench, options: program(bench))):
        loader = OwningLoader(Numbers(40), batch_size=2, num_workers=1)
        for _ in range(2):
            assert len(numbers(loader)) == 40


@pytest.mark.parametrize("make", engines())
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loop_may_skip_samples_that_cannot_be_read(make: Make, workers: int) -> None:
    """An error of the dataset comes through, and the iterator goes on after it, as torch's does."""
    loader = DataLoader(Numbers(12, bad=4), batch_size=2, num_workers=workers)
    seen, failed = [], 0
    with installed(make()):
        iterator = iter(loader)
        while True:
            try:
                seen += next(iterator).tolist()
            except StopIteration:
                break
            except ValueError:
                failed += 1
            time.sleep(0.0005)
    assert failed == 1
    assert seen == [number for number in range(12) if number not in (4, 5)]


def test_a_sample_that_cannot_be_read_while_batches_are_kept_costs_one_batch_and_not_the_diagnosis() -> None:
    """The loop meets the error in place of its next batch, goes on, and gets its verdict."""
    seen: list[str] = []

    def program(bench: Bench) -> Program:
        for _ in range(4):
            yield Give("loader")
        bench.collect_batches(fewest=False)
        while True:
            yield Give("loader")

    engine = Engine(Options(), program=lambda bench, options: program(bench))
    with installed(engine):
        batches = iter(DataLoader(Numbers(60, bad=14), batch_size=2))
        while True:
            try:
                next(batches)
            except StopIteration:
                break
            except ValueError as error:
                seen.append(str(error))
            time.sleep(0.0005)
        assert not engine.is_finished
    assert seen == ["a sample that cannot be read"]


def test_one_batch_now_and_then_from_another_loader_ends_nothing() -> None:
    """A look at the first validation batch in every epoch does not make that loader the loop."""
    train, val = DataLoader(Numbers(12), batch_size=2), DataLoader(Numbers(8, first=100), batch_size=2)
    engine = Engine(Options(), program=lambda bench, options: plain(bench))
    with installed(engine):
        for _ in range(20):
            assert numbers(train) == list(range(12))
            with torch.no_grad():
                assert next(iter(val)).tolist() == [100, 101]
        assert not engine.is_finished
        assert engine.target is not None
        assert engine.target.loader is train


def watched_steps() -> tuple[list[bool], Engine]:
    """An engine that leaves the loop alone, and whether each of its steps was whole."""
    whole: list[bool] = []

    def program(bench: Bench) -> Program:
        while True:
            step = yield Give("loader")
            whole.append(step is not None and step.is_whole)

    return whole, Engine(Options(), program=lambda bench, options: program(bench))


def test_steps_that_draw_from_two_loaders_are_whole() -> None:
    """The second loader of a `zip` belongs to the step: it does not disturb the measurement of the first."""
    whole, engine = watched_steps()
    loaders = [DataLoader(Numbers(200, first=first), batch_size=2) for first in (0, 1000)]
    with installed(engine):
        for left, right in zip(*loaders, strict=True):
            time.sleep(0.0005)
            assert (right - left).tolist() == [1000, 1000]
    assert all(whole[2:])
    assert len(whole) > 50


class Sleepy(Numbers):
    """Takes its time for every sample."""

    def __getitem__(self, index: int) -> int:
        time.sleep(0.003)
        return super().__getitem__(index)


@pytest.mark.parametrize("length", [200, 12], ids=["long epochs", "short epochs"])
@pytest.mark.parametrize("is_first", [False, True])
def test_of_loaders_in_a_zip_the_one_that_is_waited_for_is_diagnosed(is_first: bool, length: int) -> None:
    """Wherever it stands; its line is what there is to mend."""
    slow, quick = DataLoader(Sleepy(length), batch_size=2), DataLoader(Numbers(length), batch_size=2)
    engine = Engine(Options(budget_s=2))
    with installed(engine), pytest.raises(errors.Finished):
        for _ in range(2000):
            for _pair in zip(*((slow, quick) if is_first else (quick, slow)), strict=True):
                time.sleep(0.002)
    assert engine.target is not None
    assert engine.target.loader is slow


def test_steps_that_train_on_batches_of_another_loader_now_and_then_are_whole() -> None:
    """A loop that draws from loaders by lot takes many batches of one between two of the other."""
    whole, engine = watched_steps()
    with installed(engine):
        left, right = (iter(DataLoader(Numbers(400), batch_size=2)) for _ in range(2))
        for number in range(40):
            next(left)
            for _ in range(9 if number % 7 == 6 else 0):
                next(right)
            time.sleep(0.0005)
    assert len(whole) > 30
    assert all(whole)


@pytest.mark.parametrize("is_left_early", [False, True])
@pytest.mark.parametrize("kind", [DataLoader, InfiniteLoader])
def test_a_validation_in_mid_epoch_is_no_part_of_a_step(kind: type[DataLoader], is_left_early: bool) -> None:
    """Whether it goes through its loader to the end or breaks off, by an iterator of its own or one that is kept."""
    whole, engine = watched_steps()
    with installed(engine):
        train, held_out = DataLoader(Numbers(80), batch_size=2), kind(Numbers(16), batch_size=2)
        for number, _batch in enumerate(train):
            time.sleep(0.0005)
            if number % 10 == 9:
                with torch.no_grad():
                    for taken, _held_out_batch in enumerate(held_out):
                        if is_left_early and taken == (0 if kind is DataLoader else 4):
                            break
    assert whole.count(False) == 3  # the steps of the 10th, 20th and 30th batch


def test_steps_that_each_take_several_batches_of_another_loader_are_whole() -> None:
    """As where a critic is trained more often than what it judges."""
    whole, engine = watched_steps()
    with installed(engine):
        others = iter(DataLoader(Numbers(2000, first=1000), batch_size=2))
        for _batch in DataLoader(Numbers(80), batch_size=2):
            for _ in range(7):
                next(others)
            time.sleep(0.0005)
    assert all(whole[2:])
    assert len(whole) > 30


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
def test_an_epoch_that_ends_while_batches_are_kept_ends_the_loop(count: int) -> None:
    """A short stream ends as without us, wherever the experiment is."""
    loader = DataLoader(Stream(2 * count), batch_size=2)
    engine = Engine(Options(budget_s=5))
    with installed(engine):
        try:
            for _ in range(8):
                seen = numbers(loader)
                assert len(seen) >= 2 * (count - 1)  # a batch that was kept may be one of them
        except errors.Finished:
            assert engine.blocks


def test_a_start_is_waited_for_whatever_the_experiment_is_at() -> None:
    """Two starts are clocked as the script's own, so that each costs what its workers need to begin."""
    loader = DataLoader(Numbers(16), batch_size=2, num_workers=1, worker_init_fn=_begin_slowly)
    engine = Engine(Options(budget_s=8))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _ in loader:
                time.sleep(0.01)
    first, second = engine.recording().starts[:2]
    assert first.natural
    assert second.natural
    assert min(first.first_wait_ns, second.first_wait_ns) > 250_000_000


def _begin_slowly(worker: int) -> None:
    time.sleep(0.3)


class Unready:
    """A batch sampler whose length is known only once it has begun."""

    def __iter__(self) -> Iterator[list[int]]:
        self.batches = [[0, 1], [2, 3], [4, 5]]
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


@pytest.mark.parametrize("make", engines())
def test_a_sampler_that_has_no_length_yet_is_not_asked_twice(make: Make) -> None:
    with installed(make()):
        assert numbers(DataLoader(Numbers(6), batch_sampler=Unready())) == list(range(6))


class Bucketed:
    """A batch sampler that draws its batches anew whenever it is asked for them, or how many there are."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.generator, torch.Generator):
            order = torch.randperm(24, generator=self.generator).tolist()
        elif isinstance(self.generator, random.Random):
            order = self.generator.sample(range(24), 24)
        else:
            order = self.generator.permutation(24).tolist()
        return iter([order[at : at + 4] for at in range(0, 24, 4)])

    def __len__(self) -> int:
        return len(list(self))


@pytest.mark.parametrize("make", engines())
@pytest.mark.parametrize(
    "generator",
    [
        lambda: np.random,
        lambda: np.random.default_rng(1),
        lambda: np.random.RandomState(1),
        lambda: torch.Generator().manual_seed(1),
        lambda: random.Random(1),
    ],
    ids=["numpy", "own of numpy", "old of numpy", "own of torch", "own of Python"],
)
def test_a_sampler_that_draws_to_count_gives_what_it_gives_without_us(make: Make, generator: Callable[[], Any]) -> None:
    def drawn() -> list[int]:
        np.random.seed(5)
        return numbers(DataLoader(Numbers(24), batch_sampler=Bucketed(generator()))) + np.random.rand(1).tolist()

    plain = drawn()
    with installed(make()):
        assert drawn() == plain


def test_a_sampler_that_draws_from_the_system_is_left_to_it() -> None:
    """Its numbers are nobody's to put back."""
    with installed(Engine(passive=True)):
        loader = DataLoader(Numbers(24), batch_sampler=Bucketed(random.SystemRandom()))
        assert sorted(numbers(loader)) == list(range(24))


@pytest.mark.parametrize("make", engines())
def test_workers_end_with_the_iterator_that_a_loop_drops(make: Make) -> None:
    """A loop over another loader that breaks leaves no worker behind, as without us."""
    before = len(psutil.Process().children())
    loader = DataLoader(Numbers(400), batch_size=2, num_workers=2)
    with installed(make()), torch.no_grad():
        for _ in itertools.islice(loader, 3):
            time.sleep(0.0005)
        gc.collect()
        assert len(psutil.Process().children()) == before


class Heavy(Dataset):
    """Tensors of some size."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(64)


@pytest.mark.parametrize("end", ["of itself", "by a fault", "by ours"])
def test_a_diagnosis_that_is_over_leaves_a_script_that_goes_on_nothing_but_its_own(end: str) -> None:
    """No batch that was kept stays in memory, and no worker of ours stays beside those that the loader starts itself;
    whatever the diagnosis was at."""

    def program(bench: Bench) -> Program:
        yield Give("loader")
        bench.collect_batches(fewest=True)
        yield Give("host")
        if end == "of itself":
            return
        if end == "by a fault":
            raise RuntimeError("a bug")
        while True:
            yield Give("host")

    before = len(psutil.Process().children())
    engine = Engine(Options(), stop=False, program=lambda bench, options: program(bench))
    training = DataLoader(Heavy(), batch_size=2, num_workers=1, persistent_workers=True)
    others = DataLoader(Heavy(), batch_size=2, num_workers=1, persistent_workers=True)
    with installed(engine):
        for epoch in range(3):
            for _ in itertools.islice(training, 12):
                time.sleep(0.0005)
            with torch.no_grad():
                assert len(list(others)) == 20
            if epoch == 0 and end == "by ours":
                engine._finish()
        assert engine.is_finished
        assert not engine.cached.host
        assert len(psutil.Process().children()) == before + 2
        assert engine._program is not None
        assert inspect.getgeneratorstate(engine._program) == inspect.GEN_CLOSED


def test_another_thread_that_fetches_ahead_is_left_alone() -> None:
    """An iterator that was made in the loop's thread and is drawn from in another gives all batches, unclocked."""
    engine = Engine(Options(budget_s=2))
    seen: list[int] = []
    with installed(engine):
        iterator = iter(DataLoader(Numbers(40), batch_size=2))
        thread = threading.Thread(target=lambda: seen.extend(numbers(iterator)))
        thread.start()
        thread.join()
    assert seen == list(range(40))
    assert engine.was_in_thread
    assert engine.target is None


def test_a_fault_of_ours_ends_the_diagnosis_and_not_the_script() -> None:
    """The loop goes on with its own batches, and the recording says what happened."""

    def program(bench: Bench) -> Program:
        yield Give("loader")
        raise RuntimeError("a bug")

    engine = Engine(Options(), stop=False, program=lambda bench, options: program(bench))
    with installed(engine):
        for _ in range(2):
            assert numbers(DataLoader(Numbers(40), batch_size=2)) == list(range(40))
    assert "a bug" in " ".join(note.sentence for note in engine.recording().notes)


def test_nothing_is_left_set_when_a_loop_ends_in_the_middle_of_a_trial() -> None:
    """Threads, collector and warnings are the script's own again."""

    def program(bench: Bench) -> Program:
        bench.limit_threads(1)
        bench.allow_collector(False)
        try:
            while True:
                yield Give("loader")
        finally:
            ended.append(True)

    own, show = torch.get_num_threads(), warnings.showwarning
    torch.set_num_threads(2)
    ended: list[bool] = []
    try:
        with installed(Engine(Options(), program=lambda bench, options: program(bench))):
            numbers(DataLoader(Numbers(40), batch_size=2))
        assert (torch.get_num_threads(), gc.isenabled(), warnings.showwarning) == (2, True, show)
        assert ended
    finally:
        torch.set_num_threads(own)


@pytest.fixture
def meta_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """`meta` stands for a device."""
    from unstarve.measure import device

    monkeypatch.setattr(device, "_real_device", lambda: ("meta", lambda: None))
    found = device.current()
    assert found is not None
    found = dataclasses.replace(
        found, copy_ahead=lambda batch, paths: lambda: device._moved(batch, "meta", paths), pin=lambda batch: batch
    )
    monkeypatch.setattr(device, "current", lambda: found)


@pytest.mark.parametrize("source", ["device", "ahead"])
@pytest.mark.usefixtures("meta_device")
def test_only_what_the_loop_moves_is_put_on_the_device(source: str) -> None:
    """Lengths that the step needs on the host stay there, whether batches lie on the device or are copied to it ahead."""
    kept: list[Any] = []

    def program(bench: Bench) -> Program:
        yield Give("loader")
        bench.collect_batches(fewest=True)
        bench.watch_use(2)
        for _ in range(3):
            yield Give("host")
        bench.fill_device()
        while True:
            yield Give(source)

    collate = lambda numbers: {"x": torch.ones(2, 3), "lengths": torch.tensor(numbers)}  # noqa: E731
    with installed(Engine(Options(), program=lambda bench, options: program(bench))):
        for batch in DataLoader(Numbers(80), batch_size=2, collate_fn=collate):
            moved = batch["x"].to("meta")
            kept.append((batch["x"].device.type, batch["lengths"].device.type))
            time.sleep(0.0005 if len(batch["lengths"].tolist()) == len(moved) else 0)
    assert kept[-1] == ("meta", "cpu")


def test_views_of_the_data_set_take_no_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loader without workers, whose batches are parts of one array, as many are kept as of any other."""
    from unstarve.measure import environment

    data, kept = np.zeros(1_000_000), []
    monkeypatch.setattr(environment, "memory_bytes", lambda: 16 * 100_000)
    engine = Engine(Options(), program=lambda bench, options: fed(bench))
    with installed(engine):
        for _ in DataLoader(Numbers(80), batch_size=2, collate_fn=lambda numbers: data[numbers[0] :][:2]):
            kept.append(len(engine.cached.host))
            time.sleep(0.0005)
    assert max(kept) > 1
    assert "pool-small" not in [note.id for note in engine.recording().notes]


def placed(step: Callable[[Any], Any]) -> tuple[tuple[str, str], Engine]:
    """Where the tensors of a batch lie on the rung of batches on the device, for a loop with this step; the engine."""
    kept: list[tuple[str, str]] = []

    def program(bench: Bench) -> Program:
        yield Give("loader")
        bench.collect_batches(fewest=True)
        bench.watch_use(2)
        for _ in range(3):
            yield Give("host")
        bench.fill_device()
        bench.audit()
        while True:
            yield Give("device")

    collate = lambda numbers: {"x": torch.ones(2, 3), "y": torch.tensor(numbers)}  # noqa: E731
    engine = Engine(Options(), program=lambda bench, options: program(bench))
    with installed(engine):
        for batch in DataLoader(Numbers(80), batch_size=2, collate_fn=collate):
            kept.append((batch["x"].device.type, batch["y"].device.type))
            step(batch)
            time.sleep(0.0005)
    return kept[-1], engine


@pytest.mark.parametrize(
    ("step", "places"),
    [
        (lambda batch: (batch["x"].to("meta"), batch["y"].to("meta")), ("meta", "meta")),
        (lambda batch: (batch["x"].to("meta"), batch["y"].to("meta"), batch["y"].numpy()), ("meta", "cpu")),
        (lambda batch: (batch["x"].to("meta"), batch["y"].to("meta"), torch.ones(2) == batch["y"]), ("meta", "cpu")),
        (lambda batch: (torch.empty(2, 3, device="meta").copy_(batch["x"]), batch["y"].tolist()), ("meta", "cpu")),
        (lambda batch: batch["y"].tolist(), ("meta", "cpu")),
        (lambda batch: (batch["x"].tolist(), batch["y"].tolist()), ("cpu", "cpu")),
        (lambda batch: None, ("meta", "meta")),
    ],
    ids=["moved", "escape", "mixed", "static input", "moved unseen", "on the host", "unseen"],
)
@pytest.mark.usefixtures("meta_device")
def test_what_the_loop_uses_on_the_host_stays_there(step: Callable[[Any], Any], places: tuple[str, str]) -> None:
    """Be it that it is moved as well, or that moving is not seen: on the device the user's step would fail."""
    found, engine = placed(step)
    assert found == places
    used = {field.path: field.used_on_host for field in engine.payload}
    assert used == {"batch['x']": places[0] == "cpu", "batch['y']": places[1] == "cpu"}


def ahead(loader: Any) -> Iterator[Any]:
    """As in well-known prefetchers: it takes the next batch, and begins its work on it, before it hands on the last."""
    last: Any = None
    for batch in loader:
        if last is not None:
            yield last
        last = {"x": batch["x"] * 2, "y": batch["y"]}
    yield last


def fed(bench: Bench) -> Program:
    """A program that watches the use of a few batches from cache."""
    yield Give("loader")
    bench.collect_batches(fewest=False, more_s=1.0)
    bench.watch_use(2)
    for _ in range(3):
        yield Give("host")
    bench.audit()
    while True:
        yield Give("host")


def prefetched(step: Callable[[Any], Any]) -> Engine:
    """The engine after such a program, with a loop that works on batches from such a prefetcher."""
    collate = lambda numbers: {"x": torch.ones(2, 3), "y": torch.tensor(numbers), "z": torch.ones(2)}  # noqa: E731
    engine = Engine(Options(), program=lambda bench, options: fed(bench))
    with installed(engine):
        for batch in ahead(DataLoader(Numbers(80), batch_size=2, collate_fn=collate)):
            step(batch)
            time.sleep(0.0005)
    return engine


def test_what_a_step_reads_after_it_has_the_next_batch_is_read() -> None:
    read = {field.path: field.read_by_step for field in prefetched(lambda batch: batch["y"].sum()).payload}
    assert read == {"batch['x']": True, "batch['y']": True, "batch['z']": False}


def test_a_step_that_writes_after_it_has_the_next_batch_gets_copies() -> None:
    """Whether the batch came from the loader or from the cache; those that were written to are served no more."""
    seen: list[int] = []

    def step(batch: Any) -> None:
        seen.append(int(batch["y"][1] - batch["y"][0]))
        if len(seen) > 8:  # the batches of the warm-up are left alone
            batch["y"][0] += 100

    notes = {note.id for note in prefetched(step).recording().notes}
    assert "batch-mutated" in notes
    assert seen[-20:] == [1] * 20
    assert "batch-mutated" in {note.id for note in prefetched(lambda batch: batch["y"].add_(1)).recording().notes}
    assert "batch-mutated" not in {note.id for note in prefetched(lambda batch: batch["y"].sum()).recording().notes}


def cached(bench: Bench, mode: str) -> Program:
    """A program that gives the loop kept batches while its workers send word of batches only."""
    yield Give("loader")
    bench.collect_batches(fewest=True)
    bench.issue({"mode": mode})
    while True:
        yield Give("host")


@pytest.mark.parametrize("mode", ["token", "idle"])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_the_first_batch_of_an_epoch_is_a_real_one_whatever_the_workers_were_told(
    mode: str, is_persistent: bool
) -> None:
    engine = Engine(Options(), program=lambda bench, options: cached(bench, mode))
    loader = DataLoader(Numbers(40), batch_size=2, num_workers=2, persistent_workers=is_persistent)
    with installed(engine):
        for _epoch in range(3):
            assert len(numbers(loader)) == 40
    assert [start.batches for start in engine.recording().starts] == [20, 20, 20]


def test_short_epochs_that_follow_each_other_at_once_give_a_verdict() -> None:
    """Epochs of four batches from two workers are one steady state where nothing comes between them."""
    engine = Engine(Options(budget_s=12))
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=2)
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _batch in loader:
                time.sleep(0.01)
    recording = engine.recording()
    assert [block for block in recording.blocks if block.rung == "none"]
    assert judge.judge(recording).verdict.bound in ("step", "start", "unresolved")


def test_steps_that_each_begin_another_loader_are_whole() -> None:
    """As in adversarial training: a batch of the other loader from a new iterator in every step belongs to the step."""
    loader, other = DataLoader(Numbers(4000), batch_size=2, num_workers=1), DataLoader(Numbers(64), batch_size=2)
    engine = Engine(Options(budget_s=6))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _batch in loader:
                next(iter(other))
                time.sleep(0.01)
    recording = engine.recording()
    assert recording.loader is not None
    assert recording.loader.length == 2000
    assert [block for block in recording.blocks if block.rung == "none"]


class Slowly(Numbers):
    """Takes its time to be freed."""

    def __iter__(self) -> Any:
        return _Held()


class _Held:
    def __iter__(self) -> Any:
        return self

    def __next__(self) -> list[int]:
        return [1, 2]

    def __del__(self) -> None:
        time.sleep(0.03)


def test_what_it_takes_to_let_go_of_an_iterator_is_clocked() -> None:
    """One that is left in the middle takes that time from the step, and its sampler may hold much."""
    loader, other = DataLoader(Numbers(400), batch_size=2), DataLoader(Numbers(64), batch_sampler=Slowly(3))
    engine = Engine(passive=True)
    with installed(engine):
        for _batch, _ in zip(loader, range(5), strict=False):
            next(iter(other))
    starts = [start for start in engine.recording().starts if start.loader == 1]
    assert len(starts) == 5
    assert all(start.closed_ns >= 0.03e9 for start in starts)


class Shuffled(Sampler):
    """Takes its time to draw an order for the epoch."""

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Any:
        return iter(self.draw())

    def draw(self) -> list[int]:
        time.sleep(0.08)
        return list(range(24))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_line_is_seen_that_takes_a_sampler_long_to_begin(workers: int) -> None:
    """From the second epoch on, which is when it is known to take long."""
    loader = DataLoader(Numbers(24), batch_size=2, sampler=Shuffled(), num_workers=workers)
    engine = Engine(Options(budget_s=4))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _batch in loader:
                time.sleep(0.003)
    recording = engine.recording()
    assert recording.sampler[0].text == "time.sleep(0.08)"
    assert recording.sampler[0].wall_fraction > 0.8


def test_what_ending_workers_took_is_counted_once() -> None:
    """It is taken off the start that ended them, and off no later one."""
    loader = DataLoader(Numbers(16), batch_size=2, num_workers=2)
    engine = Engine(Options(budget_s=5))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _batch in loader:
                time.sleep(0.01)
    starts = engine.recording().starts
    assert len(starts) > 4
    assert all(start.construct_ns >= 0 for start in starts)


def test_an_epochs_last_step_is_no_time_between_epochs() -> None:
    """An iterator ends when the loop asks for more than it has, behind the last step."""
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=1)
    engine = Engine(Options(budget_s=6))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _batch in loader:
                time.sleep(0.1)
    recording = engine.recording()
    for before, after in itertools.pairwise(recording.starts):
        assert after.created_ns - before.ended_ns < 50_000_000
    assert len(recording.starts) > 3


@pytest.mark.parametrize("cycle", [3, 16])
def test_a_loop_that_takes_batches_together_is_measured_by_whole_cycles(cycle: int) -> None:
    """As where gradients are accumulated: it takes some, then works on all of them."""
    loader = DataLoader(Numbers(100_000), batch_size=2, num_workers=2)
    engine = Engine(Options(budget_s=8))
    with installed(engine), pytest.raises(errors.Finished):
        batches = iter(loader)
        while True:
            for _ in range(cycle):
                next(batches)
            time.sleep(0.01 * cycle)
    recording = engine.recording()
    assert recording.starts[0].dropped == 0
    rates = [block.steps / (block.end_ns - block.start_ns) * 1e9 for block in recording.blocks]
    assert {block.steps % cycle for block in recording.blocks} == {0}
    assert 30 < min(rates) <= max(rates) < 115  # blocks of other lengths would have a whole cycle's work, or none
    assert len(rates) > 2


def watched_body(bench: Bench) -> Program:
    """A program that samples the lines of the loop."""
    sampler = bench.body_sampler()
    sampler.start()
    try:
        for _ in range(30):
            yield Give("loader")
    finally:
        bench.body(sampler.stop())
    yield from plain(bench)


def checkpoint(loader: Any) -> None:
    time.sleep(0.1)


def validate(loader: Any) -> None:
    with torch.no_grad():
        for _batch in loader:
            time.sleep(0.02)


@pytest.mark.parametrize("between", [checkpoint, validate])
@pytest.mark.parametrize("most", [None, 9], ids=["to the end", "left early"])
def test_only_the_loops_own_steps_are_sampled(between: Callable[[Any], None], most: int | None) -> None:
    """What a script does between its epochs is no line of the loop's body, and finds the interpreter as it set it."""
    engine = Engine(Options(), program=lambda bench, options: watched_body(bench))
    loader, other = DataLoader(Numbers(20), batch_size=2), DataLoader(Numbers(10), batch_size=2)
    usual, met = sys.getswitchinterval(), set()
    with installed(engine):
        for _epoch in range(5):
            for _batch in itertools.islice(loader, most):
                time.sleep(0.004)
            met.add(sys.getswitchinterval())
            between(other)
    assert [line.text for line in engine.recording().body if line.wall_fraction > 0.05] == ["time.sleep(0.004)"]
    assert met == {usual}


def test_a_loader_that_steps_begin_anew_is_sampled_with_them() -> None:
    """What follows a batch of another loader, begun for it in every step, is the loop's body as what precedes it."""
    engine = Engine(Options(), program=lambda bench, options: watched_body(bench))
    loader, other = DataLoader(Numbers(100), batch_size=2), DataLoader(Numbers(10), batch_size=2)
    with installed(engine):
        for _batch in loader:
            next(iter(other))
            time.sleep(0.004)
    shares = {line.text: line.wall_fraction for line in engine.recording().body}
    assert shares["time.sleep(0.004)"] > 0.5


class Augmented:
    """A loader around a loader."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            time.sleep(0.01)
            yield batch


def test_the_time_that_a_generator_around_the_loader_takes_is_told() -> None:
    engine = Engine(Options(budget_s=6))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _batch in Augmented(DataLoader(Numbers(4000), batch_size=2, num_workers=1)):
                time.sleep(0.01)
    lines = {line.text: line.in_iterator for line in engine.recording().body if line.in_iterator}
    assert list(lines) == ["time.sleep(0.01)"]
    assert 0.3 < lines["time.sleep(0.01)"] < 0.7


def ordered(bench: Bench) -> Program:
    """A program that asks the workers for batches made under an order, from the second epoch on."""
    for _ in range(25):
        yield Give("loader")
    generation = bench.issue({"mode": "uncollated"})
    while True:
        yield Give("loader", generation)


@pytest.mark.parametrize("is_persistent", [False, True])
def test_an_order_reaches_the_workers_of_every_later_epoch(is_persistent: bool) -> None:
    """Two looks at a batch and two epochs are more starts than are clocked: none of those that follow holds an order back,
    for which the loop would wait for ever."""
    engine = Engine(Options(), program=lambda bench, options: ordered(bench))
    loader = DataLoader(Numbers(40), batch_size=2, num_workers=2, persistent_workers=is_persistent)
    with installed(engine):
        for _look in range(2):
            next(iter(loader))
        for _epoch in range(4):
            assert len(numbers(loader)) == 40


def test_orders_reach_a_loader_that_kept_workers_from_before() -> None:
    """As in a notebook, where somebody looked at a batch first; no epoch ends early, and the loader is left as it was."""
    obeyed: list[bool] = []

    def program(bench: Bench) -> Program:
        generation = bench.issue({"mode": "uncollated"})
        while True:
            step = yield Give("loader", generation)
            obeyed.append(step.telemetry is not None and step.telemetry.generation == generation)

    loader = DataLoader(Numbers(40), batch_size=2, num_workers=2, persistent_workers=True)
    next(iter(loader))
    kept = loader._iterator
    engine = Engine(Options(), program=lambda bench, options: program(bench))
    with installed(engine):
        for _epoch in range(4):
            assert len(numbers(loader)) == 40
    assert any(obeyed)
    assert loader._iterator is kept
    assert numbers(loader) == list(range(40))


@pytest.mark.parametrize("make", engines())
def test_workers_that_outlive_epochs_do_not_outlive_their_loader(make: Make) -> None:
    """A loader that is made anew for every epoch, of other data, starts workers for each, whatever it is told to keep."""
    engine = make()
    with installed(engine):
        for first in (0, 1000):
            loader = DataLoader(Numbers(40, first), batch_size=2, num_workers=2, persistent_workers=True)
            assert numbers(loader) == list(range(first, first + 40))
    recording = engine.recording()
    assert [start.natural for start in recording.starts] == [True, True]
    assert [(loader.made, loader.keeps_workers) for loader in recording.loaders] == [(2, False)]


@pytest.mark.parametrize(("workers", "is_persistent"), [(0, False), (1, False), (1, True)])
@pytest.mark.parametrize("make", engines())
def test_a_loader_that_is_gone_leaves_nothing_behind(make: Make, workers: int, is_persistent: bool) -> None:
    """Neither its data set nor its workers, as where a script goes through one shard of its data after the other."""
    before = len(psutil.Process().children())
    engine = make()
    with installed(engine), torch.no_grad():
        for length in (10, 14, 18):
            dataset = Numbers(length)
            found = weakref.ref(dataset)
            loader = DataLoader(dataset, batch_size=2, num_workers=workers, persistent_workers=is_persistent)
            for _ in range(2):
                assert len(numbers(loader)) == length
            del loader, dataset
            gc.collect()
            assert found() is None
            assert len(psutil.Process().children()) == before
    assert [loader.made for loader in engine.loaders] == [3]


@pytest.mark.parametrize("make", engines())
def test_a_loop_that_met_a_bad_sample_leaves_nothing_behind(make: Make) -> None:
    """The error that it caught knows what the loop had, such as a model and a batch on the device."""

    def train() -> Any:
        model = torch.nn.Linear(2, 2)
        with pytest.raises(ValueError, match="cannot be read"):
            numbers(loader)
        return weakref.ref(model)

    loader = DataLoader(Numbers(20, bad=15), batch_size=2)
    with installed(make()):
        found = train()
        gc.collect()
        assert found() is None


class Rebatched(IterableDataset):
    """Single numbers out of the batches of a loader of its own."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in DataLoader(self.dataset, batch_size=4):
            yield from batch


class Summed(Dataset):
    """Sums of what a loader of its own gives."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return sum(batch.sum() for batch in DataLoader(Numbers(4, first=index), batch_size=2))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("make", engines())
def test_a_loader_that_a_data_set_iterates_is_the_data_sets_own(make: Make, workers: int) -> None:
    """It gives the data set its batches, and the loop goes on to get those of the loader around it."""
    engine = make()
    with installed(engine):
        assert numbers(DataLoader(Rebatched(Numbers(24)), batch_size=3, num_workers=workers)) == list(range(24))
        loader = DataLoader(Summed(), batch_size=3, num_workers=workers)
        for _ in range(2):
            assert numbers(loader) == [4 * index + 6 for index in range(12)]
    assert [found.name for found in engine.loaders] == ["DataLoader(Rebatched)", "DataLoader(Summed)"]


def trained(loader: Any) -> Iterator[float]:
    """A training loop that is a generator."""
    weight = torch.ones(200, 200, requires_grad=True)
    for _batch in loader:
        for _ in range(10):
            (weight @ weight).sum().backward()
        yield 1.0


def test_a_generator_that_trains_is_the_loop_and_not_an_iterator_around_the_loader() -> None:
    engine = Engine(Options(budget_s=6))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _loss in trained(DataLoader(Numbers(4000), batch_size=2, num_workers=1)):
                time.sleep(0.01)
    assert not any(line.in_iterator for line in engine.recording().body)


def test_a_generator_around_the_loader_is_told_from_a_loop_that_trains() -> None:
    """Gradients in the loop's own body say nothing of the generator that hands it its batches."""
    engine = Engine(Options(budget_s=60))
    weight = torch.ones(200, 200, requires_grad=True)
    with installed(engine), contextlib.suppress(errors.Finished):
        while not engine.recording().body:
            for _batch in itertools.islice(Augmented(DataLoader(Numbers(4000), batch_size=2, num_workers=1)), 200):
                for _ in range(10):
                    (weight @ weight).sum().backward()
    assert any(line.in_iterator for line in engine.recording().body)


def brief(bench: Bench) -> Program:
    """A program that has what it wants after some steps."""
    for _ in range(20):
        yield Give("loader")


def simulating(*, stop: bool) -> Engine:
    return Engine(Options(), stop=stop, simulate_step_ms=1.0, program=lambda bench, options: brief(bench))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_script_that_goes_on_after_a_simulation_gets_all_its_batches(persistent: bool) -> None:
    """Once the diagnosis is done the loop that it did not need runs on its own workers, from the first batch."""
    loader = DataLoader(Numbers(12), batch_size=2, num_workers=1, persistent_workers=persistent)
    engine = simulating(stop=False)
    before = psutil.Process().children()  # such as the server that others were forked from
    with installed(engine):
        assert numbers(loader) == list(range(12))
        assert engine.is_finished
        assert len(set(psutil.Process().children()) - set(before)) == persistent


def test_a_simulation_passes_over_a_loader_without_batches() -> None:
    """The script gets its empty epoch, and the next loader is the one that is simulated."""
    engine = simulating(stop=True)
    with installed(engine):
        assert numbers(DataLoader(Numbers(0), batch_size=2)) == []
        with pytest.raises(errors.Finished):
            numbers(DataLoader(Numbers(12), batch_size=2))
    assert engine.target is not None
    assert engine.target.facts.number == 1


def test_a_simulated_step_that_only_launches_work_drops_nothing() -> None:
    """Where no copy is waited for the launch returns at once, as if the loop had done nothing with the batch."""
    engine = simulating(stop=True)
    with installed(engine), pytest.raises(errors.Finished):
        numbers(DataLoader(Numbers(2000), batch_size=2, collate_fn=list))
    assert engine.steps_total < 40
    assert all(start.dropped == 0 for start in engine.recording().starts)


@pytest.mark.parametrize(("count", "chosen", "is_told"), [(2, None, True), (1, None, False), (2, "0", False)])
def test_which_of_several_loaders_is_simulated_is_said(count: int, chosen: str | None, is_told: bool) -> None:
    """The first that the script iterates may be that of its validation; one that was asked for needs no word."""
    engine = simulating(stop=True)
    engine.wanted_loader = chosen
    with installed(engine):
        loaders = [DataLoader(Numbers(12), batch_size=2) for _ in range(count)]
        with pytest.raises(errors.Finished):
            numbers(loaders[0])
    told = [note.sentence for note in engine.recording().notes if note.id == "first-loader"]
    assert len(told) == is_told
    assert all("DataLoader(Numbers)" in sentence and "--loader" in sentence for sentence in told)


@pytest.mark.parametrize("stop", [False, True])
def test_a_simulation_ends_with_a_loader_that_begins_only_once(stop: bool) -> None:
    """Of batches that are used up there is no second epoch to wait for."""
    batches = (torch.tensor([number]) for number in range(10))
    engine = simulating(stop=stop)
    if stop:
        with pytest.raises(errors.Finished):
            engine.iterate(batches, iter)
    else:
        assert list(engine.iterate(batches, iter)) == []
    engine.close()
