"""Train on large dense fields with a simulated accelerator."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Accelerator:
    """A compute queue and a copy engine; the host may run two steps ahead."""

    def __init__(self, bytes_per_s=400e6):
        self.bytes_per_s = bytes_per_s
        self.compute_free_at = 0.0
        self.copy_free_at = 0.0
        self.ends = []

    def wait_until(self, moment):
        time.sleep(max(0.0, moment - time.perf_counter()))

    def copy(self, tensor, non_blocking=False):
        seconds = tensor.numel() * tensor.element_size() / self.bytes_per_s
        if not non_blocking:
            self.wait_until(self.compute_free_at)
            time.sleep(seconds)
            self.copy_free_at = time.perf_counter()
        else:
            self.copy_free_at = max(time.perf_counter(), self.copy_free_at) + seconds
        return tensor

    def launch(self, seconds):
        self.compute_free_at = max(time.perf_counter(), self.compute_free_at, self.copy_free_at) + seconds
        self.ends.append(self.compute_free_at)
        if len(self.ends) > 2:
            self.wait_until(self.ends.pop(0))


class FieldDataset(Dataset):
    def __init__(self, fields=64, size=512, length=80_000):
        self.fields = np.random.default_rng(38).standard_normal((fields, size, size)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.from_numpy(self.fields[index % len(self.fields)])


def train(device, loader, max_steps, warmup=8):
    step = 0
    while True:
        for fields in loader:
            fields = device.copy(fields)
            device.launch(0.030)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(FieldDataset(), batch_size=8, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Accelerator(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
