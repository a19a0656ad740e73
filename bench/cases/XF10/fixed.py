"""Object detection with mosaic augmentation: every sample is put together from four photos."""

import atexit
import os
import random
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

SIDE, PHOTOS = 192, 60


def write_photos(root):
    rng = np.random.default_rng(6)
    for i in range(PHOTOS):
        coarse = rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((208, 208), Image.BICUBIC).save(f"{root}/{i:05d}.jpg", quality=92)


class Mosaic(Dataset):
    def __init__(self, root, length=16000):
        self.root, self.length = root, length
        rng = np.random.default_rng(1)
        self.boxes = []
        for _ in range(PHOTOS):
            corner = rng.integers(0, 120, (rng.integers(2, 9), 2))
            self.boxes.append([[int(x), int(y), int(x) + 80, int(y) + 60] for x, y in corner])
        self.transform = v2.Compose(
            [
                v2.RandomHorizontalFlip(),
                v2.RandomPhotometricDistort(),
                v2.SanitizeBoundingBoxes(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return self.length

    def tile(self, k):
        image = Image.open(f"{self.root}/{k:05d}.jpg").convert("RGB")
        image = ImageEnhance.Sharpness(image).enhance(random.uniform(0.5, 1.5))
        return image.resize((SIDE // 2, SIDE // 2), Image.LANCZOS)

    def __getitem__(self, i):
        canvas = Image.new("RGB", (SIDE, SIDE))
        boxes, labels = [], []
        for slot, k in enumerate([i % PHOTOS, *random.sample(range(PHOTOS), 3)]):
            dx, dy = slot % 2 * (SIDE // 2), slot // 2 * (SIDE // 2)
            canvas.paste(self.tile(k), (dx, dy))
            for x1, y1, x2, y2 in self.boxes[k]:
                scale = SIDE / 416
                boxes.append([x1 * scale + dx, y1 * scale + dy, x2 * scale + dx, y2 * scale + dy])
                labels.append(k % 7)
        target = {
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(SIDE, SIDE)),
            "labels": torch.tensor(labels),
        }
        image = tv_tensors.Image(np.asarray(canvas).transpose(2, 0, 1).copy())
        return self.transform(image, target)


def gather(items):
    images, targets = zip(*items)
    most = max(len(t["labels"]) for t in targets)
    boxes = torch.zeros(len(items), most, 5)
    for row, target in enumerate(targets):
        for col, (box, label) in enumerate(zip(target["boxes"].tolist(), target["labels"].tolist())):
            boxes[row, col] = torch.tensor([*box, label])
    return torch.stack([torch.as_tensor(image) for image in images]), boxes


def main():
    limit = int(os.environ.get("CASE_STEPS", 0))
    root = tempfile.mkdtemp(prefix="det_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    write_photos(root)
    loader = DataLoader(
        Mosaic(root), batch_size=4, shuffle=True, num_workers=2, collate_fn=gather, persistent_workers=True
    )
    total, step, began = limit or 4000, 0, None
    while step < total:
        for images, boxes in loader:
            time.sleep(0.060)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step % 200 == 0:
                print(f"{step}: {int((boxes[..., 2] > 0).sum())} objects", flush=True)
            if step >= total:
                break
    if limit:
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main()
