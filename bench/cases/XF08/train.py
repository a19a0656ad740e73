"""Product photo classifier: JPEGs in LMDB, torchvision v2 augmentation, dataclass configuration."""

import atexit
import io
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field

import lmdb
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


@dataclass
class LoaderConfig:
    batch_size: int = 16
    num_workers: int = 0
    shuffle: bool = True
    drop_last: bool = True

    def build(self, data):
        keep = self.num_workers > 0
        return DataLoader(
            data,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            num_workers=self.num_workers,
            drop_last=self.drop_last,
            persistent_workers=keep,
        )


@dataclass
class Config:
    image_size: int = 96
    max_steps: int = 4000
    loader: LoaderConfig = field(default_factory=LoaderConfig)


def write_lmdb(path, count=160):
    rng = np.random.default_rng(4)
    env = lmdb.open(path, map_size=1 << 28)
    with env.begin(write=True) as txn:
        for i in range(count):
            small = rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)
            image = Image.fromarray(small).resize((176, 176), Image.BICUBIC)
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=90)
            txn.put(f"{i:08d}".encode(), buffer.getvalue())
    env.close()


class Photos(Dataset):
    def __init__(self, path, size, count=160, repeats=60):
        self.path, self.count, self.total, self.env = path, count, count * repeats, None
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(size, scale=(0.3, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.3, 0.3, 0.3),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.48, 0.45, 0.41], [0.23, 0.22, 0.22]),
            ]
        )

    def __len__(self):
        return self.total

    def fetch(self, key):
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.env.begin() as txn:
            return txn.get(key)

    def __getitem__(self, i):
        k = i % self.count
        image = Image.open(io.BytesIO(self.fetch(f"{k:08d}".encode()))).convert("RGB")
        return self.transform(image), k % 10


def train(config):
    limit = int(os.environ.get("CASE_STEPS", 0))
    root = tempfile.mkdtemp(prefix="photos_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    write_lmdb(os.path.join(root, "train.lmdb"))
    loader = config.loader.build(Photos(os.path.join(root, "train.lmdb"), config.image_size))
    stop, step, began = limit or config.max_steps, 0, None
    while step < stop:
        for images, labels in loader:
            time.sleep(0.040)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step % 250 == 0:
                print(f"[{step}/{stop}]", flush=True)
            if step >= stop:
                break
    if limit:
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    train(Config())
