"""Train a keyword spotter as one task of a batch job."""

import os
import time

import numpy as np
import torch
from scipy import signal
from torch.utils.data import DataLoader, Dataset


class KeywordDataset(Dataset):
    def __init__(self, clips=200, samples=16_000, length=400_000):
        self.clips = np.random.default_rng(54).standard_normal((clips, samples)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        clip = self.clips[index % len(self.clips)]
        _, _, spectrum = signal.stft(clip, nperseg=256, noverlap=192)
        return torch.from_numpy(np.log1p(np.abs(spectrum)).astype(np.float32)), index % 35


def enter_task(cpus_per_task=2):
    """Stay within the cores that the job grants to each task."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus_per_task])


def train_step(spectra, labels):
    time.sleep(0.030)


def train(loader, max_steps, warmup=16):
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
    enter_task()
    loader = DataLoader(KeywordDataset(), batch_size=80, shuffle=True, num_workers=4 * os.cpu_count())
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
