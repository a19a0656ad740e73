"""Predict a property of molecule-like graphs with PyTorch Geometric."""

import os
import time

import torch
from torch_geometric import transforms as T
from torch_geometric.data import Data, Dataset
from torch_geometric.loader import DataLoader
from torch_geometric.utils import coalesce, to_undirected
from tqdm import tqdm


class PerturbPositions(T.BaseTransform):
    def __init__(self, sigma=0.02):
        self.sigma = sigma

    def forward(self, data):
        data.pos = data.pos + self.sigma * torch.randn_like(data.pos)
        return data


def random_graph(generator, low=140, high=260):
    """A chain with some rings."""
    atoms = int(torch.randint(low, high, (1,), generator=generator))
    chain = torch.stack([torch.arange(atoms - 1), torch.arange(1, atoms)])
    rings = torch.randint(0, atoms, (2, atoms // 6), generator=generator)
    edges = coalesce(to_undirected(torch.cat([chain, rings], dim=1)), num_nodes=atoms)
    return Data(
        x=torch.randint(0, 28, (atoms, 1), generator=generator).float(),
        pos=torch.randn(atoms, 3, generator=generator).cumsum(0),
        edge_index=edges,
        y=torch.randn(1, generator=generator),
    )


class Molecules(Dataset):
    def __init__(self, graphs, transform=None):
        super().__init__(root=None, transform=transform)
        self.graphs = graphs

    def len(self):
        return len(self.graphs)

    def get(self, idx):
        return self.graphs[idx].clone()


def build(count=1600):
    generator = torch.Generator().manual_seed(21)
    return [random_graph(generator) for _ in range(count)]


def train_step(batch):
    features = torch.cat([batch.x, batch.encoding.abs(), batch.edge_length_sum], dim=1)
    time.sleep(0.03)
    return float(features.mean())


class EdgeLengthSum(T.BaseTransform):
    def forward(self, data):
        source, target = data.edge_index
        length = (data.pos[source] - data.pos[target]).norm(dim=1)
        total = torch.zeros(data.num_nodes).index_add_(0, target, length)
        data.edge_length_sum = total.unsqueeze(1)
        return data


def main():
    limit = int(os.environ.get("CASE_STEPS", 4000))
    graphs = build()
    position = T.AddLaplacianEigenvectorPE(k=8, attr_name="encoding", is_undirected=True)
    graphs = [position(graph) for graph in graphs]
    transform = T.Compose([PerturbPositions(), EdgeLengthSum()])
    loader = DataLoader(Molecules(graphs, transform), batch_size=24, shuffle=True, num_workers=2, drop_last=True)

    step, epoch, since = 0, 0, None
    while step < limit:
        bar = tqdm(loader, desc=f"epoch {epoch}", leave=False, mininterval=1.0)
        for batch in bar:
            loss = train_step(batch)
            step += 1
            if step % 20 == 0:
                bar.set_postfix(loss=f"{loss:.3f}")
            if step == 8:
                since = time.perf_counter()
            if step >= limit:
                break
        epoch += 1
    print(f"\nsteps_per_s {(step - 8) / (time.perf_counter() - since):.3f}")


if __name__ == "__main__":
    main()
