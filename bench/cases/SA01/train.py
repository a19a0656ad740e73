"""Train on a long-tailed set with class-balanced sampling."""

import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class BalancedSampler(Sampler):
    """Draws `draws` items without replacement, rare classes first in expectation."""

    def __init__(self, weights, draws):
        self.weights = weights
        self.draws = draws

    def __len__(self):
        return self.draws

    def __iter__(self):
        keys = [random.random() ** (1 / weight) for weight in self.weights]
        ranked = sorted(range(len(keys)), key=keys.__getitem__, reverse=True)
        return iter(ranked[: self.draws])


class FeatureDataset(Dataset):
    def __init__(self, items=1_000_000):
        self.bank = np.random.default_rng(21).standard_normal((2_000, 256)).astype(np.float32)
        self.items = items

    def __len__(self):
        return self.items

    def __getitem__(self, index):
        return torch.from_numpy(self.bank[index % len(self.bank)]), index % 100


def train_step(features, labels):
    time.sleep(0.020)


def train(loader, max_steps):
    started = time.perf_counter()
    step = 0
    while True:
        for features, labels in loader:
            train_step(features, labels)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = FeatureDataset()
    weights = [1.0 + index % 100 for index in range(len(dataset))]
    sampler = BalancedSampler(weights, draws=40 * 64)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
