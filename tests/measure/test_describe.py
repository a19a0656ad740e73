"""Loaders as facts for the recording."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler

from unstarve.measure.describe import describe_function, describe_loader


class Promising(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 10**9


class Silent(Dataset):
    def __getitem__(self, index: int) -> int:
        return index


class Together(Silent):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


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


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        (DataLoader(Together(), batch_sampler=[[0, 1]]), True),
        (DataLoader(Subset(Together(), [0, 1]), batch_size=2), True),
        (DataLoader(Subset(Silent(), [0, 1]), batch_size=2), False),
        (DataLoader(Together(), batch_size=None, sampler=[0, 1]), False),
        (DataLoader(range(8), batch_size=2), False),
    ],
    ids=["own", "part of it", "part of single items", "no batches", "single items"],
)
def test_a_data_set_that_makes_batches_is_told_from_one_that_makes_samples(loader, expected: bool) -> None:
    """Every subset has `__getitems__`, which gives one item after the other unless the data set has one of its own."""
    assert describe_loader(loader, 0, None, "train.py:9").makes_batches is expected


def collate(samples: list) -> list:
    return samples


@pytest.mark.parametrize(("function", "name"), [(collate, "collate"), (sorted, "collate (sorted)")])
def test_what_collates_is_named_once(function, name: str) -> None:
    """A function that is called so is not told by its name in brackets behind the same word."""
    assert describe_function(function)[0] == name
