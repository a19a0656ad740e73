"""Predict failures of pumps from months of measurements, kept as one archive per pump."""

import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SENSORS = 24
WINDOW = 64


class Plant:
    """Hands out the measurements of one pump after another."""

    def __init__(self, pumps, seed=15):
        rng = np.random.default_rng(seed)
        shape = (WINDOW * 40, SENSORS)
        self.series = [np.cumsum(rng.normal(0, 1, shape), axis=0, dtype=np.float32) for _ in range(pumps)]

    def __len__(self):
        return len(self.series)

    def request(self, pump):
        time.sleep(0.52)
        return self.series[pump]


class Windows(IterableDataset):
    def __init__(self, plant, per_pump, rounds):
        self.plant = plant
        self.per_pump = per_pump
        self.rounds = rounds

    def mine(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for number in range(self.rounds):
            order = random.Random(number).sample(range(len(self.plant)), len(self.plant))
            yield from order[first::stride]

    def features(self, window):
        middle = window.mean(0)
        spread = window.std(0) + 1e-3
        slope = np.polyfit(np.arange(WINDOW), window, 1)[0]
        return np.concatenate([((window - middle) / spread).ravel(), middle, spread, slope]).astype(np.float32)

    def __iter__(self):
        for pump in self.mine():
            series = self.plant.request(pump)
            for _ in range(self.per_pump):
                start = random.randrange(len(series) - WINDOW)
                yield torch.from_numpy(self.features(series[start : start + WINDOW])), pump % 2


def fit(loader, limit):
    step, first = 0, None
    while step < limit:
        for rows, failed in loader:
            time.sleep(0.03)
            step += 1
            if step == 8:
                first = time.perf_counter()
            if step == limit:
                break
    return (limit - 8) / (time.perf_counter() - first)


if __name__ == "__main__":
    windows = Windows(Plant(60), per_pump=192, rounds=6)
    loader = DataLoader(windows, batch_size=16, num_workers=2, prefetch_factor=2)
    print(f"steps_per_s {fit(loader, int(os.environ.get('CASE_STEPS', '4000'))):.3f}")
