"""BPR matrix factorisation on implicit feedback. Interactions are drawn with a weight that damps popular items."""

import argparse
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


def synth_log(n_users, n_items, n_events, seed=0):
    rng = np.random.default_rng(seed)
    users = rng.integers(0, n_users, n_events, dtype=np.int32)
    items = np.minimum((rng.pareto(1.1, n_events) * n_items / 200).astype(np.int32), n_items - 1)
    return users, items


class Interactions(Dataset):
    def __init__(self, users, items, n_items, n_neg):
        self.users, self.items, self.n_items, self.n_neg = users, items, n_items, n_neg

    def __len__(self):
        return len(self.users)

    def __getitem__(self, i):
        neg = torch.randint(0, self.n_items, (self.n_neg,))
        return int(self.users[i]), int(self.items[i]), neg


def bpr_collate(rows):
    u, i, n = zip(*rows)
    return {"user": torch.tensor(u), "pos": torch.tensor(i), "neg": torch.stack(n)}


class DampedPopularity(Sampler):
    """Batches of event indices, P(event) ~ count(item) ** -alpha."""

    def __init__(self, items, batch_size, steps, alpha=0.5, seed=0):
        counts = np.bincount(items)
        w = counts[items].astype(np.float64) ** -alpha
        self.p = w / w.sum()
        self.n, self.batch_size, self.steps = len(items), batch_size, steps
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            batch = self.rng.choice(self.n, size=self.batch_size, p=self.p)
            yield batch.tolist()


class MF:
    def __init__(self, n_users, n_items, dim=16):
        g = torch.Generator().manual_seed(0)
        self.u = torch.randn(n_users, dim, generator=g) * 0.1
        self.v = torch.randn(n_items, dim, generator=g) * 0.1

    def loss(self, b):
        u = self.u[b["user"]]
        diff = (u * self.v[b["pos"]]).sum(-1, keepdim=True) - (u[:, None] * self.v[b["neg"]]).sum(-1)
        return -torch.nn.functional.logsigmoid(diff).mean()

    def optimise(self, b):
        value = self.loss(b)
        time.sleep(0.022)  # backward and update on the accelerator
        return float(value)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--events", type=int, default=3_000_000)
    ap.add_argument("--users", type=int, default=50_000)
    ap.add_argument("--items", type=int, default=20_000)
    ap.add_argument("-b", "--batch-size", type=int, default=256)
    ap.add_argument("--negatives", type=int, default=8)
    ap.add_argument("--steps-per-epoch", type=int, default=400)
    ap.add_argument("--epochs", type=int, default=100)
    ap.add_argument("-j", "--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 0))

    users, items = synth_log(a.users, a.items, a.events)
    loader = DataLoader(
        Interactions(users, items, a.items, a.negatives),
        batch_sampler=DampedPopularity(items, a.batch_size, a.steps_per_epoch),
        num_workers=a.workers,
        collate_fn=bpr_collate,
    )
    model, done, t0 = MF(a.users, a.items), 0, 0.0
    for epoch in range(a.epochs):
        running = 0.0
        for k, batch in enumerate(loader, 1):
            running += model.optimise(batch)
            if k % 100 == 0:
                print(f"[{epoch}:{k}] bpr {running / k:.4f}", flush=True)
            done += 1
            if done == 10:
                t0 = time.perf_counter()
            if done == limit:
                print(f"steps_per_s {(done - 10) / (time.perf_counter() - t0):.3f}")
                return


if __name__ == "__main__":
    main()
