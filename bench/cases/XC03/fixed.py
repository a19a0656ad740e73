"""Mixup over two sources of pictures: each is blended with one of another class and the same source."""

import os
import random
import time

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

SIDE = 96


class Blobs(Dataset):
    def __init__(self, length, classes, seed):
        rng = np.random.default_rng(seed)
        self.pictures = rng.integers(0, 255, (40, 3, SIDE, SIDE), dtype=np.uint8)
        self.labels = rng.integers(0, classes, length).tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = self.pictures[(index * 7 + self.labels[index]) % len(self.pictures)]
        return torch.from_numpy(picture).float().div_(255), self.labels[index]


class Stripes(Blobs):
    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        picture[:, :: label + 2] = 0
        return picture.flip(2), label


class Mixup(Dataset):
    def __init__(self, part, alpha=0.4):
        self.part = part
        self.alpha = alpha
        whole = part.dataset
        border = whole.cumulative_sizes[0]
        tags = [(label, source) for source, single in enumerate(whole.datasets) for label in single.labels]
        self.labels = [tags[index][0] for index in part.indices]
        self.sources = [int(index >= border) for index in part.indices]

    def __len__(self):
        return len(self.part)

    def partner(self, index):
        label, source = self.labels[index], self.sources[index]
        while True:
            k = random.randrange(len(self.labels))
            if self.labels[k] != label and self.sources[k] == source:
                return k

    def __getitem__(self, index):
        weight = random.betavariate(self.alpha, self.alpha)
        first, label = self.part[index]
        second, other = self.part[self.partner(index)]
        return torch.lerp(second, first, weight), label, other, weight


def held_in(whole, share, seed):
    order = np.random.default_rng(seed).permutation(len(whole))
    return Subset(whole, order[: int(share * len(whole))].tolist())


def train(loader, steps):
    done, clock = 0, None
    while done < steps:
        for images, labels, others, weights in loader:
            time.sleep(0.022)
            done += 1
            clock = time.perf_counter() if done == 8 else clock
            if done >= steps:
                break
    return (done - 8) / (time.perf_counter() - clock)


if __name__ == "__main__":
    whole = ConcatDataset([Blobs(56_000, 20, seed=1), Stripes(40_000, 20, seed=2)])
    mixed = Mixup(held_in(whole, 0.85, seed=3))
    loader = DataLoader(mixed, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    print(f"steps_per_s {train(loader, int(os.environ.get('CASE_STEPS', 4000))):.3f}")
