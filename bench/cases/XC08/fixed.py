"""Recognise alarms and machines by their sound."""

import os
import time

import numpy as np
import torch
from sounds import RATE, band, envelope, hum, level, shift, spectrum
from torch.utils.data import DataLoader, Dataset


class Sounds(Dataset):
    def __init__(self, steps, count=40, length=36_000):
        rng = np.random.default_rng(9)
        times = np.arange(2 * RATE) / RATE
        self.waves = [
            (np.sin(2 * np.pi * pitch * times) + rng.normal(0, 0.3, len(times))).astype(np.float32)
            for pitch in rng.uniform(200, 3000, count)
        ]
        self.steps = steps
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        number = index % len(self.waves)
        wave = self.waves[number]
        for step in self.steps:
            wave = step(wave)
        return torch.from_numpy(wave), number % 10


def train(loader, limit):
    taken, start = 0, 0.0
    while True:
        for spectra, kinds in loader:
            time.sleep(0.04)
            taken += 1
            if taken == 8:
                start = time.perf_counter()
            elif taken == limit:
                return (limit - 8) / (time.perf_counter() - start)


def main():
    dataset = Sounds([shift, band, hum, level, envelope, spectrum])
    loader = DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    rate = train(loader, int(os.environ.get("CASE_STEPS", "4000")))
    print(f"steps_per_s {rate:.3f}")


if __name__ == "__main__":
    main()
