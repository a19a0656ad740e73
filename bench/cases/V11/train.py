"""Train a depth network; it is validated after every short round of training."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


class DepthDataset(Dataset):
    def __init__(self, scenes, length, size=176, seed=107):
        self.depth = np.random.default_rng(seed).random((scenes, size, size), dtype=np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        depth = ndimage.gaussian_filter(self.depth[index % len(self.depth)], 3)
        return torch.from_numpy(np.gradient(depth)[0]), torch.from_numpy(depth)


class Meter:
    def __init__(self):
        self.seen, self.error = 0, 0.0

    def add(self, images, depths):
        self.seen += len(images)
        self.error += float((images[:, ::8, ::8] - depths[:, ::8, ::8]).abs().mean())


def forward(images):
    time.sleep(0.008)


def backward():
    time.sleep(0.017)


@torch.no_grad()
def validate(loader):
    meter = Meter()
    for images, depths in loader:
        forward(images)
        meter.add(images, depths)
    return meter.error / meter.seen


def rounds(loader, steps):
    """Yields batches for ever, and True where a round of `steps` ends."""
    step = 0
    while True:
        for images, _ in loader:
            step += 1
            yield images, step % steps == 0


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    train_loader = DataLoader(DepthDataset(200, 100_000), batch_size=12, shuffle=True, num_workers=2)
    valid_loader = DataLoader(DepthDataset(50, 600, seed=108), batch_size=30)
    started = time.perf_counter()
    for step, (images, ends_round) in enumerate(rounds(train_loader, steps=20), start=1):
        forward(images)
        backward()
        if ends_round:
            validate(valid_loader)
        if step == max_steps:
            break
    print(f"steps_per_s {max_steps / (time.perf_counter() - started):.3f}")


if __name__ == "__main__":
    main()
