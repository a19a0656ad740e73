"""Train on an in-memory image table with a user transform."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ImageTable:
    """Columnar table of images; a transform sees plain records."""

    def __init__(self, images, labels):
        self.images = images
        self.labels = labels
        self.transform = None

    def with_transform(self, transform):
        self.transform = transform
        return self

    def __len__(self):
        return len(self.labels)

    def row(self, index):
        if self.transform is None:
            return {"image": self.images[index], "label": self.labels[index]}
        record = {"image": self.images[index].tolist(), "label": int(self.labels[index])}
        return self.transform(record)


class TableDataset(Dataset):
    def __init__(self, table, length=80_000):
        self.table = table
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        row = self.table.row(index % len(self.table))
        image = np.asarray(row["image"], dtype=np.uint8)
        return torch.from_numpy(image), int(row["label"])


def shift_label(record):
    return {**record, "label": record["label"] + 1}


def load_table(count=120, size=144):
    rng = np.random.default_rng(62)
    return ImageTable(rng.integers(0, 256, (count, size, size), dtype=np.uint8), rng.integers(0, 10, count))


def train_step(images, labels):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, labels in loader:
            train_step(images, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    table = load_table().with_transform(shift_label)
    loader = DataLoader(TableDataset(table), batch_size=64, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
