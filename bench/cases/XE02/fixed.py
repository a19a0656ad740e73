"""Keyword recogniser on noisy speech: gain, background noise, log-mel features."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy.signal import resample_poly
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    rate: int = 16000
    noise_rate: int = 48000
    utterances: int = 120
    seconds: float = 2.0
    batch_size: int = 8
    epochs: int = 267
    device_time: float = 0.045


class RandomGain:
    def __init__(self, low=0.5, high=1.5):
        self.low, self.high = low, high

    def __call__(self, wave):
        return wave * np.float32(np.random.uniform(self.low, self.high))


class BackgroundNoise:
    def __init__(self, bank, cfg, snr=(5.0, 20.0)):
        factor = cfg.noise_rate // cfg.rate
        self.bank = [resample_poly(recording, 1, factor).astype(np.float32) for recording in bank]
        self.snr = snr

    def __call__(self, wave):
        noise = self.bank[np.random.randint(len(self.bank))]
        start = np.random.randint(len(noise) - len(wave))
        piece = noise[start : start + len(wave)]
        power = np.mean(wave**2) / (np.mean(piece**2) + 1e-9)
        scale = np.sqrt(power / 10 ** (np.random.uniform(*self.snr) / 10))
        return wave + piece * np.float32(scale)


class LogMel:
    def __init__(self, rate, bands=40, window=400, hop=160, size=512):
        self.window, self.hop, self.size = window, hop, size
        self.taper = np.hanning(window).astype(np.float32)
        mel = np.linspace(0, 2595 * np.log10(1 + rate / 1400), bands + 2)
        edges = 700 * (10 ** (mel / 2595) - 1)
        freqs = np.linspace(0, rate / 2, size // 2 + 1)[:, None]
        up = (freqs - edges[:-2]) / (edges[1:-1] - edges[:-2])
        down = (edges[2:] - freqs) / (edges[2:] - edges[1:-1])
        self.bank = np.maximum(0, np.minimum(up, down)).astype(np.float32)

    def __call__(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.window)[:: self.hop]
        power = np.abs(np.fft.rfft(frames * self.taper, self.size)) ** 2
        return np.log(power.astype(np.float32) @ self.bank + 1e-6)


class Keywords(Dataset):
    def __init__(self, waves, labels, transforms):
        self.waves, self.labels, self.transforms = waves, labels, transforms

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        x = self.waves[index]
        for transform in self.transforms:
            x = transform(x)
        return torch.from_numpy(x), self.labels[index]


def train(cfg):
    rng = np.random.default_rng(3)
    length = int(cfg.rate * cfg.seconds)
    t = np.arange(length, dtype=np.float32) / cfg.rate
    labels = rng.integers(0, 10, cfg.utterances).tolist()
    waves = [np.sin(2 * np.pi * (200 + 40 * y) * t).astype(np.float32) * 0.3 for y in labels]
    noises = [rng.standard_normal(cfg.noise_rate * 10, dtype=np.float32) for _ in range(6)]
    transforms = [RandomGain(), BackgroundNoise(noises, cfg), LogMel(cfg.rate)]
    loader = DataLoader(Keywords(waves, labels, transforms), batch_size=cfg.batch_size, shuffle=True)
    limit = int(os.environ.get("CASE_STEPS", "0"))
    done, since = 0, 0.0
    for epoch in range(cfg.epochs):
        for features, target in loader:
            time.sleep(cfg.device_time)
            done += 1
            if done == 8:
                since = time.perf_counter()
            if done == limit:
                return (done - 8) / (time.perf_counter() - since)
    return (done - 8) / (time.perf_counter() - since)


if __name__ == "__main__":
    print(f"steps_per_s {train(Config()):.3f}")
