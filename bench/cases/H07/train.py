"""Train from compressed shards, streamed by two workers."""

import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ShardStream(IterableDataset):
    def __init__(self, shards):
        self.shards = shards

    def __iter__(self):
        info = get_worker_info()
        while True:
            for shard in self.shards[info.id :: info.num_workers]:
                records = np.frombuffer(zlib.decompress(shard.read_bytes()), dtype=np.uint8).reshape(-1, 48, 48)
                for record in records:
                    yield torch.from_numpy(record.astype(np.float32) / 255)


def write_shards(root, shards=8, records=64):
    rng = np.random.default_rng(76)
    for shard in range(shards):
        Path(root, f"{shard:03d}.zz").write_bytes(
            zlib.compress(rng.integers(0, 50, (records, 48, 48), dtype=np.uint8), 1)
        )
    return sorted(Path(root).glob("*.zz"))


def train_step(batch):
    time.sleep(0.025)


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
        loader = DataLoader(ShardStream(write_shards(root)), batch_size=32, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
