"""Topic classifier on a JSON-lines corpus."""

import atexit
import json
import os
import random
import shutil
import tempfile
import time
import zlib

import torch
from torch.utils.data import DataLoader, Dataset

WORDS = [
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heath",
    "inlet",
    "jetty",
    "knoll",
    "larch",
    "marsh",
    "north",
    "oasis",
    "pines",
    "quarry",
    "ridge",
    "shoal",
    "tundra",
]


def write_corpus(path, records, words=190):
    rng = random.Random(11)
    with open(path, "w", encoding="utf-8") as out:
        for i in range(records):
            text = " ".join(rng.choices(WORDS, k=words))
            record = {"id": i, "topic": rng.randrange(8), "text": text, "source": f"feed-{i % 17}"}
            out.write(json.dumps(record) + "\n")


class Corpus(Dataset):
    def __init__(self, path, vocabulary=4096, max_len=160):
        self.path = path
        self.vocabulary = vocabulary
        self.max_len = max_len
        with open(path, "rb") as lines:
            self.offsets, at = [], 0
            for line in lines:
                self.offsets.append(at)
                at += len(line)

    def __len__(self):
        return len(self.offsets)

    def record(self, index):
        with open(self.path, "rb") as lines:
            lines.seek(self.offsets[index])
            return json.loads(lines.readline())

    def encode(self, text):
        return [zlib.crc32(word.encode()) % self.vocabulary for word in text.split()[: self.max_len]]

    def __getitem__(self, index):
        record = self.record(index)
        ids = self.encode(record["text"])
        drop = random.randrange(1, 20)
        return torch.tensor(ids[:-drop]), record["topic"]


def pad(samples):
    longest = max(len(ids) for ids, _ in samples)
    tokens = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (ids, _) in enumerate(samples):
        tokens[row, : len(ids)] = ids
    return tokens, torch.tensor([topic for _, topic in samples])


class Encoder:
    step_seconds = 0.040

    def __call__(self, tokens, topics):
        time.sleep(self.step_seconds)
        return (tokens > 0).float().mean()


def main():
    folder = tempfile.mkdtemp(prefix="corpus-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "train.jsonl")
    write_corpus(path, records=6000)

    loader = DataLoader(Corpus(path), batch_size=16, shuffle=True, collate_fn=pad, num_workers=0)
    model = Encoder()
    limit = int(os.environ.get("CASE_STEPS", 4000))
    step, start = 0, None
    while step < limit:
        for tokens, topics in loader:
            filled = model(tokens, topics)
            step += 1
            if step == 8:
                start = time.perf_counter()
            if step % 200 == 0:
                print(f"step {step} filled {filled:.3f}")
            if step == limit:
                break
    print(f"steps_per_s {(limit - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
