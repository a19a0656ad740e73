"""Tell the mood of reviews, streamed from files of JSON lines."""

import json
import os
import random
import string
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LENGTH = 192


def write_reviews(folder, files=4, lines=2_500):
    rng = random.Random(13)
    for number in range(files):
        with open(folder / f"reviews{number}.jsonl", "w") as out:
            for _ in range(lines):
                text = "".join(rng.choices(string.ascii_lowercase + "    ", k=rng.randint(80, 240)))
                out.write(json.dumps({"text": text, "stars": rng.randint(1, 5)}) + "\n")


def encode(text):
    codes = torch.zeros(LENGTH, dtype=torch.uint8)
    raw = torch.frombuffer(bytearray(text[:LENGTH], "ascii"), dtype=torch.uint8)
    codes[: len(raw)] = raw
    return codes


class ReviewStream(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.jsonl"))

    def lines(self):
        worker = get_worker_info()
        paths = self.paths[worker.id :: worker.num_workers] if worker else self.paths
        while True:
            for path in random.sample(paths, len(paths)):
                with open(path) as source:
                    yield from source

    def __iter__(self):
        for line in self.lines():
            review = json.loads(line)
            yield encode(review["text"]), review["stars"] - 1


class MoodModel(nn.Module):
    def __init__(self, width=88):
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.layers = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, width, 5, padding=2), nn.ReLU()
        )
        self.head = nn.Linear(width, 5)

    def forward(self, codes):
        hidden = self.embedding(codes.long()).transpose(1, 2)
        return self.head(self.layers(hidden).amax(dim=-1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    max_steps = int(os.environ.get("CASE_STEPS", "0"))
    model = MoodModel()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as root:
        write_reviews(Path(root))
        loader = DataLoader(ReviewStream(Path(root)), batch_size=32, num_workers=1)
        for step, (codes, stars) in enumerate(loader, start=1):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(codes), stars).backward()
            optimiser.step()
            if step == 5:
                started = time.perf_counter()
            if step == max_steps:
                break
        print(f"steps_per_s {(step - 5) / (time.perf_counter() - started):.3f}")


if __name__ == "__main__":
    main()
