"""Train a re-identification network with a pair-mining loss."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class PersonDataset(Dataset):
    def __init__(self, crops=400, length=400_000):
        self.crops = np.random.default_rng(31).integers(0, 256, (crops, 3, 64, 32), dtype=np.uint8)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.from_numpy(self.crops[index % len(self.crops)]).float().div_(255), index % 8


def embed(images):
    time.sleep(0.015)
    return torch.nn.functional.normalize(images.flatten(1)[:, ::96], dim=1)


def mining_loss(embeddings, identities, margin=0.1):
    similarity = embeddings @ embeddings.T
    same = identities[:, None] == identities
    same.fill_diagonal_(False)
    other = identities[:, None] != identities
    hardest = similarity.masked_fill(~same, 2.0).min(1, keepdim=True).values
    hard = other & (similarity + margin > hardest)
    positive = ((-2 * (similarity - 0.5)).exp() * same).sum(1).log1p() / 2
    negative = ((40 * (similarity - 0.5)).exp() * hard).sum(1).log1p() / 40
    return (positive + negative).mean().item()


def train_step(images, identities):
    return mining_loss(embed(images), identities)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, identities in loader:
            loss = train_step(images, identities)
            assert np.isfinite(loss)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(PersonDataset(), batch_size=64, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
