"""Train on documents; a few of them are still in the archive tier of the bucket."""

import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Bucket:
    def __init__(self, root, recall_s=0.450):
        self.root = Path(root)
        self.recall_s = recall_s

    def get(self, name):
        if name.endswith(".archived"):
            time.sleep(self.recall_s)
        with open(self.root / name, "rb") as file:
            return file.read()


class DocumentDataset(Dataset):
    def __init__(self, bucket, names, length=80_000, context=2_048):
        self.bucket = bucket
        self.names = names
        self.length = length
        self.context = context

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        text = zlib.decompress(self.bucket.get(self.names[index % len(self.names)]))
        counts = np.bincount(np.frombuffer(text, dtype=np.uint8), minlength=256)
        tokens = np.frombuffer(text[: self.context], dtype=np.uint8).astype(np.int64)
        return torch.from_numpy(tokens), torch.from_numpy(counts / counts.sum())


def write_documents(root, count=320, size=120_000):
    rng = np.random.default_rng(11)
    for number in range(count):
        name = f"{number:04d}.archived" if number % 80 == 37 else f"{number:04d}.zz"
        text = rng.integers(32, 64, size, dtype=np.uint8).tobytes()
        Path(root, name).write_bytes(zlib.compress(text, 1))
    return sorted(path.name for path in Path(root).iterdir())


def train_step(tokens, prior):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for tokens, prior in loader:
            train_step(tokens, prior)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        dataset = DocumentDataset(Bucket(root), write_documents(root))
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=4, in_order=False)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
