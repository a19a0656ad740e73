"""Keyword spotting on short far-field clips."""

import os
import tempfile
import time
import wave
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import augment_fixed as A
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SR = 16000
WORDS = ["yes", "no", "up", "down", "left", "right", "on", "off"]
MAX_STEPS = int(os.environ.get("CASE_STEPS", 0))


def make_corpus(root, per_word=60, seconds=2.0):
    rng = np.random.default_rng(0)
    t = np.arange(int(SR * seconds)) / SR
    for k, word in enumerate(WORDS):
        (root / word).mkdir()
        for i in range(per_word):
            x = np.sin(2 * np.pi * (180 + 60 * k + rng.normal(0, 8)) * t) * np.exp(-2 * (t - 0.8) ** 2)
            x = 0.5 * x + 0.02 * rng.standard_normal(len(t))
            with wave.open(str(root / word / f"{i:04d}.wav"), "wb") as w:
                w.setnchannels(1)
                w.setsampwidth(2)
                w.setframerate(SR)
                w.writeframes((x * 32000).clip(-32768, 32767).astype("<i2").tobytes())


def room_impulses(n=6, seconds=0.9):
    rng = np.random.default_rng(1)
    m = int(SR * seconds)
    return [
        (rng.standard_normal(m) * np.exp(-np.arange(m) / (SR * d))).astype(np.float32)
        for d in np.linspace(0.08, 0.3, n)
    ]


class SpeechCommands(Dataset):
    def __init__(self, root, transform):
        self.items = sorted(root.rglob("*.wav"))
        self.transform = transform
        self.rng = None

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        if self.rng is None:
            self.rng = np.random.default_rng(torch.initial_seed() % 2**32)
        path = self.items[i]
        with wave.open(str(path)) as w:
            wav = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2").astype(np.float32) / 32768
        feats = self.transform(wav, self.rng)
        return torch.from_numpy(feats), WORDS.index(path.parent.name)


def train_step(model, feats, labels):
    pooled = feats.mean(1)
    loss = torch.nn.functional.cross_entropy(model(pooled), labels)
    loss.backward()
    time.sleep(0.036)  # the real encoder runs on the accelerator
    return loss.detach()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        root = Path(d)
        make_corpus(root)
        tfm = A.Compose([A.TimeShift(), A.Gain(), A.Room(room_impulses()), A.PreEmphasis(), A.LogMel()])
        loader = DataLoader(
            SpeechCommands(root, tfm),
            batch_size=16,
            shuffle=True,
            num_workers=2,
            drop_last=True,
            persistent_workers=True,
            prefetch_factor=4,
        )
        model = torch.nn.Linear(40, len(WORDS))
        opt = torch.optim.SGD(model.parameters(), 1e-3)
        step, t0 = 0, None
        for epoch in range(2000):
            total = torch.zeros(())
            for feats, labels in loader:
                total += train_step(model, feats, labels)
                opt.step()
                opt.zero_grad()
                step += 1
                if step == 6:
                    t0 = time.perf_counter()
                if step == MAX_STEPS:
                    print(f"steps_per_s {(step - 6) / (time.perf_counter() - t0):.3f}")
                    return
            print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
