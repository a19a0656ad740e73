"""Train on heart recordings; what happens to a recording is a list of functions."""

import os
import time
from functools import partial

import numpy as np
import torch
from scipy import signal
from torch.utils.data import DataLoader, Dataset


def crop(wave, length, rng):
    start = rng.integers(0, len(wave) - length)
    return wave[start : start + length]


def add_noise(wave, level, rng):
    return wave + level * rng.standard_normal(len(wave), dtype=np.float32)


def remove_baseline(wave, width):
    padded = np.pad(wave, width // 2, mode="edge")
    return wave - np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)


class Recordings(Dataset):
    def __init__(self, steps, recordings=200, samples=6_000):
        noise = np.random.default_rng(103).standard_normal((recordings, samples))
        self.waves = np.cumsum(noise, axis=1).astype(np.float32)
        self.steps = steps

    def __len__(self):
        return 400_000

    def __getitem__(self, index):
        wave = self.waves[index % len(self.waves)]
        for step in self.steps:
            wave = step(wave)
        return wave, index % 5


def train_step(waves, labels):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for waves, labels in loader:
            train_step(waves, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    rng = np.random.default_rng()
    band = signal.butter(3, [0.5, 40], "bandpass", fs=250, output="sos")
    steps = [
        partial(crop, length=2_500, rng=rng),
        lambda wave: signal.sosfilt(band, wave).astype(np.float32),
        partial(remove_baseline, width=75),
        partial(add_noise, level=0.02, rng=rng),
        lambda wave: (wave - wave.mean()) / (wave.std() + 1e-6),
        lambda wave: torch.from_numpy(wave).unsqueeze(0),
    ]
    loader = DataLoader(Recordings(steps), batch_size=48, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
