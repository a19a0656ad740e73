"""Sort court decisions by field of law; most are short, a few are very long."""

import os
import random
import re
import time
from functools import lru_cache
from itertools import accumulate, islice

import torch
from torch.utils.data import DataLoader, Dataset, Subset

TOKEN = re.compile(r"(?P<law>§\s?\d+[a-z]?)|(?P<date>\d{1,2}\.\d{1,2}\.\d{4})|(?P<word>[^\W\d_]+)|(?P<other>\S)")
STEMS = [
    "court",
    "claim",
    "party",
    "contract",
    "damage",
    "notice",
    "appeal",
    "tenant",
    "seller",
    "costs",
    "proof",
    "term",
    "fault",
    "liable",
    "breach",
    "lease",
]
ENDINGS = ["", "s", "ed", "ing", "al", "ment", "er", "less"]


@lru_cache(maxsize=4096)
def number_of(kind, text):
    if kind == "law":
        return 1000 + int(re.sub(r"\D", "", text)) % 1000
    if kind == "date":
        return 1
    return 2 + sum(place * ord(letter) for place, letter in enumerate(text, 1)) % 900


class Decisions(Dataset):
    def __init__(self, texts, longest):
        self.texts = texts
        self.longest = longest

    def __len__(self):
        return len(self.texts)

    def tokens(self, text):
        for match in TOKEN.finditer(text):
            yield number_of(match.lastgroup, match.group())

    def __getitem__(self, index):
        numbers = list(self.tokens(self.texts[index]))
        skip = random.randrange(max(1, len(numbers) - self.longest))
        kept = torch.tensor(list(islice(numbers, skip, skip + self.longest)))
        return torch.nn.functional.pad(kept, (0, self.longest - len(kept))), index % 9


class Repeated(Dataset):
    def __init__(self, part, times):
        self.part = part
        self.times = times

    def __len__(self):
        return self.times * len(self.part)

    def __getitem__(self, index):
        return self.part[index % len(self.part)]


def write(count, seed=2):
    chance = random.Random(seed)
    pool = [stem + ending for stem in STEMS for ending in ENDINGS]
    pool += [f"§ {chance.randint(1, 950)}" for _ in range(12)] + [f"{day}.{day % 12 + 1}.1998" for day in range(1, 13)]
    sizes = (chance.randint(500, 1000) if number % 160 else chance.randint(170_000, 210_000) for number in range(count))
    return [" ".join(chance.choices(pool, k=size)) for size in sizes]


def learn(batch):
    time.sleep(0.05)


if __name__ == "__main__":
    texts = write(800)
    bounds = list(accumulate((0.9, 0.1), lambda total, share: total + int(share * len(texts)), initial=0))
    training = Repeated(Subset(Decisions(texts, 256), range(bounds[0], bounds[1])), times=40)
    loader = DataLoader(
        training, batch_size=16, shuffle=True, num_workers=2, prefetch_factor=6, persistent_workers=True
    )
    limit = int(os.environ.get("CASE_STEPS", "4000"))
    step = 0
    while step < limit:
        for batch in loader:
            learn(batch)
            step += 1
            if step == 8:
                since = time.perf_counter()
            if step == limit:
                break
    print(f"steps_per_s {(limit - 8) / (time.perf_counter() - since):.3f}")
