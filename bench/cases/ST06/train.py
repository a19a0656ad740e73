"""Train on image files in a mounted cloud folder."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class CloudFolder:
    """A mounted folder whose server answers quickly until its quota throttles it for a while."""

    def __init__(self, root, quick_s=0.001, throttled_s=0.120, period=100, throttled=10):
        self.root = Path(root)
        self.quick_s = quick_s
        self.throttled_s = throttled_s
        self.period = period
        self.throttled = throttled
        self.opened = 0

    def read(self, name):
        self.opened += 1
        slow = self.opened % self.period < self.throttled
        time.sleep(self.throttled_s if slow else self.quick_s)
        return (self.root / name).read_bytes()


class PairDataset(Dataset):
    def __init__(self, folder, names, length=80_000):
        self.folder = folder
        self.names = names
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        data = self.folder.read(self.names[index % len(self.names)])
        pair = np.frombuffer(data, dtype=np.uint8).reshape(2, 64, 64).astype(np.float32) / 255
        return torch.from_numpy(pair[0]), torch.from_numpy(pair[1])


def write_pairs(root, count=300):
    rng = np.random.default_rng(58)
    for number in range(count):
        Path(root, f"{number:05d}.pair").write_bytes(rng.integers(0, 256, (2, 64, 64), dtype=np.uint8).tobytes())
    return sorted(path.name for path in Path(root).iterdir())


def train_step(inputs, targets):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for inputs, targets in loader:
            train_step(inputs, targets)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        names = write_pairs(root)
        loader = DataLoader(PairDataset(CloudFolder(root), names), batch_size=8, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
