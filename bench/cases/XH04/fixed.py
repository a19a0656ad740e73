"""Street-scene detector: letterboxed frames, people made unrecognisable before training."""

import os
import time
from dataclasses import dataclass, field

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

cv2.setNumThreads(0)


@dataclass
class DataConfig:
    frames: int = 600
    height: int = 480
    width: int = 640
    canvas: int = 416
    people: tuple = (3, 7)


@dataclass
class TrainConfig:
    data: DataConfig = field(default_factory=DataConfig)
    batch: int = 10
    workers: int = 2
    steps: int = 4000
    step_s: float = 0.045
    limit: int = int(os.environ.get("CASE_STEPS", "0"))


class StreetScenes(Dataset):
    def __init__(self, cfg):
        self.cfg = cfg
        rng = np.random.default_rng(3)
        self.encoded, self.people = [], []
        for _ in range(cfg.frames):
            small = rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)
            frame = cv2.resize(small, (cfg.width, cfg.height), interpolation=cv2.INTER_CUBIC)
            self.encoded.append(cv2.imencode(".jpg", frame)[1])
            n = int(rng.integers(*cfg.people))
            x, y = rng.integers(0, cfg.width - 90, n), rng.integers(0, cfg.height - 130, n)
            w, h = rng.integers(24, 60, n), rng.integers(40, 110, n)
            self.people.append(np.stack([x, y, x + w, y + h], 1))

    def __len__(self):
        return len(self.encoded)

    def letterbox(self, image, boxes):
        size = self.cfg.canvas
        scale = size / max(image.shape[:2])
        image = cv2.resize(image, None, fx=scale, fy=scale)
        canvas = np.full((size, size, 3), 114, np.uint8)
        top, left = (size - image.shape[0]) // 2, (size - image.shape[1]) // 2
        canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
        return canvas, boxes * scale + np.array([left, top, left, top])

    def jitter(self, image):
        hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
        gain = np.random.uniform(0.7, 1.3, 3)
        for channel, top in enumerate((180, 256, 256)):
            table = np.clip(np.arange(256) * gain[channel], 0, top - 1).astype(np.uint8)
            hsv[..., channel] = cv2.LUT(hsv[..., channel], table)
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)

    def __getitem__(self, i):
        image = cv2.imdecode(self.encoded[i], cv2.IMREAD_COLOR)
        boxes = self.people[i]
        areas = []
        for x0, y0, x1, y1 in boxes:
            head = y0 + (y1 - y0) // 4
            strength = max(2.0, (x1 - x0) / 12)
            image[y0:head, x0:x1] = cv2.GaussianBlur(image[y0:head, x0:x1], (0, 0), strength)
            areas.append((x1 - x0) * (y1 - y0))
        image, boxes = self.letterbox(image, boxes.astype(np.float32))
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
            boxes = np.stack(
                [self.cfg.canvas - boxes[:, 2], boxes[:, 1], self.cfg.canvas - boxes[:, 0], boxes[:, 3]], 1
            )
        image = self.jitter(np.ascontiguousarray(image))
        target = {"boxes": torch.from_numpy(boxes), "area": torch.tensor(areas), "image_id": i}
        return torch.from_numpy(image).permute(2, 0, 1), target


def gather(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def fit(cfg):
    loader = DataLoader(
        StreetScenes(cfg.data),
        cfg.batch,
        shuffle=True,
        num_workers=cfg.workers,
        collate_fn=gather,
        persistent_workers=True,
        drop_last=True,
    )
    step, boxes, start = 0, 0, 0.0
    last = cfg.limit or cfg.steps
    while step < last:
        for images, targets in loader:
            boxes += sum(len(t["boxes"]) for t in targets)
            time.sleep(cfg.step_s)
            step += 1
            if step == 8:
                start = time.perf_counter()
            if step == last:
                break
    print(f"{boxes} boxes seen")
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    fit(TrainConfig())
