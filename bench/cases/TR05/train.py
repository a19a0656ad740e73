"""Train a detector with mosaic-free augmentation."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class ColourShift:
    def __call__(self, image):
        image = ImageEnhance.Color(image).enhance(0.7 + 0.6 * np.random.rand())
        return ImageEnhance.Brightness(image).enhance(0.7 + 0.6 * np.random.rand())


class PhotoDataset(Dataset):
    def __init__(self, root, transform, length=80_000):
        self.paths = sorted(Path(root).glob("*.jpg"))
        self.transform = transform
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = Image.open(self.paths[index % len(self.paths)]).convert("RGB")
        return self.transform(image), torch.rand(5, 4)


def write_photos(root, count=60):
    rng = np.random.default_rng(35)
    for number in range(count):
        coarse = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((224, 224), Image.BILINEAR).save(Path(root, f"{number:04d}.jpg"), quality=85)


def train_step(images, boxes):
    time.sleep(0.060)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, boxes in loader:
            train_step(images, boxes)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    augment = transforms.Compose(
        [
            transforms.RandomAffine(10, translate=(0.1, 0.1)),
            ColourShift(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]
    )
    with tempfile.TemporaryDirectory() as root:
        write_photos(root)
        loader = DataLoader(PhotoDataset(root, augment), batch_size=4, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
