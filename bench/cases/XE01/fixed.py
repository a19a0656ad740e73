"""Train a small detector with mosaic augmentation."""

import argparse
import io
import os
import random
import time

import numpy as np
import torch
from PIL import Image
from storage import synthetic_bucket
from torch.utils.data import DataLoader, Dataset


class MosaicDetection(Dataset):
    def __init__(self, bucket, labels, size=64):
        self.bucket = bucket
        self.labels = labels
        self.size = size
        self.keys = bucket.keys()
        self.blobs = {key: bucket.get(key) for key in self.keys}

    def __len__(self):
        return len(self.keys)

    def load(self, index):
        key = self.keys[index]
        blob = self.blobs[key]
        image = np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
        return image, self.labels[key].copy()

    def __getitem__(self, index):
        s = self.size
        picks = [index, *random.choices(range(len(self.keys)), k=3)]
        canvas = np.full((2 * s, 2 * s, 3), 114, dtype=np.uint8)
        cx, cy = random.randint(s // 2, 3 * s // 2), random.randint(s // 2, 3 * s // 2)
        boxes = []
        for slot, pick in enumerate(picks):
            image, found = self.load(pick)
            left, top = slot % 2 == 0, slot < 2
            xa, xb = (max(cx - s, 0), cx) if left else (cx, min(cx + s, 2 * s))
            ya, yb = (max(cy - s, 0), cy) if top else (cy, min(cy + s, 2 * s))
            x0 = s - (xb - xa) if left else 0
            y0 = s - (yb - ya) if top else 0
            canvas[ya:yb, xa:xb] = image[y0 : y0 + yb - ya, x0 : x0 + xb - xa]
            found[:, [1, 3]] += xa - x0
            found[:, [2, 4]] += ya - y0
            boxes.append(found)
        boxes = np.concatenate(boxes)
        boxes[:, 1:] = boxes[:, 1:].clip(0, 2 * s)
        if random.random() < 0.5:
            canvas = canvas[:, ::-1]
            boxes[:, [1, 3]] = 2 * s - boxes[:, [3, 1]]
        pixels = np.ascontiguousarray(canvas.transpose(2, 0, 1))
        return torch.from_numpy(pixels), torch.from_numpy(boxes)


def collate(samples):
    images, targets = [], []
    for i, (image, boxes) in enumerate(samples):
        images.append(image)
        targets.append(torch.cat([torch.full((len(boxes), 1), float(i)), boxes], dim=1))
    return torch.stack(images), torch.cat(targets)


class Detector:
    """Stands for the network on the accelerator."""

    def __init__(self, seconds):
        self.seconds = seconds

    def step(self, images, targets):
        time.sleep(self.seconds)
        return float(len(targets)) / len(images)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=167)
    args = parser.parse_args()

    bucket, labels = synthetic_bucket(args.images, size=64)
    data = MosaicDetection(bucket, labels)
    loader = DataLoader(
        data,
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=collate,
        persistent_workers=True,
        drop_last=True,
    )
    model = Detector(0.030)
    limit = int(os.environ.get("CASE_STEPS", 0))
    step, began = 0, None
    for epoch in range(args.epochs):
        for images, targets in loader:
            loss = model.step(images, targets)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step == limit:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                return
        if not limit:
            print(f"epoch {epoch} loss {loss:.3f}")


if __name__ == "__main__":
    main()
