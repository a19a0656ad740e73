"""Train a keyword spotter on five-second clips."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy import signal
from torch.utils.data import DataLoader, Dataset

SOURCE_RATE = 22_050
RATE = 16_000


def mel_filters(bands=80, bins=513):
    centres = np.linspace(0, bins - 1, bands + 2)
    grid = np.arange(bins)
    rising = (grid - centres[:-2, None]) / (centres[1:-1] - centres[:-2])[:, None]
    falling = (centres[2:, None] - grid) / (centres[2:] - centres[1:-1])[:, None]
    return np.clip(np.minimum(rising, falling), 0, None).astype(np.float32)


FILTERS = mel_filters()


def log_mel(wave):
    wave = signal.resample_poly(wave, RATE // 50, SOURCE_RATE // 50)
    _, _, spectrum = signal.stft(wave, fs=RATE, nperseg=1024, noverlap=1024 - 160)
    return np.log(FILTERS @ np.abs(spectrum) + 1e-5).astype(np.float32)


class ClipDataset(Dataset):
    def __init__(self, root, length=40_000):
        self.paths = sorted(Path(root).glob("*.npy"))
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        wave = np.load(self.paths[index % len(self.paths)])
        features = log_mel(wave)
        features -= features.mean()
        return torch.from_numpy(features), index % 35


def write_clips(root, count=60, seconds=5):
    rng = np.random.default_rng(2)
    for number in range(count):
        wave = rng.standard_normal(SOURCE_RATE * seconds).astype(np.float32)
        np.save(Path(root, f"clip_{number:04d}.npy"), wave)


def train_step(features, labels):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for features, labels in loader:
            train_step(features, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_clips(root)
        loader = DataLoader(ClipDataset(root), batch_size=3, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
