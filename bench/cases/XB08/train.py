"""Sharpen map tiles; look at held-out tiles every now and then."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

TILE = 48
EVERY = 20


class TileArchive:
    """Tiles that a server keeps."""

    def __init__(self, count, round_trip_s=0.016):
        self.count = count
        self.round_trip_s = round_trip_s
        self.tiles = np.random.default_rng(41).integers(0, 255, (count, TILE, TILE), dtype=np.uint8)

    def get(self, key):
        time.sleep(self.round_trip_s)
        return self.tiles[key]


class HeldOutTiles(Dataset):
    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return self.archive.count

    def __getitem__(self, index):
        sharp = torch.from_numpy(self.archive.get(index).astype(np.float32) / 255)
        blurred = torch.nn.functional.avg_pool2d(sharp[None, None], 3, stride=1, padding=1)[0]
        return blurred, sharp[None]


def training_tiles(count=8_000):
    rng = np.random.default_rng(42)
    sharp = torch.from_numpy(rng.random((count, 1, TILE, TILE), dtype=np.float32))
    return TensorDataset(torch.nn.functional.avg_pool2d(sharp, 3, stride=1, padding=1), sharp)


class Sharpener:
    def update(self, blurred, sharp):
        time.sleep(0.020)

    def predict(self, blurred):
        time.sleep(0.004)
        return blurred


def evaluate(model, loader):
    errors = [(model.predict(blurred) - sharp).square().mean() for blurred, sharp in loader]
    return 10 * torch.log10(1 / torch.stack(errors).mean())


def fit(model, loader, held_out, max_steps):
    step, best = 0, 0.0
    started = time.perf_counter()
    while True:
        for blurred, sharp in loader:
            model.update(blurred, sharp)
            step += 1
            if step % EVERY == 0:
                best = max(best, float(evaluate(model, held_out)))
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    torch.set_num_threads(1)
    loader = DataLoader(training_tiles(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    held_out = DataLoader(HeldOutTiles(TileArchive(96)), batch_size=8)
    speed = fit(Sharpener(), loader, held_out, int(os.environ.get("CASE_STEPS", "-1")))
    print(f"steps_per_s {speed:.3f}")


if __name__ == "__main__":
    main()
