"""Train a speech synthesiser; spectrograms are made when a batch is put together."""

import functools
import os
import time

import numpy as np
import torch
from scipy import signal
from torch.utils.data import DataLoader, Dataset


class SpeechDataset(Dataset):
    def __init__(self, clips=120, seconds=1, rate=16_000, length=80_000):
        self.waves = np.random.default_rng(34).standard_normal((clips, rate * seconds)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.waves[index % len(self.waves)]


@functools.cache
def spectrum_of(data):
    _, _, spectrum = signal.stft(np.frombuffer(data, dtype=np.float32), nperseg=512, noverlap=256)
    return np.log1p(np.abs(spectrum)).astype(np.float32)


def collate_spectrograms(waves):
    spectra = np.stack([spectrum_of(wave.tobytes()) for wave in waves])
    return torch.from_numpy(spectra), torch.from_numpy(np.stack(waves))


def train_step(spectra, waves):
    time.sleep(0.060)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for spectra, waves in loader:
            train_step(spectra, waves)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(SpeechDataset(), batch_size=8, shuffle=True, num_workers=2, collate_fn=collate_spectrograms)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
