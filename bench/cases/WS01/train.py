"""Train on a small speech set: an epoch is a few dozen batches."""

import json
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lexicon_text(words=40_000):
    rng = np.random.default_rng(12)
    spellings = rng.integers(0, 26, (words, 8))
    return json.dumps({"".join(LETTERS[i] for i in word): word.tolist() for word in spellings})


class UtteranceDataset(Dataset):
    def __init__(self, lexicon, utterances=256):
        self.lexicon = lexicon
        self.frames = np.random.default_rng(13).standard_normal((utterances, 80, 120)).astype(np.float32)
        self.words = None

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        frames = self.frames[index]
        phones = self.words[index % len(self.words)]
        return torch.from_numpy(frames / (frames.std() + 1e-5)), torch.tensor(phones)


def load_lexicon(worker_id):
    dataset = get_worker_info().dataset
    lexicon = json.loads(dataset.lexicon)
    dataset.words = sorted(lexicon.values())


def train_step(frames, phones):
    time.sleep(0.020)


def train(loader, max_steps):
    started = time.perf_counter()
    step = 0
    while True:
        for frames, phones in loader:
            train_step(frames, phones)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = UtteranceDataset(lexicon_text())
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, worker_init_fn=load_lexicon)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
