"""Train a graph network on many small molecules."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def make_molecule(rng):
    atoms = int(rng.integers(6, 20))
    bonds = 2 * atoms
    return {
        "x": torch.from_numpy(rng.standard_normal((atoms, 16)).astype(np.float32)),
        "edge_index": torch.from_numpy(rng.integers(0, atoms, (2, bonds))),
        "edge_attr": torch.from_numpy(rng.standard_normal((bonds, 4)).astype(np.float32)),
        "pos": torch.from_numpy(rng.standard_normal((atoms, 3)).astype(np.float32)),
        "y": torch.tensor([float(rng.standard_normal())]),
    }


class MoleculeDataset(Dataset):
    def __init__(self, molecules, length=2_000_000):
        self.molecules = molecules
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.molecules[index % len(self.molecules)]


def collate_graphs(graphs):
    """One big graph: node numbers are shifted, `batch` says which molecule a node belongs to."""
    offset = 0
    edges, owners = [], []
    for number, graph in enumerate(graphs):
        edges.append(graph["edge_index"] + offset)
        owners.append(torch.full((len(graph["x"]),), number))
        offset += len(graph["x"])
    batch = {key: torch.cat([graph[key] for graph in graphs]) for key in ("x", "edge_attr", "pos", "y")}
    return {**batch, "edge_index": torch.cat(edges, dim=1), "batch": torch.cat(owners)}


def train_step(batch):
    time.sleep(0.015)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    rng = np.random.default_rng(6)
    molecules = [make_molecule(rng) for _ in range(3_000)]
    dataset = MoleculeDataset(molecules)
    loader = DataLoader(dataset, batch_size=4096, shuffle=True, num_workers=2, collate_fn=collate_graphs)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
