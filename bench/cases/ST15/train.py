"""Train on satellite tiles kept in one memory-mapped array that is larger than the memory the job may use."""

import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

TILE = (8, 64, 64)


class TileDataset(Dataset):
    def __init__(self, path, tiles, length=80_000):
        self.path = path
        self.tiles = np.memmap(path, dtype=np.uint16, mode="r", shape=(tiles, *TILE))
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        tile = self.tiles[(index * 5_003) % len(self.tiles)]
        return torch.from_numpy(np.array(tile, dtype=np.float32))


class PageBudget:
    """Stands for the job's memory limit: file pages do not stay."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)

    def enforce(self, dataset):
        dataset.tiles._mmap.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)


class LimitedTiles(TileDataset):
    """Drops the file's pages after each batch that is read."""

    def __init__(self, path, tiles):
        super().__init__(path, tiles)
        self.budget = PageBudget(path)

    def __getitems__(self, indices):
        samples = [self[index] for index in indices]
        self.budget.enforce(self)
        return samples


def write_tiles(path, tiles=1_600):
    rng = np.random.default_rng(18)
    with open(path, "wb") as file:
        for _ in range(tiles // 200):
            file.write(rng.integers(0, 4_096, (200, *TILE), dtype=np.uint16).tobytes())
        file.flush()
        os.fsync(file.fileno())
    return path


def train_step(tiles):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for tiles in loader:
            train_step(tiles)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        path = write_tiles(Path(root, "tiles.dat"))
        loader = DataLoader(LimitedTiles(path, 1_600), batch_size=96, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
