"""Click-through model on tabular impressions, with prioritised replay of examples the model finds hard."""

import argparse
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Impressions(Dataset):
    def __init__(self, rows, dense=16, fields=8, seed=0):
        rng = np.random.default_rng(seed)
        self.dense = rng.standard_normal((rows, dense), dtype=np.float32)
        self.fields = rng.integers(0, 50_000, (rows, fields), dtype=np.int32)
        self.clicked = (rng.random(rows) < 0.04).astype(np.float32)
        self.mean = self.dense.mean(0)
        self.std = self.dense.std(0)

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, i):
        dense = np.clip((self.dense[i] - self.mean) / self.std, -4, 4)
        crossed = (self.fields[i, :-1].astype(np.int64) * 31 + self.fields[i, 1:]) % 50_000
        return {
            "row": i,
            "dense": torch.from_numpy(dense),
            "fields": torch.from_numpy(np.concatenate([self.fields[i], crossed])),
            "y": float(self.clicked[i]),
        }


class PriorityBatches(Sampler):
    """Batches of distinct rows, each row drawn in proportion to its last known loss."""

    def __init__(self, rows, batch_size, batches, seed=0):
        self.rows, self.batch_size, self.batches = rows, batch_size, batches
        self.priority = np.ones(rows)
        self.rng = np.random.default_rng(seed)

    def update(self, rows, losses, floor=0.05):
        self.priority[rows] = np.maximum(losses, floor)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            p = self.priority / self.priority.sum()
            yield self.rng.choice(self.rows, self.batch_size, replace=False, p=p).tolist()


def train_step(batch):
    time.sleep(0.025)
    logits = batch["dense"].mean(1)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["y"].float(), reduction="none")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epoch-batches", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    limit = int(os.environ.get("CASE_STEPS", "0"))

    data = Impressions(args.rows)
    batches = PriorityBatches(len(data), args.batch_size, args.epoch_batches)
    loader = DataLoader(data, batch_sampler=batches, num_workers=2, persistent_workers=True)

    step, began = 0, None
    for epoch in range(args.epochs):
        running = 0.0
        for batch in loader:
            losses = train_step(batch)
            batches.update(batch["row"].numpy(), losses.numpy())
            running = 0.98 * running + 0.02 * float(losses.mean())
            step += 1
            if step == 8:
                began = time.perf_counter()
            if limit and step >= limit:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                return
        print(f"epoch {epoch} loss {running:.4f}", flush=True)


if __name__ == "__main__":
    main()
