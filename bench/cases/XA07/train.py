"""Sort support tickets into queues with a small convolutional network."""

import os
import random
import re
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

SUBSTITUTIONS = [
    (re.compile(r"<[^>]+>"), " "),
    (re.compile(r"https?://\S+"), " url "),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+"), " mail "),
    (re.compile(r"\b\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b"), " date "),
    (re.compile(r"\b[A-Z]{2,5}-\d+\b"), " ticket "),
    (re.compile(r"\d+(?:[.,]\d+)?"), " number "),
    (re.compile(r"\b(\w+)(?: \1\b)+"), r"\1"),
    (re.compile(r"[^\w\s]"), " "),
    (re.compile(r"\s+"), " "),
]
WORDS = [
    "printer",
    "login",
    "invoice",
    "refund",
    "error",
    "screen",
    "update",
    "the",
    "a",
    "is",
    "not",
    "of",
    "and",
    "with",
    "after",
    "again",
    "please",
    "help",
]


class Ticket:
    def __init__(self, raw, queue):
        self.raw = raw
        self.queue = queue

    @property
    def text(self):
        text = self.raw
        for pattern, replacement in SUBSTITUTIONS:
            text = pattern.sub(replacement, text)
        return text.strip().lower()


class Tickets(Dataset):
    def __init__(self, tickets, vocabulary, longest=256, length=80_000):
        self.tickets = tickets
        self.vocabulary = vocabulary
        self.longest = longest
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        ticket = self.tickets[index % len(self.tickets)]
        words = ticket.text.split()[: self.longest]
        tokens = [self.vocabulary.get(word, 1) for word in words]
        tokens += [0] * (self.longest - len(tokens))
        return torch.tensor(tokens), ticket.queue


def write_tickets(count=120, words=6_000, queues=6):
    random.seed(3)
    extras = ["<br/>", "user@example.org", "https://example.org/a?b=1", "12.03.2024", "ABC-1234", "49,90", "!!", "--"]
    return [Ticket(" ".join(random.choices(WORDS + extras, k=words)), random.randrange(queues)) for _ in range(count)]


class TextCNN(nn.Module):
    def __init__(self, vocabulary, channels=112, queues=6):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 96)
        self.convolve = nn.Conv1d(96, channels, 5, padding=2)
        self.classify = nn.Linear(channels, queues)

    def forward(self, tokens):
        hidden = self.convolve(self.embed(tokens).transpose(1, 2)).relu()
        return self.classify(hidden.amax(2))


def endless(loader):
    while True:
        yield from loader


def main():
    torch.set_num_threads(1)
    last_step = int(os.environ.get("CASE_STEPS", "0"))
    known = ["", "?", "url", "mail", "date", "ticket", "number", *WORDS]
    vocabulary = {word: number for number, word in enumerate(known)}
    loader = DataLoader(Tickets(write_tickets(), vocabulary), batch_size=16, shuffle=True, num_workers=2)
    model = TextCNN(len(vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (tokens, queues) in enumerate(endless(loader), start=1):
        loss = cross_entropy(model(tokens), queues)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 8:
            start = time.perf_counter()
        if step == last_step:
            break
    print(f"steps_per_s {(last_step - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
