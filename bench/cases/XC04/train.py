"""Language model on short letters; the batches are made of raw strings."""

import os
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset
from wordpieces import Pieces, learn

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


class Letters(Dataset):
    def __init__(self, vocabulary, count=600, length=40_000):
        chance = random.Random(8)
        weights = [1 / (rank + 4) for rank in range(len(vocabulary))]
        self.texts = [" ".join(chance.choices(vocabulary, weights, k=chance.randint(220, 300))) for _ in range(count)]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        text = self.texts[index % len(self.texts)]
        return text, index % 5


class Packer:
    """Turns texts into one block of numbers and a mask."""

    def __init__(self, pieces, longest):
        self.words = pieces.words
        self.split = pieces.split
        self.longest = longest

    def encode(self, text):
        numbers = [2]
        for word in self.words(text):
            numbers.extend(self.split(word))
            if len(numbers) >= self.longest:
                break
        return torch.tensor(numbers[: self.longest])

    def __call__(self, samples):
        texts, labels = zip(*samples)
        rows = [self.encode(text) for text in texts]
        block = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return {"tokens": block, "mask": block.ne(0), "labels": torch.tensor(labels)}


def invent(count):
    chance = random.Random(3)
    return ["".join(chance.choices(SYLLABLES, k=chance.choice((3, 4, 4, 5)))) for _ in range(count)]


def batches(loader, limit):
    number = 0
    while number < limit:
        for batch in loader:
            number += 1
            yield number, batch
            if number == limit:
                return


def main():
    vocabulary = invent(1500)
    pieces = Pieces(learn(vocabulary[:400], 260))
    loader = DataLoader(
        Letters(vocabulary),
        batch_size=24,
        shuffle=True,
        num_workers=2,
        collate_fn=Packer(pieces, longest=1500),
        persistent_workers=True,
    )
    limit = int(os.environ.get("CASE_STEPS", "4000"))
    for number, batch in batches(loader, limit):
        time.sleep(0.03)
        if number == 8:
            since = time.perf_counter()
    return (number - 8) / (time.perf_counter() - since)


if __name__ == "__main__":
    print(f"steps_per_s {main():.3f}")
