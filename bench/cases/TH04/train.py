"""Train on multi-modal readings; a thread moves batches into staging memory ahead of the loop."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ReadingDataset(Dataset):
    def __init__(self, readings=300, sensors=60, size=4_096, length=400_000):
        rng = np.random.default_rng(53)
        self.signals = rng.integers(0, 256, (readings, size), dtype=np.uint8)
        self.sensors = sensors
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        signal = self.signals[index % len(self.signals)]
        return torch.from_numpy(np.stack([np.roll(signal, sensor) for sensor in range(self.sensors)]))


class Stager:
    """Copies and scales batches into staging memory, one ahead of the loop, in a thread of its own."""

    def __init__(self, threads=16):
        self.thread = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(threads,))
        self.slots = ({}, {})

    def copy(self, slot, batch):
        for sensor, values in enumerate(batch.unbind(1)):
            slot.setdefault(sensor, torch.empty(values.shape)).copy_(values).sub_(128).div_(64)
        return slot

    def staged(self, loader):
        """Yields the batches of `loader` from staging memory."""
        ahead = None
        for number, batch in enumerate(loader):
            following = self.thread.submit(self.copy, self.slots[number % 2], batch)
            if ahead:
                yield ahead.result()
            ahead = following


def train_step(batch):
    time.sleep(0.020)


def train(stager, loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in stager.staged(loader):
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(ReadingDataset(), batch_size=32, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Stager(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
