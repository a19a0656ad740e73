"""Pre-train an encoder-decoder by span corruption; batches are corrupted when they are put together."""

import os
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Corpus(Dataset):
    def __init__(self, tokens=500_000, context=512, length=80_000, vocabulary=30_000):
        self.tokens = np.random.default_rng(102).integers(100, vocabulary, tokens)
        self.context = context
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        start = index * 977 % (len(self.tokens) - self.context)
        return {"input_ids": self.tokens[start : start + self.context]}


@dataclass(frozen=True)
class SpanCorruption:
    """Collator that replaces random spans by sentinels, which become the targets."""

    noise: float = 0.15
    mean_span: int = 3
    pad: int = 0
    sentinels: int = 100

    def __call__(self, examples):
        pairs = [self.corrupt(example["input_ids"].tolist()) for example in examples]
        inputs, targets = zip(*pairs, strict=True)
        return {"input_ids": self.padded(inputs), "labels": self.padded(targets)}

    def corrupt(self, tokens):
        kept, targets, sentinel, masked = [], [], self.sentinels, 0
        position = 0
        while position < len(tokens):
            wanted = self.noise * (position + 1) - masked
            if random.random() < wanted / self.mean_span and sentinel > 1:
                span = min(1 + int(random.expovariate(1 / self.mean_span)), len(tokens) - position)
                sentinel -= 1
                kept.append(sentinel)
                targets.append(sentinel)
                targets.extend(tokens[position : position + span])
                masked += span
                position += span
            else:
                kept.append(tokens[position])
                position += 1
        return kept, targets

    def padded(self, rows):
        width = max(map(len, rows))
        return torch.tensor([row + [self.pad] * (width - len(row)) for row in rows])


def train_step(input_ids, labels):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in loader:
            train_step(**batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(Corpus(), batch_size=512, shuffle=True, num_workers=2, collate_fn=SpanCorruption())
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
