"""Loaders of torchdata: `StatefulDataLoader`, which has iterators and workers of its own, and `torchdata.nodes`."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from unstarve import errors
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.program import Options

pytest.importorskip("torchdata")
from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = pytest.mark.live


class Numbers(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2) + index


class Stream(IterableDataset):
    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Any:
        while self.position < 24:
            self.position += 1
            yield torch.tensor(self.position)
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Slow(Dataset):
    def __init__(self, length: int = 4000) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        value = torch.tensor([float(index)])
        time.sleep(0.002)
        return value


def seen(make: Callable[[], Any], epochs: int = 2) -> list[Any]:
    torch.manual_seed(3)  # the sampler draws when it is made
    loader = make()
    return [batch.tolist() for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Numbers, Stream])
def test_batches_are_those_of_the_untouched_loader(kind: Any, workers: int) -> None:
    """Watched from inside its own workers, a stateful loader gives the same batches."""

    def make() -> Any:
        return StatefulDataLoader(kind(), batch_size=4, shuffle=kind is Numbers, num_workers=workers)

    plain = seen(make)
    engine = Engine(Options(only_baseline=True))
    with installed(engine):
        assert seen(make) == plain
    assert sum(start.batches for start in engine.recording().starts) == len(plain)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [Numbers, Stream])
def test_a_state_is_saved_and_restored(kind: Any, workers: int) -> None:
    """`state_dict` in the middle of an epoch tells where the loop is, and a loader that loads it goes on from there."""
    whole = [batch.long().tolist() for batch in StatefulDataLoader(kind(), batch_size=4, num_workers=workers)]
    with installed(Engine(passive=True)):
        first = StatefulDataLoader(kind(), batch_size=4, num_workers=workers)
        batches = iter(first)
        got = [next(batches).long().tolist() for _ in range(2)]
        state = first.state_dict()
        second = StatefulDataLoader(kind(), batch_size=4, num_workers=workers)
        second.load_state_dict(state)
        got += [batch.long().tolist() for batch in second]
        assert got == whole
        assert [batch.long().tolist() for batch in second] == whole


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("is_watched", [(True, False), (False, True), (True, True)])
def test_a_state_goes_between_runs_that_are_watched_and_that_are_not(workers: int, is_watched: tuple) -> None:
    """What is saved in one is restored in the other: the rest of the epoch has the samples that were still to come."""

    def begin() -> Any:
        torch.manual_seed(6)
        return StatefulDataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=workers)

    def watching(is_wanted: bool) -> Any:
        return installed(Engine(passive=True)) if is_wanted else contextlib.nullcontext()

    whole = [batch[:, 0].long().tolist() for batch in begin()]
    with watching(is_watched[0]):
        first = begin()
        batches = iter(first)
        got = [next(batches)[:, 0].long().tolist() for _ in range(2)]
        state = first.state_dict()
        del batches
    torch.manual_seed(7)
    with watching(is_watched[1]):
        second = StatefulDataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=workers)
        second.load_state_dict(state)
        got += [batch[:, 0].long().tolist() for batch in second]
    assert got == whole


def test_its_stages_are_found() -> None:
    """The statements of the data set are timed in the loader's own workers."""
    engine = Engine(Options(budget_s=1.0))
    with pytest.raises(errors.Finished), installed(engine):
        for _ in range(9):
            for _ in StatefulDataLoader(Slow(), batch_size=2, num_workers=1):
                pass
    names = [stage.name for stage in engine.recording().stages]
    assert "time.sleep" in names
    assert {"none", "samples", "host"} <= {rung.id for rung in engine.recording().rungs}


def test_a_loader_defined_meanwhile_is_hooked() -> None:
    """A subclass with an `__iter__` of its own is iterated through the engine, and free again afterwards."""
    engine = Engine(passive=True)
    with installed(engine):

        class Own(DataLoader):
            def __iter__(self) -> Any:
                for batch in self.batch_sampler:
                    yield torch.stack([self.dataset[index] for index in batch])

        assert len(seen(lambda: Own(Numbers(), batch_size=6), epochs=1)) == 4
    assert [loader.name for loader in engine.recording().loaders] == ["Own(Numbers)"]
    assert not hasattr(Own.__iter__, "__wrapped__")
    assert "__init_subclass__" not in vars(DataLoader)


@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_asked_for_before_the_first_batch_changes_nothing(workers: int, is_persistent: bool) -> None:
    """Every epoch has the batches that it has without us."""

    def epochs() -> list[Any]:
        torch.manual_seed(4)
        loader = StatefulDataLoader(
            Numbers(), batch_size=4, shuffle=True, num_workers=workers,
            persistent_workers=is_persistent and workers > 0,
        )  # fmt: skip
        loader.state_dict()
        return [[batch.tolist() for batch in loader] for _ in range(3)]

    plain = epochs()
    engine = Engine(passive=True)
    with installed(engine):
        assert epochs() == plain
    assert len(plain[2]) == 6


@pytest.mark.parametrize("is_persistent", [False, True])
def test_workers_obey_orders_after_a_state_was_asked_for(is_persistent: bool) -> None:
    """Statements of the data set are timed in every one of them, and no epoch is cut short."""
    engine = Engine(Options(budget_s=4))
    counts = []
    with installed(engine), contextlib.suppress(errors.Finished):
        loader = StatefulDataLoader(Slow(400), batch_size=4, num_workers=1, persistent_workers=is_persistent)
        loader.state_dict()
        while True:
            counts.append(0)
            for _ in loader:
                counts[-1] += 1
                time.sleep(0.002)
    assert "time.sleep(0.002)" in {stage.text for stage in engine.recording().stages}
    assert len(counts) > 2
    assert set(counts[:-1]) == {100}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_nodes_are_clocked(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader of nodes is an iterable like another, whether torchdata is imported before the loop runs or by it."""
    for name in [name for name in sys.modules if name.startswith("torchdata.nodes")]:
        monkeypatch.delitem(sys.modules, name)
    engine = Engine(passive=True)
    nodes = importlib.import_module("torchdata.nodes") if when == "before" else None
    with installed(engine):
        nodes = nodes or importlib.import_module("torchdata.nodes")
        loader = nodes.Loader(nodes.Batcher(nodes.Mapper(nodes.IterableWrapper(range(12)), torch.tensor), 3))
        assert [len(batch) for _ in range(2) for batch in loader] == [3] * 8
    assert [(found.name, found.kind) for found in engine.recording().loaders] == [("Loader", "other")]
    assert not hasattr(nodes.Loader.__iter__, "__wrapped__")
