"""Train a texture classifier."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

CORES = sorted(os.sched_getaffinity(0))


class TextureDataset(Dataset):
    def __init__(self, textures=100, size=128, length=400_000):
        self.textures = np.random.default_rng(51).standard_normal((textures, size, size)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        texture = self.textures[index % len(self.textures)]
        bands = [ndimage.gaussian_filter(texture, sigma) for sigma in (1, 2, 4)]
        return torch.from_numpy(np.stack([texture, *bands])), index % 47


def bind(worker_id):
    """Keep a worker near its memory."""
    os.sched_setaffinity(0, CORES[:1])


def train_step(images, labels):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, labels in loader:
            train_step(images, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(TextureDataset(), batch_size=40, shuffle=True, num_workers=2, worker_init_fn=bind)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
