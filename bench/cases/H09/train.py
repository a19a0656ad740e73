"""Train for many epochs on a small image set; workers stay alive."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


class Rotate:
    def __call__(self, image):
        return ndimage.rotate(image, np.random.uniform(-15, 15), reshape=False, order=1)


class Digits(Dataset):
    def __init__(self, transform, count=1_600):
        self.images = np.random.default_rng(78).random((count, 28, 28), dtype=np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return torch.from_numpy(self.transform(self.images[index])), index % 10


def train_step(images, labels):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    for epoch in range(1_000):
        for images, labels in loader:
            train_step(images, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step >= max_steps:
                break
        if step >= max_steps:
            elapsed = time.perf_counter() - started
            print(f"stopped in epoch {epoch}")
            return (step - warmup) / elapsed


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(Digits(Rotate()), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
