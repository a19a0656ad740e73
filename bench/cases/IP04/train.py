"""Train a video model on a few frames per clip."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ClipDataset(Dataset):
    def __init__(self, root, frames=4, length=80_000):
        self.paths = sorted(Path(root).glob("*.npy"))
        self.frames = frames
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        clip = torch.from_numpy(np.load(self.paths[index % len(self.paths)]))
        start = index % (len(clip) - self.frames)
        selection = clip[start : start + self.frames]
        return {"frames": selection, "start": start}


def keep_list(samples):
    return samples


def write_clips(root, count=12, frames=160, size=128):
    rng = np.random.default_rng(8)
    for number in range(count):
        np.save(Path(root, f"clip_{number:02d}.npy"), rng.integers(0, 256, (frames, size, size, 3), dtype=np.uint8))


def train_step(samples):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for samples in loader:
            train_step(samples)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_clips(root)
        loader = DataLoader(ClipDataset(root), batch_size=6, shuffle=True, num_workers=2, collate_fn=keep_list)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
