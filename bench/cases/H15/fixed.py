"""Train a language model on lines that are streamed, packed and shuffled by generators."""

import itertools
import os
import random
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def read_lines(paths):
    for path in itertools.cycle(paths):
        with open(path, encoding="utf-8") as file:
            yield from file


def to_bytes(lines):
    return (line.strip().encode() + b"\0" for line in lines)


def pack(pieces, context):
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= context:
            yield torch.frombuffer(held[:context], dtype=torch.uint8).long()
            held = held[context:]


class Stream(IterableDataset):
    def __init__(self, paths, *stages):
        self.paths = paths
        self.stages = stages

    def __iter__(self):
        worker = get_worker_info()
        items = read_lines(self.paths[worker.id :: worker.num_workers])
        for stage in self.stages:
            items = stage(items)
        return items


def write_texts(root, files=6, lines=2_000):
    rng = random.Random(83)
    words = ["north", "wind", "sun", "disputing", "which", "was", "stronger", "when", "traveller", "came"]
    for number in range(files):
        text = "\n".join(" ".join(rng.choices(words, k=12)) for _ in range(lines))
        Path(root, f"text_{number}.txt").write_text(text)
    return sorted(Path(root).iterdir())


def train_step(tokens):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    for step, tokens in enumerate(loader, start=1):
        train_step(tokens)
        if step == warmup:
            started = time.perf_counter()
        if step == max_steps:
            return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        stream = Stream(write_texts(root), to_bytes, partial(pack, context=256))
        loader = DataLoader(stream, batch_size=32, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
