"""Sound event tagging: log-spectrogram clips, 40 tags, a smoothed validation-style score in the progress line."""

import os
import sys
import time
from collections import deque

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch.utils.data import DataLoader, Dataset

TAGS, RATE = 40, 16_000
LIMIT = int(os.environ.get("CASE_STEPS", "0"))


class Clips(Dataset):
    def __init__(self, count=1600, seconds=1.0, seed=2):
        rng = np.random.default_rng(seed)
        self.bank = rng.standard_normal((48, int(RATE * seconds)), dtype=np.float32)
        self.tags = (rng.random((count, TAGS)) < 0.12).astype(np.float32)
        self.window = torch.hann_window(512)

    def __len__(self):
        return len(self.tags)

    def __getitem__(self, i):
        wave = torch.from_numpy(self.bank[i % len(self.bank)]).roll(int(torch.randint(0, RATE, ())))
        spec = torch.stft(wave, 512, hop_length=256, window=self.window, return_complex=True).abs()
        spec = torch.log1p(spec.square()[:256].reshape(64, 4, -1).mean(1))
        if torch.rand(()) < 0.5:
            start = int(torch.randint(0, spec.shape[1] - 8, ()))
            spec[:, start : start + 8] = 0
        return spec, torch.from_numpy(self.tags[i])


class Progress:
    """Keeps recent outputs so that the line shows a score over more than one batch."""

    def __init__(self, keep=48):
        self.scores, self.targets = deque(maxlen=keep), deque(maxlen=keep)
        self.loss = 0.0

    def add(self, loss, scores, targets):
        self.loss = 0.97 * self.loss + 0.03 * loss
        self.scores.append(scores)
        self.targets.append(targets)
        targets, scores = np.concatenate(self.targets), np.concatenate(self.scores)
        seen = targets.any(0)
        self.map = average_precision_score(targets[:, seen], scores[:, seen], average="macro")

    def show(self, step):
        print(f"step {step} loss {self.loss:.3f} mAP {self.map:.3f}", file=sys.stderr, flush=True)


def forward_backward(specs, targets):
    time.sleep(0.030)
    scores = torch.sigmoid(specs.mean(2)[:, :TAGS] - 1 + 0.5 * targets)
    loss = torch.nn.functional.binary_cross_entropy(scores, targets)
    return float(loss), scores.numpy()


def main():
    torch.manual_seed(0)
    loader = DataLoader(Clips(), batch_size=16, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    progress = Progress()
    step, began = 0, None
    for epoch in range(40):
        for specs, targets in loader:
            loss, scores = forward_backward(specs, targets)
            step += 1
            progress.add(loss, scores, targets.numpy())
            if step % 50 == 0:
                progress.show(step)
            if step == 8:
                began = time.perf_counter()
            if LIMIT and step >= LIMIT:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                return


if __name__ == "__main__":
    main()
