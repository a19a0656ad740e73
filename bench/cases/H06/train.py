"""Train a small network on vectors that are in memory."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Vectors(Dataset):
    def __init__(self, count=2_000, length=200_000):
        self.vectors = torch.from_numpy(np.random.default_rng(75).random((count, 64), dtype=np.float32))
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.vectors[index % len(self.vectors)], index % 3


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.batches = iter(loader)

    def next_batch(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)

    def step(self):
        vectors, labels = self.next_batch()
        time.sleep(0.030)
        return len(vectors) + len(labels)


def train(trainer, max_steps, warmup=8):
    for step in range(1, max_steps + 1):
        trainer.step()
        if step == warmup:
            started = time.perf_counter()
    return (max_steps - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    trainer = Trainer(DataLoader(Vectors(), batch_size=32, shuffle=True))
    print(f"steps_per_s {train(trainer, max_steps):.3f}")


if __name__ == "__main__":
    main()
