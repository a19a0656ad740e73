"""Train on dense maps with a simulated accelerator that sits at the second socket of the host."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PROCESS_NODE = 0


class Accelerator:
    """A compute queue and a copy engine that reads staging buffers; the host may run two steps ahead."""

    def __init__(self, node=1, local_bytes_per_s=420e6, remote_bytes_per_s=140e6):
        self.node = node
        self.local_bytes_per_s = local_bytes_per_s
        self.remote_bytes_per_s = remote_bytes_per_s
        self.compute_free_at = 0.0
        self.copy_free_at = 0.0
        self.ends = []

    def copy(self, staging, tensor):
        staging.fill(tensor)
        bytes_per_s = self.local_bytes_per_s if staging.node == self.node else self.remote_bytes_per_s
        self.copy_free_at = max(time.perf_counter(), self.copy_free_at) + staging.used_bytes / bytes_per_s

    def launch(self, seconds):
        self.compute_free_at = max(time.perf_counter(), self.compute_free_at, self.copy_free_at) + seconds
        self.ends.append(self.compute_free_at)
        if len(self.ends) > 2:
            time.sleep(max(0.0, self.ends.pop(0) - time.perf_counter()))


class StagingBuffer:
    """Pinned memory on the node of the process that touches it first."""

    def __init__(self, elements, node):
        self.memory = torch.zeros(elements)
        self.node = node
        self.used_bytes = 0

    def fill(self, tensor):
        self.memory[: tensor.numel()].copy_(tensor.flatten())
        self.used_bytes = tensor.numel() * tensor.element_size()


class MapDataset(Dataset):
    def __init__(self, maps=48, size=448, length=80_000):
        self.maps = np.random.default_rng(44).standard_normal((maps, size, size)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.from_numpy(self.maps[index % len(self.maps)])


def train(device, loader, max_steps, warmup=8):
    staging = StagingBuffer(8 * 448 * 448, PROCESS_NODE)
    step = 0
    while True:
        for maps in loader:
            device.copy(staging, maps)
            device.launch(0.025)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(MapDataset(), batch_size=8, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Accelerator(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
