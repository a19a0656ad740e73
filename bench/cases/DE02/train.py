"""Train a text-recognition model on scanned pages."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import functional


class PageDataset(Dataset):
    def __init__(self, root, length=80_000, size=256):
        self.paths = sorted(Path(root).glob("*.png"))
        self.size = size
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        page = decode_image(str(self.paths[index % len(self.paths)]), ImageReadMode.GRAY)
        page = functional.resize(page, [self.size, self.size], antialias=True)
        return page.float() / 255, index % 30


def scan_pages(root, count=60, size=600):
    rng = np.random.default_rng(24)
    for number in range(count):
        lines = rng.integers(0, 2, (size // 10, size // 6), dtype=np.uint8) * 200
        page = np.kron(lines, np.ones((10, 6), dtype=np.uint8)) + rng.integers(0, 12, (size, size), dtype=np.uint8)
        Image.fromarray(page).save(Path(root, f"page_{number:03d}.png"))


def train_step(pages, targets):
    time.sleep(0.040)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for pages, targets in loader:
            train_step(pages, targets)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    torch.set_num_threads(1)
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        scan_pages(root)
        loader = DataLoader(PageDataset(root), batch_size=4, shuffle=True)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
