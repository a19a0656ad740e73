"""Train a small tagger on short sequences from one binary file."""

import os
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

FIELDS = 16


class SequenceFile:
    """Header, then per sequence: a tag, a length and the tokens of each field."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.count, self.record_size = struct.unpack("<II", file.read(8))

    def sequence(self, number):
        values = []
        with open(self.path, "rb", buffering=0) as file:
            for field in range(FIELDS):
                file.seek(8 + number * self.record_size + field * 8)
                tag, length = struct.unpack("<HH", file.read(4))
                if tag != field:
                    raise ValueError(f"bad tag in sequence {number}: {tag}, expected {field}")
                file.seek(8 + number * self.record_size + field * 8 + 4)
                values.append(struct.unpack("<HH", file.read(4))[:length])
        return np.array(values, dtype=np.int64)


def write_sequences(path, count=5_000):
    rng = np.random.default_rng(16)
    records = np.empty((count, FIELDS, 4), dtype="<u2")
    records[:, :, 0] = np.arange(FIELDS)
    records[:, :, 1] = 2
    records[:, :, 2:] = rng.integers(0, 10_000, (count, FIELDS, 2))
    Path(path).write_bytes(struct.pack("<II", count, FIELDS * 8) + records.tobytes())
    return path


class SequenceDataset(Dataset):
    def __init__(self, source, length=12_500_000):
        self.source = source
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.from_numpy(self.source.sequence(index % self.source.count))


def train_step(tokens):
    time.sleep(0.020)


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
    with tempfile.TemporaryDirectory() as root:
        source = SequenceFile(write_sequences(Path(root, "train.seq")))
        loader = DataLoader(SequenceDataset(source), batch_size=2400, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
