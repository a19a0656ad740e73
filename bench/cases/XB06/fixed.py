"""Match postal addresses to a gazetteer; an epoch is one small set of corrections."""

import itertools
import json
import os
import random
import string
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


def trigrams(name):
    padded = f"  {name} "
    return [padded[start : start + 3] for start in range(len(padded) - 2)]


def write_gazetteer(path, count=60_000):
    rng = random.Random(3)
    letters = string.ascii_lowercase
    names = ["".join(rng.choices(letters, k=rng.randint(6, 14))) for _ in range(count)]
    path.write_text(json.dumps(names))
    return names


def open_gazetteer(worker):
    """Give a worker its index: the streets in which a trigram occurs."""
    dataset = get_worker_info().dataset
    index = defaultdict(set)
    for street, name in enumerate(json.loads(dataset.path.read_text())):
        for trigram in trigrams(name):
            index[trigram].add(street)
    dataset.index = dict(index)


class Corrections(Dataset):
    def __init__(self, path, names, size=256):
        self.path = path
        self.index = None
        rng = random.Random(4)
        self.typed = [self.mistype(rng.choice(names), rng) for _ in range(size)]

    @staticmethod
    def mistype(name, rng):
        place = rng.randrange(len(name))
        return name[:place] + rng.choice(string.ascii_lowercase) + name[place + 1 :]

    def __len__(self):
        return len(self.typed)

    def __getitem__(self, number):
        typed = self.typed[number]
        counts = [len(self.index.get(trigram, ())) for trigram in trigrams(typed)][:12]
        letters = [ord(letter) - 96 for letter in typed[:14]]
        return torch.tensor(counts + [0] * (12 - len(counts))), torch.tensor(letters + [0] * (14 - len(letters)))


class Trainer:
    def __init__(self, loader, max_steps):
        self.loader = loader
        self.max_steps = max_steps
        self.steps = 0

    def training_step(self, counts, letters):
        time.sleep(0.030)
        self.steps += 1

    def run_epoch(self):
        for counts, letters in self.loader:
            self.training_step(counts, letters)
            if self.steps == self.max_steps:
                return

    def fit(self):
        started = time.perf_counter()
        for _epoch in itertools.count():
            self.run_epoch()
            if self.steps == self.max_steps:
                return self.steps / (time.perf_counter() - started)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "streets.json")
        corrections = Corrections(path, write_gazetteer(path))
        loader = DataLoader(
            corrections,
            batch_size=32,
            shuffle=True,
            num_workers=2,
            worker_init_fn=open_gazetteer,
            persistent_workers=True,
        )
        trainer = Trainer(loader, int(os.environ.get("CASE_STEPS", "-1")))
        print(f"steps_per_s {trainer.fit():.3f}")


if __name__ == "__main__":
    main()
