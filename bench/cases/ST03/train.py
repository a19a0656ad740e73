"""Train on images from a bucket that is mounted with a local file cache."""

import io
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class CachedMount:
    """Files come from the bucket once, then from the local disk."""

    def __init__(self, bucket, cache, fetch_s=0.025):
        self.bucket = Path(bucket)
        self.cache = Path(cache)
        self.fetch_s = fetch_s

    def read(self, name):
        local = self.cache / name
        if not local.exists():
            time.sleep(self.fetch_s)
            local.write_bytes((self.bucket / f"{int(name) % 100:03d}.jpg").read_bytes())
        return local.read_bytes()


class BucketImages(Dataset):
    def __init__(self, mount, images=3_200):
        self.mount = mount
        self.images = images

    def __len__(self):
        return self.images

    def __getitem__(self, index):
        data = self.mount.read(f"{index:06d}")
        image = Image.open(io.BytesIO(data)).convert("RGB").resize((128, 128))
        return torch.from_numpy(np.asarray(image).copy()), index % 10


def fill_bucket(bucket, count=100):
    rng = np.random.default_rng(57)
    for number in range(count):
        coarse = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((400, 300)).save(Path(bucket, f"{number:03d}.jpg"), quality=85)


def train_step(images, labels):
    time.sleep(0.025)


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
    with tempfile.TemporaryDirectory() as bucket, tempfile.TemporaryDirectory() as cache:
        fill_bucket(bucket)
        loader = DataLoader(BucketImages(CachedMount(bucket, cache)), batch_size=8, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
