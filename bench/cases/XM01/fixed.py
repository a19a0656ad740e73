"""Energy regression on small conformers with a message-passing network (PyTorch Geometric)."""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch_geometric.transforms as T
from torch import nn
from torch_geometric.data import Data, Dataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_add_pool
from torch_geometric.transforms import BaseTransform

MAX_STEPS = int(os.environ.get("CASE_STEPS", "0"))
SPECIES = np.array([1, 6, 7, 8, 9, 16])


def write_conformers(root, n=360):
    gen = np.random.default_rng(11)
    for i in range(n):
        atoms = int(gen.integers(22, 37))
        pos = np.cumsum(gen.normal(0, 0.9, (atoms, 3)), axis=0).astype(np.float32)
        z = gen.choice(SPECIES, atoms)
        np.savez(root / f"mol_{i:05d}.npz", pos=pos, z=z, energy=np.float32(-z.sum() * 0.3 + gen.normal()))


class AttachNeighbours(BaseTransform):
    """Connects atoms closer than ``cutoff`` and stores smeared distances on the bonds."""

    def __init__(self, cutoff=4.0, n_rbf=16):
        self.cutoff = cutoff
        self.centres = torch.linspace(0.0, cutoff, n_rbf)

    def forward(self, data):
        full = torch.cdist(data.pos, data.pos)
        near = (full < self.cutoff) & ~torch.eye(data.num_nodes, dtype=torch.bool)
        data.edge_index = near.nonzero().t().contiguous()
        dist = full[near]
        data.edge_attr = torch.exp(-2.0 * (dist[:, None] - self.centres) ** 2)
        return data


class Conformers(Dataset):
    def __init__(self, root, transform=None):
        self.files = sorted(Path(root).glob("mol_*.npz"))
        super().__init__(transform=transform)

    def len(self):
        return len(self.files)

    def get(self, idx):
        with np.load(self.files[idx]) as f:
            return Data(
                pos=torch.from_numpy(f["pos"]), z=torch.from_numpy(f["z"]).long(), y=torch.tensor([float(f["energy"])])
            )


class TinyNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.gate = nn.Linear(16, width)
        self.out = nn.Linear(width, 1)

    def forward(self, b):
        h = self.embed(b.z)
        msg = h[b.edge_index[0]] * self.gate(b.edge_attr)
        h = h + torch.zeros_like(h).index_add_(0, b.edge_index[1], msg)
        time.sleep(0.022)
        return global_add_pool(self.out(h), b.batch).squeeze(-1)


def optimise(net, opt, batch):
    loss = nn.functional.smooth_l1_loss(net(batch), batch.y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    time.sleep(0.023)
    opt.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=300)
    ap.add_argument("--batch-size", type=int, default=6)
    ap.add_argument("--cutoff", type=float, default=4.0)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as d:
        write_conformers(Path(d))
        prep = T.Compose([T.Center(), AttachNeighbours(args.cutoff)])
        train = DataLoader(Conformers(d, transform=prep), batch_size=args.batch_size, shuffle=True)
        net = TinyNet()
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        step, t0 = 0, None
        for epoch in range(args.epochs):
            total = 0.0
            for batch in train:
                total += optimise(net, opt, batch)
                step += 1
                if step == 5:
                    t0 = time.perf_counter()
                if MAX_STEPS and step >= MAX_STEPS:
                    print(f"steps_per_s {(step - 5) / (time.perf_counter() - t0):.3f}")
                    return
            print(f"epoch {epoch:3d}  loss {total / len(train):.4f}", flush=True)


if __name__ == "__main__":
    main()
