"""Pipelines and data sets of torchvision, its first and its second kind of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from looking import Case, look
from PIL import Image
from torch.utils.data import Dataset

pytest.importorskip("torchvision")
from torchvision import datasets, transforms, tv_tensors
from torchvision.transforms import v2

BLUR = {"kernel_size": 31, "sigma": 5.0}


class Pictures(Dataset):
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        image = torch.full((3, 160, 160), index, dtype=torch.uint8)
        image = self.transform(image)
        return image, index


class Masked(Pictures):
    def __getitem__(self, index: int) -> Any:
        image = tv_tensors.Image(torch.full((3, 160, 160), index, dtype=torch.uint8))
        mask = tv_tensors.Mask(torch.zeros(160, 160, dtype=torch.uint8))
        image, mask = self.transform(image, mask)
        return image, mask


class Joint:
    """Image and target together, in the style of the detection references."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def __call__(self, image: Any, target: Any) -> Any:
        for step in self.steps:
            image, target = step(image, target)
        return image, target


class FlipBoth:
    def __call__(self, image: Any, target: Any) -> Any:
        return image.flip(-1), target.flip(-1)


class BlurImage:
    def __init__(self) -> None:
        self.blur = transforms.GaussianBlur(**BLUR)

    def __call__(self, image: Any, target: Any) -> Any:
        return self.blur(image), target


def _old(*steps: Any) -> Any:
    return Pictures(transforms.Compose([transforms.RandomHorizontalFlip(1.0), *steps]))


def _new(*steps: Any) -> Any:
    return Pictures(v2.Compose([v2.RandomHorizontalFlip(1.0), *steps]))


def _folder(root: Any) -> Any:
    for kind in ("cat", "dog"):
        (root / kind).mkdir()
        for number in range(4):
            Image.fromarray(np.full((160, 160, 3), number, np.uint8)).save(root / kind / f"{number}.png")
    return datasets.ImageFolder(root, v2.Compose([v2.PILToTensor(), v2.GaussianBlur(**BLUR)]))


OLD_BLUR, NEW_BLUR, OLD_FLIP, NEW_FLIP = (
    transforms.GaussianBlur(**BLUR), v2.GaussianBlur(**BLUR),
    transforms.RandomVerticalFlip(1.0), v2.RandomVerticalFlip(1.0),
)  # fmt: skip

CASES = [
    Case("torchvision", "ImageFolder", _folder, "GaussianBlur"),
    Case("torchvision", "v1 Compose in Compose", lambda _: _old(transforms.Compose([OLD_FLIP, OLD_BLUR])), "GaussianBlur"),
    Case("torchvision", "v1 RandomApply", lambda _: _old(transforms.RandomApply([OLD_BLUR], p=0.7)), "GaussianBlur"),
    Case("torchvision", "v1 RandomChoice", lambda _: _old(transforms.RandomChoice([OLD_FLIP, OLD_BLUR])), "GaussianBlur"),
    Case("torchvision", "v1 RandomOrder", lambda _: _old(transforms.RandomOrder([OLD_FLIP, OLD_BLUR])), "GaussianBlur"),
    Case("torchvision", "v2 Compose in Compose", lambda _: _new(v2.Compose([NEW_FLIP, NEW_BLUR])), "GaussianBlur"),
    Case("torchvision", "v2 RandomApply", lambda _: _new(v2.RandomApply([NEW_BLUR], p=0.7)), "GaussianBlur"),
    Case("torchvision", "v2 RandomChoice", lambda _: _new(v2.RandomChoice([NEW_FLIP, NEW_BLUR])), "GaussianBlur"),
    Case("torchvision", "v2 RandomOrder", lambda _: _new(v2.RandomOrder([NEW_FLIP, NEW_BLUR])), "GaussianBlur"),
    Case("torchvision", "v2 image and mask", lambda _: Masked(v2.Compose([NEW_FLIP, NEW_BLUR])), "GaussianBlur"),
    Case("torchvision", "joint transforms", lambda _: Masked(Joint([FlipBoth(), BlurImage()])), "BlurImage"),
    Case("torchvision", "nn.Sequential", lambda _: Pictures(torch.nn.Sequential(OLD_FLIP, OLD_BLUR)), "GaussianBlur"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_transform_is_named(case: Case, tmp_path: Any) -> None:
    """The transform that takes the time is named by its class, in chains, choices and random orders alike."""
    assert look(case.make(tmp_path)).guilty == case.guilty
