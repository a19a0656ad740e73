"""Train a language model on protein chains; every batch holds chains of about one length."""

import itertools
import os
import random
import time

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

AMINO_ACIDS = 20


class ChainDataset(Dataset):
    """Chains as slices of one long array."""

    def __init__(self, count=200_000, seed=8):
        rng = np.random.default_rng(seed)
        self.lengths = rng.gamma(3.0, 40.0, count).astype(np.int64) + 20
        self.ends = np.cumsum(self.lengths)
        self.residues = rng.integers(1, AMINO_ACIDS + 1, self.ends[-1], dtype=np.uint8)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        end = self.ends[index]
        return torch.from_numpy(self.residues[end - self.lengths[index] : end].astype(np.int64))


class SimilarLengths:
    """Batches of chains whose lengths are close to that of a chain drawn at random."""

    def __init__(self, lengths, batch_size, seed=0):
        self.lengths = lengths.tolist()
        self.batch_size = batch_size
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        left = list(range(len(self.lengths)))
        while len(left) >= self.batch_size:
            wanted = self.lengths[self.rng.choice(left)]
            left.sort(key=lambda chain: abs(self.lengths[chain] - wanted))
            yield left[: self.batch_size]
            del left[: self.batch_size]


def collate(chains):
    return pad_sequence(chains, batch_first=True)


def mask_tokens(tokens, share=0.15):
    hidden = torch.rand(tokens.shape) < share
    return tokens.masked_fill(hidden, AMINO_ACIDS + 1), hidden


class FakeModel:
    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, tokens, hidden):
        time.sleep(self.seconds)
        return hidden.float().mean()


def fit(model, loader, max_steps):
    done = 0
    for _epoch in itertools.count():
        for tokens in loader:
            model(*mask_tokens(tokens))
            done += 1
            if done == 6:
                clock = time.perf_counter()
            if done == max_steps:
                return (done - 6) / (time.perf_counter() - clock)


def main():
    torch.set_num_threads(1)
    chains = ChainDataset()
    sampler = SimilarLengths(chains.lengths, batch_size=24)
    loader = DataLoader(chains, batch_sampler=sampler, num_workers=2, collate_fn=collate)
    speed = fit(FakeModel(0.018), loader, int(os.environ.get("CASE_STEPS", "-1")))
    print(f"steps_per_s {speed:.3f}")


if __name__ == "__main__":
    main()
