"""Prioritised replay over episodes kept as compressed chunks."""

import zlib

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

H = W = 84
CHUNK = 16


class SumTree:
    def __init__(self, priorities):
        n = 1
        while n < len(priorities):
            n *= 2
        self.n = n
        tree = np.zeros(2 * n)
        tree[n : n + len(priorities)] = priorities
        for k in range(n - 1, 0, -1):
            tree[k] = tree[2 * k] + tree[2 * k + 1]
        self.tree = tree.tolist()

    def find(self, mass):
        k = 1
        while k < self.n:
            k *= 2
            if mass > self.tree[k]:
                mass -= self.tree[k]
                k += 1
        return k - self.n

    @property
    def total(self):
        return self.tree[1]


class PrioritySampler(Sampler):
    def __init__(self, tree, draws, limit, seed=0):
        self.tree, self.draws, self.limit = tree, draws, limit
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.draws

    def __iter__(self):
        for _ in range(self.draws):
            yield min(self.tree.find(self.rng.random() * self.tree.total), self.limit - 1)


class Replay(Dataset):
    def __init__(self, chunks, actions, rewards, n_step=5, gamma=0.99, shift=4):
        self.chunks, self.actions, self.rewards = chunks, actions, rewards
        self.n_step, self.gamma, self.shift = n_step, gamma, shift

    def __len__(self):
        return len(self.actions) - self.n_step - 4

    def frames(self, first, count):
        parts = [
            np.frombuffer(zlib.decompress(self.chunks[c]), np.uint8).reshape(CHUNK, H, W)
            for c in range(first // CHUNK, (first + count - 1) // CHUNK + 1)
        ]
        block = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return block[first % CHUNK : first % CHUNK + count]

    def jitter(self, obs):
        padded = np.pad(obs, ((0, 0), (self.shift,) * 2, (self.shift,) * 2), mode="edge")
        y, x = np.random.randint(0, 2 * self.shift + 1, 2)
        return padded[:, y : y + H, x : x + W].copy()

    def __getitem__(self, i):
        window = self.frames(i, 4 + self.n_step)
        ret = 0.0
        for k in reversed(range(self.n_step)):
            ret = self.rewards[i + 3 + k] + self.gamma * ret
        return (
            torch.from_numpy(window[:4].copy()),
            int(self.actions[i + 3]),
            float(ret),
            torch.from_numpy(window[-4:].copy()),
        )
