"""Keyword spotting: 2 s excerpts of longer recordings, log band energies, small classifier."""

import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import soundfile as sf
import torch
from scipy import signal
from torch.utils.data import DataLoader, Dataset

SR = 16000
EXCERPT = 2 * SR
N_FFT = 1024
HOP = 512
BANDS = np.unique(np.geomspace(4, N_FFT // 2, 60).astype(int))[:-1]
HANN = np.hanning(N_FFT).astype(np.float32)


def write_recordings(root, count=24, seconds=30):
    rng = np.random.default_rng(7)
    paths = []
    for i in range(count):
        t = np.arange(seconds * SR) / SR
        tone = 0.3 * np.sin(2 * np.pi * rng.uniform(120, 2000) * t)
        noise = 0.05 * rng.standard_normal(len(t))
        path = os.path.join(root, f"rec_{i:03d}.wav")
        sf.write(path, (tone + noise).astype(np.float32), SR, subtype="PCM_16")
        paths.append(path)
    return paths


TAPS = signal.remez(401, [0, 200, 400, 3200, 3400, SR / 2], [0, 1, 0], fs=SR)


def over_the_phone(wave):
    """The sound as a telephone line would carry it."""
    return signal.fftconvolve(wave, TAPS, mode="same")


def power_spectrum(wave):
    frames = np.lib.stride_tricks.sliding_window_view(wave, N_FFT)[::HOP]
    return np.abs(np.fft.rfft(frames * HANN, axis=-1)).astype(np.float32) ** 2


def log_bands(wave):
    power = power_spectrum(wave)
    return np.log(np.add.reduceat(power, BANDS, axis=1) + 1e-6)


class Excerpts(Dataset):
    def __init__(self, paths, per_file=400, seed=0):
        rng = np.random.default_rng(seed)
        self.entries = []
        for label, path in enumerate(paths):
            last = sf.info(path).frames - EXCERPT
            for start in rng.integers(0, last, per_file):
                self.entries.append((path, int(start), label % 10))

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        path, start, label = self.entries[index]
        wave, _ = sf.read(path, start=start, frames=EXCERPT, dtype="float32")
        wave = over_the_phone(wave * np.random.uniform(0.7, 1.0))
        feats = log_bands(wave)
        return torch.from_numpy(feats.astype(np.float32)), label


def train_step(feats, labels, state):
    time.sleep(0.025)
    state["seen"] += len(labels)


def main():
    limit = int(os.environ.get("CASE_STEPS", 0))
    root = tempfile.mkdtemp(prefix="kws_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    data = Excerpts(write_recordings(root))
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
    state, step, began = {"seen": 0}, 0, None
    total = limit or 4000
    while step < total:
        for feats, labels in loader:
            train_step(feats, labels, state)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step % 500 == 0:
                print(f"step {step} seen {state['seen']}", flush=True)
            if step >= total:
                break
    if limit:
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
