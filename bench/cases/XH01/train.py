"""Spoken keyword classifier: one-second recordings to log-mel patches."""

import argparse
import atexit
import os
import pathlib
import shutil
import tempfile
import time

import numpy as np
import soundfile as sf
import torch
from torch.utils.data import DataLoader, Dataset

RATE, N_FFT, HOP, BANDS = 16000, 512, 160, 40


def record_corpus(folder, count):
    rng = np.random.default_rng(11)
    t = np.arange(RATE) / RATE
    entries = []
    for i in range(count):
        label = int(rng.integers(12))
        tone = 0.3 * np.sin(2 * np.pi * (180 + 70 * label) * t + rng.random())
        path = folder / f"utt{i:04d}.wav"
        sf.write(path, tone + 0.02 * rng.standard_normal(RATE), RATE, subtype="PCM_16")
        entries.append((path, label))
    return entries


def mel(hz):
    return 2595.0 * np.log10(1.0 + np.asarray(hz) / 700.0)


def filterbank(rate, n_fft, bands):
    grid = np.linspace(0.0, rate / 2, n_fft // 2 + 1).tolist()
    edges = 700.0 * (10.0 ** (np.linspace(mel(20.0), mel(rate / 2), bands + 2) / 2595.0) - 1.0)
    rows = []
    for low, centre, high in zip(edges.tolist(), edges[1:].tolist(), edges[2:].tolist()):
        rows.append([max(0.0, min((f - low) / (centre - low), (high - f) / (high - centre))) for f in grid])
    return torch.tensor(rows, dtype=torch.float32)


def to_bands(power):
    bank = filterbank(RATE, N_FFT, BANDS)
    return torch.log(bank @ power + 1e-6)


def log_mel(wave):
    spectrum = torch.stft(wave, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True)
    return to_bands(spectrum.abs().square())


def shift_and_gain(wave, rng):
    wave = np.roll(wave, int(rng.integers(-1600, 1600))) * rng.uniform(0.6, 1.4)
    return wave + rng.normal(0.0, 0.005, wave.shape)


def blank_stripes(patch, rng, times=2):
    for _ in range(times):
        f, t = int(rng.integers(0, BANDS - 6)), int(rng.integers(0, patch.shape[1] - 20))
        patch[f : f + 6] = patch.mean()
        patch[:, t : t + 20] = patch.mean()
    return patch


class Keywords(Dataset):
    def __init__(self, entries):
        self.entries = entries

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        path, label = self.entries[index]
        rng = np.random.default_rng()
        wave, _ = sf.read(path, dtype="float32")
        wave = shift_and_gain(wave, rng)
        patch = log_mel(torch.from_numpy(wave).float())
        return blank_stripes(patch, rng), label


def train(args):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="keywords"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    loader = DataLoader(
        Keywords(record_corpus(folder, args.clips)),
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=True,
        drop_last=True,
    )
    limit = int(os.environ.get("CASE_STEPS", 0))
    done, began, running = 0, None, 0.0
    while done < args.steps:
        for patches, labels in loader:
            time.sleep(args.step_ms / 1000)
            running = 0.98 * running + 0.02 * float(patches.mean())
            done += 1
            if done == 8:
                began = time.perf_counter()
            if done == limit or done >= args.steps:
                break
        if done == limit:
            break
    print(f"running mean {running:.4f}")
    print(f"steps_per_s {(done - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--clips", type=int, default=1600)
    cli.add_argument("--batch", type=int, default=16)
    cli.add_argument("--workers", type=int, default=2)
    cli.add_argument("--steps", type=int, default=4000)
    cli.add_argument("--step-ms", type=float, default=30)
    train(cli.parse_args())
