"""Crop-type classification from a filtered catalogue of patches."""

import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SETTINGS = {
    "catalogue": {"rows": 56000, "min_quality": 0.4, "countries": ["FR", "ES", "IT"]},
    "repeat": 1,
    "epoch_size": 800,
    "loader": {"batch_size": 8, "num_workers": 2, "shuffle": True, "persistent_workers": True},
    "augment": ["flip", "gain", "jitter"],
}


def build_catalogue(rows, seed=9):
    rng = random.Random(seed)
    places = ["FR", "ES", "IT", "DE", "PL"]
    return [
        {"id": i, "country": rng.choice(places), "quality": rng.random(), "tile": rng.randrange(64)}
        for i in range(rows)
    ]


class Patches(Dataset):
    def __init__(self, options):
        self.rows = build_catalogue(options["rows"])
        self.min_quality = options["min_quality"]
        self.countries = options["countries"]
        rng = np.random.default_rng(2)
        self.tiles = rng.standard_normal((64, 6, 48, 48)).astype(np.float32)

    def usable(self, row):
        return row["quality"] >= self.min_quality and row["country"] in self.countries

    @property
    def index(self):
        return [row for row in self.rows if self.usable(row)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        row = self.index[i]
        return self.tiles[row["tile"]].copy(), row["id"] % 7


class Epoch(Dataset):
    """Views a data set as one of another length."""

    def __init__(self, base, size):
        self.base, self.size = base, size
        self.offset = 0

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return self.base[(i + self.offset) % len(self.base)]


class Augmented(Dataset):
    STEPS = {
        "flip": lambda x: x[:, ::-1] if np.random.rand() < 0.5 else x,
        "gain": lambda x: x * np.float32(np.random.uniform(0.9, 1.1)),
        "jitter": lambda x: x + np.random.standard_normal(x.shape).astype(np.float32) * 0.01,
    }

    def __init__(self, base, names):
        self.base = base
        self.steps = {n: self.STEPS[n] for n in names}

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        patch, label = self.base[i]
        for fn in self.steps.values():
            patch = fn(patch)
        return torch.from_numpy(np.ascontiguousarray(patch)), label


def step(patches, labels):
    time.sleep(0.025)


if __name__ == "__main__":
    data = Augmented(Epoch(Patches(SETTINGS["catalogue"]), SETTINGS["epoch_size"]), SETTINGS["augment"])
    loader = DataLoader(data, **SETTINGS["loader"])
    limit = int(os.environ.get("CASE_STEPS", 4000))
    count, began = 0, None
    batches = iter(loader)
    while count < limit:
        try:
            patches, labels = next(batches)
        except StopIteration:
            batches = iter(loader)
            patches, labels = next(batches)
        step(patches, labels)
        count += 1
        if count == 8:
            began = time.perf_counter()
    print(f"steps_per_s {(count - 8) / (time.perf_counter() - began):.3f}")
