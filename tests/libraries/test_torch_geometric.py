"""Data sets and loaders of PyTorch Geometric."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from looking import Case, look

from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.program import Options

pytest.importorskip("torch_geometric")
from torch_geometric import transforms as gt
from torch_geometric.data import Data, Dataset, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.loader.base import DataLoaderIterator


class SlowSpread(gt.BaseTransform):
    def forward(self, data: Any) -> Any:
        weight = torch.rand(220, 220)
        for _ in range(8):
            weight = weight @ weight / 220
        return data


def _graph(number: int) -> Any:
    edges = torch.randint(0, 30, (2, 90), generator=torch.Generator().manual_seed(number))
    return Data(x=torch.rand(30, 4), edge_index=edges, pos=torch.rand(30, 3))


class InMemory(InMemoryDataset):
    def __init__(self, transform: Any) -> None:
        super().__init__(None, transform)
        self.data, self.slices = self.collate([_graph(number) for number in range(32)])


class Lazy(Dataset):
    def len(self) -> int:
        return 32

    def get(self, index: int) -> Any:
        return _graph(index)


def _steps() -> Any:
    return gt.Compose([gt.Center(), SlowSpread(), gt.NormalizeScale()])


CASES = [
    Case("torch_geometric", "InMemoryDataset", lambda _: DataLoader(InMemory(_steps()), 4), "SlowSpread"),
    Case("torch_geometric", "Dataset", lambda _: DataLoader(Lazy(None, _steps()), 4), "SlowSpread"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_transform_is_named(case: Case, tmp_path: Any) -> None:
    """The graph transform that takes the time is named by its class."""
    assert look(case.make(tmp_path)).guilty == case.guilty


class Doubling(DataLoader):
    """Works on batches in the loop's process, in the way of `NeighborLoader`."""

    def _get_iterator(self) -> Any:
        return DataLoaderIterator(super()._get_iterator(), lambda batch: [batch.num_graphs, batch])


@pytest.mark.live
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_works_on_batches_afterwards_gets_plain_ones(workers: int) -> None:
    """Our tags do not reach what a loader does to the batches that come from its workers."""
    engine = Engine(Options(only_baseline=True))
    with installed(engine):
        batches = list(Doubling(InMemory(_steps()), 4, num_workers=workers))
    assert [count for count, _ in batches] == [4] * 8
