"""Tag short notes with one of twenty codes; a small network and a running report."""

import os
import time
from collections import deque

import numpy as np
import torch
from sklearn.metrics import classification_report, cohen_kappa_score
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

CODES = 20
NAMES = [f"code {number:02d}" for number in range(CODES)]
WORDS = 3000


class Notes(Dataset):
    def __init__(self, count=6000, length=32):
        rng = np.random.default_rng(12)
        self.codes = rng.integers(0, CODES, count)
        self.words = rng.integers(1, WORDS, (count, length))
        self.words[:, :6] = self.codes[:, None] * 100 + rng.integers(1, 60, (count, 6))

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, index):
        words = self.words[index].copy()
        words[np.random.rand(len(words)) < 0.1] = 0
        np.random.shuffle(words)
        return torch.from_numpy(words), int(self.codes[index])


class Tagger(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CODES))

    def forward(self, words):
        return self.head(self.words(words))


class History:
    """The latest predictions and how good they are."""

    def __init__(self, size=1024):
        self.true = deque(maxlen=size)
        self.guessed = deque(maxlen=size)

    def add(self, true, guessed):
        self.true.extend(NAMES[code] for code in true)
        self.guessed.extend(NAMES[code] for code in guessed)

    def summary(self):
        true, guessed = list(self.true), list(self.guessed)
        report = classification_report(true, guessed, labels=NAMES, output_dict=True, zero_division=0)
        kappa = cohen_kappa_score(true, guessed, labels=NAMES)
        return {"f1": f"{report['macro avg']['f1-score']:.3f}", "kappa": f"{kappa:.3f}"}


class Trainer:
    def __init__(self, model, loader, report_every=1):
        self.model = model
        self.loader = loader
        self.report_every = report_every
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.history = History()
        self.steps = 0

    def train_step(self, words, codes):
        logits = self.model(words)
        loss = nn.functional.cross_entropy(logits, codes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.02)
        self.history.add(codes, logits.argmax(1))

    def fit(self, limit):
        while self.steps < limit:
            bar = tqdm(self.loader, mininterval=1.0)
            for words, codes in bar:
                self.train_step(words, codes)
                self.steps += 1
                if self.steps % self.report_every == 0:
                    bar.set_postfix(self.history.summary(), refresh=False)
                if self.steps == 8:
                    self.start = time.perf_counter()
                if self.steps == limit:
                    break
        return (self.steps - 8) / (time.perf_counter() - self.start)


if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Notes(), batch_size=32, shuffle=True, num_workers=1, drop_last=True)
    print(f"steps_per_s {Trainer(Tagger(), loader).fit(int(os.environ.get('CASE_STEPS', 4000))):.3f}")
