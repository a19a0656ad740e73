"""Train a landmark classifier, evaluate often, keep the best score."""

import argparse
import os
import time

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

cv2.setNumThreads(1)
torch.set_num_threads(1)


class TrainView:
    def __init__(self, side):
        self.side = side

    def __call__(self, image):
        y, x = np.random.randint(0, image.shape[0] - self.side, 2)
        crop = image[y : y + self.side, x : x + self.side]
        if np.random.rand() < 0.5:
            crop = cv2.flip(crop, 1)
        crop = cv2.GaussianBlur(crop, (5, 5), 0)
        return np.ascontiguousarray(crop)


class EvalView:
    """Deterministic view: denoise, equalise, centre crop."""

    def __init__(self, side):
        self.side = side

    def __call__(self, image):
        smooth = cv2.bilateralFilter(image, 9, 40, 40)
        lab = cv2.cvtColor(smooth, cv2.COLOR_RGB2LAB)
        lab[..., 0] = cv2.createCLAHE(2.0, (8, 8)).apply(lab[..., 0])
        full = cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
        o = (full.shape[0] - self.side) // 2
        return np.ascontiguousarray(full[o : o + self.side, o : o + self.side])


class Landmarks(Dataset):
    def __init__(self, images, view):
        self.images = images
        self.view = view

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        pixels = self.view(self.images[i])
        planes = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        return planes.float().div_(255), i % 5


def make_images(n, side, seed):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 255, (n, side // 8, side // 8, 3), dtype=np.uint8)
    return [cv2.resize(c, (side, side), interpolation=cv2.INTER_CUBIC) for c in coarse]


def train_step(images, labels):
    time.sleep(0.030)


@torch.no_grad()
def evaluate(loader):
    hits = seen = 0
    for images, labels in loader:
        time.sleep(0.006)
        guess = (images.mean((1, 2, 3)) * 97).long() % 5
        hits += int((guess == labels).sum())
        seen += len(labels)
    return hits / seen


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--side", type=int, default=160)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--eval-every", type=int, default=20)
    p.add_argument("--train-images", type=int, default=400)
    p.add_argument("--val-images", type=int, default=64)
    args = p.parse_args()
    train_set = Landmarks(make_images(args.train_images, 256, 0), TrainView(args.side))
    val_set = Landmarks(make_images(args.val_images, 256, 1), EvalView(args.side))
    train_loader = DataLoader(
        train_set, args.batch_size, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True
    )
    val_loader = DataLoader(val_set, args.batch_size)
    limit = int(os.environ.get("CASE_STEPS", 4000))
    step, best, t0 = 0, 0.0, None
    while step < limit:
        for images, labels in train_loader:
            train_step(images, labels)
            step += 1
            if step == 8:
                t0 = time.perf_counter()
            if step % args.eval_every == 0:
                best = max(best, evaluate(val_loader))
            if step >= limit:
                break
    print(f"best {best:.3f}")
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - t0):.3f}")


if __name__ == "__main__":
    main()
