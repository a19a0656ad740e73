"""Train a crop classifier on a table of monthly satellite features."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BANDS = [f"B{band:02d}" for band in range(1, 14)]
MONTHS = range(1, 13)


class Row:
    """One record, addressed by column label."""

    def __init__(self, labels, values):
        self.labels = labels
        self.values = values

    def __getitem__(self, label):
        found = [position for position, known in enumerate(self.labels) if known == label]
        if not found:
            raise KeyError(label)
        return self.values[found[0]]


class Table:
    """Records with labelled columns of mixed types."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def iloc(self, position):
        return Row(list(self.columns), [column[position] for column in self.columns.values()])


def make_table(rows=2_000):
    rng = np.random.default_rng(4)
    columns = {f"{band}_{month:02d}": rng.random(rows) for band in BANDS for month in MONTHS}
    columns["crop"] = rng.integers(0, 9, rows)
    return Table(columns)


class CropDataset(Dataset):
    def __init__(self, table, length=80_000):
        series = [[table.columns[f"{band}_{month:02d}"] for band in BANDS] for month in MONTHS]
        self.series = np.array(series, dtype=np.float32).transpose(2, 0, 1).copy()
        self.crops = table.columns["crop"]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        position = index % len(self.crops)
        return torch.from_numpy(self.series[position]), int(self.crops[position])


def train_step(features, crops):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for features, crops in loader:
            train_step(features, crops)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = CropDataset(make_table())
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
