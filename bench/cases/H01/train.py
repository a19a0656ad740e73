"""Train a classifier on thumbnails."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Thumbnails(Dataset):
    def __init__(self, root, transform, length=80_000):
        self.paths = sorted(Path(root).glob("*.jpg"))
        self.transform = transform
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = Image.open(self.paths[index % len(self.paths)]).convert("RGB")
        return self.transform(image), index % 10


def write_thumbnails(root, count=150):
    rng = np.random.default_rng(70)
    for number in range(count):
        coarse = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((160, 160), Image.BILINEAR).save(Path(root, f"{number:04d}.jpg"))


def train_step(images, labels):
    time.sleep(0.040)


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
    transform = transforms.Compose(
        [transforms.RandomCrop(128), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    with tempfile.TemporaryDirectory() as root:
        write_thumbnails(root)
        loader = DataLoader(Thumbnails(root, transform), batch_size=10, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
