"""Train a text-line reader on line images of different widths."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class LineImages(Dataset):
    def __init__(self, lines=300, length=200_000):
        rng = np.random.default_rng(71)
        widths = rng.integers(60, 600, lines)
        self.lines = [rng.integers(0, 256, (32, width), dtype=np.uint8) for width in widths]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        line = self.lines[index % len(self.lines)].astype(np.float32)
        line = (line - line.mean()) / (line.std() + 1e-3)
        return torch.from_numpy(line)


def pad_lines(lines):
    width = max(line.shape[1] for line in lines)
    batch = torch.zeros(len(lines), 32, width)
    for row, line in zip(batch, lines, strict=True):
        row[:, : line.shape[1]] = line
    return batch, torch.tensor([line.shape[1] for line in lines])


def train_step(lines, widths):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for lines, widths in loader:
            train_step(lines, widths)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(LineImages(), batch_size=32, shuffle=True, num_workers=2, collate_fn=pad_lines)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
