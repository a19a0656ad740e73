"""Click-through-rate model on hashed categorical features, gradient accumulation, live AUC in the log line."""

import argparse
import os
import tempfile
import time
from collections import deque

import numpy as np
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


def simulate_clicks(path, rows, fields, seed=23):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 5000, size=(rows, fields), dtype=np.int32)
    w = rng.normal(0, 1, 5000)
    logit = w[x[:, 0]] + 0.5 * w[x[:, 1]] - 1.2
    y = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    np.save(path + "_x.npy", x)
    np.save(path + "_y.npy", y)


class ClickLog(Dataset):
    """Indexed by a whole list of rows (automatic batching is off)."""

    def __init__(self, path):
        self.x = np.load(path + "_x.npy")
        self.y = np.load(path + "_y.npy")

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        rows = np.asarray(rows)
        return {"x": torch.from_numpy(self.x[rows]).long(), "y": torch.from_numpy(self.y[rows])}


class FactorizationMachine(torch.nn.Module):
    def __init__(self, buckets=5000, k=4):
        super().__init__()
        self.linear = torch.nn.EmbeddingBag(buckets, 1, mode="sum")
        self.factors = torch.nn.Embedding(buckets, k)
        torch.nn.init.normal_(self.factors.weight, std=0.01)

    def forward(self, x):
        v = self.factors(x)
        pair = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1)
        return self.linear(x)[:, 0] + pair


class WindowMetrics:
    def __init__(self, window):
        self.y = deque(maxlen=window)
        self.p = deque(maxlen=window)

    def update(self, y, p):
        self.y.extend(y.tolist())
        self.p.extend(p.tolist())

    def compute(self):
        y, p = np.array(self.y), np.array(self.p)
        return {"auc": roc_auc_score(y, p), "ll": log_loss(y, p, labels=[0, 1])}


class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.opt = torch.optim.SGD(model.parameters(), lr=args.lr)
        self.metrics = WindowMetrics(args.window)
        self.stats = {}
        self.step = 0

    def micro_step(self, batch):
        logits = self.model(batch["x"])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["y"])
        (loss / self.args.accumulate).backward()
        time.sleep(self.args.device_ms / 1000)
        self.step += 1
        if self.step % self.args.accumulate == 0:
            self.opt.step()
            self.opt.zero_grad(set_to_none=True)
        self.metrics.update(batch["y"], torch.sigmoid(logits.detach()))
        self.stats = self.metrics.compute()
        if self.step % 50 == 0:
            print(f"step {self.step} auc {self.stats['auc']:.4f} logloss {self.stats['ll']:.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--accumulate", type=int, default=4)
    ap.add_argument("--window", type=int, default=30_000)
    ap.add_argument("--lr", type=float, default=0.5)
    ap.add_argument("--device-ms", type=float, default=25)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    limit = int(os.environ.get("CASE_STEPS", 20_000))

    with tempfile.TemporaryDirectory() as tmp:
        simulate_clicks(os.path.join(tmp, "clicks"), 200_000, fields=12)
        log = ClickLog(os.path.join(tmp, "clicks"))
    batches = BatchSampler(RandomSampler(log), args.batch, drop_last=True)
    loader = DataLoader(log, sampler=batches, batch_size=None, num_workers=args.workers, persistent_workers=True)
    trainer = Trainer(FactorizationMachine(), args)
    began = None
    while trainer.step < limit:
        for batch in loader:
            trainer.micro_step(batch)
            if trainer.step == 5:
                began = time.perf_counter()
            if trainer.step >= limit:
                break
    print(f"steps_per_s {(limit - 5) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
