"""A synthetic citation graph."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Graph:
    table: np.ndarray
    lists: list
    features: torch.Tensor
    labels: torch.Tensor

    @property
    def degree(self):
        return self.table.shape[1]


def citation_graph(nodes=20000, degree=40, dim=16, classes=7, seed=5):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, nodes, (nodes, degree))
    features = torch.from_numpy(rng.standard_normal((nodes, dim), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, classes, nodes))
    return Graph(table, table.tolist(), features, labels)
