"""Classify sleep stages from EEG epochs."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy import signal
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Config:
    channels: int = 6
    rate: int = 128
    seconds: int = 8
    batch_size: int = 24
    step_ms: float = 50.0
    steps: int = int(os.environ.get("CASE_STEPS", "1000000"))


class SleepEpochs(Dataset):
    """Epochs of one night at a time, cleaned and turned into features."""

    def __init__(self, config, nights=4, hours=2):
        rng = np.random.default_rng(31)
        self.size = config.rate * config.seconds
        self.nights = rng.normal(size=(nights, config.channels, hours * 3_600 * config.rate)).astype(np.float32)
        self.per_night = self.nights.shape[-1] // self.size
        self.rate = config.rate
        self.band = signal.butter(4, (0.5, 35), btype="bandpass", fs=config.rate, output="sos")
        self.notch = signal.iirnotch(50, 30, fs=config.rate)

    def __len__(self):
        return len(self.nights) * self.per_night

    def clean(self, epoch):
        epoch = signal.detrend(epoch, axis=-1)
        epoch = signal.lfilter(*self.notch, epoch, axis=-1)
        return signal.sosfiltfilt(self.band, epoch, axis=-1)

    def features(self, epoch):
        power = signal.welch(epoch, fs=self.rate, nperseg=128, noverlap=64)[1]
        envelope = np.abs(signal.hilbert(epoch, axis=-1))[:, :: self.rate // 8]
        slow = signal.resample_poly(epoch, 1, 4, axis=-1)
        return np.concatenate([np.log1p(power), envelope, slow], axis=-1)

    def __getitem__(self, index):
        night, place = divmod(index, self.per_night)
        epoch = self.nights[night, :, place * self.size : (place + 1) * self.size]
        values = self.features(self.clean(epoch))
        return torch.from_numpy(values.astype(np.float32)), index % 5


def train_step(config, features, stages):
    time.sleep(config.step_ms / 1_000)


def run(config):
    loader = DataLoader(SleepEpochs(config), batch_size=config.batch_size, shuffle=True, drop_last=True, num_workers=2)
    step, warm, since = 0, 4, None
    while True:
        for features, stages in loader:
            train_step(config, features, stages)
            step += 1
            if step == warm:
                since = time.monotonic()
            if step >= config.steps:
                return (step - warm) / (time.monotonic() - since)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"steps_per_s {run(Config()):.3f}")
