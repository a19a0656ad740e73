"""Small data sets for tests with real workers; importable, so that spawned workers find them."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset


class Drawing(Dataset):
    """Samples that draw from all three random generators, so that any disturbance of them shows."""

    def __init__(self, length: int = 48) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        noise = torch.from_numpy(np.random.rand(3, 4))
        value = random.random() + index
        image = torch.rand(3, 4) + value
        return {"image": image * noise, "index": index, "name": f"sample {index}"}


class Masked(Drawing):
    """Writes in place into a view of what an earlier statement made."""

    def __getitem__(self, index: int):
        whole = torch.arange(64, dtype=torch.float32).reshape(8, 8) + index
        crop = whole[2:6, 2:6]
        crop[0] = 0
        return crop, index


class Slow(Dataset):
    """One statement waits, another computes."""

    def __init__(self, wait_s: float, length: int = 4000) -> None:
        self.wait_s = wait_s
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        time.sleep(self.wait_s)
        values = np.random.rand(16, 16)
        return torch.from_numpy(values), index


class Counting(IterableDataset):
    """A stream, split over the workers."""

    def __init__(self, length: int = 64) -> None:
        self.length = length

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.length, step):
            yield torch.full((2,), float(index)) + torch.rand(2)


class Trickle(IterableDataset):
    """An endless stream; one step of its loop waits."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def numbers(self):
        info = torch.utils.data.get_worker_info()
        yield from itertools.count(info.id if info else 0, info.num_workers if info else 1)

    def fetch(self, index: int):
        time.sleep(self.wait_s)
        return np.full((4, 4), index)

    def __iter__(self):
        for index in self.numbers():
            array = self.fetch(index)
            yield torch.from_numpy(array), index


@dataclass
class Pair:
    """A batch that is no container torch knows."""

    image: torch.Tensor
    names: list


def collate_pair(samples):
    return Pair(torch.stack([sample["image"] for sample in samples]), [sample["name"] for sample in samples])


def seed_worker(worker_id: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)
