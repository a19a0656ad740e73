"""Fine-tune on texts that are tokenised on the fly and grouped by length."""

import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

STEMS = ["lower", "upper", "inner", "outer", "near", "far"]


class TextDataset(Dataset):
    def __init__(self, count=640):
        rng = np.random.default_rng(22)
        lengths = rng.integers(60, 900, count)
        self.texts = [" ".join(STEMS[word] for word in rng.integers(0, len(STEMS), length)) for length in lengths]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        tokens = []
        for word in self.texts[index].split():
            tokens.extend((ord(letter) * 131 + place) % 5_000 for place, letter in enumerate(word))
        return torch.tensor(tokens)


class GroupedSampler(Sampler):
    """Items of similar length stand next to each other."""

    def __init__(self, dataset, group=64):
        self.dataset = dataset
        self.group = group

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        lengths = [len(self.dataset[index]) for index in range(len(self.dataset))]
        order = random.sample(range(len(lengths)), len(lengths))
        groups = [order[start : start + self.group] for start in range(0, len(order), self.group)]
        for group in groups:
            yield from sorted(group, key=lengths.__getitem__, reverse=True)


def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def train_step(tokens):
    time.sleep(0.025)


def train(loader, max_steps):
    started = time.perf_counter()
    step = 0
    while True:
        for tokens in loader:
            train_step(tokens)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = TextDataset()
    loader = DataLoader(dataset, batch_size=16, sampler=GroupedSampler(dataset), num_workers=2, collate_fn=pad)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
