"""Segment the liver on axial slices of abdominal CT studies."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

STUDIES, DEPTH, SIDE = 6, 64, 160


def window_level(slice_, low=-160, high=240):
    """Hounsfield units to 0..1 within the soft-tissue window."""
    return (np.clip(slice_.astype(np.float32), low, high) - low) / (high - low)


class AxialSlices(Dataset):
    def __init__(self, folder, repeats=100):
        self.folder = Path(folder)
        self.positions = [(study, z) for study in range(STUDIES) for z in range(DEPTH)] * repeats

    def __len__(self):
        return len(self.positions)

    def __getitem__(self, index):
        study, z = self.positions[index]
        image, organ = self.read_slice(study, z)
        image = window_level(image)
        if torch.rand(()) < 0.5:
            image, organ = image[:, ::-1], organ[:, ::-1]
        image = (image - image.mean()) / (image.std() + 1e-6)
        return torch.from_numpy(image.copy())[None], torch.from_numpy(organ.astype(np.int64))

    def read_slice(self, study, z):
        with np.load(self.folder / f"study{study:03d}.npz") as archive:
            image = archive["ct"][z]
            organ = archive["liver"][z]
        return image, organ


def scan(rng):
    """A made-up study: tissue that varies smoothly, noise, and a round organ."""
    z, y, x = np.ogrid[:DEPTH, :SIDE, :SIDE]
    centre = rng.integers(60, 100, 2)
    liver = (((y - centre[0]) ** 2 + (x - centre[1]) ** 2 + 4 * (z - 32) ** 2) < 45**2).astype(np.uint8)
    noise = rng.integers(-8, 9, (DEPTH, SIDE, SIDE), dtype=np.int16)
    return (noise + 60 * liver + np.int16(20) * ((y // 32 + x // 32) % 5)).astype(np.int16), liver


def export_studies(folder):
    rng = np.random.default_rng(2024)
    for study in range(STUDIES):
        ct, liver = scan(rng)
        np.savez_compressed(Path(folder, f"study{study:03d}.npz"), ct=ct, liver=liver)


def forward_backward(images, organs):
    time.sleep(0.030)


def fit(loader, limit):
    step, start = 0, None
    while True:
        for images, organs in loader:
            forward_backward(images, organs)
            step += 1
            if step == 8:
                start = time.perf_counter()
            if step == limit:
                return (step - 8) / (time.perf_counter() - start)


def main():
    limit = int(os.environ.get("CASE_STEPS", "0"))
    with tempfile.TemporaryDirectory() as folder:
        export_studies(folder)
        loader = DataLoader(AxialSlices(folder), batch_size=8, shuffle=True, num_workers=2)
        print(f"steps_per_s {fit(loader, limit):.3f}")


if __name__ == "__main__":
    main()
