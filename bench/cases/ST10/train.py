"""Train a nowcasting network on crops of a chunked satellite archive."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

STORED = 200


class ChunkedArchive:
    """One file per chunk; the manifest lists time, tile and file of every chunk."""

    def __init__(self, root, chunks=30_000, tiles=16):
        self.root = Path(root)
        self.tiles = tiles
        self.times = chunks // tiles
        self.manifest = [
            (time_step, tile, f"{(time_step * tiles + tile) % STORED:05d}.npy")
            for time_step in range(self.times)
            for tile in range(tiles)
        ]

    def locate(self, time_step, tile):
        return next(file for when, where, file in self.manifest if when == time_step and where == tile)

    def crop(self, time_step, tile):
        return np.load(self.root / self.locate(time_step, tile))


class CropDataset(Dataset):
    def __init__(self, archive, length=80_000):
        self.archive = archive
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        crop = self.archive.crop(int(rng.integers(self.archive.times)), int(rng.integers(self.archive.tiles)))
        return torch.from_numpy(crop.astype(np.float32) / 1_023)


def write_chunks(root):
    rng = np.random.default_rng(59)
    for number in range(STORED):
        np.save(Path(root, f"{number:05d}.npy"), rng.integers(0, 1_024, (64, 64), dtype=np.uint16))


def train_step(crops):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for crops in loader:
            train_step(crops)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_chunks(root)
        loader = DataLoader(CropDataset(ChunkedArchive(root)), batch_size=96, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
