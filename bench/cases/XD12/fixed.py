"""Detect whale calls in hydrophone streams: sharded stream, shuffle buffer, audiomentations, validation in between."""

import os
import random
import time
from itertools import cycle, islice

import numpy as np
import torch
from audiomentations import AddGaussianNoise, Compose, Gain, PolarityInversion, Shift, TimeMask
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

RATE = 16_000


def augmenter():
    return Compose(
        [
            Gain(min_gain_db=-9, max_gain_db=6, p=0.7),
            AddGaussianNoise(min_amplitude=0.001, max_amplitude=0.02, p=0.8),
            Shift(min_shift=-0.3, max_shift=0.3, p=0.5),
            TimeMask(min_band_part=0.0, max_band_part=0.1, p=0.3),
            PolarityInversion(p=0.5),
        ]
    )


class Hydrophones(IterableDataset):
    def __init__(self, stations=8, minutes=4, buffer_size=48):
        self.stations = stations
        self.seconds = minutes * 60
        self.buffer_size = buffer_size
        self.augment = augmenter()

    def listen(self, station):
        """One second after another, with a call now and then."""
        rng = np.random.default_rng(station)
        moments = np.arange(RATE) / RATE
        for _second in range(self.seconds):
            sound = 0.1 * rng.standard_normal(RATE, dtype=np.float32)
            call = rng.random() < 0.3
            if call:
                sound += 0.3 * np.sin(2 * np.pi * (200 + 150 * moments) * moments).astype(np.float32)
            yield sound, int(call)

    def __iter__(self):
        worker = get_worker_info()
        stations = list(range(self.stations))
        if worker is not None:
            stations = stations[worker.id :: worker.num_workers]
        random.shuffle(stations)
        buffer = []
        for station in stations:
            for sound, call in self.listen(station):
                buffer.append((sound, call))
                if len(buffer) >= self.buffer_size:
                    yield self.prepare(*buffer.pop(random.randrange(len(buffer))))
        random.shuffle(buffer)
        for sound, call in buffer:
            yield self.prepare(sound, call)

    def prepare(self, sound, call):
        sound = torch.from_numpy(np.ascontiguousarray(self.augment(sound, sample_rate=RATE)))
        spectrum = torch.stft(sound, 512, 256, window=torch.hann_window(512), return_complex=True)
        return spectrum.abs().log1p(), call


def held_out(count=24):
    generator = torch.Generator().manual_seed(1)
    spectra = torch.rand(count, 257, 63, generator=generator)
    return TensorDataset(spectra, torch.randint(0, 2, (count,), generator=generator))


def validate(loader, tries=3):
    for _spectra, _calls in islice(loader, tries):
        time.sleep(0.025)


def main():
    limit = int(os.environ.get("CASE_STEPS", 4000))
    train_loader = DataLoader(
        Hydrophones(), batch_size=8, num_workers=2, prefetch_factor=4, drop_last=True, persistent_workers=True
    )
    valid_loader = DataLoader(held_out(), batch_size=8)
    rates = cycle(np.linspace(1e-4, 1e-3, 20))
    step = 0
    while step < limit:
        for spectra, calls in train_loader:
            rate = next(rates)
            time.sleep(0.06)
            step += 1
            if step % 25 == 0:
                validate(valid_loader)
            if step % 500 == 0:
                print(f"step {step} learning rate {rate:.5f}")
            if step == 8:
                begin = time.perf_counter()
            if step == limit:
                break
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - begin):.3f}")


if __name__ == "__main__":
    main()
