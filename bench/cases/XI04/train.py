"""Byte-level language model on scanned documents."""

import os
import random
import re
import time
from collections import Counter

import torch
from torch.utils.data import DataLoader, Dataset

WORDS = (
    "invoice total amount due net gross account payment date number customer order item price tax rate "
    "shipping address reference balance credit debit note quantity unit discount terms"
).split()
URL = re.compile(r"https?://\S+")
TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
BLANK = re.compile(r"\n{3,}")
NUMBER = re.compile(r"\d{5,}")


def scan(rng):
    lines = []
    for _ in range(rng.randrange(15, 40)):
        line = " ".join(rng.choices(WORDS, k=rng.randrange(4, 12)))
        lines.append(f"{line} {rng.randrange(10**7)}" + " " * rng.randrange(0, 30))
    if rng.random() < 1 / 40:
        at = rng.randrange(len(lines))
        lines[at] = lines[at] + " " * rng.randrange(7000, 8500) + "page 1 of 2"
    return "\n".join(lines)


class Documents(Dataset):
    def __init__(self, count=1600, length=512, seed=5):
        rng = random.Random(seed)
        self.texts = [scan(rng) for _ in range(count)]
        self.length = length

    def __len__(self):
        return len(self.texts)

    def clean(self, text):
        text = URL.sub("<url>", text)
        text = TRAILING.sub("", text)
        text = BLANK.sub("\n\n", text)
        return NUMBER.sub("<num>", text)

    def __getitem__(self, i):
        text = self.clean(self.texts[i])
        counts = Counter(word for word in text.split() if word.isalpha())
        rare = sum(1 for word, n in counts.items() if n == 1) / max(1, len(counts))
        tokens = list(text.encode("utf-8"))[: self.length]
        tokens += [0] * (self.length - len(tokens))
        return torch.tensor(tokens, dtype=torch.long), torch.tensor(rare)


class Trainer:
    def __init__(self, loader, steps):
        self.loader, self.steps = loader, steps
        self.limit = int(os.environ.get("CASE_STEPS", "0"))
        self.ema = None

    def step(self, tokens, rare):
        time.sleep(0.040)
        loss = float((tokens[:, 1:] != tokens[:, :-1]).float().mean() + rare.mean())
        self.ema = loss if self.ema is None else 0.95 * self.ema + 0.05 * loss

    def run(self):
        done, began = 0, None
        while done < self.steps:
            for tokens, rare in self.loader:
                self.step(tokens, rare)
                done += 1
                if done == 8:
                    began = time.perf_counter()
                if self.limit and done >= self.limit:
                    print(f"steps_per_s {(done - 8) / (time.perf_counter() - began):.3f}")
                    return
                if done % 200 == 0:
                    print(f"step {done} loss {self.ema:.4f}", flush=True)


if __name__ == "__main__":
    generator = torch.Generator().manual_seed(11)
    loader = DataLoader(
        Documents(),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        drop_last=True,
        generator=generator,
        persistent_workers=True,
    )
    Trainer(loader, steps=4000).run()
