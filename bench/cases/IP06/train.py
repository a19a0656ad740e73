"""Train a matting network; decoded images are kept, batches are made from a stream of samples."""

import functools
import os
import time

import numpy as np
from torch.utils.data import DataLoader, Dataset, default_collate


@functools.cache
def decoded(number, size=512):
    rng = np.random.default_rng(number)
    return {
        "image": rng.random((size, size, 3), dtype=np.float32),
        "matte": rng.random((size, size), dtype=np.float32),
    }


class MattingDataset(Dataset):
    def __init__(self, images=12, length=80_000):
        self.images = images
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return decoded(index % self.images)


def in_batches(samples, size):
    """Yields stacked batches of `size` samples."""
    held = []
    for sample in samples:
        held.append(sample)
        if len(held) == size:
            yield default_collate(held)
            held = []


def train_step(batch):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in in_batches(loader, 4):
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(MattingDataset(), batch_size=None, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
