"""Churn prediction from a parquet export of customer records."""

import os
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMERIC = ["tenure", "charges", "calls", "minutes", "visits", "age"]
TARIFFS = ["basic", "family", "student", "business", "night"]


def export_customers(path, rows):
    rng = np.random.default_rng(21)
    columns = {name: rng.gamma(2.0, 10.0, rows).astype(np.float32) for name in NUMERIC}
    columns["tariff"] = pa.array(rng.choice(TARIFFS, rows)).dictionary_encode()
    columns["note"] = [f"ticket {a} opened, {b} closed" for a, b in rng.integers(0, 90, (rows, 2))]
    columns["churned"] = rng.random(rows) < 0.2
    pq.write_table(pa.table(columns), path, row_group_size=20000)


class Customers(Dataset):
    """Rows are kept as plain lists, which the feature code below likes best."""

    def __init__(self, path):
        table = pq.read_table(path)
        self.columns = table.column_names
        self.rows = [list(row) for row in zip(*(table[c].to_pylist() for c in self.columns))]
        stats = np.array([[row[k] for k in range(len(NUMERIC))] for row in self.rows[:20000]])
        self.mean, self.std = stats.mean(0), stats.std(0)

    def __len__(self):
        return len(self.rows)

    def one_hot(self, tariff):
        return [1.0 if tariff == name else 0.0 for name in TARIFFS]

    def note_features(self, text):
        counts = [int(word) for word in text.replace(",", " ").split() if word.isdigit()]
        letters = [text.count(letter) / len(text) for letter in "aeioust"]
        return counts + letters

    def __getitem__(self, i):
        record = dict(zip(self.columns, self.rows[i]))
        numbers = (np.array([record[name] for name in NUMERIC]) - self.mean) / self.std
        extra = self.one_hot(record["tariff"]) + self.note_features(record["note"])
        features = np.concatenate([numbers, extra]).astype(np.float32)
        return torch.from_numpy(features), float(record["churned"])


class ChurnTrainer:
    def __init__(self, path, batch_size=32, step_time=0.03):
        self.loader = DataLoader(
            Customers(path),
            batch_size=batch_size,
            shuffle=True,
            num_workers=1,
            drop_last=True,
            persistent_workers=True,
            prefetch_factor=4,
        )
        self.net = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.step_time = step_time
        self.losses, self.seen = [], 0

    def training_step(self, features, target):
        time.sleep(self.step_time)
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(features).squeeze(1), target.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def after_step(self, loss):
        self.losses.append(loss.detach())
        self.losses = self.losses[-50:]
        self.seen += 1

    def fit(self, steps):
        done = 0
        while True:
            for features, target in self.loader:
                self.after_step(self.training_step(features, target))
                done += 1
                if done == 8:
                    begun = time.perf_counter()
                if done % 200 == 0:
                    print(f"{done}: loss {torch.stack(self.losses).mean():.4f}")
                if done == steps:
                    return (done - 8) / (time.perf_counter() - begun)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "customers.parquet")
        export_customers(target, 40_000)
        trainer = ChurnTrainer(target)
        speed = trainer.fit(int(os.environ.get("CASE_STEPS", "4000")))
    print(f"steps_per_s {speed:.3f}")
