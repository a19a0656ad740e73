"""Train a recogniser on cuts batched by duration; one of several data-parallel ranks."""

import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class DurationBatchSampler(Sampler):
    """Batches of similar duration with at most `max_seconds` of sound."""

    def __init__(self, durations, max_seconds=120.0, pool=2_400, rank=0, world_size=8):
        self.durations = durations
        self.max_seconds = max_seconds
        self.pool = pool
        self.rank = rank
        self.world_size = world_size

    def next_batch(self, rng):
        candidates = [rng.randrange(len(self.durations)) for _ in range(self.pool)]
        candidates.sort(key=lambda cut: (self.durations[cut], cut))
        start = rng.randrange(len(candidates) // 2)
        batch, seconds = [], 0.0
        for cut in candidates[start:]:
            seconds += self.durations[cut]
            if seconds > self.max_seconds:
                break
            batch.append(cut)
        return batch

    def __iter__(self):
        rng = random.Random(0)
        while True:
            batches = [self.next_batch(rng) for _ in range(self.world_size)]
            yield batches[self.rank]


class CutDataset(Dataset):
    def __init__(self, cuts=4_000, frames=100):
        rng = np.random.default_rng(20)
        self.features = rng.standard_normal((cuts, frames, 40)).astype(np.float32)
        self.durations = rng.uniform(2.0, 16.0, cuts).tolist()

    def __len__(self):
        return len(self.features)

    def __getitem__(self, cut):
        return torch.from_numpy(self.features[cut])


def train_step(features):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for features in loader:
            train_step(features)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = CutDataset()
    loader = DataLoader(dataset, batch_sampler=DurationBatchSampler(dataset.durations), num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
