"""Image classifier with the usual augmentations and a CSV log."""

import argparse
import atexit
import csv
import os
import shutil
import tempfile
import time
from collections import deque

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Augment:
    def __init__(self, size=64, pad=6):
        self.size, self.pad = size, pad
        self.mean = np.array([0.48, 0.45, 0.40], np.float32)
        self.std = np.array([0.27, 0.26, 0.28], np.float32)

    def crop(self, image):
        image = np.pad(image, ((self.pad, self.pad), (self.pad, self.pad), (0, 0)), mode="reflect")
        y, x = np.random.randint(0, 2 * self.pad + 1, 2)
        return image[y : y + self.size, x : x + self.size]

    def jitter(self, image):
        image = image.astype(np.float32) / 255.0
        image = image * np.float32(np.random.uniform(0.8, 1.2))
        grey = image.mean(axis=2, keepdims=True)
        return np.clip(grey + (image - grey) * np.float32(np.random.uniform(0.6, 1.4)), 0, 1)

    def erase(self, image):
        h, w = np.random.randint(8, 20, 2)
        y, x = np.random.randint(0, self.size - h), np.random.randint(0, self.size - w)
        image[y : y + h, x : x + w] = np.random.rand(h, w, 3)
        return image

    def __call__(self, image):
        image = self.crop(image)
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
        image = self.erase(self.jitter(image))
        return torch.from_numpy(((image - self.mean) / self.std).transpose(2, 0, 1).copy())


class Photos(Dataset):
    def __init__(self, count, transform, size=64, classes=10):
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
        self.labels = rng.integers(0, classes, count)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.labels[index])


class Logger:
    def __init__(self, path, window=50):
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.losses = deque(maxlen=window)

    def log(self, step, loss, lr):
        self.losses.append(loss)
        self.writer.writerow([step, f"{loss:.5f}", f"{lr:.6f}"])
        self.file.flush()
        if step % 25 == 0:
            print(f"step {step} loss {sum(self.losses) / len(self.losses):.4f} lr {lr:.5f}")


def device_step(images, labels, seconds=0.045):
    time.sleep(seconds)
    return (images.mean() ** 2 + labels.float().mean() * 0.1).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1600)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="run-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    loader = DataLoader(
        Photos(args.images, Augment()),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=True,
        prefetch_factor=3,
    )
    logger = Logger(os.path.join(folder, "log.csv"))
    total = args.epochs * len(loader)
    limit = int(os.environ.get("CASE_STEPS", total))
    step = 0
    for _ in range(args.epochs):
        for images, labels in loader:
            loss = device_step(images, labels)
            logger.log(step, loss, 0.1 * (1 - step / total))
            step += 1
            if step == 8:
                begun = time.perf_counter()
            if step == limit:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - begun):.3f}")
                return


if __name__ == "__main__":
    main()
