"""Train a click model on compressed logs that are streamed from shards."""

import bz2
import json
import os
import random
import struct
import tempfile
import time
from pathlib import Path

import torch
from torch.utils import data

HEADER = struct.Struct("<I")


def read_frames(path):
    """Yields the frames of a shard."""
    with open(path, "rb") as shard:
        while header := shard.read(HEADER.size):
            yield shard.read(*HEADER.unpack(header))


def decode_sessions(frames):
    for frame in frames:
        yield json.loads(bz2.decompress(frame))


def to_examples(sessions, history=32):
    for session in sessions:
        items = [event["item"] for event in session["events"]]
        yield torch.tensor(items[-history - 1 : -1]), torch.tensor(items[-1] % 2)


class ClickStream(data.IterableDataset):
    def __init__(self, root):
        super().__init__()
        self.shards = sorted(Path(root).iterdir())

    def my_shards(self):
        worker = data.get_worker_info()
        return self.shards if worker is None else self.shards[worker.id :: worker.num_workers]

    def __iter__(self):
        while True:
            for shard in random.sample(self.my_shards(), len(self.my_shards())):
                yield from to_examples(decode_sessions(read_frames(shard)))


def write_shards(root, shards=8, sessions=40, events=200):
    rng = random.Random(104)
    for number in range(shards):
        with Path(root, f"clicks-{number:02d}.bz2").open("wb") as shard:
            for session in range(sessions):
                log = [
                    {"item": rng.randrange(50_000), "at": rng.random(), "page": f"/shop/{rng.randrange(900)}"}
                    for _ in range(events)
                ]
                frame = bz2.compress(json.dumps({"session": session, "events": log}).encode())
                shard.write(HEADER.pack(len(frame)) + frame)


def train_step(history, clicked):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    steps = iter(range(1, max_steps + 1))
    for step, (history, clicked) in zip(steps, loader, strict=False):
        train_step(history, clicked)
        if step == warmup:
            started = time.perf_counter()
    return (max_steps - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_shards(root)
        loader = data.DataLoader(ClickStream(root), batch_size=192, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
