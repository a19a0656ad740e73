"""Segment laser scans that are kept in tar shards."""

import io
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import webdataset as wds
from torch.utils.data import DataLoader

POINTS = 8_192
BATCH = 40


def pack(scan):
    text = io.BytesIO()
    np.savetxt(text, scan, fmt="%.4f")
    return text.getvalue()


def write_shards(folder, shards=6, per_shard=24):
    rng = np.random.default_rng(5)
    scans = [pack(rng.normal(size=(POINTS, 4)).astype(np.float32)) for _ in range(16)]
    for shard in range(shards):
        with wds.TarWriter(str(folder / f"scans-{shard:03d}.tar")) as sink:
            for number in range(per_shard):
                label = rng.integers(0, 8, POINTS).astype(np.uint8).tobytes()
                key = f"{shard:03d}_{number:04d}"
                sink.write({"__key__": key, "scan": scans[(shard + number) % 16], "seg": label})
    return [str(path) for path in sorted(folder.glob("*.tar"))]


def unpack(payload):
    return np.loadtxt(io.BytesIO(payload), dtype=np.float32)


def decode_scan(sample):
    points = unpack(sample["scan"])
    labels = np.frombuffer(sample["seg"], dtype=np.uint8).copy()
    return {"points": points, "labels": labels}


def normalise(sample):
    points = sample["points"]
    points[:, :3] -= points[:, :3].mean(axis=0)
    points[:, :3] /= np.abs(points[:, :3]).max()
    return sample


def jitter(sample):
    noise = np.random.normal(scale=0.01, size=3).astype(np.float32)
    sample["points"][:, :3] += noise
    return torch.from_numpy(sample["points"]), torch.from_numpy(sample["labels"])


def make_loader(urls):
    scans = (
        wds.WebDataset(urls, resampled=True, shardshuffle=False, nodesplitter=wds.split_by_node)
        .shuffle(32)
        .map(decode_scan)
        .map(normalise)
        .map(jitter)
        .batched(BATCH)
    )
    return DataLoader(scans, batch_size=None, num_workers=2, prefetch_factor=2)


def train_step(points, labels):
    assert points.shape[:2] == labels.shape
    time.sleep(0.025)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "1000000"))
    with tempfile.TemporaryDirectory() as root:
        loader = make_loader(write_shards(Path(root)))
        batches = iter(loader)
        for _ in range(6):
            train_step(*next(batches))
        started = time.perf_counter()
        for _ in range(max_steps - 6):
            train_step(*next(batches))
        print(f"steps_per_s {(max_steps - 6) / (time.perf_counter() - started):.3f}")


if __name__ == "__main__":
    main()
