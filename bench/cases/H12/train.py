"""Train a detector; targets of a batch are packed into a few tensors."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Detections(Dataset):
    def __init__(self, images=200, length=200_000):
        rng = np.random.default_rng(81)
        self.images = rng.integers(0, 256, (images, 3, 96, 96), dtype=np.uint8)
        self.boxes = [rng.random((rng.integers(1, 9), 4), dtype=np.float32) for _ in range(images)]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        which = index % len(self.images)
        boxes = self.boxes[which]
        return {"image": self.images[which], "boxes": boxes, "labels": (boxes[:, 0] * 80).astype(np.int64)}


def pack(samples):
    return {
        "images": torch.from_numpy(np.stack([sample["image"] for sample in samples])),
        "boxes": torch.from_numpy(np.concatenate([sample["boxes"] for sample in samples])),
        "labels": torch.from_numpy(np.concatenate([sample["labels"] for sample in samples])),
        "counts": torch.tensor([len(sample["boxes"]) for sample in samples]),
    }


def train_step(batch):
    time.sleep(0.060)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(Detections(), batch_size=32, shuffle=True, num_workers=2, collate_fn=pack)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
