"""Train on clips of an archive with two storage classes."""

import argparse
import functools
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def retry(times=2):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            for k in range(times):
                try:
                    return fn(*args, **kwargs)
                except OSError:
                    if k == times - 1:
                        raise

        return inner

    return wrap


class Archive:
    """Objects with their storage class; waits as the real service does."""

    delay = {"standard": 0.002, "nearline": 0.6}

    def __init__(self, count, seed=8):
        rng = np.random.default_rng(seed)
        self.payload = rng.standard_normal((64, 16, 256)).astype(np.float32)
        self.tier = ["standard"] * count
        for k in rng.choice(count, count // 192, replace=False):
            self.tier[k] = "nearline"

    @retry()
    def get(self, key):
        time.sleep(self.delay[self.tier[key]])
        return self.payload[key % len(self.payload)]


class Clips(Dataset):
    def __init__(self, archive, window):
        self.archive, self.window = archive, window

    def __len__(self):
        return len(self.archive.tier)

    def __getitem__(self, key):
        clip = self.archive.get(key)
        start = np.random.randint(0, clip.shape[1] - self.window)
        clip = clip[:, start : start + self.window]
        clip = clip - clip.mean(1, keepdims=True)
        return torch.from_numpy(clip), key % 3


def get_loader(args):
    return DataLoader(
        Clips(Archive(args.clips), args.window),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        persistent_workers=True,
        in_order=False,
        generator=torch.Generator().manual_seed(args.seed),
    )


def step(clips, labels):
    time.sleep(0.030)
    return clips.shape[0]


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=960)
    p.add_argument("--window", type=int, default=200)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    loader = get_loader(parse())
    limit = int(os.environ.get("CASE_STEPS", 4000))
    done, began, clips_seen = 0, None, 0
    while done < limit:
        for clips, labels in loader:
            clips_seen += step(clips, labels)
            done += 1
            if done == 8:
                began = time.perf_counter()
            if done >= limit:
                break
    print(f"clips {clips_seen}")
    print(f"steps_per_s {(done - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
