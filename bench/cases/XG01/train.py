"""Fine-tune a small text classifier with length-bucketed batches."""

import argparse
import os
import random
import re
import time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

WORD = re.compile(r"[a-z]+|[0-9]+|[^\sa-z0-9]")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--articles", type=int, default=16000)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--batches-per-epoch", type=int, default=30)
    p.add_argument("--max-tokens", type=int, default=128)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def write_articles(count, seed):
    rng = random.Random(seed)
    vocab = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(3000)]
    book = " ".join(rng.choices(vocab, k=60000)).replace(" qu", ", qu")
    articles = []
    for _ in range(count):
        start = rng.randrange(len(book) - 2600)
        articles.append(book[start : start + rng.randint(500, 2500)])
    return articles


def tokenize(text):
    return WORD.findall(text)


class Articles(Dataset):
    def __init__(self, texts, max_tokens):
        self.texts = texts
        self.max_tokens = max_tokens

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        words = tokenize(self.texts[index])[: self.max_tokens]
        ids = [len(w) * 31 + ord(w[0]) for w in words]
        return torch.tensor(ids), index % 4


class BucketBatches(Sampler):
    """Batches of similar length; every epoch sees a random part of the corpus."""

    def __init__(self, data, batch_size, batches, seed):
        self.data = data
        self.batch_size = batch_size
        self.batches = batches
        self.rng = random.Random(seed)

    def length_of(self, index):
        return len(tokenize(self.data.texts[index])) + self.rng.random()

    def __iter__(self):
        order = sorted(range(len(self.data)), key=self.length_of)
        groups = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        self.rng.shuffle(groups)
        yield from groups[: self.batches]

    def __len__(self):
        return self.batches


def pad(samples):
    ids, labels = zip(*samples)
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor(labels)


def step(ids, labels):
    time.sleep(0.030)
    return float(ids.shape[1])


def main():
    args = parse_args()
    data = Articles(write_articles(args.articles, args.seed), args.max_tokens)
    batches = BucketBatches(data, args.batch_size, args.batches_per_epoch, args.seed)
    loader = DataLoader(
        data, batch_sampler=batches, collate_fn=pad, num_workers=args.workers, persistent_workers=args.workers > 0
    )
    limit = int(os.environ.get("CASE_STEPS", 4000))
    done, began = 0, None
    while done < limit:
        for ids, labels in loader:
            step(ids, labels)
            done += 1
            if done == 8:
                began = time.perf_counter()
            if done >= limit:
                break
    print(f"steps_per_s {(done - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
