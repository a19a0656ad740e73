"""Train a pose network; loader processes are scaled up for the big machine."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

PROCESSES_PER_CORE = 10


class PoseDataset(Dataset):
    def __init__(self, images=80, size=128, length=4_800):
        self.images = np.random.default_rng(53).integers(0, 256, (images, size, size), dtype=np.uint8)
        self.length = length
        self.scratch = None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.scratch is None:
            self.scratch = np.zeros((64, 256, 256), dtype=np.float32)
        image = self.images[index % len(self.images)].astype(np.float32)
        for joint in range(2):
            row, column = (index * (joint + 3)) % 128, (index * (joint + 5)) % 128
            heat = np.zeros_like(image)
            heat[row, column] = 1.0
            self.scratch[(index + joint) % 64, :128, :128] = ndimage.gaussian_filter(heat, 6)
        maps = self.scratch[[(index + joint) % 64 for joint in range(2)], :128, :128]
        return torch.from_numpy(image), torch.from_numpy(maps)


def train_step(images, maps):
    time.sleep(0.030)


def train(loader, max_steps):
    started = time.perf_counter()
    step = 0
    while True:
        for images, maps in loader:
            train_step(images, maps)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    workers = PROCESSES_PER_CORE * len(os.sched_getaffinity(0))
    loader = DataLoader(PoseDataset(length=640), batch_size=16, shuffle=True, num_workers=workers)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
