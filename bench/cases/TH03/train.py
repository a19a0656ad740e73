"""Train a sampler of molecular conformations; features are built from pair distances."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ConformationDataset(Dataset):
    def __init__(self, conformations=200, atoms=192, length=400_000):
        self.positions = np.random.default_rng(50).standard_normal((conformations, atoms, 16)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        positions = torch.from_numpy(self.positions[index % len(self.positions)])
        gram = positions @ positions.T
        kernel = torch.exp(-(gram.diagonal()[:, None] + gram.diagonal() - 2 * gram))
        for _ in range(4):
            kernel = kernel @ kernel
            kernel = kernel / kernel.sum(1, keepdim=True)
        return kernel @ positions


def use_threads(worker_id):
    torch.set_num_threads(16)


def train_step(features):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for features in loader:
            train_step(features)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = ConformationDataset()
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, worker_init_fn=use_threads)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
