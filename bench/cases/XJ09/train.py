"""Session-based recommender: user and item tables trained with sampled softmax, negatives rejected in the dataset."""

import argparse
import bisect
import itertools
import os
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


def make_histories(n_users, n_items, seed=0):
    rng = random.Random(seed)
    return [sorted({int(n_items * rng.random() ** 3) for _ in range(rng.randint(5, 60))}) for _ in range(n_users)]


class NextItem(Dataset):
    def __init__(self, histories, n_items, n_neg=48, max_len=20):
        self.histories, self.n_items, self.n_neg, self.max_len = histories, n_items, n_neg, max_len
        counts = [1] * n_items
        for h in histories:
            for j in h:
                counts[j] += 1
        self.cum = list(itertools.accumulate(c**0.75 for c in counts))

    def __len__(self):
        return len(self.histories)

    def draw_negatives(self, seen):
        out = []
        while len(out) < self.n_neg:
            j = bisect.bisect(self.cum, random.random() * self.cum[-1])
            if j not in seen:
                out.append(j)
        return out

    def __getitem__(self, user):
        items = self.histories[user]
        k = random.randrange(1, len(items)) if len(items) > 1 else 0
        prefix = items[:k][-self.max_len :]
        return user, prefix, items[k], self.draw_negatives(set(items))


def pad(rows):
    users, prefixes, pos, neg = zip(*rows)
    longest = max(1, max(map(len, prefixes)))
    hist = torch.tensor([p + [0] * (longest - len(p)) for p in prefixes])
    mask = torch.tensor([[1.0] * len(p) + [0.0] * (longest - len(p)) for p in prefixes])
    return torch.tensor(users), hist, mask, torch.tensor(pos), torch.tensor(neg)


class TwoTower(torch.nn.Module):
    def __init__(self, n_users, n_items, dim=64):
        super().__init__()
        self.users, self.items = torch.nn.Embedding(n_users, dim), torch.nn.Embedding(n_items, dim)

    def forward(self, users, hist, mask, pos, neg):
        q = self.users(users) + (self.items(hist) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        cand = self.items(torch.cat([pos[:, None], neg], 1))
        return torch.einsum("bd,bkd->bk", q, cand)


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)

    def step(self, batch):
        logits = self.model(*batch)
        loss = torch.nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=16_000)
    ap.add_argument("--items", type=int, default=60_000)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--epochs", type=int, default=100)
    args = ap.parse_args()
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 0))
    ds = NextItem(make_histories(args.users, args.items), args.items)
    loader = DataLoader(
        ds, args.batch_size, shuffle=True, num_workers=args.workers, collate_fn=pad, persistent_workers=True
    )
    trainer, i, t0 = Trainer(TwoTower(args.users, args.items)), 0, 0.0
    for epoch in range(args.epochs):
        for batch in loader:
            loss = trainer.step(batch)
            i += 1
            if i == 5:
                t0 = time.perf_counter()
            if limit and i >= limit:
                print(f"steps_per_s {(i - 5) / (time.perf_counter() - t0):.3f}")
                return
            if i % 20 == 0:
                print(f"epoch {epoch} step {i} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
