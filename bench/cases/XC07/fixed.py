"""Detect vehicles in road scans: every item is a whole batch of occupancy grids."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

CELLS = (128, 128, 80)
CHANNELS = 3


@dataclass
class Scan:
    points: np.ndarray
    power: np.ndarray
    boxes: torch.Tensor


def road(rng, number):
    count = int(rng.integers(1500, 2500))
    points = rng.uniform((0, 0, 0), (30, 24, 20), (count, 3)).astype(np.float32)
    return Scan(points, rng.random(count, dtype=np.float32), torch.from_numpy(rng.random((4, 7), dtype=np.float32)))


class Grids(Dataset):
    """Batches of scans in cells of half a metre, cut to the part that any of them reaches."""

    def __init__(self, scans, size, batches, cell=0.5):
        self.scans = scans
        self.size = size
        self.batches = batches
        self.cell = cell

    def __len__(self):
        return self.batches

    def fill(self, grid, scan):
        x, y, z = (scan.points / self.cell).astype(np.int64).T
        grid[0, x, y, z] = 1
        grid[1, x, y, z] = scan.power
        grid[2, x, y, z] = scan.points[:, 2]
        return x.max(), y.max(), z.max()

    def __getitem__(self, number):
        picks = torch.randint(len(self.scans), (self.size,)).tolist()
        grids = np.zeros((self.size, CHANNELS, *CELLS), dtype=np.float32)
        reach = [self.fill(grid, self.scans[pick]) for grid, pick in zip(grids, picks)]
        x, y, z = (int(top) + 1 for top in np.max(reach, axis=0))
        occupied = torch.from_numpy(grids)[:, :, :x, :y, :z].contiguous()
        return occupied, torch.stack([self.scans[pick].boxes for pick in picks])


class Detector:
    def __init__(self):
        self.steps = 0
        self.begin = None

    def learn(self, grids, boxes):
        time.sleep(0.026)
        self.steps += 1
        if self.steps == 8:
            self.begin = time.perf_counter()

    def rate(self):
        return (self.steps - 8) / (time.perf_counter() - self.begin)


def main():
    rng = np.random.default_rng(77)
    dataset = Grids([road(rng, number) for number in range(80)], size=8, batches=2000)
    loader = DataLoader(dataset, batch_size=None, shuffle=True, num_workers=2)
    detector = Detector()
    limit = int(os.environ.get("CASE_STEPS", "4000"))
    while detector.steps < limit:
        for grids, boxes in loader:
            detector.learn(grids, boxes)
            if detector.steps == limit:
                break
    print(f"steps_per_s {detector.rate():.3f}")


if __name__ == "__main__":
    main()
