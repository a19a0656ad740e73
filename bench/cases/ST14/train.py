"""Train a crop-yield regressor on one array file of field histograms."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class YieldDataset(Dataset):
    def __init__(self, root, fields=1_500, length=80_000):
        self.path = Path(root, "histograms.npy")
        self.targets = np.load(Path(root, "yields.npy"))
        self.fields = fields
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        field = index % self.fields
        histograms = np.load(self.path)
        return torch.from_numpy(histograms[field].astype(np.float32)), self.targets[field]


def write_fields(root, fields=1_500):
    rng = np.random.default_rng(17)
    np.save(Path(root, "histograms.npy"), rng.integers(0, 255, (fields, 32, 32, 18), dtype=np.uint8))
    np.save(Path(root, "yields.npy"), rng.random(fields, dtype=np.float32))


def train_step(histograms, yields):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for histograms, yields in loader:
            train_step(histograms, yields)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_fields(root)
        loader = DataLoader(YieldDataset(root), batch_size=32, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
