"""Train from streamed shards with a local shard cache."""

import collections
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PER_SHARD = 400


class ShardCache:
    """Keeps the last used shards in memory; others are downloaded."""

    def __init__(self, root, limit=8, download_s=0.022):
        self.root = Path(root)
        self.limit = limit
        self.download_s = download_s
        self.shards = collections.OrderedDict()

    def sample(self, shard, row):
        if shard in self.shards:
            self.shards.move_to_end(shard)
        else:
            time.sleep(self.download_s)
            self.shards[shard] = np.load(self.root / f"shard.{shard:05d}.npy")
            if len(self.shards) > self.limit:
                self.shards.popitem(last=False)
        return self.shards[shard][row]


class ShuffledShards(IterableDataset):
    """Draws samples from a window of shards that moves on."""

    def __init__(self, cache, shards=64, window=16):
        self.cache = cache
        self.shards = shards
        self.window = window

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng(info.id)
        first = info.id * self.shards // info.num_workers
        while True:
            shards = [(first + offset) % self.shards for offset in range(self.window)]
            for draw in rng.permutation(self.window * PER_SHARD):
                sample = self.cache.sample(shards[draw // PER_SHARD], draw % PER_SHARD)
                yield torch.from_numpy(sample.astype(np.float32) / 255)
            first += self.window


def write_shards(root, shards=64):
    rng = np.random.default_rng(61)
    for shard in range(shards):
        np.save(Path(root, f"shard.{shard:05d}.npy"), rng.integers(0, 256, (PER_SHARD, 24, 24), dtype=np.uint8))


def train_step(batch):
    time.sleep(0.020)


def train(loader, max_steps, warmup=12):
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
        write_shards(root)
        loader = DataLoader(ShuffledShards(ShardCache(root)), batch_size=12, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
