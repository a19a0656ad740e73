"""Train on a stream of compressed records with a shuffle buffer."""

import os
import random
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class RecordStream(IterableDataset):
    def __init__(self, paths, passes=3):
        self.paths = paths
        self.passes = passes

    def __iter__(self):
        info = get_worker_info()
        mine = self.paths[info.id :: info.num_workers]
        for path in mine * self.passes:
            pixels = np.frombuffer(zlib.decompress(path.read_bytes()), dtype=np.uint8).reshape(48, 8, 48, 8)
            yield torch.from_numpy(np.log1p(pixels.astype(np.float32)).mean((1, 3)) / 6)


class ShuffleBuffer(IterableDataset):
    def __init__(self, source, size=16):
        self.source = source
        self.size = size

    def __iter__(self):
        buffer = []
        for sample in self.source:
            if len(buffer) < self.size:
                buffer.append(sample)
                continue
            chosen = random.randrange(self.size)
            yield buffer[chosen]
            buffer[chosen] = sample
        random.shuffle(buffer)
        yield from buffer


def write_records(root, count=160):
    rng = np.random.default_rng(23)
    for number in range(count):
        Path(root, f"{number:04d}.zz").write_bytes(zlib.compress(rng.integers(0, 60, 384 * 384, dtype=np.uint8), 1))
    return sorted(Path(root).iterdir())


def train_step(batch):
    time.sleep(0.030)


def train(loader, max_steps):
    started = time.perf_counter()
    step = 0
    while True:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        stream = ShuffleBuffer(RecordStream(write_records(root)))
        loader = DataLoader(stream, batch_size=12, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
