"""Fine-tune a place recogniser on street views."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

PLACES = 12


class StreetViews(Dataset):
    def __init__(self, root, transform, length=40_000):
        self.files = sorted(str(path) for path in Path(root).rglob("*.jpg"))
        self.transform = transform
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        index %= len(self.files)
        view = decode_image(read_file(self.files[index]), mode=ImageReadMode.RGB)
        return self.transform(view), index % PLACES


def augmentation(size=192):
    return v2.Compose(
        [
            v2.RandomCrop(size),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )


def download(root, count=30, size=(320, 240)):
    rng = np.random.default_rng(21)
    for number in range(count):
        facade = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(facade).resize(size, Image.Resampling.BILINEAR).save(
            Path(root, f"view{number:04d}.jpg"), quality=85
        )


class Accelerator:
    """Forward, backward and update, and the wait for them."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, views, places):
        time.sleep(self.seconds)
        return views.shape[0]


def train(loader, accelerator, last_step):
    step = trained = 0
    while True:
        for views, places in loader:
            trained += accelerator(views, places)
            step += 1
            if step == 8:
                start = time.perf_counter()
            if step == last_step:
                return (step - 8) / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    last_step = int(os.environ.get("CASE_STEPS", "0"))
    with tempfile.TemporaryDirectory() as root:
        download(root)
        dataset = StreetViews(root, augmentation())
        loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, prefetch_factor=4)
        print(f"steps_per_s {train(loader, Accelerator(0.060), last_step):.3f}")


if __name__ == "__main__":
    main()
