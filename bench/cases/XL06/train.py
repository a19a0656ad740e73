"""Spoken-language identification with waveform augmentation on the fly."""

import argparse
import os
import tempfile
import time

import numpy as np
import soundfile as sf
import torch
from features import LogMel, add_noise, random_band, speed_perturb
from torch.utils.data import DataLoader, Dataset

SR = 16000


def synthesise(root, clips, seed=2):
    rng = np.random.default_rng(seed)
    t = np.arange(4 * SR) / SR
    names = []
    for i in range(clips):
        f0 = rng.uniform(90, 250)
        x = sum(np.sin(2 * np.pi * f0 * h * t + rng.uniform(0, 6)) / h for h in range(1, 6))
        x = 0.1 * x * (1 + 0.5 * np.sin(2 * np.pi * rng.uniform(2, 6) * t))
        names.append(os.path.join(root, f"{i:04d}.flac"))
        sf.write(names[-1], x, SR)
    return names


class Languages(Dataset):
    def __init__(self, files, seconds=3.0):
        self.files, self.length = files, int(seconds * SR)
        self.logmel = LogMel()

    def __len__(self):
        return len(self.files)

    def augment(self, wave, rng):
        wave = speed_perturb(wave, rng)
        wave = random_band(wave, rng)
        return add_noise(wave, rng)

    def __getitem__(self, i):
        rng = np.random.default_rng(int(torch.randint(2**31, ())))
        wave, _ = sf.read(self.files[i], dtype="float32")
        wave = self.augment(wave, rng)
        start = rng.integers(0, max(1, len(wave) - self.length))
        wave = np.resize(wave[start : start + self.length], self.length)
        mel = self.logmel(wave)
        return (mel - mel.mean()) / mel.std(), i % 7


def forever(loader):
    while True:
        yield from loader


def update(net, opt, mel, label, device_ms):
    time.sleep(device_ms / 1000)
    loss = torch.nn.functional.cross_entropy(net(mel.mean(2)), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--device-ms", type=float, default=58)
    ap.add_argument("--iterations", type=int, default=50_000)
    args = ap.parse_args()
    torch.set_num_threads(1)
    iterations = int(os.environ.get("CASE_STEPS", args.iterations))
    with tempfile.TemporaryDirectory() as root:
        files = synthesise(root, 120) * 20
        loader = DataLoader(
            Languages(files),
            args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
            prefetch_factor=4,
            drop_last=True,
        )
        batches = forever(loader)
        net = torch.nn.Linear(64, 7)
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        for it in range(1, iterations + 1):
            mel, label = next(batches)
            loss = update(net, opt, mel, label, args.device_ms)
            if it == 8:
                start = time.perf_counter()
            if it % 200 == 0:
                print(f"iter {it} loss {loss:.3f}", flush=True)
        rate = (iterations - 8) / (time.perf_counter() - start)
        del batches, loader
    print(f"steps_per_s {rate:.3f}")


if __name__ == "__main__":
    main()
