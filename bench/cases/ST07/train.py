"""Train on small objects fetched from a bucket."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ObjectStore:
    """Minimal client: one request per call."""

    def __init__(self, root, latency_s=0.012):
        self.root = Path(root)
        self.latency_s = latency_s

    def get_object(self, key):
        time.sleep(self.latency_s)
        return (self.root / key).read_bytes()


class ObjectDataset(Dataset):
    def __init__(self, store, keys, length=80_000):
        self.store = store
        self.keys = keys
        self.length = length

    def __len__(self):
        return self.length

    def parse(self, body):
        return torch.from_numpy(np.frombuffer(body, dtype=np.float32).reshape(32, 64).copy())

    def __getitem__(self, index):
        body = self.store.get_object(self.keys[index % len(self.keys)])
        return self.parse(body)


def upload(root, count=400):
    rng = np.random.default_rng(14)
    for number in range(count):
        Path(root, f"part-{number:05d}").write_bytes(rng.standard_normal((32, 64), dtype=np.float32).tobytes())
    return sorted(path.name for path in Path(root).iterdir())


def train_step(batch):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        keys = upload(root)
        loader = DataLoader(ObjectDataset(ObjectStore(root), keys), batch_size=16, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
