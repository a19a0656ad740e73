"""Self-supervised pre-training with a simulated accelerator; shows the share of time spent on data."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Accelerator:
    def __init__(self):
        self.free_at = 0.0

    def launch(self, seconds):
        self.free_at = max(time.perf_counter(), self.free_at) + seconds

    def copy(self, tensors):
        self.waited_s = max(0.0, self.free_at - time.perf_counter())
        time.sleep(self.waited_s + 0.002)
        return tensors


class ViewDataset(Dataset):
    def __init__(self, images=120, length=400_000):
        self.images = np.random.default_rng(41).integers(0, 256, (images, 3, 64, 64), dtype=np.uint8)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index % len(self.images)]).float() / 255
        return image, image.flip(-1)


def to_device(loader, device):
    for views in loader:
        yield device.copy(views)


def train(loader, device, max_steps, warmup=8):
    step, data_s = 0, 0.0
    while True:
        asked = time.perf_counter()
        for first, second in to_device(loader, device):
            data_s += time.perf_counter() - asked - device.waited_s
            device.launch(0.050)
            step += 1
            if step == warmup:
                started, data_s = time.perf_counter(), 0.0
            if step == max_steps:
                elapsed = time.perf_counter() - started
                print(f"data {data_s / elapsed:.0%} of {elapsed:.1f} s, {len(first)} + {len(second)} views")
                return (step - warmup) / elapsed
            asked = time.perf_counter()


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(ViewDataset(), batch_size=32, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, Accelerator(), max_steps):.3f}")


if __name__ == "__main__":
    main()
