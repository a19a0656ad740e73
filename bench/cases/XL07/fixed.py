"""Crop type from Sentinel-1 time series; pixels-sets packed in shards that are pulled from a bucket."""

import argparse
import itertools
import os
import random
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
from bucket_fixed import Bucket
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

DATES, BANDS, PIXELS = 36, 2, 32


def pack_shards(root, shards, parcels, seed=8):
    rng = np.random.default_rng(seed)
    season = np.sin(np.linspace(0, 3, DATES))[:, None, None] * 60
    for s in range(shards):
        with open(os.path.join(root, f"part-{s:03d}.bin"), "wb") as f:
            for _ in range(parcels):
                cube = (season + rng.integers(0, 40, (DATES, BANDS, PIXELS)) + 90).astype(np.int16)
                blob = zlib.compress(cube.tobytes(), 1)
                f.write(struct.pack("<IH", len(blob), int(rng.integers(12))) + blob)


def parse_shard(body):
    at = 0
    while at < len(body):
        size, label = struct.unpack_from("<IH", body, at)
        at += 6
        cube = np.frombuffer(zlib.decompress(body[at : at + size]), np.int16).reshape(DATES, BANDS, PIXELS)
        at += size
        yield cube, label


class ParcelStream(IterableDataset):
    """Endless stream over the shards, in a new order each time round."""

    def __init__(self, bucket, seed=0):
        self.bucket, self.seed = bucket, seed

    def __iter__(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        keys = self.bucket.list()[wid::n]
        for turn in itertools.count():
            order = random.Random(self.seed + turn).sample(keys, len(keys))
            for key in order:
                for cube, label in parse_shard(self.bucket.get_object(key)):
                    yield self.prepare(cube), label

    def prepare(self, cube):
        x = (cube.astype(np.float32) - 110.0) / 45.0
        x += np.random.standard_normal((DATES, 1, 1)).astype(np.float32) * 0.05
        mean, std = x.mean(2), x.std(2)
        slope = np.gradient(mean, axis=0)
        return torch.from_numpy(np.concatenate([mean, std, slope], 1))


class Session:
    def __init__(self, step_ms):
        self.net = torch.nn.Sequential(torch.nn.Linear(DATES * 6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 12))
        self.opt = torch.optim.Adam(self.net.parameters())
        self.pause = step_ms / 1000

    def step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.net(x.flatten(1)), y)
        self.opt.zero_grad()
        loss.backward()
        time.sleep(self.pause)  # transformer encoder
        self.opt.step()
        return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--step-ms", type=float, default=45)
    ap.add_argument("--prefetch", type=int, default=12)
    args = ap.parse_args()
    torch.set_num_threads(1)
    total = int(os.environ.get("CASE_STEPS", 40_000))
    with tempfile.TemporaryDirectory() as root:
        pack_shards(root, shards=8, parcels=640)
        loader = DataLoader(
            ParcelStream(Bucket(root)), batch_size=args.batch_size, num_workers=1, prefetch_factor=args.prefetch
        )
        session = Session(args.step_ms)
        for i, (x, y) in enumerate(itertools.islice(loader, total), 1):
            loss = session.step(x, y)
            if i == 10:
                t0 = time.perf_counter()
            if i % 100 == 0:
                print(i, round(loss, 3), flush=True)
        print(f"steps_per_s {(total - 10) / (time.perf_counter() - t0):.3f}")


if __name__ == "__main__":
    main()
