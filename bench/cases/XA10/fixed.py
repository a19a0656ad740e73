"""Find flaws in weld seams on radiographs."""

import os
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

cv2.setNumThreads(0)


class Radiographs(Dataset):
    def __init__(self, files, train=True, length=30_000):
        self.files = files
        self.steps = [self.equalise, self.shrink]
        if train:
            self.steps += [self.rotate]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        picture = cv2.imread(str(self.files[index % len(self.files)]), cv2.IMREAD_GRAYSCALE)
        for step in self.steps:
            picture = step(picture)
        return torch.from_numpy(picture).float().div(255)[None], index % 2

    def equalise(self, picture):
        return cv2.createCLAHE(clipLimit=2.0, tileGridSize=(8, 8)).apply(picture)

    def shrink(self, picture):
        return cv2.resize(picture, (192, 144), interpolation=cv2.INTER_AREA)

    def rotate(self, picture):
        height, width = picture.shape
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), np.random.uniform(-8, 8), 1.0)
        return cv2.warpAffine(picture, turn, (width, height), borderMode=cv2.BORDER_REFLECT)


def clean(picture, strength=9):
    return cv2.fastNlMeansDenoising(picture, None, h=strength, templateWindowSize=5, searchWindowSize=15)


def expose(folder, count=20, shape=(240, 320)):
    rng = np.random.default_rng(8)
    files = []
    for number in range(count):
        seam = 120 + 60 * np.exp(-(((np.arange(shape[0]) - 120) / 25) ** 2))[:, None]
        grain = rng.normal(0, 9, shape)
        picture = np.clip(seam + grain, 0, 255).astype(np.uint8)
        cv2.circle(picture, tuple(map(int, rng.integers(60, 180, 2))), 4, 60, -1)
        path = Path(folder, f"weld{number:03d}.png")
        cv2.imwrite(str(path), clean(picture))
        files.append(path)
    return files


def update(pictures, flawed):
    time.sleep(0.024)


def train(loader, last_step):
    seen, started = 0, 0.0
    while True:
        for pictures, flawed in tqdm(loader, mininterval=5, leave=False):
            update(pictures, flawed)
            seen += 1
            if seen == 8:
                started = time.perf_counter()
            if seen == last_step:
                return (seen - 8) / (time.perf_counter() - started)


def main():
    last_step = int(os.environ.get("CASE_STEPS", "0"))
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Radiographs(expose(folder)), batch_size=4, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, last_step):.3f}")


if __name__ == "__main__":
    main()
