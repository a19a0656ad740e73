"""Train on a small set of large photographs; decoded ones are kept in memory."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class PhotoDataset(Dataset):
    """Photographs, scaled down and cached by number."""

    def __init__(self, root, photos=400, size=64):
        self.files = sorted(Path(root).glob("*.jpg"))
        self.photos = photos
        self.size = size
        self.cache = {}
        for index in range(photos):
            self[index]

    def __len__(self):
        return self.photos

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = self.decode(self.files[index % len(self.files)])
        return torch.from_numpy(self.cache[index]).permute(2, 0, 1).float() / 255, index % 20

    def decode(self, path):
        with Image.open(path) as photo:
            return np.array(photo.convert("RGB").resize((self.size, self.size), Image.Resampling.BILINEAR))


def write_photos(root, count=25, size=720):
    rng = np.random.default_rng(15)
    for number in range(count):
        coarse = rng.integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((size, size)).save(Path(root, f"photo_{number:03d}.jpg"), quality=92)


def train_step(images, labels):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, labels in loader:
            train_step(images, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_photos(root)
        loader = DataLoader(PhotoDataset(root), batch_size=8, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
