"""Instance segmentation toy: COCO-like annotations beside every image."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

cfg = {
    "images": 160,
    "objects": (40, 60),
    "points": 48,
    "image_size": 96,
    "batch_size": 12,
    "workers": 2,
    "max_steps": int(os.environ.get("CASE_STEPS", 4000)),
}


def annotate(rng, n_objects, n_points):
    anns = []
    for k in range(n_objects):
        angle = np.linspace(0, 2 * np.pi, n_points, endpoint=False)
        radius = rng.uniform(2, 10)
        centre = rng.uniform(10, 86, 2)
        ring = np.stack([centre[0] + radius * np.cos(angle), centre[1] + radius * np.sin(angle)], 1)
        anns.append(
            {
                "category_id": int(rng.integers(1, 80)),
                "iscrowd": 0,
                "area": float(np.pi * radius**2),
                "bbox": [float(centre[0] - radius), float(centre[1] - radius), float(2 * radius), float(2 * radius)],
                "segmentation": ring.astype(np.float32),
            }
        )
    return anns


class CocoLike(Dataset):
    def __init__(self, cfg, seed=3):
        rng = np.random.default_rng(seed)
        size = cfg["image_size"]
        self.images = rng.integers(0, 255, (cfg["images"], 3, size, size), dtype=np.uint8)
        self.targets = [annotate(rng, int(rng.integers(*cfg["objects"])), cfg["points"]) for _ in range(cfg["images"])]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i]).float().div_(255)
        return image, {"image_id": i, "annotations": self.targets[i]}


def collate(samples):
    images, targets = zip(*samples)
    anns = [a for t in targets for a in t["annotations"]]
    packed = {
        "image_id": torch.tensor([t["image_id"] for t in targets]),
        "count": torch.tensor([len(t["annotations"]) for t in targets]),
        "category_id": torch.tensor([a["category_id"] for a in anns]),
        "iscrowd": torch.tensor([a["iscrowd"] for a in anns]),
        "area": torch.tensor([a["area"] for a in anns]),
        "bbox": torch.tensor([a["bbox"] for a in anns]),
        "segmentation": torch.from_numpy(np.stack([a["segmentation"] for a in anns])),
    }
    return torch.stack(images), packed


def forward_backward(images, targets):
    boxes = targets["bbox"]
    time.sleep(0.028)
    return boxes.shape[0]


def run():
    loader = DataLoader(
        CocoLike(cfg),
        batch_size=cfg["batch_size"],
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=cfg["workers"],
        persistent_workers=True,
    )
    step, t0, objects = 0, 0.0, 0
    it = iter(loader)
    while step < cfg["max_steps"]:
        try:
            images, targets = next(it)
        except StopIteration:
            it = iter(loader)
            continue
        objects += forward_backward(images, targets)
        step += 1
        if step == 8:
            t0 = time.perf_counter()
        if step % 200 == 0:
            print(f"step {step} objects {objects}", flush=True)
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - t0):.3f}")


if __name__ == "__main__":
    run()
