"""Tag the words of sentences, with a confusion matrix that is kept up all along."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TAGS = 12
WORDS = 4_000
LENGTH = 128


class Sentences(Dataset):
    def __init__(self, count=6_000):
        generator = torch.Generator().manual_seed(19)
        self.words = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
        self.tags = (self.words * 7 + 3) % TAGS

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index], self.tags[index]


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.context = nn.Conv1d(width, width, 3, padding=1)
        self.head = nn.Linear(width, TAGS)

    def forward(self, words):
        hidden = self.embedding(words).transpose(1, 2)
        return self.head(torch.relu(self.context(hidden)).transpose(1, 2))


class Confusion:
    """How often a tag was taken for another."""

    def __init__(self, tags):
        self.counts = torch.zeros(tags, tags, dtype=torch.long)

    def update(self, scores, tags):
        guesses = scores.argmax(dim=-1)
        for guessed, true in zip(guesses.flatten(), tags.flatten(), strict=True):
            self.counts[true, guessed] += 1

    def accuracy(self):
        return (self.counts.diagonal().sum() / self.counts.sum()).item()


def train(model, loader, max_steps):
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    confusion = Confusion(TAGS)
    step = 0
    while True:
        for words, tags in loader:
            scores = model(words)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            confusion.update(scores.detach(), tags)
            step += 1
            if step % 200 == 0:
                print(f"step {step} accuracy {confusion.accuracy():.3f}", flush=True)
            if step == 4:
                started = time.perf_counter()
            if step == max_steps:
                return (step - 4) / (time.perf_counter() - started)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    loader = DataLoader(Sentences(), batch_size=64, shuffle=True, num_workers=1, drop_last=True)
    speed = train(Tagger(), loader, int(os.environ.get("CASE_STEPS", "0")))
    print(f"steps_per_s {speed:.3f}")


if __name__ == "__main__":
    main()
