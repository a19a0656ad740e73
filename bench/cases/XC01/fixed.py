"""Classify furniture from laser scans."""

import os
import time

import numpy as np
import torch
from grouping_tree import Groups, Pose
from torch.utils.data import DataLoader, Dataset

POINTS = 560
CLASSES = 12


class Furniture(Dataset):
    def __init__(self, models=60, repeats=500):
        rng = np.random.default_rng(5)
        shapes = rng.uniform(0.2, 1.0, (models, 3))
        self.clouds = [self.surface(rng, shape) for shape in shapes]
        self.labels = [number % CLASSES for number in range(models)]
        self.repeats = repeats
        self.groups = Groups(seeds=48, size=24)
        self.pose = None

    @staticmethod
    def surface(rng, shape):
        points = rng.uniform(-1, 1, (4 * POINTS, 3))
        sides = rng.integers(0, 3, len(points))
        points[np.arange(len(points)), sides] = np.sign(points[np.arange(len(points)), sides])
        return (points * shape).astype(np.float32)

    def __len__(self):
        return len(self.clouds) * self.repeats

    def __getitem__(self, index):
        if self.pose is None:
            self.pose = Pose(np.random.default_rng(torch.initial_seed() % 2**32))
        number = index % len(self.clouds)
        cloud = self.clouds[number]
        points = cloud[torch.randint(len(cloud), (POINTS,)).numpy()]
        points = self.pose(points)
        local = self.groups(points)
        return torch.from_numpy(points), torch.from_numpy(local), self.labels[number]


class Meter:
    def __init__(self):
        self.count = 0
        self.start = None

    def tick(self):
        self.count += 1
        if self.count == 8:
            self.start = time.perf_counter()

    @property
    def rate(self):
        return (self.count - 8) / (time.perf_counter() - self.start)


def step(points, local, labels):
    time.sleep(0.03)


def main():
    limit = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(Furniture(), batch_size=8, shuffle=True, num_workers=2, drop_last=True)
    meter = Meter()
    while True:
        for points, local, labels in loader:
            step(points, local, labels)
            meter.tick()
            if meter.count == limit:
                return meter.rate


if __name__ == "__main__":
    print(f"steps_per_s {main():.3f}")
