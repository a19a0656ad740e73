"""Train a regressor and validate from time to time."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset


class SensorDataset(Dataset):
    def __init__(self, windows=12_000, size=512):
        rng = np.random.default_rng(72)
        self.signal = rng.standard_normal(windows + size).astype(np.float32)
        self.windows = windows
        self.size = size

    def __len__(self):
        return self.windows

    def __getitem__(self, index):
        window = self.signal[index : index + self.size]
        spectrum = np.abs(np.fft.rfft(window * np.hanning(self.size)))
        return torch.from_numpy(spectrum.astype(np.float32)), window[-1]


def forward(spectra, targets):
    time.sleep(0.010)


def update(spectra, targets):
    time.sleep(0.030)


def validate(loader):
    for spectra, targets in loader:
        forward(spectra, targets)


def train(loader, validation_loader, max_steps, every=150, warmup=8):
    step = 0
    while True:
        for spectra, targets in loader:
            update(spectra, targets)
            step += 1
            if step % every == 0:
                validate(validation_loader)
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    data = SensorDataset()
    train_set, validation_set = Subset(data, range(11_500)), Subset(data, range(11_500, 12_000))
    loader = DataLoader(train_set, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    validation_loader = DataLoader(validation_set, batch_size=64, num_workers=1, persistent_workers=True)
    print(f"steps_per_s {train(loader, validation_loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
