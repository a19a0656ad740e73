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
    total = 0.0
    for anchor in range(len(identities)):
        positives, negatives = [], []
        for other in range(len(identities)):
            if other == anchor:
                continue
            value = similarity[anchor, other].item()
            if identities[other].item() == identities[anchor].item():
                positives.append(value)
            else:
                negatives.append(value)
        hard = [value for value in negatives if positives and value + margin > min(positives)]
        total += np.log1p(sum(np.exp(-2 * (value - 0.5)) for value in positives)) / 2
        total += np.log1p(sum(np.exp(40 * (value - 0.5)) for value in hard)) / 40
    return total / len(identities)


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
