"""Train on scanned pages from an archive with a warm and a cold tier."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PAGE = (96, 72)
COLD_SHARE = 1 / 120


class Archive:
    """Pages in two tiers, the older ones in the cold one."""

    def __init__(self, pages, seed=6):
        rng = np.random.default_rng(seed)
        self.cold = rng.random(pages) < COLD_SHARE
        self.stock = rng.integers(0, 255, (256, *PAGE), dtype=np.uint8)

    def page(self, number):
        time.sleep(0.9 if self.cold[number] else 0.0006)
        return self.stock[number % len(self.stock)]


class Pages(Dataset):
    def __init__(self, archive, count):
        self.archive = archive
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        page = self.archive.page(number)
        ink = 1 - page.astype(np.float32) / 255
        ink -= ink.mean()
        return torch.from_numpy(ink / ink.std()), number % 10


def train_step(pages, classes):
    time.sleep(0.030)


def train(loader, max_steps):
    step = 0
    started = time.perf_counter()
    for _epoch in range(10_000):
        for pages, classes in loader:
            train_step(pages, classes)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    max_steps = int(os.environ.get("CASE_STEPS", "-1"))
    count = 40_000
    loader = DataLoader(
        Pages(Archive(count), count),
        batch_size=8,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
    )
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
