"""The toy pipeline of the article, written as its user would write it: nothing in here knows of unstarve's instruments.

Source: C. Rand, "A Caching Strategy for Identifying Bottlenecks on the Data Input Pipeline", Towards Data Science,
June 2025; the optimised transforms follow part 4 of the same series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unstarve.errors import UsageError

try:
    from PIL import Image
    from scipy.signal import convolve2d
    from torchvision import transforms
except ImportError as error:
    raise UsageError(
        f"The demo needs torchvision, SciPy and Pillow, and {error.name} cannot be imported: "
        "pip install 'unstarve[demo]'."
    ) from error

Batch = tuple[torch.Tensor, torch.Tensor]


class ToyDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Random RGB images of `image_size` squared, as PIL images through `transform`, with labels from 0 to 9."""

    def __init__(
        self, transform: Callable[[Image.Image], torch.Tensor], image_size: int = 1024, length: int = 10_000
    ) -> None:
        self.transform = transform
        self.image_size = image_size
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.random.randint(0, 256, (self.image_size, self.image_size, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        return self.transform(image), index % 10


class RandomMask(torch.nn.Module):
    """Zeros, written in place, on random pixels of a CxHxW image and on their four neighbours."""

    def __init__(self, fraction: float = 0.25) -> None:
        super().__init__()
        self.fraction = fraction
        self.neighbourhood = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=np.uint8)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        seeds = np.random.random(image.shape[-2:]) < self.fraction
        mask = convolve2d(seeds, self.neighbourhood, mode="same") > 0
        image[:, torch.from_numpy(mask)] = 0
        return image


class FastRandomMask(torch.nn.Module):
    """The same zeros as `RandomMask` for the same random state, at a hundredth of the cost of the dilation."""

    def __init__(self, fraction: float = 0.25) -> None:
        super().__init__()
        self.fraction = fraction

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        seeds = np.random.random(image.shape[-2:]) < self.fraction
        mask = seeds.copy()
        mask[1:] |= seeds[:-1]
        mask[:-1] |= seeds[1:]
        mask[:, 1:] |= seeds[:, :-1]
        mask[:, :-1] |= seeds[:, 1:]
        image[:, torch.from_numpy(mask)] = 0
        return image


class RGBToYUV(torch.nn.Module):
    """A 3xHxW image in RGB, 0 to 255, as float32 in full-range YUV (ITU-R BT.601, as JPEG uses it)."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = torch.tensor(
            [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]],
        )
        self.offset = torch.tensor([0.0, 128.0, 128.0])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        yuv: torch.Tensor = torch.tensordot(self.matrix, image.float(), dims=1)
        return yuv + self.offset[:, None, None]


class Scale(torch.nn.Module):
    """An image of 0 to 255 as one of 0 to 1."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image / 255


def transforms_as_published() -> transforms.Compose:
    """The article's transforms: the whole image is converted before it is cropped, and SciPy dilates the mask."""
    return transforms.Compose([transforms.PILToTensor(), transforms.RandomCrop(256), RandomMask(), RGBToYUV(), Scale()])


def transforms_optimised() -> transforms.Compose:
    """The same result for less: only the crop is converted, and shifted arrays dilate the mask."""
    return transforms.Compose(
        [transforms.RandomCrop(256), transforms.PILToTensor(), FastRandomMask(), RGBToYUV(), Scale()]
    )


class ToyModel(torch.nn.Module):
    """A convolutional classifier of 68,590 parameters for Nx3x256x256 images: Nx10 logits.

    The article does not print it; the layers are inferred from part 4 of the series.
    """

    def __init__(self) -> None:
        super().__init__()
        blocks: list[torch.nn.Module] = []
        for _ in range(8):
            blocks += [torch.nn.Conv2d(30, 30, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 30, 3, padding=1), *blocks, torch.nn.Conv2d(30, 10, 3, padding=1), torch.nn.Flatten()
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(images)
        return logits


def make_train_step(device: torch.device) -> Callable[[Batch], None]:
    """One step of training a new `ToyModel` on the device, as a function of the batch that does not wait for it."""
    model = ToyModel().to(device)
    loss_function = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def train_step(batch: Batch) -> None:
        images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
        optimizer.zero_grad(set_to_none=True)
        loss_function(model(images), labels).backward()
        optimizer.step()

    return train_step


def make_loader(
    transform: Callable[[Any], torch.Tensor], *, image_size: int, batch_size: int, workers: int, pin_memory: bool
) -> torch.utils.data.DataLoader[tuple[torch.Tensor, int]]:
    """The article's loader over a `ToyDataset`."""
    return torch.utils.data.DataLoader(
        ToyDataset(transform, image_size=image_size),
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        pin_memory=pin_memory,
        drop_last=True,
    )
