"""Segment organs in magnetic resonance volumes mapped from one file."""

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset

SHAPE = (80, 112, 112)
EDGE = 56

compose = lambda *functions: lambda value: [value := function(value) for function in functions][-1]  # noqa: E731


def cut(volume, edge):
    corner = [int(torch.randint(side - edge, ())) for side in volume.shape]
    return np.array(volume[tuple(slice(low, low + edge) for low in corner)], dtype=np.float32)


def mirror(piece, chance):
    axes = [axis for axis in range(3) if torch.rand(()) < chance]
    return np.flip(piece, axes) if axes else piece


def turn(piece):
    return np.rot90(piece, int(torch.randint(4, ())), axes=(1, 2))


def normal(piece, low, high):
    bottom, top = np.percentile(piece[::2, ::2, ::2], (low, high))
    return np.clip((piece - bottom) / (top - bottom + 1), 0, 1)


def gamma(piece, spread):
    return piece ** np.float32(np.exp(spread * (torch.rand(()).item() - 0.5)))


class Scanner(Dataset):
    def __init__(self, path, count, process, length):
        self.volumes = np.memmap(path, dtype=np.int16, mode="r", shape=(count, *SHAPE))
        self.process = process
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        piece = self.process(self.volumes[index % len(self.volumes)])
        return torch.from_numpy(np.ascontiguousarray(piece))[None], index % 3


def record(path, count, seed):
    rng = np.random.default_rng(seed)
    z, y, x = np.ogrid[-1 : 1 : SHAPE[0] * 1j, -1 : 1 : SHAPE[1] * 1j, -1 : 1 : SHAPE[2] * 1j]
    with open(path, "wb") as file:
        for radius in rng.uniform(0.4, 0.9, count):
            body = 600 * (z**2 + y**2 + x**2 < radius) + rng.normal(100, 40, SHAPE)
            file.write(body.astype(np.int16).tobytes())


def main(folder):
    process = compose(
        partial(cut, edge=EDGE),
        partial(mirror, chance=0.5),
        turn,
        partial(normal, low=1, high=99),
        partial(gamma, spread=0.6),
    )
    parts = []
    for seed, count in enumerate((6, 4)):
        record(folder / f"scanner{seed}.raw", count, seed)
        parts.append(Scanner(folder / f"scanner{seed}.raw", count, process, 15_000))
    loader = DataLoader(ConcatDataset(parts), batch_size=16, shuffle=True, num_workers=2, prefetch_factor=3)
    limit = int(os.environ.get("CASE_STEPS", "4000"))
    ends = []
    while len(ends) < limit:
        for volumes, organs in loader:
            time.sleep(0.046)
            ends.append(time.perf_counter())
            if len(ends) == limit:
                break
    return (limit - 8) / (ends[-1] - ends[7])


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    try:
        rate = main(folder)
    finally:
        shutil.rmtree(folder)
    print(f"steps_per_s {rate:.3f}")
