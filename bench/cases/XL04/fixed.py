"""In-hospital mortality from the first 48 hours of intensive care (GRU-D style inputs)."""

import argparse
import json
import os
import random
import tempfile
import time
from datetime import datetime, timedelta

import numpy as np
import torch
from grid_fixed import HourlyGrid
from torch.utils.data import DataLoader, Dataset


def export_stays(path, n, seed=11):
    rng = random.Random(seed)
    with open(path, "w") as f:
        for k in range(n):
            t = datetime(2011, 1, 1) + timedelta(seconds=rng.randrange(60_000_000))
            rows = []
            for _ in range(rng.randrange(30, 70)):
                t += timedelta(seconds=rng.randrange(60, 4500))
                rows.append([t.strftime("%d/%m/%Y %H:%M:%S"), rng.randrange(17), round(rng.gauss(0, 1), 3)])
            f.write(json.dumps({"stay": k, "rows": rows, "mortality": int(rng.random() < 0.13)}) + "\n")


class Stays(Dataset):
    def __init__(self, path):
        self.stays = []
        with open(path) as f:
            for line in f:
                record = json.loads(line)
                when, channel, value = zip(*record["rows"])
                self.stays.append(
                    {
                        "charttime": list(when),
                        "channel": np.array(channel, np.int64),
                        "value": np.array(value, np.float32),
                        "mortality": record["mortality"],
                    }
                )

    def __len__(self):
        return len(self.stays)

    def __getitem__(self, i):
        stay = dict(self.stays[i])
        stay["value"] = np.clip(stay["value"], -4, 4) + np.float32(0.01) * np.random.randn(len(stay["value"])).astype(
            "f4"
        )
        return stay


class Trainer:
    def __init__(self, args):
        self.args = args
        self.max_steps = int(os.environ.get("CASE_STEPS", 0)) or None
        self.model = torch.nn.Linear(17 * 2, 1)
        self.optim = torch.optim.Adam(self.model.parameters(), 1e-3)

    def train_step(self, batch):
        feats = torch.cat([batch["x"].mean(1), batch["mask"].mean(1)], 1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(feats)[:, 0], batch["y"])
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        time.sleep(self.args.step_ms / 1000)  # recurrent part on the accelerator
        return loss.item()

    def run(self, loader):
        step = 0
        for epoch in range(self.args.epochs):
            losses = []
            for batch in loader:
                losses.append(self.train_step(batch))
                step += 1
                if step == 5:
                    begin = time.perf_counter()
                if step == self.max_steps:
                    return (step - 5) / (time.perf_counter() - begin)
            print(f"[{epoch}] loss={np.mean(losses):.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--num-workers", type=int, default=1)
    ap.add_argument("--step-ms", type=float, default=25)
    ap.add_argument("--epochs", type=int, default=300)
    args = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        export_stays(os.path.join(d, "stays.jsonl"), 3000)
        stays = Stays(os.path.join(d, "stays.jsonl"))
    loader = DataLoader(
        stays,
        args.batch_size,
        shuffle=True,
        num_workers=args.num_workers,
        drop_last=True,
        collate_fn=HourlyGrid(),
        persistent_workers=True,
        prefetch_factor=4,
    )
    rate = Trainer(args).run(loader)
    if rate:
        print(f"steps_per_s {rate:.3f}")


if __name__ == "__main__":
    main()
