"""Fine-tune on chat transcripts; tokenises on the fly."""

import os
import re
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WORDS = ["the", "model", "reads", "a", "line", "and", "answers", "with", "another", "piece", "of", "text"]
PIECES = re.compile(r"\w+|[^\w\s]")


def make_dialogues(count=400, words=600):
    rng = np.random.default_rng(9)
    return [" ".join(WORDS[word] for word in rng.integers(0, len(WORDS), words)) + "." for _ in range(count)]


class Tokeniser:
    def __init__(self, vocabulary=4_096):
        self.vocabulary = vocabulary

    def __call__(self, text):
        tokens = []
        for piece in PIECES.findall(text.lower()):
            for start in range(0, len(piece), 3):
                chunk = piece[start : start + 3]
                tokens.append(sum(ord(letter) * 31**place for place, letter in enumerate(chunk)) % self.vocabulary)
        return tokens


class DialogueDataset(Dataset):
    def __init__(self, dialogues, tokenise, length=80_000, context=1_024):
        self.dialogues = dialogues
        self.tokenise = tokenise
        self.length = length
        self.context = context

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        text = "<user> " + self.dialogues[index % len(self.dialogues)] + " <assistant>"
        tokens = self.tokenise(text)[: self.context]
        padded = torch.zeros(self.context, dtype=torch.long)
        padded[: len(tokens)] = torch.tensor(tokens)
        return padded


def train_step(tokens):
    time.sleep(0.040)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for tokens in loader:
            train_step(tokens)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = DialogueDataset(make_dialogues(), Tokeniser())
    loader = DataLoader(dataset, batch_size=24, shuffle=True)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
