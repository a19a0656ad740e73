"""GraphSAGE node classification with sampled mini-batches."""

import os
import time

import torch
from graphops_fixed import NeighbourCollator, random_graph
from torch.utils.data import DataLoader

N, CLASSES, DIM = 40_000, 12, 32
BATCH, FANOUTS = 80, (10, 5)
EVAL_EVERY, EVAL_BATCHES = 40, 2


class Sage:
    def __init__(self):
        self.w = torch.randn(DIM * 2, CLASSES) * 0.1

    def forward(self, b):
        x = b["x"]
        for layer in reversed(b["layers"]):
            agg = torch.zeros_like(x).index_add_(0, layer[0], x[layer[1]])
            x = x + 0.1 * agg
        seeds = len(b["y"])
        return torch.cat([b["x"][:seeds], x[:seeds]], 1) @ self.w

    def fit_batch(self, b):
        loss = torch.nn.functional.cross_entropy(self.forward(b), b["y"])
        time.sleep(0.025)
        return loss.item()

    def evaluate(self, loader):
        right = total = 0
        for k, b in enumerate(loader):
            if k == EVAL_BATCHES:
                break
            right += (self.forward(b).argmax(1) == b["y"]).sum().item()
            total += len(b["y"])
        return right / total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    limit = int(os.environ.get("CASE_STEPS", 0))
    graph = random_graph(N, 12)
    feats, labels = torch.randn(N, DIM), torch.randint(0, CLASSES, (N,))
    collate = NeighbourCollator(graph, feats, labels, FANOUTS)
    order = torch.randperm(N).tolist()
    train_loader = DataLoader(order[:36_000], BATCH, shuffle=True, collate_fn=collate, drop_last=True)
    valid_loader = DataLoader(order[36_000:], BATCH, collate_fn=collate)
    model, it, t0 = Sage(), 0, 0.0
    for epoch in range(60):
        for batch in train_loader:
            loss = model.fit_batch(batch)
            it += 1
            if it == 5:
                t0 = time.perf_counter()
            if limit and it == limit:
                print("steps_per_s %.3f" % ((it - 5) / (time.perf_counter() - t0)))
                return
            if it % EVAL_EVERY == 0:
                print(f"{it:6d} loss {loss:.3f} valid {model.evaluate(valid_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
