"""2D segmentation of axial planes taken from a zarr archive of CT volumes."""

import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import zarr
from torch.utils.data import DataLoader, Dataset, random_split

CASES, DEPTH, SIDE = 10, 64, 192


def build_archive(root):
    rng = np.random.default_rng(11)
    ct = zarr.create_array(
        store=os.path.join(root, "ct.zarr"), shape=(CASES, DEPTH, SIDE, SIDE), chunks=(1, 1, SIDE, SIDE), dtype="int16"
    )
    masks = np.zeros((CASES, DEPTH, SIDE, SIDE), dtype=bool)
    grid = np.linspace(-1, 1, SIDE)
    radius = np.hypot(grid[:, None], grid[None, :])
    for case in range(CASES):
        body = (1 - radius) * 900 - 600
        volume = body[None] + rng.normal(0, 25, (DEPTH, SIDE, SIDE))
        ct[case] = volume.astype(np.int16)
        masks[case] = radius[None] < rng.uniform(0.2, 0.5)
    np.save(os.path.join(root, "masks.npy"), np.packbits(masks, axis=-1))


class AxialPlanes(Dataset):
    """One item is one axial plane and its mask."""

    def __init__(self, root, repeats=20):
        self.root = root
        self.masks = np.load(os.path.join(root, "masks.npy"), mmap_mode="r")
        self.table = [(c, z) for c in range(CASES) for z in range(DEPTH)] * repeats
        self._ct = None

    @property
    def ct(self):
        if self._ct is None:
            self._ct = zarr.open_array(os.path.join(self.root, "ct.zarr"), mode="r")
        return self._ct

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        case, z = self.table[i]
        plane = self.ct[case, z]
        mask = np.unpackbits(self.masks[case, z], axis=-1)
        image = np.clip(plane, -500, 500).astype(np.float32) / 500.0
        if np.random.rand() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        image = image * np.random.uniform(0.9, 1.1) + np.random.normal(0, 0.02)
        return torch.from_numpy(image.astype(np.float32))[None], torch.from_numpy(mask.copy()).long()


def fit(loader, valid, steps):
    done, began = 0, None
    while done < steps:
        for image, mask in loader:
            time.sleep(0.030)
            done += 1
            if done == 8:
                began = time.perf_counter()
            if done % 1000 == 0:
                dice = np.mean([float(valid[k][1].float().mean()) for k in range(16)])
                print(f"{done}: foreground {dice:.3f}", flush=True)
            if done >= steps:
                break
    return (done - 8) / (time.perf_counter() - began)


def main():
    root = tempfile.mkdtemp(prefix="ct_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    build_archive(root)
    planes = AxialPlanes(root)
    train, valid = random_split(planes, [0.95, 0.05], generator=torch.Generator().manual_seed(1))
    loader = DataLoader(train, batch_size=14, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    limit = int(os.environ.get("CASE_STEPS", 0))
    speed = fit(loader, valid, limit or 4000)
    if limit:
        print(f"steps_per_s {speed:.3f}")


if __name__ == "__main__":
    main()
