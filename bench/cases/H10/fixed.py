"""Train a graph network whose step depends on the graph."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __init__(self, graphs=300, length=200_000):
        rng = np.random.default_rng(79)
        self.sizes = rng.integers(200, 1_200, graphs)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        size = int(self.sizes[index % len(self.sizes)])
        rng = np.random.default_rng(index)
        return torch.from_numpy(rng.integers(0, size, (2, 4 * size))), torch.from_numpy(rng.random((size, 16)))


def join(graphs):
    edges = torch.cat([edges for edges, _ in graphs], dim=1)
    return edges, torch.cat([nodes for _, nodes in graphs])


def train_step(edges, nodes):
    time.sleep(0.015 + 4e-6 * len(nodes) + 0.005 * np.random.rand())


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for edges, nodes in loader:
            train_step(edges, nodes)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(Graphs(), batch_size=8, shuffle=True, num_workers=3, collate_fn=join)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
