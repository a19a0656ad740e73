"""Noise-robust speech recognition front-end; noise gets louder and clips longer as training goes on."""

import os
import tempfile
import time
import wave
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from scipy import signal
from torch.utils.data import DataLoader, Dataset, get_worker_info

RATE = 16000
STEPS = int(os.environ.get("CASE_STEPS", 0))


def save_wav(path, x, rate):
    with wave.open(str(path), "wb") as w:
        w.setparams((1, 2, rate, 0, "NONE", ""))
        w.writeframes((np.clip(x, -1, 1) * 32767).astype("<i2").tobytes())


def load_wav(path):
    with wave.open(str(path)) as w:
        return np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768, w.getframerate()


def prepare(root):
    rng = np.random.default_rng(0)
    (root / "speech").mkdir()
    (root / "noise").mkdir()
    for i in range(320):
        env = np.repeat(rng.random(16), RATE // 8).astype(np.float32)
        tone = np.sin(2 * np.pi * np.cumsum(np.repeat(rng.uniform(100, 400, 16), RATE // 8)) / RATE)
        save_wav(root / "speech" / f"u{i:04d}.wav", 0.7 * env * tone, RATE)
    for i in range(10):
        save_wav(root / "noise" / f"n{i:02d}.wav", 0.2 * rng.standard_normal(44100 * 24, dtype=np.float32), 44100)


def load_noise_bank(folder):
    bank = []
    for p in sorted(folder.glob("*.wav")):
        x, rate = load_wav(p)
        for speed in (0.9, 1.0, 1.1):
            f = Fraction(RATE / (rate * speed)).limit_denominator(500)
            y = signal.resample_poly(x.astype(np.float64), f.numerator, f.denominator)
            sos = signal.butter(6, [80, 7500], "bandpass", fs=RATE, output="sos")
            y = signal.sosfiltfilt(sos, y)
            bank.append((y / np.sqrt(np.mean(y**2))).astype(np.float32))
    return bank


class NoisySpeech(Dataset):
    def __init__(self, root):
        self.root = root
        self.files = sorted((root / "speech").glob("*.wav"))
        self.noise = None
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.snr_db = max(0.0, 20.0 - 2.0 * epoch)
        self.samples = min(2 * RATE, RATE + epoch * RATE // 8)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        x, _ = load_wav(self.files[i])
        x = x[: self.samples]
        n = self.noise[np.random.randint(len(self.noise))]
        k = np.random.randint(len(n) - len(x))
        rms = np.sqrt(np.mean(x**2)) + 1e-6
        x = x + n[k : k + len(x)] * rms * 10 ** (-self.snr_db / 20)
        frames = np.lib.stride_tricks.sliding_window_view(x, 512)[::320]
        return torch.from_numpy(np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32))


def init_worker(worker_id):
    ds = get_worker_info().dataset
    np.random.seed(torch.initial_seed() % 2**32)
    ds.noise = load_noise_bank(ds.root / "noise")


def learn(model, spec):
    loss = model(spec[:, ::4]).square().mean()
    loss.backward()
    time.sleep(0.040)
    return loss.detach()


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        prepare(Path(d))
        data = NoisySpeech(Path(d))
        model = torch.nn.Linear(257, 8)
        opt = torch.optim.SGD(model.parameters(), 1e-3)
        loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, worker_init_fn=init_worker, drop_last=True)
        done, began = 0, 0.0
        for epoch in range(400):
            data.set_epoch(epoch)
            mean = 0.0
            for spec in loader:
                mean += learn(model, spec) / len(loader)
                opt.step()
                opt.zero_grad()
                done += 1
                if done == 4:
                    began = time.perf_counter()
                if done == STEPS:
                    print(f"steps_per_s {(done - 4) / (time.perf_counter() - began):.3f}")
                    return
            print(f"epoch {epoch} snr {data.snr_db:.0f} dB loss {mean:.4f}", flush=True)


if __name__ == "__main__":
    main()
