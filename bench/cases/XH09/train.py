"""Node classification on a citation-like graph with three-hop neighbourhood sampling."""

import contextlib
import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Graph:
    def __init__(self, nodes=20_000, degree=12, seed=2):
        rng = np.random.default_rng(seed)
        ends = rng.integers(0, nodes, (nodes * degree // 2, 2))
        both = np.concatenate([ends, ends[:, ::-1]])
        both = both[np.argsort(both[:, 0], kind="stable")]
        self.start = np.searchsorted(both[:, 0], np.arange(nodes + 1))
        self.target = both[:, 1].copy()
        self.features = rng.normal(size=(nodes, 48)).astype(np.float32)
        self.label = rng.integers(0, 7, nodes)
        self.nodes = nodes

    def neighbours(self, node):
        return self.target[self.start[node] : self.start[node + 1]].tolist()


class Neighbourhoods(IterableDataset):
    def __init__(self, graph, fanout=(10, 5, 2), per_epoch=6400):
        self.graph, self.fanout, self.per_epoch = graph, fanout, per_epoch

    def expand(self, root):
        """Sampled ego graph of one node: local numbering and edge list."""
        local, edges = {root: 0}, []
        frontier = [root]
        for width in self.fanout:
            reached = []
            for node in frontier:
                around = self.graph.neighbours(node)
                for other in random.sample(around, min(width, len(around))):
                    if other not in local:
                        local[other] = len(local)
                        reached.append(other)
                    edges.append((local[other], local[node]))
            frontier = reached
        return list(local), edges

    def normalise(self, count, edges):
        degree = [1] * count
        for _, to in edges:
            degree[to] += 1
        return [1.0 / (degree[a] * degree[b]) ** 0.5 for a, b in edges]

    def __iter__(self):
        info = get_worker_info()
        share = info.num_workers if info else 1
        random.seed(torch.initial_seed() if info is None else info.seed)
        for _ in range(self.per_epoch // share):
            root = random.randrange(self.graph.nodes)
            nodes, edges = self.expand(root)
            weight = self.normalise(len(nodes), edges)
            yield nodes, edges, weight, int(self.graph.label[root])


def merge(samples):
    """Disjoint union of ego graphs; the features stay with the model and are looked up by node number."""
    nodes, edges, weights, roots, labels = [], [], [], [], []
    for own, edge, weight, label in samples:
        roots.append(len(nodes))
        edges.append(np.array(edge).T + len(nodes))
        nodes.extend(own)
        weights.extend(weight)
        labels.append(label)
    graph = np.concatenate([np.concatenate(edges, 1), np.array(weights)[None]]).astype(np.float32)
    return graph, {"node": np.array(nodes, np.int32), "root": roots, "y": labels}


class Runtime:
    """Hides device placement and step counting from the loop."""

    def __init__(self, device="cpu", max_steps=4000):
        self.device, self.step, self.began = torch.device(device), 0, None
        self.max_steps = int(os.environ.get("CASE_STEPS", max_steps))

    def prepare(self, loader):
        while self.step < self.max_steps:
            for batch in loader:
                graph, extra = batch
                yield torch.from_numpy(graph).to(self.device), extra
                if self.step >= self.max_steps:
                    return

    @contextlib.contextmanager
    def accumulate(self):
        yield
        self.step += 1
        if self.step == 8:
            self.began = time.perf_counter()

    def speed(self):
        return (self.step - 8) / (time.perf_counter() - self.began)


def train_step(features, graph, extra):
    x = torch.from_numpy(features[extra["node"]])
    time.sleep(0.058)
    return len(x)


if __name__ == "__main__":
    runtime = Runtime()
    graph = Graph()
    loader = DataLoader(
        Neighbourhoods(graph),
        batch_size=24,
        collate_fn=merge,
        num_workers=2,
        persistent_workers=True,
        prefetch_factor=3,
    )
    sizes = []
    for batch in runtime.prepare(loader):
        with runtime.accumulate():
            sizes.append(train_step(graph.features, *batch))
        if runtime.step % 100 == 0:
            print(f"step {runtime.step}: {np.mean(sizes[-100:]):.0f} nodes per batch")
    print(f"steps_per_s {runtime.speed():.3f}")
