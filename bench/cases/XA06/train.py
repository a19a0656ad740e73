"""Segment nuclei on stained tissue."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from augment import augment
from PIL import Image
from torch.utils.data import DataLoader, Dataset, get_worker_info

SIDE = 224


class Tissue(Dataset):
    def __init__(self, folder, length=20_000):
        self.folder = Path(folder)
        self.names = sorted(path.stem for path in self.folder.glob("*.png"))
        self.length = length
        self.rng = None

    def __len__(self):
        return self.length

    def generator(self):
        if self.rng is None:
            worker = get_worker_info()
            self.rng = np.random.default_rng(worker.seed if worker else None)
        return self.rng

    def __getitem__(self, index):
        name = self.names[index % len(self.names)]
        image = np.asarray(Image.open(self.folder / f"{name}.png"), dtype=np.float32) / 255
        mask = np.load(self.folder / f"{name}.npy")
        image, mask = augment(image.transpose(2, 0, 1), mask, self.generator())
        return torch.from_numpy(np.ascontiguousarray(image)), torch.from_numpy(mask.astype(np.int64))


def prepare(folder, count=24):
    rng = np.random.default_rng(17)
    y, x = np.ogrid[:SIDE, :SIDE]
    for number in range(count):
        mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
        for cy, cx, radius in rng.integers((0, 0, 5), (SIDE, SIDE, 14), (25, 3)):
            mask[(y - cy) ** 2 + (x - cx) ** 2 < radius**2] = 1
        colours = np.array([[230, 190, 215], [90, 60, 140]], dtype=np.int16)[mask]
        picture = np.clip(colours + rng.integers(-9, 10, colours.shape), 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(Path(folder, f"tile{number:03d}.png"), compress_level=1)
        np.save(Path(folder, f"tile{number:03d}.npy"), mask)


class Trainer:
    def __init__(self, loader, steps):
        self.loader = loader
        self.steps = steps
        self.step = 0
        self.started = None

    def fit(self):
        while self.step != self.steps or not self.steps:
            self.run_epoch()
        return (self.step - 8) / (time.perf_counter() - self.started)

    def run_epoch(self):
        for images, masks in self.loader:
            self.training_step(images, masks)
            self.step += 1
            if self.step == 8:
                self.started = time.perf_counter()
            if self.step == self.steps:
                return

    def training_step(self, images, masks):
        time.sleep(0.028)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        loader = DataLoader(Tissue(folder), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
        rate = Trainer(loader, int(os.environ.get("CASE_STEPS", "0"))).fit()
        print(f"steps_per_s {rate:.3f}")
