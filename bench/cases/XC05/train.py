"""Patches from CT studies that lie in an object store, fetched in blocks of slices."""

import os
import time
from functools import lru_cache

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BLOCKS = 40
SLICES = 12
SIDE = 96


class Bucket:
    """Answers after the round trip that the store takes."""

    def __init__(self, seed, trip=0.014):
        rng = np.random.default_rng(seed)
        self.trip = trip
        self.objects = {
            f"study{number:02d}": rng.normal(0, 300, (SLICES, SIDE, SIDE)).astype(np.int16).tobytes()
            for number in range(BLOCKS)
        }

    def get(self, key):
        time.sleep(self.trip)
        return self.objects[key]


class Patches(Dataset):
    def __init__(self, bucket, length=48_000, edge=64, depth=4):
        self.bucket = bucket
        self.length = length
        self.edge = edge
        self.depth = depth
        self.block = lru_cache(maxsize=4)(self.load)

    def __len__(self):
        return self.length

    def load(self, number):
        body = self.bucket.get(f"study{number:02d}")
        return np.frombuffer(body, dtype=np.int16).reshape(SLICES, SIDE, SIDE)

    def patch(self, index):
        number, rest = index % BLOCKS, index // BLOCKS
        z = rest % (SLICES - self.depth + 1)
        y, x = divmod(rest * 2654435761 % (SIDE - self.edge) ** 2, SIDE - self.edge)
        piece = self.block(number)[z : z + self.depth, y : y + self.edge, x : x + self.edge]
        window = np.clip(piece, -160, 240).astype(np.float32)
        return torch.from_numpy((window + 160) / 400)[None], number % 2

    def __getitems__(self, indices):
        return [self.patch(index) for index in indices]

    def __getitem__(self, index):
        return self.patch(index)


class Run:
    def __init__(self, loader):
        self.loader = loader
        self.marks = []

    def until(self, limit):
        while True:
            for volumes, findings in self.loader:
                self.learn(volumes, findings)
                if len(self.marks) == limit:
                    return (limit - 8) / (self.marks[-1] - self.marks[7])

    def learn(self, volumes, findings):
        time.sleep(0.026)
        self.marks.append(time.perf_counter())


if __name__ == "__main__":
    loader = DataLoader(Patches(Bucket(seed=4)), batch_size=8, shuffle=True, num_workers=2, drop_last=True)
    rate = Run(loader).until(int(os.environ.get("CASE_STEPS", "4000")))
    print(f"steps_per_s {rate:.3f}")
