"""Language model on gzipped JSON-lines shards: streaming, shuffle buffer, pure Python tokeniser."""

import atexit
import glob
import gzip
import json
import os
import random
import re
import shutil
import tempfile
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PIECE = re.compile(r"[A-Za-z]+|\d|[^\sA-Za-z\d]")
SHARDS, DOCS = 12, 600


def write_shards(root):
    rng = random.Random(12)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(4000)]
    for s in range(SHARDS):
        with gzip.open(f"{root}/part-{s:03d}.jsonl.gz", "wt", compresslevel=4) as f:
            for d in range(DOCS):
                text = " ".join(rng.choices(words, k=rng.randint(150, 450)))
                f.write(json.dumps({"id": s * DOCS + d, "text": text + " 2024."}) + "\n")


class Tokeniser:
    def __init__(self, size=32000):
        self.size, self.known = size, {}

    def __call__(self, text):
        out = [1]
        for piece in PIECE.findall(text.lower()):
            if piece not in self.known:
                self.known[piece] = 3 + len(self.known) % (self.size - 3)
            out.append(self.known[piece])
        return [*out, 2]


class Corpus(IterableDataset):
    def __init__(self, root, block=256, buffer=200):
        self.shards = sorted(glob.glob(f"{root}/*.jsonl.gz"))
        self.block, self.buffer, self.encode = block, buffer, Tokeniser()

    def documents(self):
        info = get_worker_info()
        mine = list(self.shards if info is None else self.shards[info.id :: info.num_workers])
        while True:
            random.shuffle(mine)
            for path in mine:
                with gzip.open(path, "rt") as f:
                    for line in f:
                        yield json.loads(line)["text"]

    def blocks(self):
        left = []
        for text in self.documents():
            left.extend(self.encode(text))
            while len(left) >= self.block:
                yield left[: self.block]
                left = left[self.block :]

    def __iter__(self):
        held = []
        for block in self.blocks():
            if len(held) < self.buffer:
                held.append(block)
                continue
            k = random.randrange(self.buffer)
            held[k], block = block, held[k]
            yield {"input_ids": block, "labels": [*block[1:], 2]}


def to_tensors(items):
    return {key: torch.tensor([item[key] for item in items]) for key in items[0]}


def main():
    limit = int(os.environ.get("CASE_STEPS", 0))
    root = tempfile.mkdtemp(prefix="corpus_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    write_shards(root)
    loader = DataLoader(Corpus(root), batch_size=32, num_workers=1, collate_fn=to_tensors)
    total, tokens, began = limit or 4000, 0, None
    for step, batch in enumerate(loader, 1):
        time.sleep(0.060)
        tokens += batch["input_ids"].numel()
        if step % 4 == 0:
            time.sleep(0.008)
        if step == 8:
            began = time.perf_counter()
        if step % 200 == 0:
            print(f"step {step} tokens {tokens}", flush=True)
        if step >= total:
            break
    if limit:
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
