"""Train a metric-learning network; every batch has some identities and some images of each."""

import os
import random
import time
from collections import defaultdict
from functools import cached_property

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset


class Faces(Dataset):
    def __init__(self, identities=400, images=30, size=40):
        rng = np.random.default_rng(84)
        self.identities = [identity for identity in range(identities) for _ in range(images)]
        self.portraits = rng.integers(0, 256, (identities, 3, size, size), dtype=np.uint8)

    def __len__(self):
        return len(self.identities)

    def __getitem__(self, index):
        identity = self.identities[index]
        image = torch.from_numpy(self.portraits[identity]).float().div_(255)
        return {"image": image.roll(index % 5, -1), "identity": identity}

    @cached_property
    def members(self):
        members = defaultdict(list)
        for index, identity in enumerate(self.identities):
            members[identity].append(index)
        return members


class IdentityBatches(BatchSampler):
    def __init__(self, dataset, identities=8, images=4, batches=30_000):
        self.dataset, self.picked, self.images, self.batches = dataset, identities, images, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            picked = random.sample(list(self.dataset.members), self.picked)
            yield [index for identity in picked for index in random.sample(self.dataset.members[identity], self.images)]


def train_step(image, identity):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    batches = iter(loader)
    for step in range(1, max_steps + 1):
        train_step(**next(batches))
        if step == warmup:
            started = time.perf_counter()
    return (max_steps - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = Faces()
    loader = DataLoader(dataset, batch_sampler=IdentityBatches(dataset), num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
