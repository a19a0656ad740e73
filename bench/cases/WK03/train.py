"""Train from compressed shards, streamed."""

import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RECORD = (3, 96, 96)
STREAM_S = 0.0012  # a record arrives over the network


class ShardStream(IterableDataset):
    def __init__(self, shards):
        self.shards = shards

    def __iter__(self):
        info = get_worker_info()
        shards = self.shards[info.id :: info.num_workers] if info else self.shards
        while shards:
            for shard in shards:
                yield from self.read_shard(shard)

    def read_shard(self, shard):
        with open(shard, "rb") as file:
            while header := file.read(4):
                time.sleep(STREAM_S)
                pixels = zlib.decompress(file.read(int.from_bytes(header, "little")))
                image = np.frombuffer(pixels, dtype=np.uint8).reshape(RECORD).astype(np.float32)
                spectrum = np.abs(np.fft.rfft2(image - image.mean()))
                yield torch.from_numpy(np.log1p(spectrum))


def write_shards(root, shards=1, records=128):
    rng = np.random.default_rng(10)
    for shard in range(shards):
        with open(Path(root, f"train-{shard:05d}.bin"), "wb") as file:
            for _ in range(records // shards):
                data = zlib.compress(rng.integers(0, 40, RECORD, dtype=np.uint8).tobytes(), 1)
                file.write(len(data).to_bytes(4, "little") + data)
    return sorted(Path(root).glob("train-*.bin"))


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
        shards = write_shards(root)
        loader = DataLoader(ShardStream(shards), batch_size=32, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
