"""Churn prediction on a parquet table: one batch of rows per item, small real network."""

import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

ROWS, NUMERIC, CATEGORIES = 60_000, 24, 200


def write_table(path):
    rng = np.random.default_rng(10)
    columns = {f"n{k:02d}": rng.standard_normal(ROWS).astype(np.float32) for k in range(NUMERIC)}
    columns["plan"] = rng.integers(0, CATEGORIES, ROWS)
    columns["churn"] = (columns["n00"] + columns["n01"] > 0.5).astype(np.int64)
    pq.write_table(pa.table(columns), path, compression="zstd")


class Rows(Dataset):
    def __init__(self, path):
        table = pq.read_table(path)
        names = [n for n in table.column_names if n.startswith("n")]
        self.numeric = torch.from_numpy(np.stack([table[n].to_numpy() for n in names], axis=1))
        self.plan = torch.from_numpy(table["plan"].to_numpy().copy())
        self.churn = torch.from_numpy(table["churn"].to_numpy().copy()).float()

    def __len__(self):
        return len(self.churn)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.numeric[rows], self.plan[rows], self.churn[rows]


class Net(nn.Module):
    def __init__(self, width=1280):
        super().__init__()
        self.embed = nn.Embedding(CATEGORIES, 16)
        self.body = nn.Sequential(
            nn.Linear(NUMERIC + 16, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, numeric, plan):
        return self.body(torch.cat([numeric, self.embed(plan)], dim=1)).squeeze(1)


def batches_of(data, rows, size):
    sampler = BatchSampler(RandomSampler(rows), batch_size=size, drop_last=True)
    return DataLoader(data, sampler=sampler, batch_size=None)


@torch.no_grad()
def accuracy(net, data):
    net.eval()
    numeric, plan, churn = data[range(256)]
    hits = ((net(numeric, plan) > 0) == (churn > 0.5)).float().mean()
    net.train()
    return float(hits)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 0))
    root = tempfile.mkdtemp(prefix="churn_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    path = os.path.join(root, "customers.parquet")
    write_table(path)
    data, net = Rows(path), Net()
    loader = batches_of(data, range(ROWS), 32)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4)
    loss_of = nn.BCEWithLogitsLoss()
    total, step, began = limit or 4000, 0, None
    while step < total:
        for numeric, plan, churn in loader:
            loss = loss_of(net(numeric, plan), churn)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step % 100 == 0:
                print(f"{step} loss {loss.item():.4f} acc {accuracy(net, data):.3f}", flush=True)
            if step >= total:
                break
    if limit:
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
