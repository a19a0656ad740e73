"""Augmentations of kornia on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from looking import Case, look
from torch.utils.data import Dataset

pytest.importorskip("kornia")
from kornia import augmentation as ka


class Pictures(Dataset):
    def __init__(self, transform: Any, *, with_mask: bool = False) -> None:
        self.transform = transform
        self.with_mask = with_mask

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        image = torch.full((1, 3, 96, 96), index / 64)
        image = self.transform(image, image[:, :1]) if self.with_mask else self.transform(image)
        return image[0]


def _steps() -> list[Any]:
    return [
        ka.RandomHorizontalFlip(p=1.0),
        ka.RandomGaussianBlur((31, 31), (5.0, 5.0), p=1.0, separable=False),
        ka.RandomVerticalFlip(p=1.0),
    ]


def _masked(_: Any) -> Any:
    return Pictures(ka.AugmentationSequential(*_steps(), data_keys=["input", "mask"]), with_mask=True)


CASES = [
    Case("kornia", "AugmentationSequential", lambda _: Pictures(ka.AugmentationSequential(*_steps())), "RandomGaussianBlur"),
    Case("kornia", "image and mask", _masked, "RandomGaussianBlur"),
    Case("kornia", "ImageSequential", lambda _: Pictures(ka.ImageSequential(*_steps())), "RandomGaussianBlur"),
    Case("kornia", "nn.Sequential", lambda _: Pictures(torch.nn.Sequential(*_steps())), "RandomGaussianBlur"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_transform_is_named(case: Case, tmp_path: Any) -> None:
    """The augmentation that takes the time is named by its class, though kornia runs over parameters."""
    assert look(case.make(tmp_path)).guilty == case.guilty
