"""Train a translation model; batches hold sentences of similar length."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, count=20_000):
        rng = np.random.default_rng(77)
        self.lengths = rng.integers(8, 120, count)
        self.tokens = rng.integers(4, 16_000, 40_000)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        start = index % (len(self.tokens) - 200)
        return torch.from_numpy(self.tokens[start : start + self.lengths[index]])


class LengthBatches(Sampler):
    def __init__(self, lengths, batch_size):
        order = np.argsort(lengths, kind="stable")
        self.batches = [order[start : start + batch_size].tolist() for start in range(0, len(order), batch_size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for number in torch.randperm(len(self.batches)).tolist():
            yield self.batches[number]


def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def train_step(tokens):
    time.sleep(0.035)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for tokens in loader:
            train_step(tokens)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    sentences = Sentences()
    batches = LengthBatches(sentences.lengths, batch_size=32)
    loader = DataLoader(sentences, batch_sampler=batches, num_workers=2, collate_fn=pad)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
