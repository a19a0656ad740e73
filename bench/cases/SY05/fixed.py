"""Train a small forecaster, with a progress line and a run log."""

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class SeriesDataset(Dataset):
    def __init__(self, length=400_000, window=96):
        self.series = np.cumsum(np.random.default_rng(32).standard_normal(20_000)).astype(np.float32)
        self.length = length
        self.window = window

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        start = index % (len(self.series) - self.window - 1)
        return torch.from_numpy(self.series[start : start + self.window]), self.series[start + self.window]


class RunLog:
    """Keeps the history of the last steps on disk, and a progress line."""

    def __init__(self, root, every=50, keep=400):
        self.history = Path(root, "history.json")
        self.console = Path(root, "console.txt")
        self.every = every
        self.keep = keep
        self.records = [self.record(0, 0.0) for _ in range(keep)]

    def record(self, step, loss):
        return {
            "step": step,
            "loss": loss,
            "rate": 1e-3,
            "norms": [round(loss / (layer + 1), 6) for layer in range(24)],
        }

    def on_step(self, step, loss):
        self.records = [*self.records[1 - self.keep :], self.record(step, loss)]
        if step % self.every:
            return
        losses = [record["loss"] for record in self.records]
        bar = "#" * (step % 40) + "." * (40 - step % 40)
        self.console.write_text(f"[{bar}] step {step} loss {np.mean(losses):.4f} ± {np.std(losses):.4f}\n")
        self.history.write_text(json.dumps(self.records, indent=1))


def train_step(windows, targets):
    time.sleep(0.015)
    return float(((windows[:, -1] - targets) ** 2).mean())


def train(loader, log, max_steps, warmup=8):
    step = 0
    while True:
        for windows, targets in loader:
            loss = train_step(windows, targets)
            log.on_step(step, loss)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(SeriesDataset(), batch_size=32, shuffle=True, num_workers=2)
    with tempfile.TemporaryDirectory() as root:
        print(f"steps_per_s {train(loader, RunLog(root), max_steps):.3f}")


if __name__ == "__main__":
    main()
