"""Pre-train a masked autoencoder on satellite patches."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def block_mask(rng, grid=32, blocks=60):
    """Mask of random blocks over a grid of patches."""
    mask = np.zeros((grid, grid), dtype=bool)
    for _ in range(blocks):
        top, left = rng.integers(0, grid - 6, 2)
        height, width = rng.integers(2, 7, 2)
        mask[top : top + height, left : left + width] = True
        if mask.mean() > 0.75:
            break
    return mask


class PatchDataset(Dataset):
    def __init__(self, patches=200, length=400_000):
        self.patches = np.random.default_rng(39).integers(0, 4_096, (patches, 6, 32, 32), dtype=np.int16)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.from_numpy(self.patches[index % len(self.patches)].astype(np.float32) / 4_096)


class Pretrainer:
    def __init__(self):
        self.rng = np.random.default_rng(40)

    def step(self, patches):
        masks = torch.from_numpy(np.stack([block_mask(self.rng) for _ in range(len(patches))]))
        visible = patches * ~masks[:, None]
        time.sleep(0.025)
        return visible


def train(trainer, loader, max_steps, warmup=8):
    step = 0
    while True:
        for patches in loader:
            trainer.step(patches)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(PatchDataset(), batch_size=12, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Pretrainer(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
