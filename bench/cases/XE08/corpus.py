"""Utterances with their transcripts as token ids."""

import numpy as np
import torch
from torch.utils.data import Dataset


class Utterances(Dataset):
    def __init__(self, count, vocabulary=500, bands=20, seed=9):
        rng = np.random.default_rng(seed)
        self.transcripts = [rng.integers(1, vocabulary, rng.integers(65, 86)) for _ in range(count)]
        self.features = [rng.standard_normal((2 * len(t), bands), dtype=np.float32) for t in self.transcripts]

    def __len__(self):
        return len(self.transcripts)

    def __getitem__(self, index):
        feats = self.features[index].copy()
        begin = np.random.randint(len(feats) - 10)
        feats[begin : begin + 10] = 0.0
        return torch.from_numpy(feats), torch.from_numpy(self.transcripts[index])


def pad_batch(samples):
    feats = torch.nn.utils.rnn.pad_sequence([f for f, _ in samples], batch_first=True)
    tokens = torch.nn.utils.rnn.pad_sequence([t for _, t in samples], batch_first=True)
    lengths = torch.tensor([len(t) for _, t in samples])
    return feats, tokens, lengths
