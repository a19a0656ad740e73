"""Continue an interrupted pre-training run."""

import itertools
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

WORDS = 30_000


class SeededOrder(Sampler):
    def __init__(self, length, batch_size, first_batch=0, seed=0):
        self.length = length
        self.batch_size = batch_size
        self.first_batch = first_batch
        self.seed = seed

    def __iter__(self):
        order = np.random.default_rng(self.seed).permutation(self.length).tolist()
        for start in range(self.first_batch * self.batch_size, self.length, self.batch_size):
            yield order[start : start + self.batch_size]


class TokenDataset(Dataset):
    def __init__(self, length=120_000, context=512):
        self.ranks = np.arange(1, WORDS + 1)
        self.length = length
        self.context = context

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        tokens = (rng.pareto(1.1, self.context) * 3).astype(np.int64) % WORDS
        keep = rng.permutation(self.context)[: self.context // 8]
        labels = np.full(self.context, -100)
        labels[np.sort(keep)] = tokens[np.sort(keep)]
        order = np.argsort(self.ranks[tokens], kind="stable")
        return torch.from_numpy(tokens), torch.from_numpy(labels), torch.from_numpy(order)


def train_step(tokens, labels, order):
    time.sleep(0.025)


def train(dataset, max_steps, done, batch_size=24):
    started = time.perf_counter()
    loader = DataLoader(dataset, batch_sampler=SeededOrder(len(dataset), batch_size), num_workers=2)
    for step, (tokens, labels, order) in enumerate(itertools.islice(loader, done, None), start=1):
        train_step(tokens, labels, order)
        if step == max_steps:
            break
    return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    print(f"steps_per_s {train(TokenDataset(), max_steps, done=900):.3f}")


if __name__ == "__main__":
    main()
