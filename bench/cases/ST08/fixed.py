"""Train on single frames out of a compressed recording."""

import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

FRAME = (64, 96)


class BlockFile:
    """Frames in compressed blocks, with an index at hand."""

    def __init__(self, path, offsets, frames_per_block):
        self.path = path
        self.offsets = offsets
        self.frames_per_block = frames_per_block

    def frame(self, number):
        block, row = divmod(number, self.frames_per_block)
        with open(self.path, "rb") as file:
            file.seek(self.offsets[block])
            packed = file.read(self.offsets[block + 1] - self.offsets[block])
        frames = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(-1, *FRAME)
        return frames[row]

    @classmethod
    def write(cls, path, frames, frames_per_block=1):
        offsets = [0]
        with open(path, "wb") as file:
            for start in range(0, len(frames), frames_per_block):
                offsets.append(offsets[-1] + file.write(zlib.compress(frames[start : start + frames_per_block], 1)))
        return cls(path, offsets, frames_per_block)


class FrameDataset(Dataset):
    def __init__(self, recording, frames, length=80_000):
        self.recording = recording
        self.frames = frames
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        frame = self.recording.frame(index % self.frames)
        return torch.from_numpy(frame.astype(np.float32) / 255)


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
    frames = np.random.default_rng(15).integers(0, 24, (2_048, *FRAME), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as root:
        recording = BlockFile.write(Path(root, "recording.blk"), frames)
        loader = DataLoader(FrameDataset(recording, len(frames)), batch_size=48, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
