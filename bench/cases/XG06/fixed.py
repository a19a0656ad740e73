"""Contrastive pre-training on small tiles."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate


@dataclass(frozen=True)
class Config:
    tiles: int = 320
    side: int = 96
    batch_size: int = 16
    workers: int = 2
    noise: float = 0.05
    max_steps: int = int(os.environ.get("CASE_STEPS", 4000))


class Tiles(Dataset):
    def __init__(self, cfg):
        rng = np.random.default_rng(0)
        self.tiles = rng.integers(0, 255, (cfg.tiles, 3, cfg.side, cfg.side), dtype=np.uint8)

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        tile = self.tiles[i]
        turns = int(np.random.randint(4))
        return np.ascontiguousarray(np.rot90(tile, turns, axes=(1, 2))), i


class TwoViews:
    """Two noisy, channel-normalised views of a uint8 batch."""

    def __init__(self, noise):
        self.noise = noise
        self.mean = np.array([0.48, 0.45, 0.40], np.float32).reshape(1, 3, 1, 1)
        self.rng = np.random.default_rng()

    def view(self, pixels):
        x = pixels.astype(np.float32) / 255 - self.mean
        x = x + self.rng.normal(0.0, self.noise, x.shape)
        return torch.from_numpy(x.astype(np.float32))

    def __call__(self, pixels):
        return self.view(pixels), self.view(pixels)


class CollateViews:
    def __init__(self, views):
        self.views = views

    def __call__(self, samples):
        pixels, index = default_collate(samples)
        a, b = self.views(pixels.numpy())
        return a, b, index


class BatchFeeder:
    """Iterates the loader and hands (view, view, index) to the trainer."""

    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        yield from self.loader


def update(a, b, index):
    time.sleep(0.028)
    return float(a[0, 0, 0, 0] - b[0, 0, 0, 0])


def main():
    cfg = Config()
    loader = DataLoader(
        Tiles(cfg),
        batch_size=cfg.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=CollateViews(TwoViews(cfg.noise)),
        num_workers=cfg.workers,
        persistent_workers=True,
    )
    feeder = BatchFeeder(loader)
    step, began, drift = 0, None, 0.0
    while step < cfg.max_steps:
        for a, b, index in feeder:
            drift += update(a, b, index)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step == cfg.max_steps:
                break
    print(f"drift {drift:.3f}")
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
