"""Two-tower recommender on an interaction log, recent events drawn more often."""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

USERS, ITEMS, EVENTS = 20_000, 8_000, 1_500_000
NEGATIVES, HISTORY = 20, 12


class InteractionLog(Dataset):
    def __init__(self):
        rng = np.random.default_rng(17)
        self.user = rng.integers(0, USERS, EVENTS)
        self.item = (rng.pareto(1.1, EVENTS) * 40).astype(np.int64) % ITEMS
        self.day = np.sort(rng.uniform(0, 365, EVENTS)).astype(np.float32)
        order = np.argsort(self.user, kind="stable")
        self.by_user = np.split(order, np.searchsorted(self.user[order], np.arange(1, USERS)))

    def __len__(self):
        return EVENTS

    def negatives(self, seen):
        out = []
        while len(out) < NEGATIVES:
            for candidate in np.random.randint(0, ITEMS, NEGATIVES).tolist():
                if candidate not in seen and len(out) < NEGATIVES:
                    out.append(candidate)
        return out

    def __getitem__(self, event):
        user = int(self.user[event])
        items = self.item[self.by_user[user]].tolist()
        history = (items + [0] * HISTORY)[:HISTORY]
        return {
            "user": user,
            "history": torch.tensor(history),
            "positive": int(self.item[event]),
            "negative": torch.tensor(self.negatives(set(items))),
        }


class RecentFirst(Sampler):
    """Endless batches of event numbers with exponentially fading preference for old events."""

    def __init__(self, log, size, half_life=60.0):
        self.log, self.size, self.half_life = log, size, half_life
        self.rng = np.random.default_rng()

    def __len__(self):
        return 500

    def preference(self):
        age = self.log.day.max() - self.log.day
        p = np.exp2(-age.astype(np.float64) / self.half_life)
        return p / p.sum()

    def draw(self):
        return self.rng.choice(len(self.log), self.size, p=self.preference())

    def __iter__(self):
        for _ in range(len(self)):
            yield self.draw().tolist()


class TwoTower(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.users = nn.Embedding(USERS, width, sparse=True)
        self.items = nn.Embedding(ITEMS, width, sparse=True)

    def forward(self, batch):
        query = self.users(batch["user"]) + self.items(batch["history"]).mean(1)
        choices = torch.cat([batch["positive"][:, None], batch["negative"]], 1)
        return torch.einsum("bd,bnd->bn", query, self.items(choices))


def main(batch_size=16, epochs=8):
    torch.set_num_threads(1)
    log = InteractionLog()
    loader = DataLoader(log, batch_sampler=RecentFirst(log, batch_size), num_workers=0)
    model = TwoTower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    goal = int(os.environ.get("CASE_STEPS", "-1"))
    seen, t0 = 0, None
    for epoch in range(epochs):
        total = 0.0
        for batch in loader:
            scores = model(batch)
            loss = nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.022)
            total += loss.item()
            seen += 1
            if seen == 8:
                t0 = time.perf_counter()
            if seen == goal:
                break
        if seen == goal:
            break
        print(f"epoch {epoch} loss {total / len(loader):.4f}")
    print(f"steps_per_s {(seen - 8) / (time.perf_counter() - t0):.3f}")


if __name__ == "__main__":
    main()
