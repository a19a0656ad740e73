"""Train on histology tiles from several laboratories, brought to one look."""

import os
import time
from functools import partial, reduce

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

EDGE = 256


def crop(image, edge):
    top = int(torch.randint(image.shape[0] - edge + 1, ()))
    left = int(torch.randint(image.shape[1] - edge + 1, ()))
    return image[top : top + edge, left : left + edge]


def flip(image, chance, axis):
    return np.flip(image, axis) if torch.rand(()) < chance else image


def scale(image, top):
    return image.astype(np.float32) / top


def look_like(reference):
    """Give every channel of an image the tones of the reference."""
    steps = np.linspace(0, 1, 256)
    wanted = [np.quantile(reference[..., c], steps) for c in range(3)]

    def apply(image):
        result = np.empty_like(image)
        for c in range(3):
            tones, places, counts = np.unique(image[..., c], return_inverse=True, return_counts=True)
            share = np.cumsum(counts) / counts.sum()
            result[..., c] = np.interp(share, steps, wanted[c])[places].reshape(image.shape[:2])
        return result

    return apply


def fade(strength):
    def apply(image):
        return image + np.float32(strength) * (torch.rand(3).numpy() - 0.5)

    return apply


class Tiles(Dataset):
    def __init__(self, tiles, transforms, length):
        self.tiles = tiles
        self.transforms = transforms
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        tile = self.tiles[index % len(self.tiles)]
        return reduce(lambda image, transform: transform(image), self.transforms, tile), index % 4


def paint(rng):
    base = rng.integers(60, 200, (18, 18, 3)).repeat(16, axis=0).repeat(16, axis=1)
    return np.clip(base + rng.normal(0, 14, base.shape), 0, 255).astype(np.uint8)


if __name__ == "__main__":
    rng = np.random.default_rng(31)
    transforms = [
        partial(crop, edge=EDGE),
        partial(flip, chance=0.5, axis=0),
        partial(flip, chance=0.5, axis=1),
        partial(scale, top=255),
        look_like(paint(rng).astype(np.float32) / 255),
        fade(0.1),
        lambda image: torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))),
    ]
    dataset = Tiles([paint(rng) for _ in range(50)], transforms, 40_000)
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2)
    limit = int(os.environ.get("CASE_STEPS", 4000))
    done = 0
    while done < limit:
        for images, labels in loader:
            time.sleep(0.024)
            done += 1
            if done == 8:
                begin = time.perf_counter()
            if done == limit:
                break
    print(f"steps_per_s {(done - 8) / (time.perf_counter() - begin):.3f}")
