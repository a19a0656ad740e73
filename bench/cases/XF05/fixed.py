"""Lidar object classification: clouds of varying size from an HDF5 file, padded per batch."""

import atexit
import os
import shutil
import tempfile
import time

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

CLOUDS = 300


def write_clouds(path):
    rng = np.random.default_rng(2)
    sizes = rng.integers(1200, 2200, CLOUDS)
    with h5py.File(path, "w") as f:
        points = f.create_dataset("points", (int(sizes.sum()), 4), dtype="f4", chunks=(4096, 4))
        offset = 0
        for n in sizes:
            points[offset : offset + n] = rng.standard_normal((n, 4), dtype=np.float32)
            offset += n
        f["offsets"] = np.concatenate([[0], np.cumsum(sizes)])
        f["label"] = rng.integers(0, 12, CLOUDS)


class LidarObjects(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None
        with h5py.File(path, "r") as f:
            self.offsets = f["offsets"][:]
            self.labels = f["label"][:]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        points = self.file["points"][self.offsets[i] : self.offsets[i + 1]]
        return {"points": points, "label": int(self.labels[i])}


class Augmented(Dataset):
    """Several randomly turned and scaled views of every object of a base data set."""

    def __init__(self, base, views):
        self.base, self.views = base, views

    def __len__(self):
        return len(self.base) * self.views

    def __getitem__(self, i):
        item = self.base[i % len(self.base)]
        angle = np.random.uniform(0, 2 * np.pi)
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, -s], [s, c]], dtype=np.float32)
        points = item["points"]
        points[:, :2] = points[:, :2] @ turn
        points[:, :3] *= np.float32(np.random.uniform(0.9, 1.1))
        return {"points": points, "label": item["label"]}


class PadBatch:
    def __init__(self, fill=0.0):
        self.fill = fill

    def __call__(self, items):
        sizes = [len(item["points"]) for item in items]
        clouds = np.full((len(items), max(sizes), 4), self.fill, dtype=np.float32)
        for row, (item, n) in enumerate(zip(items, sizes)):
            clouds[row, :n] = item["points"]
        mask = torch.arange(max(sizes))[None] < torch.tensor(sizes)[:, None]
        return {
            "points": torch.from_numpy(clouds),
            "mask": mask,
            "label": torch.tensor([item["label"] for item in items]),
        }


def run():
    root = tempfile.mkdtemp(prefix="lidar_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    path = os.path.join(root, "objects.h5")
    write_clouds(path)
    loader = DataLoader(
        Augmented(LidarObjects(path), 40),
        batch_size=16,
        shuffle=True,
        num_workers=1,
        collate_fn=PadBatch(),
        drop_last=True,
        persistent_workers=True,
    )
    limit = int(os.environ.get("CASE_STEPS", 0))
    total, step, points, began = limit or 4000, 0, 0, None
    while step < total:
        for batch in loader:
            points += int(batch["mask"].sum())
            time.sleep(0.024)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step >= total:
                break
    print(f"{points / step:.0f} points per step")
    if limit:
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    run()
