"""Train on short sentences, batched by length from a columnar table."""

import bisect
import itertools
import os
import random
import time

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class Table:
    """Chunks of columns, read a row at a time."""

    def __init__(self, chunks):
        self.chunks = chunks
        self.ends = list(itertools.accumulate(len(chunk["length"]) for chunk in chunks))

    def __len__(self):
        return self.ends[-1]

    def row(self, index):
        which = bisect.bisect_right(self.ends, index)
        offset = index - self.ends[which]
        return {name: values[offset].item() for name, values in self.chunks[which].items()}


class Column:
    """One column of a table, as a sequence."""

    def __init__(self, table, name):
        self.table = table
        self.name = name

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return self.table.row(index)[self.name]


class LengthBatches(Sampler):
    """Batches of sentences of about the same length, in random order."""

    def __init__(self, lengths, batch_size):
        self.lengths = lengths
        self.batch_size = batch_size

    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self):
        order = random.sample(range(len(self.lengths)), len(self.lengths))
        order.sort(key=lambda index: self.lengths[index] // 4)
        batches = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        widths = [max(self.lengths[index] for index in batch) for batch in batches]
        assert max(widths) <= 512
        return iter(random.sample(batches, len(batches)))


class SentenceDataset(Dataset):
    def __init__(self, lengths, vocabulary=8_192):
        self.lengths = lengths
        self.tokens = torch.from_numpy(np.random.default_rng(25).integers(0, vocabulary, 64_000))

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        start = index * 7 % 60_000
        return self.tokens[start : start + self.lengths[index]]


def load_table(rows=40_000, chunk=2_000):
    rng = np.random.default_rng(26)
    names = ("document", "sentence", "start", "end", "speaker", "language", "score")
    return Table(
        [
            {"length": rng.integers(4, 64, chunk), **{name: rng.integers(0, 9_000, chunk) for name in names}}
            for _ in range(rows // chunk)
        ]
    )


def train_step(tokens):
    time.sleep(0.020)


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
    table = load_table()
    dataset = SentenceDataset(np.concatenate([chunk["length"] for chunk in table.chunks]))
    batches = LengthBatches(list(Column(table, "length")), batch_size=1_000)
    loader = DataLoader(dataset, batch_sampler=batches, num_workers=2, collate_fn=pad_batch)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


def pad_batch(sentences):
    return pad_sequence(sentences, batch_first=True)


if __name__ == "__main__":
    main()
