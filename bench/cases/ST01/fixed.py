"""Train an image classifier on raw crops that live on the team's file server."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class FileServer:
    """Access to the mounted project directory."""

    def __init__(self, root, round_trip_s=0.0):
        self.root = Path(root)
        self.round_trip_s = round_trip_s

    def read(self, name):
        time.sleep(self.round_trip_s)
        with open(self.root / name, "rb") as file:
            return file.read()


class CropDataset(Dataset):
    def __init__(self, server, names, size=96, length=40_000):
        self.server = server
        self.names = names
        self.size = size
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        name = self.names[index % len(self.names)]
        data = self.server.read(name)
        pixels = np.frombuffer(data, dtype=np.uint8).reshape(self.size, self.size, 3)
        image = pixels.astype(np.float32) / 255
        image = (image - image.mean((0, 1))) / (image.std((0, 1)) + 1e-6)
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), index % 10


def write_crops(root, count=300, size=96):
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Path(root, f"crop_{number:04d}.bin").write_bytes(pixels.tobytes())
    return sorted(path.name for path in Path(root).iterdir())


def train_step(images, labels):
    time.sleep(0.020)


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
        names = write_crops(root)
        dataset = CropDataset(FileServer(root), names)
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
