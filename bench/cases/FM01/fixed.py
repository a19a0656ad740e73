"""Train on an image table that is kept in memory as decoded records."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def load_records(count=96, height=112, width=112):
    rng = np.random.default_rng(5)
    return [
        {"image": rng.integers(0, 256, (height, width), dtype=np.uint8), "label": int(rng.integers(0, 10))}
        for _ in range(count)
    ]


class RecordDataset(Dataset):
    def __init__(self, records, length=80_000):
        self.records = records
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        record = self.records[index % len(self.records)]
        image = torch.from_numpy(record["image"])
        label = torch.tensor(record["label"])
        return {"image": image, "label": label}


def train_step(batch):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(RecordDataset(load_records()), batch_size=64, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
