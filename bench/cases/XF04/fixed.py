"""Load forecasting: windows of many meters, recent windows drawn more often."""

import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

METERS, LENGTH = 40, 40_000
PAST, FUTURE = 336, 48


def write_series(path):
    rng = np.random.default_rng(5)
    data = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(METERS, LENGTH))
    hours = np.arange(LENGTH)
    for m in range(METERS):
        daily = np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6))
        data[m] = 2 + daily + 0.3 * rng.standard_normal(LENGTH)
    data.flush()


class Windows(Dataset):
    def __init__(self, path):
        self.data = np.load(path, mmap_mode="r")
        self.per_meter = LENGTH - PAST - FUTURE

    def __len__(self):
        return METERS * self.per_meter

    def __getitem__(self, i):
        meter, start = divmod(int(i), self.per_meter)
        window = np.array(self.data[meter, start : start + PAST + FUTURE])
        mean, std = window[:PAST].mean(), window[:PAST].std() + 1e-6
        window = torch.from_numpy((window - mean) / std)
        return window[:PAST], window[PAST:]


class RecentFirst(Sampler):
    """Batches of window numbers; the chance of a window halves every `half_life` hours."""

    def __init__(self, data, batch, batches, half_life=8000, seed=0):
        age = (data.per_meter - 1) - np.arange(data.per_meter)
        weight = np.tile(0.5 ** (age / half_life), METERS)
        self.cdf = np.cumsum(weight / weight.sum())
        self.batch, self.batches = batch, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = np.searchsorted(self.cdf[:-1], self.rng.random(self.batch))
            yield chosen.tolist()


def evaluate(loader):
    total = 0.0
    for past, future in loader:
        time.sleep(0.004)
        total += float((past[:, -1:] - future).abs().mean())
    return total / len(loader)


def main():
    limit = int(os.environ.get("CASE_STEPS", 0))
    root = tempfile.mkdtemp(prefix="load_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    path = os.path.join(root, "meters.npy")
    write_series(path)
    data = Windows(path)
    train = DataLoader(data, batch_sampler=RecentFirst(data, 32, 1000), num_workers=2, persistent_workers=True)
    held_out = torch.utils.data.Subset(data, range(0, len(data), len(data) // 96))
    valid = DataLoader(held_out, batch_size=32)
    total, step, began = limit or 4000, 0, None
    while step < total:
        for past, future in train:
            time.sleep(0.025)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step % 100 == 0:
                print(f"{step} mae {evaluate(valid):.3f}", flush=True)
            if step >= total:
                break
    if limit:
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
