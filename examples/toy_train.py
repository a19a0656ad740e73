"""Train a small classifier on random images: the toy pipeline of a starved training run.

    python examples/toy_train.py --steps 100
    unstarve run examples/toy_train.py

Needs torch, torchvision and SciPy. Without CUDA the model's step is a sleep of --step-ms.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from scipy.signal import convolve2d
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class ToyDataset(Dataset):
    def __init__(self, transform, image_size=1024, length=10_000):
        self.transform = transform
        self.image_size = image_size
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        pixels = np.random.randint(0, 256, (self.image_size, self.image_size, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        return self.transform(image), index % 10


class RandomMask(nn.Module):
    def __init__(self, fraction=0.25):
        super().__init__()
        self.fraction = fraction
        self.neighbourhood = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=np.uint8)

    def forward(self, image):
        seeds = np.random.random(image.shape[-2:]) < self.fraction
        mask = convolve2d(seeds, self.neighbourhood, mode="same") > 0
        image[:, torch.from_numpy(mask)] = 0
        return image


class RGBToYUV(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
        self.offset = torch.tensor([0.0, 128.0, 128.0])

    def forward(self, image):
        return torch.tensordot(self.matrix, image.float(), dims=1) + self.offset[:, None, None]


class Scale(nn.Module):
    def forward(self, image):
        return image / 255


def make_model():
    blocks = []
    for _ in range(8):
        blocks += [nn.Conv2d(30, 30, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(nn.Conv2d(3, 30, 3, padding=1), *blocks, nn.Conv2d(30, 10, 3, padding=1), nn.Flatten())


def make_step(step_ms):
    if not torch.cuda.is_available():
        return lambda images, labels: time.sleep(step_ms / 1000)

    model = make_model().cuda()
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step(images, labels):
        images = images.cuda(non_blocking=True)
        labels = labels.cuda(non_blocking=True)
        optimizer.zero_grad()
        loss_function(model(images), labels).backward()
        optimizer.step()

    return step


def main():
    parser = argparse.ArgumentParser(description="Train a small classifier on random images.")
    parser.add_argument("--steps", type=int, default=None, help="stop each epoch after this many steps")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--step-ms", type=float, default=40.0, help="length of a step where there is no CUDA")
    args = parser.parse_args()

    transform = transforms.Compose(
        [transforms.PILToTensor(), transforms.RandomCrop(256), RandomMask(), RGBToYUV(), Scale()]
    )
    loader = DataLoader(
        ToyDataset(transform),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=torch.cuda.is_available(),
    )
    step = make_step(args.step_ms)

    for epoch in range(args.epochs):
        start, steps = time.perf_counter(), 0
        for images, labels in loader:
            step(images, labels)
            steps += 1
            if steps == args.steps:
                break
        print(f"epoch {epoch}: {steps} steps, {steps / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
