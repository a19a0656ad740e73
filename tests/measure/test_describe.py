"""Loaders as facts for the recording."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler

from unstarve.measure.describe import describe_loader


class Promising(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 10**9


class Silent(Dataset):
    def __getitem__(self, index: int) -> int:
        return index


class Failing(Silent):
    def __len__(self) -> int:
        raise RuntimeError("not opened yet")


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        (DataLoader(range(100), batch_size=8), 100),
        (DataLoader(range(100), batch_size=8, sampler=SubsetRandomSampler(range(10))), 100),
        (DataLoader(Promising(), batch_size=8), None),
        (DataLoader(Silent(), batch_sampler=[[0, 1]]), None),
        (DataLoader(Failing(), batch_sampler=[[0, 1]]), None),
        ([1, 2, 3], None),
    ],
    ids=["plain", "part of it", "drawn from", "without a length", "failing", "no loader"],
)
def test_the_length_of_the_data_set_is_noted_where_it_tells(loader, expected: int | None) -> None:
    """All of it, whatever an epoch takes; a data set that has none, or none yet, is described without."""
    assert describe_loader(loader, 0, None, "train.py:9").dataset_length == expected
