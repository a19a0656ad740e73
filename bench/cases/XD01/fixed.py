"""Train a bi-encoder on questions and answers of a help forum, with wrong answers from other topics."""

import os
import random
import time

import numpy as np
import torch
from datasets import Dataset as Table
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


def forum(threads=400, topics=120, words=8000):
    rng = random.Random(4)

    def text(low, high):
        return [rng.randrange(1, words) for _ in range(rng.randint(low, high))]

    return Table.from_dict(
        {
            "question": [text(6, 18) for _ in range(threads)],
            "answer": [text(20, 60) for _ in range(threads)],
            "topic": [rng.randrange(topics) for _ in range(threads)],
        }
    )


def drop_words(tokens, share=0.1):
    kept = [token for token in tokens if random.random() > share]
    return kept or tokens


def encode(batch):
    """Called by the table for the rows that are asked for."""
    encoded = dict(batch)
    for column in ("question", "answer"):
        if column in batch:
            encoded[column] = [torch.tensor(drop_words(tokens)) for tokens in batch[column]]
    return encoded


class Triplets(Dataset):
    def __init__(self, table, wrong=3):
        self.table = table
        self.wrong = wrong
        self.topics = np.array(table["topic"][:])

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        row = self.table[index]
        elsewhere = np.flatnonzero(self.topics != row["topic"])
        chosen = np.random.choice(elsewhere, self.wrong, replace=False)
        wrong = [self.table[int(other)]["answer"] for other in chosen]
        return {"question": row["question"], "answers": [row["answer"], *wrong]}


class Collator:
    def __init__(self, padding=0):
        self.padding = padding

    def __call__(self, features):
        questions = [feature["question"] for feature in features]
        answers = [answer for feature in features for answer in feature["answers"]]
        return {
            "question_ids": pad_sequence(questions, batch_first=True, padding_value=self.padding),
            "answer_ids": pad_sequence(answers, batch_first=True, padding_value=self.padding),
        }


class Trainer:
    def __init__(self, table, batch_size=6, max_steps=4000):
        self.loader = DataLoader(
            Triplets(table),
            batch_size=batch_size,
            shuffle=True,
            num_workers=2,
            collate_fn=Collator(),
            drop_last=True,
            persistent_workers=True,
        )
        self.max_steps = max_steps
        self.step = 0

    def training_step(self, batch):
        assert batch["question_ids"].ndim == batch["answer_ids"].ndim == 2
        time.sleep(0.025)
        return 1.0 / (1 + self.step)

    def fit(self):
        while self.step < self.max_steps:
            for batch in self.loader:
                loss = self.training_step(batch)
                self.step += 1
                if self.step == 8:
                    self.since = time.perf_counter()
                if self.step % 200 == 0:
                    print(f"step {self.step} loss {loss:.4f}")
                if self.step >= self.max_steps:
                    break
        return (self.step - 8) / (time.perf_counter() - self.since)


if __name__ == "__main__":
    table = forum()
    table.set_transform(encode)
    trainer = Trainer(table, max_steps=int(os.environ.get("CASE_STEPS", 4000)))
    print(f"steps_per_s {trainer.fit():.3f}")
