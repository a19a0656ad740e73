"""Train a segmentation network on patches of uncompressed volumes that lie on the workstation's hard disk."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class HardDisk:
    """Volumes behind the system's page cache, which keeps the `cached` last used ones for all processes."""

    def __init__(self, root, volumes, cached=40, seek_s=0.080):
        self.root = Path(root)
        self.cached = cached
        self.seek_s = seek_s
        self.clock = torch.tensor(volumes).share_memory_()
        self.last_use = torch.arange(volumes).share_memory_()

    def read(self, number):
        if self.clock - self.last_use[number] > self.cached:
            time.sleep(self.seek_s)
        self.clock += 1
        self.last_use[number] = self.clock
        return np.load(self.root / f"case_{number:04d}.npy")


class PatchDataset(Dataset):
    def __init__(self, disk, volumes, patch=32, length=40_000):
        self.disk = disk
        self.volumes = volumes
        self.patch = patch
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        volume = self.disk.read(index % self.volumes)
        corner = np.random.default_rng(index).integers(0, volume.shape[-1] - self.patch, 3)
        block = tuple(slice(start, start + self.patch) for start in corner)
        patch = volume[(slice(None), *block)].astype(np.float32)
        image, mask = patch[0], patch[1] > 128
        return torch.from_numpy((image - image.mean()) / (image.std() + 1e-6))[None], torch.from_numpy(mask)


def preprocess(root, count=160, size=48):
    rng = np.random.default_rng(14)
    for number in range(count):
        np.save(Path(root, f"case_{number:04d}.npy"), rng.integers(0, 256, (2, size, size, size), dtype=np.uint8))
    return count


def train_step(images, masks):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, masks in loader:
            train_step(images, masks)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        volumes = preprocess(root)
        dataset = PatchDataset(HardDisk(root, volumes), volumes)
        loader = DataLoader(dataset, batch_size=2, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
