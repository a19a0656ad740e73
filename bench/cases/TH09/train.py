"""Train on structures whose annotations are kept as Python records in the parent."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def load_annotations(count=3_000_000):
    return [f"{number * 7919 % 100_003:07d}" for number in range(count)]


class NeighbourDataset(Dataset):
    def __init__(self, annotations, length=384, neighbours=1_250):
        self.annotations = annotations
        self.neighbours = neighbours
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        chosen = rng.integers(0, len(self.annotations), self.neighbours)
        values = np.fromiter((int(self.annotations[which]) for which in chosen), dtype=np.int64, count=len(chosen))
        return torch.from_numpy(np.bincount(values % 64, minlength=64))


def train_step(histograms):
    time.sleep(0.020)


def train(loader, max_steps):
    started = time.perf_counter()
    step = 0
    while True:
        for histograms in loader:
            train_step(histograms)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(NeighbourDataset(load_annotations()), batch_size=16, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
