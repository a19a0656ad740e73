"""Train a classifier of source code with a small trainer and accumulated gradients."""

import os
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RULES = [
    ("comment", r"#[^\n]*"),
    ("string", r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"),
    ("number", r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"),
    ("name", r"[A-Za-z_]\w*"),
    ("operator", r"[-+*/%=<>!&|^~]+"),
    ("bracket", r"[()\[\]{}]"),
    ("mark", r"[.,:;@]"),
]
TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in RULES))
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|_")


def write_sources(files=200, lines=60):
    rng = random.Random(106)
    names = ["rowCount", "total_price", "userName", "fetch_all", "index", "parseNode", "value"]
    return [
        "\n".join(
            f"{rng.choice(names)}[{rng.randrange(99)}] = {rng.choice(names)}({rng.random():.3f}, '{rng.choice(names)}')  # x"
            for _ in range(lines)
        )
        for _ in range(files)
    ]


class SourceFiles(Dataset):
    def __init__(self, sources, context=256, vocabulary=5_000):
        self.sources = sources
        self.context = context
        self.vocabulary = vocabulary

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        text = self.sources[index % len(self.sources)]
        pieces = []
        for match in TOKEN.finditer(text):
            if match.lastgroup == "name":
                pieces += CAMEL.split(match.group())
            elif match.lastgroup != "comment":
                pieces.append(match.group())
        ids = [hash(piece) % self.vocabulary for piece in pieces[: self.context]]
        return torch.tensor(ids + [0] * (self.context - len(ids))), index % 8


class Model(nn.Module):
    """The accelerator's part is a sleep."""

    def __init__(self, vocabulary=5_000, classes=8):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, tokens):
        time.sleep(0.025)
        return self.head(self.embedding(tokens))


class Trainer:
    def __init__(self, model, loader, accumulate=4, warmup=8):
        self.model = model
        self.loader = loader
        self.accumulate = accumulate
        self.warmup = warmup
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.step = 0

    def training_step(self, batch):
        tokens, labels = batch
        return nn.functional.cross_entropy(self.model(tokens), labels) / self.accumulate

    def fit(self, max_steps):
        while self.step < max_steps:
            self.fit_epoch(max_steps)
        return (self.step - self.warmup) / (time.perf_counter() - self.started)

    def fit_epoch(self, max_steps):
        for batch in self.loader:
            self.training_step(batch).backward()
            self.step += 1
            if self.step % self.accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            if self.step == self.warmup:
                self.started = time.perf_counter()
            if self.step == max_steps:
                return


def main():
    torch.manual_seed(0)
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(SourceFiles(write_sources()), batch_size=192, shuffle=True, num_workers=2)
    print(f"steps_per_s {Trainer(Model(), loader).fit(max_steps):.3f}")


if __name__ == "__main__":
    main()
