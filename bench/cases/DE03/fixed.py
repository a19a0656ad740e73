"""Train on single frames out of compressed clips."""

import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE = (96, 128)


class Clip:
    """Key frames, and differences to the frame before in between."""

    def __init__(self, path, packets, key_distance):
        self.path = path
        self.packets = packets
        self.key_distance = key_distance

    def decode(self, number):
        first = number - number % self.key_distance
        picture = np.zeros(SHAPE, dtype=np.uint8)
        with open(self.path, "rb") as file:
            file.seek(self.packets[first])
            for frame in range(first, number + 1):
                packet = file.read(self.packets[frame + 1] - self.packets[frame])
                picture = picture + np.frombuffer(zlib.decompress(packet), dtype=np.uint8).reshape(SHAPE)
        return picture

    @classmethod
    def encode(cls, path, frames, key_distance=5):
        packets, before = [0], np.zeros(SHAPE, dtype=np.uint8)
        with open(path, "wb") as file:
            for number, frame in enumerate(frames):
                change = frame if number % key_distance == 0 else frame - before
                packets.append(packets[-1] + file.write(zlib.compress(change, 1)))
                before = frame
        return cls(path, packets, key_distance)


class FrameDataset(Dataset):
    def __init__(self, clip, length=80_000):
        self.clip = clip
        self.frames = len(clip.packets) - 1
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        picture = self.clip.decode(index % self.frames)
        return torch.from_numpy(picture).float().div(255)


def make_frames(count=1_500):
    rng = np.random.default_rng(56)
    moving = rng.integers(0, 2, (count, *SHAPE), dtype=np.uint8)
    return np.cumsum(moving, axis=0, dtype=np.uint8)


def train_step(frames):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for frames in loader:
            train_step(frames)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        clip = Clip.encode(Path(root, "clip.bin"), make_frames())
        loader = DataLoader(FrameDataset(clip), batch_size=16, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
