"""Neighbour sampling on a CSR graph."""

import numpy as np
import torch


def random_graph(n, mean_degree, seed=0):
    rng = np.random.default_rng(seed)
    deg = np.minimum(rng.poisson(mean_degree, n) + 1, 60)
    ptr = np.concatenate([[0], np.cumsum(deg)])
    dst = rng.integers(0, n, ptr[-1])
    return ptr, dst


def one_hop(ptr, dst, frontier, fanout, rng):
    src, nbr = [], []
    for v in frontier:
        row = dst[ptr[v] : ptr[v + 1]]
        if len(row) > fanout:
            row = row[rng.integers(0, len(row), fanout)]
        src.extend([v] * len(row))
        nbr.extend(row.tolist())
    return src, nbr


def to_local(seeds, edges):
    """Renumber the sampled subgraph; seeds come first."""
    nodes = list(dict.fromkeys(seeds))
    known = set(nodes)
    for _, nbr in edges:
        for v in nbr:
            if v not in known:
                known.add(v)
                nodes.append(v)
    local = {v: k for k, v in enumerate(nodes)}
    layers = [torch.tensor([[local[s] for s in src], [local[d] for d in nbr]]) for src, nbr in edges]
    return torch.tensor(nodes), layers


class NeighbourCollator:
    def __init__(self, graph, feats, labels, fanouts, seed=0):
        self.ptr, self.dst = graph
        self.feats, self.labels, self.fanouts = feats, labels, fanouts
        self.rng = np.random.default_rng(seed)

    def __call__(self, seeds):
        edges, frontier = [], seeds
        for f in self.fanouts:
            src, nbr = one_hop(self.ptr, self.dst, frontier, f, self.rng)
            edges.append((src, nbr))
            frontier = list(dict.fromkeys(nbr))
        nodes, layers = to_local(seeds, edges)
        return {"x": self.feats[nodes], "layers": layers, "y": self.labels[torch.tensor(seeds)]}
