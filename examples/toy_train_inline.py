"""Train a small classifier on random images: toy_train.py's pipeline written out in `__getitem__`, without Compose.

    python examples/toy_train_inline.py --steps 100
    unstarve run examples/toy_train_inline.py

Needs torch, Pillow and SciPy. Without CUDA the model's step is a sleep of --step-ms.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from scipy.signal import convolve2d
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ToyDataset(Dataset):
    neighbourhood = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=np.uint8)
    to_yuv = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
    yuv_offset = torch.tensor([0.0, 128.0, 128.0])

    def __init__(self, image_size=1024, crop_size=256, length=10_000):
        self.image_size = image_size
        self.crop_size = crop_size
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        # A raw image, as if it were read.
        pixels = np.random.randint(0, 256, (self.image_size, self.image_size, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)

        # To a tensor, channels first.
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1)

        # Random crop.
        top, left = np.random.randint(0, self.image_size - self.crop_size + 1, 2)
        crop = tensor[:, top : top + self.crop_size, left : left + self.crop_size]

        # Random mask, grown to the four neighbours.
        seeds = np.random.random(crop.shape[-2:]) < 0.25
        mask = convolve2d(seeds, self.neighbourhood, mode="same") > 0
        crop[:, torch.from_numpy(mask)] = 0

        # Colour and scale.
        yuv = torch.tensordot(self.to_yuv, crop.float(), dims=1) + self.yuv_offset[:, None, None]
        scaled = yuv / 255
        return scaled, index % 10


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

    loader = DataLoader(
        ToyDataset(),
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
