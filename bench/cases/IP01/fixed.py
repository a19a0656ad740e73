"""Train a detector; targets stay per image because their number varies."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class DetectionDataset(Dataset):
    def __init__(self, images=200, length=80_000):
        rng = np.random.default_rng(7)
        self.pixels = rng.integers(0, 256, (images, 3, 64, 64), dtype=np.uint8)
        self.boxes = rng.random((images, 4), dtype=np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        which = index % len(self.pixels)
        image = torch.from_numpy(self.pixels[which]).float()
        box = torch.from_numpy(self.boxes[which])
        target = {
            "boxes": box[None].clone(),
            "labels": torch.tensor([which % 80]),
            "area": (box[2] * box[3])[None],
            "image_id": torch.tensor([which]),
            "iscrowd": torch.zeros(1, dtype=torch.int64),
            "orig_size": torch.tensor([64, 64]),
            "size": torch.tensor([64, 64]),
        }
        return image, target


def collate(samples):
    images = torch.stack([image for image, _ in samples])
    targets = [target for _, target in samples]
    counts = torch.tensor([len(target["labels"]) for target in targets])
    packed = {key: torch.cat([target[key] for target in targets]) for key in targets[0]}
    return images, {**packed, "counts": counts}


def train_step(images, targets):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, targets in loader:
            train_step(images, targets)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(DetectionDataset(), batch_size=32, shuffle=True, num_workers=2, collate_fn=collate)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
