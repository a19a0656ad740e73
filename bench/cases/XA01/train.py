"""Tell garden birds apart on the photographs of a feeder camera."""

import itertools
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset

SPECIES = ("blackbird", "bullfinch", "robin", "siskin", "wren")


class RandomScaleCrop:
    """A square piece of a photograph, taken at a random scale."""

    def __init__(self, size, scale=(1.0, 1.5)):
        self.size = size
        self.scale = scale

    def __call__(self, photo):
        factor = random.uniform(*self.scale)
        width, height = round(photo.width * factor), round(photo.height * factor)
        photo = photo.resize((width, height), Image.Resampling.LANCZOS)
        left = random.randint(0, width - self.size)
        top = random.randint(0, height - self.size)
        return photo.crop((left, top, left + self.size, top + self.size))


def vary_colour(picture):
    picture = ImageEnhance.Color(picture).enhance(random.uniform(0.7, 1.3))
    return ImageEnhance.Brightness(picture).enhance(random.uniform(0.8, 1.2))


class FeederPhotos(Dataset):
    def __init__(self, root, size=256, visits=60_000):
        self.photos = sorted(Path(root).glob("*/*.jpg"))
        self.crop = RandomScaleCrop(size)
        self.visits = visits

    def __len__(self):
        return self.visits

    def __getitem__(self, visit):
        path = self.photos[visit % len(self.photos)]
        with Image.open(path) as file:
            photo = file.convert("RGB")
        picture = self.crop(photo)
        picture = vary_colour(picture)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return {"pixels": pixels, "species": SPECIES.index(path.parent.name)}


def collect_photos(root, per_species=5, size=(1600, 1200)):
    rng = np.random.default_rng(11)
    for species in SPECIES:
        folder = Path(root, species)
        folder.mkdir()
        for number in range(per_species):
            blobs = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
            Image.fromarray(blobs).resize(size, Image.Resampling.BILINEAR).save(
                folder / f"{number:04d}.jpg", quality=88
            )


def update(pixels, species):
    time.sleep(0.025)


def train(loader, last_step, first_step=8):
    step = 0
    for _epoch in itertools.count():
        for batch in loader:
            update(batch["pixels"], batch["species"])
            step += 1
            if step == first_step:
                began = time.perf_counter()
            if step == last_step:
                return (step - first_step) / (time.perf_counter() - began)


def main():
    last_step = int(os.environ.get("CASE_STEPS", "0"))
    with tempfile.TemporaryDirectory() as root:
        collect_photos(root)
        loader = DataLoader(FeederPhotos(root), batch_size=4, shuffle=True, num_workers=2, drop_last=True)
        print(f"steps_per_s {train(loader, last_step):.3f}")


if __name__ == "__main__":
    main()
