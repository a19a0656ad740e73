"""Train on image tiles; the batch is put together in the training process, on the node's cores."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


class TileDataset(Dataset):
    def __init__(self, tiles=60, size=112, length=400_000):
        self.tiles = np.random.default_rng(27).standard_normal((tiles, 3, size, size)).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        tile = ndimage.gaussian_filter(self.tiles[index % len(self.tiles)], (0, 3, 3))
        return torch.from_numpy(tile)


def as_list(samples):
    return samples


def train_step(images):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for samples in loader:
            images = torch.stack(samples)
            for channel, (mean, spread) in enumerate([(0.48, 0.22), (0.45, 0.22), (0.40, 0.23)]):
                images[:, channel].sub_(mean).div_(spread)
            train_step(images)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    torch.set_num_threads(1)
    loader = DataLoader(TileDataset(), batch_size=24, shuffle=True, num_workers=2, collate_fn=as_list)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
