"""Train a small network on random images with blur."""

import os
import time

import numpy as np
import torch
from PIL import Image
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class RandomImages(Dataset):
    def __init__(self, transform, image_size=640, length=80_000):
        self.transform = transform
        self.image_size = image_size
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        pixels = rng.integers(0, 256, (self.image_size, self.image_size, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        return self.transform(image), index % 10


class RGBToYUV(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])

    def forward(self, image):
        return torch.tensordot(self.matrix, image.float(), dims=1)


class Blur(nn.Module):
    """Gaussian blur of random width."""

    def __init__(self, high=3.0):
        super().__init__()
        self.high = high

    def forward(self, image):
        sigma = np.random.uniform(0.8 * self.high, self.high)
        return torch.from_numpy(ndimage.gaussian_filter(image.numpy(), (0, sigma, sigma)))


def train_step(images, labels):
    time.sleep(0.027)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, labels in loader:
            train_step(images, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    transform = transforms.Compose([transforms.PILToTensor(), transforms.RandomCrop(288), RGBToYUV(), Blur()])
    loader = DataLoader(RandomImages(transform), batch_size=12, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
