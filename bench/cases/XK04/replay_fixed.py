"""Replay memory and its mini-batches."""

from collections import deque
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch.utils.data import IterableDataset


@dataclass
class Transition:
    obs: np.ndarray
    action: int
    reward: float
    next_obs: np.ndarray
    done: bool


@dataclass
class TransitionBatch:
    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    next_obs: torch.Tensor
    done: torch.Tensor

    def to(self, device):
        return TransitionBatch(*(getattr(self, f.name).to(device) for f in fields(self)))

    def __len__(self):
        return len(self.action)


class ReplayMemory:
    def __init__(self, capacity, seed=0):
        self.items = deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)

    def push(self, t):
        self.items.append(t)

    def __len__(self):
        return len(self.items)

    def draw(self):
        return self.items[int(self.rng.integers(len(self.items)))]


class ReplayDataset(IterableDataset):
    """Endless uniform draws; one 'epoch' is `length` transitions."""

    def __init__(self, memory, length):
        self.memory, self.length = memory, length

    def __iter__(self):
        for _ in range(self.length):
            yield self.memory.draw()


def to_batch(transitions):
    return TransitionBatch(
        obs=torch.from_numpy(np.stack([t.obs for t in transitions])),
        action=torch.tensor([t.action for t in transitions]),
        reward=torch.tensor([t.reward for t in transitions], dtype=torch.float32),
        next_obs=torch.from_numpy(np.stack([t.next_obs for t in transitions])),
        done=torch.tensor([t.done for t in transitions]),
    )
