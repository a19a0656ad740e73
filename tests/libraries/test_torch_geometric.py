"""Data sets and loaders of PyTorch Geometric."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from looking import Case, look

pytest.importorskip("torch_geometric")
from torch_geometric import transforms as gt
from torch_geometric.data import Data, Dataset, InMemoryDataset
from torch_geometric.loader import DataLoader


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
