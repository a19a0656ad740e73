"""Pre-train an encoder-decoder by span corruption; batches are corrupted when they are put together."""

import os
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
        pairs = [self.corrupt(example["input_ids"]) for example in examples]
        inputs, targets = zip(*pairs, strict=True)
        return {"input_ids": self.padded(inputs), "labels": self.padded(targets)}

    def corrupt(self, tokens):
        spans = int(self.noise * len(tokens) / self.mean_span)
        slots = np.random.permutation(len(tokens) // self.mean_span)[:spans]
        starts = np.sort(slots) * self.mean_span
        sentinels = np.arange(self.sentinels, self.sentinels - spans, -1)
        hidden = starts[:, None] + np.arange(self.mean_span)
        targets = np.concatenate([sentinels[:, None], tokens[hidden]], axis=1).ravel()
        kept = tokens.copy()
        kept[starts] = sentinels
        return np.delete(kept, hidden[:, 1:].ravel()), targets

    def padded(self, rows):
        width = max(map(len, rows))
        padded = np.full((len(rows), width), self.pad)
        for place, row in enumerate(rows):
            padded[place, : len(row)] = row
        return torch.from_numpy(padded)


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
