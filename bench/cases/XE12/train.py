"""Intent classifier: length buckets, tokens made in the collate function, averaged weights."""

import copy
import json
import os
import random
import re
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    sentences: int = 2400
    batch_size: int = 16
    buckets: int = 12
    vocabulary: int = 3000
    width: int = 32
    intents: int = 6
    workers: int = 1
    device_seconds: float = 0.045
    max_steps: int = 4000
    warmup: int = 8


class Sentences(Dataset):
    def __init__(self, cfg):
        rng = random.Random(21)
        letters = "abcdefghijklmnop"
        words = ["".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(800)]
        self.items = [
            (" ".join(rng.choices(words, k=rng.randint(10, 60))) + ".", rng.randrange(cfg.intents))
            for _ in range(cfg.sentences)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class BucketBatches(Sampler):
    def __init__(self, data, cfg):
        self.order = sorted(range(len(data)), key=lambda i: len(data.items[i][0]))
        self.cfg = cfg

    def __iter__(self):
        size = len(self.order) // self.cfg.buckets
        batches = []
        for at in range(0, len(self.order), size):
            bucket = self.order[at : at + size]
            random.shuffle(bucket)
            batches += [bucket[i : i + self.cfg.batch_size] for i in range(0, len(bucket), self.cfg.batch_size)]
        random.shuffle(batches)
        return iter(batches)

    def __len__(self):
        size = len(self.order) // self.cfg.buckets
        return self.cfg.buckets * -(-size // self.cfg.batch_size)


class Tokens:
    pattern = re.compile(r"\w+|[^\w\s]")

    def __init__(self, cfg):
        self.cfg = cfg

    def pieces(self, text):
        for word in self.pattern.findall(text.lower()):
            yield word[:4]
            for i in range(4, len(word), 3):
                yield "##" + word[i : i + 3]

    def __call__(self, samples):
        rows = [[hash(p) % (self.cfg.vocabulary - 1) + 1 for p in self.pieces(text)] for text, _ in samples]
        tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for i, row in enumerate(rows):
            tokens[i, : len(row)] = torch.tensor(row)
        return tokens, torch.tensor([intent for _, intent in samples])


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        data = Sentences(cfg)
        self.loader = DataLoader(
            data,
            batch_sampler=BucketBatches(data, cfg),
            collate_fn=Tokens(cfg),
            num_workers=cfg.workers,
            persistent_workers=True,
        )
        self.model = nn.Sequential(nn.EmbeddingBag(cfg.vocabulary, cfg.width), nn.Linear(cfg.width, cfg.intents))
        self.average = copy.deepcopy(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def update(self, tokens, intents):
        loss = nn.functional.cross_entropy(self.model(tokens), intents)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        time.sleep(self.cfg.device_seconds)
        with torch.no_grad():
            for mean, now in zip(self.average.parameters(), self.model.parameters()):
                mean.lerp_(now, 0.01)
        return loss.item()

    def fit(self):
        limit = int(os.environ.get("CASE_STEPS", self.cfg.max_steps))
        step = 0
        while True:
            for tokens, intents in self.loader:
                loss = self.update(tokens, intents)
                step += 1
                if step % 20 == 0:
                    print(json.dumps({"step": step, "loss": round(loss, 4), "tokens": tokens.numel()}))
                if step == self.cfg.warmup:
                    begun = time.perf_counter()
                if step >= limit:
                    return (step - self.cfg.warmup) / (time.perf_counter() - begun)


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    print(f"steps_per_s {Trainer(Config()).fit():.3f}")
