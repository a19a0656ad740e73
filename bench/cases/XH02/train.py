"""Patch segmentation of small CT volumes with histogram matching against a cohort reference."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset, get_worker_info

PATIENTS = 32
SIZE = 81
PATCH = 32
EPOCHS = 250


def synthetic_scan(seed):
    rng = np.random.default_rng(seed)
    coarse = rng.normal(size=(9, 9, 9)).astype(np.float32)
    scan = np.kron(coarse, np.ones((SIZE // 9,) * 3, np.float32))
    scan += rng.normal(0, 0.1, scan.shape).astype(np.float32)
    return (scan * 400).astype(np.int16)


class CTPatches(Dataset):
    def __init__(self, patients):
        self.scans = [synthetic_scan(p) for p in range(patients)]
        self.reference = None

    def fit_reference(self):
        """Average quantiles of the cohort, the scale onto which every patch is mapped."""
        levels = np.linspace(1, 99, 33)
        table = [np.percentile(scan, levels) for scan in self.scans]
        self.reference = np.mean(table, axis=0)

    def match(self, patch):
        own = np.percentile(patch, np.linspace(1, 99, 33))
        return np.interp(patch, own, self.reference).astype(np.float32)

    def crop(self, scan):
        z, y, x = (np.random.randint(0, s - PATCH) for s in scan.shape)
        return scan[z : z + PATCH, y : y + PATCH, x : x + PATCH].astype(np.float32)

    def elastic(self, patch):
        grid = np.meshgrid(*(np.arange(PATCH, dtype=np.float32),) * 3, indexing="ij")
        moved = []
        for axis in grid:
            field = np.random.uniform(-1, 1, patch.shape).astype(np.float32)
            moved.append(axis + 6 * ndimage.gaussian_filter(field, 3, mode="constant", truncate=2))
        return ndimage.map_coordinates(patch, moved, order=1, mode="nearest")

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, i):
        patch = self.match(self.crop(self.scans[i]))
        patch = self.elastic(patch)
        for axis in range(3):
            if np.random.rand() < 0.5:
                patch = np.flip(patch, axis)
        label = (patch > np.median(patch)).astype(np.int64)
        return torch.from_numpy(patch.copy())[None], torch.from_numpy(label)


def set_up(worker):
    np.random.seed(torch.initial_seed() % 2**32)
    get_worker_info().dataset.fit_reference()


class Meter:
    def __init__(self, limit):
        self.limit, self.count, self.since = limit, 0, None

    def tick(self):
        self.count += 1
        if self.count == 8:
            self.since = time.perf_counter()
        return self.count == self.limit

    def speed(self):
        return (self.count - 8) / (time.perf_counter() - self.since)


def one_epoch(loader, meter):
    foreground = 0.0
    for volume, label in loader:
        time.sleep(0.045)
        foreground += float(label.float().mean())
        if meter.tick():
            return None
    return foreground / len(loader)


def main():
    torch.manual_seed(0)
    loader = DataLoader(CTPatches(PATIENTS), batch_size=2, shuffle=True, num_workers=2, worker_init_fn=set_up)
    meter = Meter(int(os.environ.get("CASE_STEPS", "0")))
    for epoch in range(EPOCHS):
        score = one_epoch(loader, meter)
        if score is None:
            break
        if epoch % 10 == 0:
            print(f"epoch {epoch}: foreground {score:.3f}")
    print(f"steps_per_s {meter.speed():.3f}")


if __name__ == "__main__":
    main()
