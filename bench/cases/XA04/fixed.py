"""Predict whether a shop's visitor buys, from a table of sessions."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = [f"x{number:02d}" for number in range(24)]
GROUP_ROWS = 40_000


class Sessions(Dataset):
    def __init__(self, path, rows):
        table = pq.read_table(path, columns=[*FEATURES, "bought"])
        self.features = np.column_stack([table[name].to_numpy() for name in FEATURES]).astype(np.float32)
        self.bought = table["bought"].to_numpy().astype(np.float32)
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        return np.tanh(self.features[row]), self.bought[row]


def export(path, groups=5):
    rng = np.random.default_rng(90)
    rows = groups * GROUP_ROWS
    columns = {name: rng.integers(-300, 300, rows).astype(np.float32) / 100 for name in FEATURES}
    columns["bought"] = (columns["x00"] + columns["x03"] > 1).astype(np.int8)
    pq.write_table(pa.table(columns), path, row_group_size=GROUP_ROWS, compression="zstd")
    return rows


def make_model(width=2560):
    return nn.Sequential(
        nn.Linear(len(FEATURES), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    )


def fit(model, loader, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.BCEWithLogitsLoss()
    done = 0
    while True:
        for features, bought in loader:
            optimizer.zero_grad()
            loss_of(model(features).squeeze(1), bought).backward()
            optimizer.step()
            done += 1
            if done == 8:
                since = time.perf_counter()
            if done == steps:
                return (done - 8) / (time.perf_counter() - since)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sessions.parquet")
        dataset = Sessions(path, export(path))
        loader = DataLoader(dataset, batch_size=24, shuffle=True, num_workers=2)
        rate = fit(make_model(), loader, int(os.environ.get("CASE_STEPS", "0")))
        print(f"steps_per_s {rate:.3f}")


if __name__ == "__main__":
    main()
