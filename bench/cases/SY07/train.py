"""Train a fully convolutional network on images of random size, with kernel tuning on."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ScaledImages(Dataset):
    """Batches share a size, drawn per batch."""

    def __init__(self, images=60, low=64, high=160, length=80_000, bucket=1):
        self.images = np.random.default_rng(55).integers(0, 256, (images, 3, 160, 160), dtype=np.uint8)
        self.low = low
        self.high = high
        self.bucket = bucket
        self.length = length

    def __len__(self):
        return self.length

    def side(self, rng):
        return self.low + int(rng.integers(0, self.high - self.low)) // self.bucket * self.bucket

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        height, width = self.side(rng), self.side(rng)
        chosen = self.images[rng.integers(0, len(self.images), 4), :, :height, :width]
        return torch.from_numpy(chosen.astype(np.float32) / 255)


class Network:
    """Simulated device: the first call for a shape searches for the fastest kernels."""

    def __init__(self):
        self.plans = {}

    def tune(self, shape):
        time.sleep(0.060)
        return f"plan-{shape[-2]}x{shape[-1]}"

    def __call__(self, images):
        if images.shape not in self.plans:
            self.plans[images.shape] = self.tune(images.shape)
        time.sleep(0.015)


def train(network, loader, max_steps, warmup=12):
    step = 0
    while True:
        for images in loader:
            network(images)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(ScaledImages(), batch_size=None, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Network(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
