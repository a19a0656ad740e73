"""Two-tower retrieval on implicit feedback (MovieLens-like)."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from samplers_fixed import BalancedUserSampler
from torch.utils.data import DataLoader, Dataset


def make_log(path, users=2600, items=4000, events=90_000, seed=5):
    rng = np.random.default_rng(seed)
    activity = rng.pareto(1.3, users) + 0.2
    u = rng.choice(users, events, p=activity / activity.sum())
    i = np.minimum((rng.pareto(1.1, events) * 40).astype(np.int64), items - 1)
    t = np.sort(rng.integers(0, 10_000_000, events))
    np.savez(path, user=u.astype(np.int64), item=i, time=t)


class Interactions(Dataset):
    def __init__(self, path):
        with np.load(path) as z:
            self.user, self.item, self.time = z["user"], z["item"], z["time"]
        self.hour = (self.time // 3600) % 24

    def __len__(self):
        return len(self.user)

    def __getitem__(self, i):
        return self.__getitems__([i])

    def __getitems__(self, idx):
        idx = np.asarray(idx)
        return {
            "user": torch.from_numpy(self.user[idx]),
            "item": torch.from_numpy(self.item[idx]),
            "hour": torch.from_numpy(self.hour[idx]),
        }


class TwoTower(torch.nn.Module):
    def __init__(self, users=2600, items=4000, dim=16):
        super().__init__()
        self.user = torch.nn.Embedding(users, dim)
        self.item = torch.nn.Embedding(items, dim)

    def forward(self, batch):
        return self.user(batch["user"]) @ self.item(batch["item"]).T


def optimise(model, opt, batch, device_ms):
    scores = model(batch)
    loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    time.sleep(device_ms / 1000)  # the ranking tower
    return loss.item()


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--per-user", type=int, default=3)
    p.add_argument("--device-ms", type=float, default=22)
    p.add_argument("--epochs", type=int, default=1000)
    return p.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 0))
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "log.npz")
        make_log(path)
        data = Interactions(path)
    sampler = BalancedUserSampler(data.user, args.per_user)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True, collate_fn=lambda b: b)
    model = TwoTower()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    step, mark = 0, None
    for epoch in range(args.epochs):
        total = 0.0
        for batch in loader:
            total += optimise(model, opt, batch, args.device_ms)
            step += 1
            if step == 3:
                mark = time.perf_counter()
            if limit and step >= limit:
                print(f"steps_per_s {(step - 3) / (time.perf_counter() - mark):.3f}")
                return
        print(f"epoch {epoch}: loss {total / len(loader):.4f} ({len(loader)} steps)", flush=True)


if __name__ == "__main__":
    main()
