"""Train on two ranks from shards in a bucket; the first rank reads and sends the others their batches."""

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RANKS = 2
SHAPE = (16, 3, 192, 192)


class Bucket:
    def __init__(self, root, latency_s=0.004):
        self.root = Path(root)
        self.latency_s = latency_s

    def records(self, name):
        for record in np.load(self.root / name, mmap_mode="r"):
            time.sleep(self.latency_s)
            yield record


class ShardedImages(IterableDataset):
    def __init__(self, bucket, shards):
        self.bucket = bucket
        self.shards = shards

    def __iter__(self):
        info = get_worker_info()
        while True:
            for name in self.shards[info.id :: info.num_workers]:
                for record in self.bucket.records(name):
                    yield torch.from_numpy(record.astype(np.float32) / 255)


def dispatched(loader):
    """Yields this rank's batch."""
    yield from loader


def train_step(images, gradient):
    time.sleep(0.040)
    dist.all_reduce(gradient)


def train(loader, max_steps, warmup=8):
    gradient = torch.zeros(1_000)
    for step, images in enumerate(dispatched(loader), start=1):
        train_step(images, gradient)
        if step == warmup:
            started = time.perf_counter()
        if step == max_steps:
            return (step - warmup) / (time.perf_counter() - started)


def run_rank(rank, root, max_steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=RANKS)
    shards = sorted(path.name for path in Path(root).glob("*.npy"))[rank::RANKS]
    loader = DataLoader(ShardedImages(Bucket(root), shards), batch_size=SHAPE[0], num_workers=2)
    return train(loader, max_steps)


def write_shards(root, count=8, images=60):
    rng = np.random.default_rng(62)
    for number in range(count):
        shard = rng.integers(0, 256, (images, *SHAPE[1:]), dtype=np.uint8)
        np.save(Path(root, f"shard_{number:02d}.npy"), shard)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_shards(root)
        peer = multiprocessing.get_context("fork").Process(target=run_rank, args=(1, root, max_steps))
        peer.start()
        try:
            print(f"steps_per_s {run_rank(0, root, max_steps):.3f}")
        finally:
            peer.terminate()
            peer.join()


if __name__ == "__main__":
    main()
