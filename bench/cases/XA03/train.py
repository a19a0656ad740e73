"""Recognise bird calls in field recordings."""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
import torch
from scipy.signal import resample_poly
from torch.utils.data import DataLoader, Dataset, RandomSampler

RATE = 16_000
RECORDED_RATE = 44_100
SECONDS = 6


class Recordings(Dataset):
    def __init__(self, files, classes=40):
        self.files = files
        self.classes = classes
        self.window = torch.hann_window(512)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        waveform, rate = soundfile.read(self.files[index], dtype="float32")
        if rate != RATE:
            waveform = to_rate(waveform, rate)
        waveform = random_gain(waveform[: RATE * SECONDS])
        return log_spectrogram(torch.from_numpy(waveform), self.window), index % self.classes


def to_rate(waveform, rate):
    divisor = np.gcd(rate, RATE)
    return resample_poly(waveform, RATE // divisor, rate // divisor).astype(np.float32)


def random_gain(waveform):
    decibels = float(torch.empty(()).uniform_(-6, 6))
    return waveform * np.float32(10 ** (decibels / 20))


def log_spectrogram(waveform, window):
    spectrum = torch.stft(waveform, 512, hop_length=320, window=window, return_complex=True)
    return torch.log(spectrum.abs() + 1e-5)


def record(folder, count=24):
    rng = np.random.default_rng(5)
    times = np.arange(RECORDED_RATE * SECONDS) / RECORDED_RATE
    files = []
    for number in range(count):
        call = np.sin(2 * np.pi * (1800 + 300 * np.sin(2 * np.pi * rng.uniform(2, 9) * times)) * times)
        waveform = (0.3 * call + 0.02 * rng.standard_normal(times.size)).astype(np.float32)
        path = Path(folder, f"{number:05d}.wav")
        soundfile.write(path, waveform, RECORDED_RATE)
        files.append(path)
    return files


def optimise(spectrograms, calls):
    time.sleep(0.022)


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        dataset = Recordings(record(folder))
        sampler = RandomSampler(dataset, replacement=True, num_samples=100_000)
        loader = DataLoader(dataset, arguments.batch, sampler=sampler, num_workers=arguments.workers)
        stamps = []
        while not arguments.steps or len(stamps) < arguments.steps:
            for spectrograms, calls in loader:
                optimise(spectrograms, calls)
                stamps.append(time.perf_counter())
                if len(stamps) == arguments.steps:
                    break
        print(f"steps_per_s {(len(stamps) - 8) / (stamps[-1] - stamps[7]):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=int(os.environ.get("CASE_STEPS", "0")))
    main(parser.parse_args())
