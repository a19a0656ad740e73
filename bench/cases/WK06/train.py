"""Train a language model on token blocks from a remote array store."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset


class ArrayStore:
    """Remote array of token blocks; a request is answered block by block."""

    def __init__(self, root, blocks, block_s=0.040):
        self.root = Path(root)
        self.blocks = blocks
        self.block_s = block_s

    def read(self, start, count):
        found = []
        for block in range(start, start + count):
            time.sleep(self.block_s)
            found.append(np.load(self.root / f"{block % self.blocks:05d}.npy"))
        return found


class WindowedBlocks(IterableDataset):
    """Reads a window of batches at a time."""

    def __init__(self, store, window=32):
        self.store = store
        self.window = window

    def __iter__(self):
        position = 0
        while True:
            for tokens in self.store.read(position, self.window):
                yield torch.from_numpy(tokens)
            position += self.window


def write_blocks(root, count=256):
    rng = np.random.default_rng(52)
    for block in range(count):
        np.save(Path(root, f"{block:05d}.npy"), rng.integers(0, 50_000, (8, 512), dtype=np.int32))
    return count


def train_step(tokens):
    time.sleep(0.040)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for tokens in loader:
            train_step(tokens)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        store = ArrayStore(root, write_blocks(root))
        loader = DataLoader(WindowedBlocks(store), batch_size=None, num_workers=1)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
