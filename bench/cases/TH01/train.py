"""Train a text detector on rectified crops."""

import os
import time

import imageops
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class RectifiedCrops(Dataset):
    """Crops, warped to the frame of the text line and smoothed."""

    def __init__(self, crops=60, size=160, length=400_000):
        rng = np.random.default_rng(52)
        self.crops = rng.integers(0, 256, (crops, size, size, 3)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        crop = self.crops[index % len(self.crops)]
        angle = np.random.default_rng(index).uniform(-0.2, 0.2)
        crop = imageops.rotate(crop, angle)
        crop = imageops.box_blur(crop, 3)
        return torch.from_numpy(crop.transpose(2, 0, 1).copy())


def train_step(images):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images in loader:
            train_step(images)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(RectifiedCrops(), batch_size=16, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
