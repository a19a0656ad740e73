"""Train on files from a share that is fast enough."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Share:
    def __init__(self, root, round_trip_s=0.002):
        self.root = Path(root)
        self.round_trip_s = round_trip_s

    def read(self, name):
        time.sleep(self.round_trip_s)
        return (self.root / name).read_bytes()


class Volumes(Dataset):
    def __init__(self, share, names, length=200_000):
        self.share = share
        self.names = names
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        data = self.share.read(self.names[index % len(self.names)])
        volume = np.frombuffer(data, dtype=np.int16).reshape(16, 32, 32)
        return torch.from_numpy(volume.astype(np.float32) / 1_000)


def write_volumes(root, count=200):
    rng = np.random.default_rng(80)
    for number in range(count):
        Path(root, f"{number:04d}.vol").write_bytes(rng.integers(-1_000, 1_000, (16, 32, 32), dtype=np.int16).tobytes())
    return sorted(path.name for path in Path(root).iterdir())


def train_step(volumes):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for volumes in loader:
            train_step(volumes)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        names = write_volumes(root)
        loader = DataLoader(Volumes(Share(root), names), batch_size=8, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
