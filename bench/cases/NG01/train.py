"""Train an autoencoder on single-cell counts."""

import os
import time

import numpy as np
import torch
from scipy import sparse
from torch.utils.data import DataLoader, Dataset


class CellDataset(Dataset):
    def __init__(self, cells=1_000, genes=3_000, length=400_000):
        counts = sparse.random(cells, genes, density=0.05, format="csr", random_state=36, dtype=np.float32)
        self.counts = counts
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        row = self.counts[index % self.counts.shape[0]].toarray()[0]
        return torch.from_numpy(np.log1p(row))


def train_step(cells):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for cells in loader:
            train_step(cells)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(CellDataset(), batch_size=48, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
