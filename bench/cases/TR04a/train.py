"""Train a manipulation policy on camera frames with photometric augmentation."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


class PhotometricJitter:
    """Brightness, contrast, sharpness and blur, each by a random amount."""

    def __call__(self, frame):
        image = frame.astype(np.float32) / 255
        image = np.clip(image * np.random.uniform(0.8, 1.2) + np.random.uniform(-0.1, 0.1), 0, 1)
        grey = image.mean(-1, keepdims=True)
        image = grey + (image - grey) * np.random.uniform(0.6, 1.4)
        soft = ndimage.gaussian_filter(image, (np.random.uniform(0.5, 2.0), 1.0, 0))
        image = np.clip(image + np.random.uniform(-0.5, 0.5) * (image - soft), 0, 1)
        return image ** np.random.uniform(0.8, 1.25)


class EpisodeDataset(Dataset):
    def __init__(self, transform=None, frames=120, size=160, length=400_000):
        self.frames = np.random.default_rng(37).integers(0, 256, (frames, size, size, 3), dtype=np.uint8)
        self.transform = transform
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        frame = self.frames[index % len(self.frames)]
        if self.transform is not None:
            frame = self.transform(frame)
        return torch.from_numpy(np.ascontiguousarray(frame.transpose(2, 0, 1))), torch.zeros(7)


class Policy:
    """Simulated device time of a forward and backward pass."""

    def __init__(self, augments=False):
        self.step_s = 0.100 + (0.008 if augments else 0.0)

    def update(self, frames, actions):
        time.sleep(self.step_s)


def train(policy, loader, max_steps, warmup=8):
    step = 0
    while True:
        for frames, actions in loader:
            policy.update(frames, actions)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = EpisodeDataset(PhotometricJitter())
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Policy(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
