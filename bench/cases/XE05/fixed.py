"""Click prediction on a long-tailed log, classes balanced while sampling."""

import argparse
import os
import time
from collections import Counter

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class ClickLog(Dataset):
    def __init__(self, rows, fields=24, classes=12, seed=2):
        rng = np.random.default_rng(seed)
        self.fields = rng.integers(0, 255, (rows, fields), dtype=np.uint8)
        share = 1.0 / np.arange(1, classes + 1)
        self.labels = rng.choice(classes, rows, p=share / share.sum()).astype(np.int16)

    def __len__(self):
        return len(self.labels)

    def label(self, index):
        return int(self.labels[index])

    def __getitem__(self, index):
        row = self.fields[index].astype(np.float32) / 255.0
        if np.random.rand() < 0.3:
            row[np.random.randint(len(row))] = 0.0
        return torch.from_numpy(row), self.label(index)


class BalancedSampler(Sampler):
    def __init__(self, dataset, num_samples):
        self.dataset = dataset
        self.num_samples = num_samples
        self.weights = self.class_weights()

    def class_weights(self):
        rows = range(len(self.dataset))
        seen = Counter(self.dataset.label(i) for i in rows)
        return torch.tensor([1.0 / seen[self.dataset.label(i)] for i in rows], dtype=torch.double)

    def __iter__(self):
        picks = torch.multinomial(self.weights, self.num_samples, replacement=True)
        return iter(picks.tolist())

    def __len__(self):
        return self.num_samples


class Ranker:
    def __init__(self, seconds):
        self.seconds = seconds

    def update(self, rows, labels):
        time.sleep(self.seconds)
        return float(labels.float().mean())


class Meter:
    def __init__(self, warmup=8):
        self.warmup = warmup
        self.limit = int(os.environ.get("CASE_STEPS", "0"))
        self.count = 0
        self.since = None

    def tick(self):
        self.count += 1
        if self.count == self.warmup:
            self.since = time.perf_counter()
        return self.limit and self.count >= self.limit

    def speed(self):
        return (self.count - self.warmup) / (time.perf_counter() - self.since)


def fit(model, loader, epochs, meter):
    for _ in range(epochs):
        for rows, labels in loader:
            model.update(rows, labels)
            if meter.tick():
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps-per-epoch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=250)
    args = parser.parse_args()

    data = ClickLog(args.rows)
    sampler = BalancedSampler(data, args.batch_size * args.steps_per_epoch)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, num_workers=1, persistent_workers=True)
    meter = Meter()
    fit(Ranker(0.040), loader, args.epochs, meter)
    print(f"steps_per_s {meter.speed():.3f}")


if __name__ == "__main__":
    main()
