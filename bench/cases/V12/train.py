"""Train a few-shot network on episodes: some classes, some examples and queries of each."""

import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Glyphs(Dataset):
    def __init__(self, classes=300, per_class=200, size=28):
        rng = np.random.default_rng(109)
        self.prototypes = rng.random((classes, size, size), dtype=np.float32)
        self.labels = [number // per_class for number in range(classes * per_class)]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        shift = index % 7 - 3
        return torch.from_numpy(np.roll(self.prototypes[self.labels[index]], shift, axis=0)), self.labels[index]


class Episodes:
    """Batches of `ways` classes with `shots` examples and `queries` queries of each."""

    def __init__(self, labels, ways=10, shots=5, queries=5, episodes=40_000):
        self.labels = labels
        self.ways = ways
        self.draws = shots + queries
        self.episodes = episodes

    def __len__(self):
        return self.episodes

    def __iter__(self):
        for _ in range(self.episodes):
            shuffled = random.sample(range(len(self.labels)), len(self.labels))
            classes = random.sample(sorted(set(self.labels)), self.ways)
            episode = []
            for label in classes:
                members = (index for index in shuffled if self.labels[index] == label)
                episode += [next(members) for _ in range(self.draws)]
            yield episode


def train_step(glyphs, labels):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for glyphs, labels in loader:
            train_step(glyphs, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = Glyphs()
    loader = DataLoader(dataset, batch_sampler=Episodes(dataset.labels), num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
