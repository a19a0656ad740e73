"""Node classification with sampled neighbourhoods."""

import os
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from graph import citation_graph
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    fanouts: tuple = (15, 12, 10)
    batch_size: int = 32
    seeds: int = 6400
    epochs: int = 20
    warmup: int = 8
    device_seconds: float = 0.040


class SeedNodes(Dataset):
    def __init__(self, graph, count):
        self.nodes = torch.randperm(len(graph.labels))[:count].tolist()
        self.labels = graph.labels

    def __len__(self):
        return len(self.nodes)

    def __getitem__(self, index):
        node = self.nodes[index]
        return node, int(self.labels[node])


class BlockBuilder:
    """Turns seed nodes into one subgraph with relabelled edges."""

    def __init__(self, graph, fanouts):
        self.graph = graph
        self.fanouts = fanouts

    def __call__(self, samples):
        frontier = np.array([node for node, _ in samples])
        ends, begins = [frontier], [frontier]
        for fanout in self.fanouts:
            first = np.random.randint(self.graph.degree, size=(len(frontier), 1))
            columns = (first + np.arange(fanout)) % self.graph.degree
            begins.append(np.repeat(frontier, fanout))
            frontier = self.graph.table[begins[-1], columns.ravel()]
            ends.append(frontier)
        local = np.full(len(self.graph.table), -1)
        reached = np.concatenate(ends)
        local[reached] = 0
        found = np.flatnonzero(local == 0)
        local[found] = np.arange(len(found))
        src, dst = local[reached], local[np.concatenate(begins)]
        nodes = torch.from_numpy(found)
        edges = torch.from_numpy(np.stack([src, dst])[:, len(samples) :])
        seeds = torch.from_numpy(dst[: len(samples)])
        labels = torch.tensor([label for _, label in samples])
        return {"x": self.graph.features[nodes], "edges": edges, "seeds": seeds, "y": labels}


class Trainer:
    def __init__(self, options, loader):
        self.options = options
        self.loader = loader
        self.limit = int(os.environ.get("CASE_STEPS", 0))
        self.steps = 0
        self.t0 = None

    def train_step(self, block):
        edges_per_seed = block["edges"].shape[1] / len(block["seeds"])
        time.sleep(self.options.device_seconds)
        return edges_per_seed

    def fit(self):
        for _ in range(self.options.epochs):
            for block in self.loader:
                self.train_step(block)
                self.steps += 1
                if self.steps == self.options.warmup:
                    self.t0 = time.perf_counter()
                if self.steps == self.limit:
                    return

    def speed(self):
        return (self.steps - self.options.warmup) / (time.perf_counter() - self.t0)


def main():
    options = Options()
    torch.manual_seed(1)
    random.seed(1)
    graph = citation_graph()
    loader = DataLoader(
        SeedNodes(graph, options.seeds),
        batch_size=options.batch_size,
        shuffle=True,
        collate_fn=BlockBuilder(graph, options.fanouts),
    )
    trainer = Trainer(options, loader)
    trainer.fit()
    print(f"steps_per_s {trainer.speed():.3f}")


if __name__ == "__main__":
    main()
