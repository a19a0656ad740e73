"""Train with spawned worker processes."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, count=400, length=200_000):
        self.spectra = np.random.default_rng(74).random((count, 64, 64), dtype=np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        spectrum = self.spectra[index % len(self.spectra)]
        return torch.from_numpy(spectrum), index % 5


def train_step(spectra, labels):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for spectra, labels in loader:
            train_step(spectra, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(
        Spectra(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
