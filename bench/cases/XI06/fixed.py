"""Next-item recommendation: each sample is the recent history of one user."""

import argparse
import os
import time

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset


def make_log(events, users, items, seed=0):
    rng = np.random.default_rng(seed)
    names = np.array([f"u{k:07x}" for k in rng.integers(0, 2**27, users)])
    return pd.DataFrame(
        {
            "user_id": names[rng.integers(0, users, events)],
            "item_id": rng.integers(1, items, events),
            "kind": rng.choice(["view", "cart", "buy"], events, p=[0.8, 0.15, 0.05]),
            "ts": rng.integers(1_600_000_000, 1_700_000_000, events),
        }
    )


class Histories(Dataset):
    def __init__(self, log, length=40):
        self.log = log
        self.users = log["user_id"].unique()
        self.rows = log.groupby("user_id").indices
        self.length = length
        self.kinds = {"view": 0, "cart": 1, "buy": 2}

    def __len__(self):
        return len(self.users)

    def history(self, user):
        rows = self.log.iloc[self.rows[user]]
        return rows.sort_values("ts").tail(self.length + 1)

    def __getitem__(self, i):
        rows = self.history(self.users[i])
        items = rows["item_id"].to_numpy()
        kinds = np.array([self.kinds[k] for k in rows["kind"]])
        gaps = np.log1p(np.diff(rows["ts"].to_numpy(), prepend=rows["ts"].iloc[0]))
        sequence = np.zeros((3, self.length), dtype=np.float32)
        context = slice(max(0, len(items) - 1 - self.length), max(1, len(items) - 1))
        for row, values in enumerate((items, kinds, gaps)):
            part = values[context]
            sequence[row, self.length - len(part) :] = part
        return torch.from_numpy(sequence), int(items[-1])


def train_step(sequence, target):
    time.sleep(0.030)
    return float((sequence[:, 0, -1].long() == target).float().mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_100_000)
    parser.add_argument("--users", type=int, default=36_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-steps", type=int, default=4000)
    args = parser.parse_args()
    limit = int(os.environ.get("CASE_STEPS", "0"))

    dataset = Histories(make_log(args.events, args.users, args.items))
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=2)

    hits, began, step = [], None, 0
    while step < args.max_steps:
        for sequence, target in loader:
            hits.append(train_step(sequence, target))
            step += 1
            if step == 8:
                began = time.perf_counter()
            if limit and step >= limit:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                return
            if step % 200 == 0:
                print(f"step {step} hit rate {np.mean(hits[-200:]):.4f}", flush=True)


if __name__ == "__main__":
    main()
