"""Fine-tune a text classifier; tokens are padded per batch."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WORDS = ["red", "green", "blue", "small", "large", "round", "square", "heavy", "light", "old", "new", "far"]


class Reviews(Dataset):
    def __init__(self, count=500, length=200_000):
        rng = np.random.default_rng(73)
        self.texts = [
            " ".join(WORDS[word] for word in rng.integers(0, 12, rng.integers(20, 200))) for _ in range(count)
        ]
        self.number_of = {word: number for number, word in enumerate(WORDS, start=2)}
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        tokens = [1] + [self.number_of[word] for word in self.texts[index % len(self.texts)].split()]
        return {"tokens": tokens, "label": index % 2}


class PadCollator:
    def __init__(self, padding=0):
        self.padding = padding

    def __call__(self, samples):
        width = max(len(sample["tokens"]) for sample in samples)
        tokens = [sample["tokens"] + [self.padding] * (width - len(sample["tokens"])) for sample in samples]
        labels = torch.tensor([sample["label"] for sample in samples])
        tokens = torch.tensor(tokens)
        return {"tokens": tokens, "mask": tokens != self.padding, "labels": labels}


def train_step(batch):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(Reviews(), batch_size=32, shuffle=True, num_workers=2, collate_fn=PadCollator())
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
