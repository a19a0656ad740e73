"""Multi-person pose estimation: images with a varying number of annotated people."""

import os
import time

import numpy as np
import torch
import torchvision.transforms.v2.functional as TF
from torch.utils.data import DataLoader, Dataset

LIMIT = int(os.environ.get("CASE_STEPS", "0"))
SIZE = 96


class People(Dataset):
    def __init__(self, count=1200, seed=3):
        rng = np.random.default_rng(seed)
        self.images = torch.from_numpy(rng.integers(0, 255, (64, 3, SIZE, SIZE), dtype=np.uint8))
        self.people = []
        for _ in range(count):
            n = int(rng.integers(5, 12))
            self.people.append(
                (rng.random((n, 17, 3), dtype=np.float32) * SIZE, rng.integers(0, 2, n).astype(np.int64))
            )

    def __len__(self):
        return len(self.people)

    def __getitem__(self, i):
        image = self.images[i % len(self.images)]
        joints, visible = self.people[i]
        joints = torch.from_numpy(joints).clone()
        if torch.rand(()) < 0.5:
            image = TF.horizontal_flip(image)
            joints[..., 0] = SIZE - joints[..., 0]
        image = TF.normalize(TF.to_dtype(image, torch.float32, scale=True), [0.5] * 3, [0.25] * 3)
        people = []
        for points, flag in zip(joints, visible):
            low, high = points[:, :2].min(0).values, points[:, :2].max(0).values
            people.append({"joints": points.clone(), "box": torch.cat([low, high]), "visible": torch.tensor(flag)})
        return image, people


def pose_collate(samples):
    images = torch.stack([image for image, _ in samples])
    return images, match([people for _, people in samples])


def match(people):
    """Flat tensors for the loss, with the image that each person belongs to."""
    flat = [person for group in people for person in group]
    owner = torch.repeat_interleave(torch.arange(len(people)), torch.tensor([len(group) for group in people]))
    return (
        owner,
        torch.stack([p["joints"] for p in flat]),
        torch.stack([p["box"] for p in flat]),
        torch.stack([p["visible"] for p in flat]),
    )


def train_step(images, owner, joints, boxes, visible):
    time.sleep(0.030)
    scale = (boxes[:, 2:] - boxes[:, :2]).prod(1).sqrt()
    return float((joints[..., :2].mean((1, 2)) / scale)[visible > 0].mean()) + float(images[owner[0]].mean())


def fit(loader, epochs):
    step, began = 0, None
    for epoch in range(epochs):
        for images, people in loader:
            loss = train_step(images, *people)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if LIMIT and step >= LIMIT:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                return
        print(f"epoch {epoch} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    train_loader = DataLoader(
        People(),
        batch_size=12,
        shuffle=True,
        num_workers=2,
        collate_fn=pose_collate,
        drop_last=True,
        persistent_workers=True,
    )
    fit(train_loader, epochs=40)
