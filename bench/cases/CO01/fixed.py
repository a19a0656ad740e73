"""Train a multilayer perceptron on tabular data that is in memory."""

import os
import time

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def load_table(rows=600_000, columns=20):
    rng = np.random.default_rng(19)
    features = rng.standard_normal((rows, columns), dtype=np.float32)
    targets = rng.integers(0, 2, rows)
    return torch.from_numpy(features), torch.from_numpy(targets)


def train_step(features, targets):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for features, targets in loader:
            train_step(features, targets)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = TensorDataset(*load_table())
    sampler = BatchSampler(RandomSampler(dataset), batch_size=12_000, drop_last=False)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
