"""Train from an image folder on a file server."""

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class FileServer:
    """Opens are served by a fixed number of server threads."""

    def __init__(self, root, threads=2, open_s=0.008):
        self.root = Path(root)
        self.slots = multiprocessing.Semaphore(threads)
        self.open_s = open_s

    def open_archive(self):
        with self.slots:
            time.sleep(self.open_s)
        return {path.name: path.read_bytes() for path in self.root.iterdir()}

    def read(self, name):
        self.members = getattr(self, "members", None) or self.open_archive()
        return self.members[name]


class FolderDataset(Dataset):
    def __init__(self, server, names, length=80_000):
        self.server = server
        self.names = names
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        data = self.server.read(self.names[index % len(self.names)])
        image = np.frombuffer(data, dtype=np.uint8).reshape(3, 64, 64)
        return torch.from_numpy(image.astype(np.float32) / 255), index % 1_000


def write_images(root, count=300):
    rng = np.random.default_rng(60)
    for number in range(count):
        Path(root, f"{number:05d}.raw").write_bytes(rng.integers(0, 256, (3, 64, 64), dtype=np.uint8).tobytes())
    return sorted(path.name for path in Path(root).iterdir())


def train_step(images, labels):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, labels in loader:
            train_step(images, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        names = write_images(root)
        loader = DataLoader(FolderDataset(FileServer(root), names), batch_size=16, shuffle=True, num_workers=6)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
