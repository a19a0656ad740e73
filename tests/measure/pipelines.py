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


class Chain:
    """Transforms one after the other, as every library's `Compose` runs them."""

    def __init__(self, steps: list) -> None:
        self.steps = steps

    def __call__(self, value):
        for step in self.steps:
            value = step(value)
        return value


class Frames(Dataset):
    """Images of 3x64x64 bytes through a chain of transforms."""

    def __init__(self, *steps, length: int = 4000) -> None:
        self.transform = Chain(list(steps))
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        generator = torch.Generator().manual_seed(index)
        return self.transform(torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8, generator=generator)), index


class Crop:
    """A random square of the image."""

    def __init__(self, size: int = 16) -> None:
        self.size = size

    def __call__(self, image):
        top, left = (int(torch.randint(0, image.shape[axis] - self.size + 1, ())) for axis in (-2, -1))
        return image[..., top : top + self.size, left : left + self.size]


class MiddleCrop:
    """The middle of the image."""

    def __call__(self, image):
        return image[..., 16:48, 16:48]


class Brighten:
    """Works on every pixel alike; takes time by the number of pixels, without a core."""

    def __init__(self, s_per_pixel: float = 3e-6) -> None:
        self.s_per_pixel = s_per_pixel

    def __call__(self, image):
        time.sleep(self.s_per_pixel * image.shape[-2] * image.shape[-1])
        return image.float() + 1


class Mask:
    """Draws a number for every pixel, so that on fewer pixels it draws others; takes time by their number."""

    def __call__(self, image):
        time.sleep(3e-6 * image.shape[-2] * image.shape[-1])
        return image * torch.from_numpy(np.random.random(image.shape[-2:]) < 0.5)


class Blur:
    """The mean over each pixel's neighbours; takes time by the number of pixels."""

    def __call__(self, image):
        time.sleep(3e-6 * image.shape[-2] * image.shape[-1])
        return torch.nn.functional.avg_pool2d(image.float()[None], 3, stride=1, padding=1)[0]


class Rarely:
    """Does to a few samples what does not commute with a crop; takes time by the number of pixels."""

    def __init__(self, change, share: float = 0.1) -> None:
        self.change = change
        self.share = share

    def __call__(self, image):
        time.sleep(1e-6 * image.shape[-2] * image.shape[-1])
        return self.change(image) if torch.rand(1).item() > 1 - self.share else image


class Jitter:
    """Adds a number drawn from a generator of its own; takes time by the number of pixels."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(5)

    def __call__(self, image):
        time.sleep(3e-6 * image.shape[-2] * image.shape[-1])
        return image + self.random.randint(9)


class Unrepeatable:
    """Counts its calls, and adds their number; takes time by the number of pixels."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image):
        self.calls += 1
        time.sleep(3e-6 * image.shape[-2] * image.shape[-1])
        return image + self.calls
