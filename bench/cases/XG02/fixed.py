"""Train on a stream of shards kept in a (remote) bucket."""

import os
import random
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclass
class StreamConfig:
    shards: int = 8
    records_per_shard: int = 40
    shuffle_buffer: int = 12
    batch_size: int = 8
    num_workers: int = 2
    round_trip_s: float = 0.0045
    seed: int = 11


RECORD = struct.Struct("<I")


def publish(root, cfg):
    rng = np.random.default_rng(cfg.seed)
    for s in range(cfg.shards):
        with open(root / f"part-{s:04d}.bin", "wb") as f:
            for _ in range(cfg.records_per_shard):
                payload = rng.integers(0, 255, 3 * 64 * 64, dtype=np.uint8).tobytes()
                f.write(RECORD.pack(len(payload)) + payload)


class ShardReader:
    def __init__(self, path, cfg):
        self.path = path
        self.cfg = cfg

    def __iter__(self):
        with open(self.path, "rb") as f:
            while head := f.read(RECORD.size):
                time.sleep(self.cfg.round_trip_s)
                yield f.read(RECORD.unpack(head)[0])


class ShardStream(IterableDataset):
    def __init__(self, root, cfg):
        self.paths = sorted(root.glob("part-*.bin"))
        self.cfg = cfg
        self.epoch = 0

    def records(self):
        info = get_worker_info()
        mine = self.paths[info.id :: info.num_workers] if info else self.paths
        for path in mine:
            yield from ShardReader(path, self.cfg)

    def shuffled(self, source, size, rng):
        pool = []
        for item in source:
            if len(pool) < size:
                pool.append(item)
                continue
            k = rng.randrange(size)
            item, pool[k] = pool[k], item
            yield item
        rng.shuffle(pool)
        yield from pool

    def __iter__(self):
        self.epoch += 1
        rng = random.Random(self.cfg.seed + self.epoch)
        for raw in self.shuffled(self.records(), self.cfg.shuffle_buffer, rng):
            image = np.frombuffer(raw, np.uint8).reshape(3, 64, 64)
            if rng.random() < 0.5:
                image = image[:, :, ::-1]
            yield torch.from_numpy(image.astype(np.float32) / 255), int(raw[0]) % 10


def train_one_batch(images, labels):
    time.sleep(0.030)


def main(cfg=None):
    cfg = cfg or StreamConfig()
    root = Path(tempfile.mkdtemp(prefix="bucket_"))
    try:
        publish(root, cfg)
        loader = DataLoader(
            ShardStream(root, cfg), batch_size=cfg.batch_size, num_workers=cfg.num_workers, persistent_workers=True
        )
        limit = int(os.environ.get("CASE_STEPS", 4000))
        seen, t0 = 0, None
        while seen < limit:
            for images, labels in loader:
                train_one_batch(images, labels)
                seen += 1
                if seen == 8:
                    t0 = time.perf_counter()
                if seen >= limit:
                    break
        print(f"steps_per_s {(seen - 8) / (time.perf_counter() - t0):.3f}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
