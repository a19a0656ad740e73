"""Land-cover segmentation on tiles from one archive file."""

import argparse
import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class TileArchive:
    """Fixed-size tiles one after another; the volume is mounted over the network."""

    def __init__(self, path, size, bands, seek_seconds=0.010):
        self.size, self.bands = size, bands
        self.bytes = size * size * bands
        self.seek_seconds = seek_seconds
        self.fd = os.open(path, os.O_RDONLY)
        self.count = os.fstat(self.fd).st_size // self.bytes

    def tile(self, index):
        time.sleep(self.seek_seconds)
        raw = os.pread(self.fd, self.bytes, index * self.bytes)
        return np.frombuffer(raw, dtype=np.uint8).reshape(self.bands, self.size, self.size)


def write_archive(path, tiles, size, bands):
    rng = np.random.default_rng(8)
    with open(path, "wb") as out:
        for _ in range(tiles):
            out.write(rng.integers(0, 256, size * size * bands, dtype=np.uint8).tobytes())


class Tiles(Dataset):
    def __init__(self, archive, views=8, crop=56):
        self.archive = archive
        self.views, self.crop = views, crop

    def __len__(self):
        return self.archive.count * self.views

    def __getitem__(self, index):
        number = index % self.archive.count
        tile = self.archive.tile(number)
        top, left = np.random.randint(0, tile.shape[1] - self.crop + 1, 2)
        tile = tile[:, top : top + self.crop, left : left + self.crop]
        tile = np.rot90(tile, np.random.randint(4), axes=(1, 2))
        pixels = tile[:-1].astype(np.float32) / 255.0
        mask = (tile[-1] // 32).astype(np.int64)
        return torch.from_numpy(pixels), torch.from_numpy(mask)


class Segmenter:
    def __init__(self, seconds):
        self.seconds = seconds

    def step(self, pixels, mask):
        time.sleep(self.seconds)
        return mask.shape[0]


class Stopwatch:
    def __init__(self, skip=8):
        self.skip, self.steps, self.start = skip, 0, None
        self.limit = int(os.environ.get("CASE_STEPS", "0"))

    def lap(self):
        self.steps += 1
        if self.steps == self.skip:
            self.start = time.perf_counter()
        return self.steps == self.limit

    def rate(self):
        return (self.steps - self.skip) / (time.perf_counter() - self.start)


def train(model, loader, epochs, watch):
    for epoch in range(epochs):
        seen = 0
        for pixels, mask in loader:
            seen += model.step(pixels, mask)
            if watch.lap():
                return
        print(f"epoch {epoch}: {seen} tiles")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="tiles-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "tiles.bin")
    write_archive(path, args.tiles, size=64, bands=5)
    data = Tiles(TileArchive(path, size=64, bands=5))
    loader = DataLoader(
        data, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, persistent_workers=True
    )
    watch = Stopwatch()
    train(Segmenter(0.036), loader, args.epochs, watch)
    print(f"steps_per_s {watch.rate():.3f}")


if __name__ == "__main__":
    main()
