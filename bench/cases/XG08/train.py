"""Spectrogram regression from a pack file on a mounted share."""

import argparse
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BINS, FRAMES = 64, 96


def write_pack(folder, items):
    rng = np.random.default_rng(4)
    with open(folder / "clips.pack", "wb") as f:
        for _ in range(items):
            f.write(rng.standard_normal(BINS * FRAMES).astype(np.float16).tobytes())
    (folder / "clips.guard").touch()


class Pack:
    """Reads fixed-size records; a maintenance job may compact the file at night."""

    size = BINS * FRAMES * 2

    def __init__(self, folder, latency):
        self.folder = folder
        self.latency = latency
        self.file = None

    def open(self):
        self.file = open(self.folder / "clips.pack", "rb", buffering=0)
        self.guard = open(self.folder / "clips.guard", "r+")

    @contextmanager
    def stable(self):
        fcntl.flock(self.guard, fcntl.LOCK_EX)
        try:
            yield self.file
        finally:
            fcntl.flock(self.guard, fcntl.LOCK_UN)

    def __getitem__(self, n):
        if self.file is None:
            self.open()
        with self.stable() as f:
            f.seek(n * self.size)
            blob = f.read(self.size)
            time.sleep(self.latency)
        return np.frombuffer(blob, np.float16)

    def __len__(self):
        return os.path.getsize(self.folder / "clips.pack") // self.size


class Clips(Dataset):
    def __init__(self, pack):
        self.pack = pack
        self.total = len(pack)

    def __len__(self):
        return self.total

    def __getitem__(self, n):
        spec = self.pack[n].astype(np.float32).reshape(BINS, FRAMES)
        spec = (spec - spec.mean(1, keepdims=True)) / (spec.std(1, keepdims=True) + 1e-5)
        masked = spec.copy()
        start = np.random.randint(0, FRAMES - 16)
        masked[:, start : start + 16] = 0
        return torch.from_numpy(masked), torch.from_numpy(spec)


def optimise(masked, spec):
    time.sleep(0.025)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--items", type=int, default=640)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--num-workers", type=int, default=3)
    p.add_argument("--latency", type=float, default=0.006)
    args = p.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="share_"))
    try:
        write_pack(folder, args.items)
        loader = DataLoader(
            Clips(Pack(folder, args.latency)),
            args.batch_size,
            shuffle=True,
            num_workers=args.num_workers,
            persistent_workers=True,
        )
        limit = int(os.environ.get("CASE_STEPS", 4000))
        n, t0 = 0, None
        while n < limit:
            for masked, spec in loader:
                optimise(masked, spec)
                n += 1
                if n == 8:
                    t0 = time.perf_counter()
                if n >= limit:
                    break
        print(f"steps_per_s {(n - 8) / (time.perf_counter() - t0):.3f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
