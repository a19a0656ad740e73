"""Train on short clips; a few are longer and take longer to filter."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, clips=150, length=200_000):
        rng = np.random.default_rng(82)
        frames = np.where(rng.random(clips) < 0.03, 48, 4)
        self.clips = [rng.random((count, 48, 48), dtype=np.float32) for count in frames]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        clip = ndimage.uniform_filter(self.clips[index % len(self.clips)], (1, 1, 1))
        return torch.from_numpy(clip[:4].copy())


def train_step(clips):
    time.sleep(0.040)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for clips in loader:
            train_step(clips)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(Clips(), batch_size=16, shuffle=True, num_workers=2, prefetch_factor=4)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
