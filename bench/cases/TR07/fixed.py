"""Train a small segmentation network on colour-coded masks."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

PALETTE = [(0, 0, 0), (128, 64, 128), (244, 35, 232), (70, 70, 70), (102, 102, 156), (190, 153, 153), (220, 20, 60)]
CODES = np.array([(r << 16) | (g << 8) | b for r, g, b in PALETTE])


class EncodeMask:
    """Colour mask (height, width, 3) to class map (height, width)."""

    def __init__(self, palette):
        self.order = np.argsort(CODES)
        self.sorted_codes = CODES[self.order]

    def __call__(self, mask):
        codes = (mask.astype(np.int64) * (1 << 16, 1 << 8, 1)).sum(-1)
        return self.order[np.searchsorted(self.sorted_codes, codes)]


class SegmentationDataset(Dataset):
    def __init__(self, root, encode, length=40_000):
        self.images = sorted(Path(root).glob("*_image.png"))
        self.masks = sorted(Path(root).glob("*_mask.png"))
        self.encode = encode
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        which = index % len(self.images)
        image = np.asarray(Image.open(self.images[which]).convert("RGB"), dtype=np.float32) / 255
        mask = self.encode(np.asarray(Image.open(self.masks[which]).convert("RGB")))
        if index % 2:
            image, mask = image[:, ::-1], mask[:, ::-1]
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), torch.from_numpy(mask.copy())


def write_scenes(root, count=120, size=96):
    rng = np.random.default_rng(1)
    palette = np.array(PALETTE, dtype=np.uint8)
    for number in range(count):
        classes = rng.integers(0, len(palette), (8, 8)).repeat(size // 8, 0).repeat(size // 8, 1)
        image = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(image).save(Path(root, f"{number:04d}_image.png"), compress_level=1)
        Image.fromarray(palette[classes]).save(Path(root, f"{number:04d}_mask.png"), compress_level=1)


def train_step(images, masks):
    time.sleep(0.025)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, masks in loader:
            train_step(images, masks)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        write_scenes(root)
        dataset = SegmentationDataset(root, EncodeMask(PALETTE))
        loader = DataLoader(dataset, batch_size=6, shuffle=True, num_workers=2, drop_last=True)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
