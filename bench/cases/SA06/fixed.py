"""Fine-tune on conversations of very different lengths, padded to the longest of the batch."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class ConversationDataset(Dataset):
    def __init__(self, count=4_000):
        rng = np.random.default_rng(54)
        self.lengths = np.clip(rng.lognormal(5.0, 0.9, count), 16, 1_024).astype(int)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.from_numpy(np.random.default_rng(index).integers(0, 32_000, self.lengths[index]))


class BatchOrder(Sampler):
    def __init__(self, lengths, batch_size, group=1, seed=0):
        self.lengths = lengths
        self.batch_size = batch_size
        self.group = group
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        order = self.rng.permutation(len(self.lengths))
        span = self.group * self.batch_size
        parts = [order[start : start + span] for start in range(0, len(order), span)]
        if self.group > 1:
            parts = [part[np.argsort(self.lengths[part])] for part in parts]
        batches = [
            part[start : start + self.batch_size] for part in parts for start in range(0, len(part), self.batch_size)
        ]
        for number in self.rng.permutation(len(batches)):
            yield batches[number].tolist()


def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def train_step(tokens):
    time.sleep(6e-6 * tokens.numel())


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
    dataset = ConversationDataset()
    order = BatchOrder(dataset.lengths, batch_size=16, group=50)
    loader = DataLoader(dataset, batch_sampler=order, num_workers=2, collate_fn=pad)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
