"""Pipelines of albumentations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from looking import Case, look
from torch.utils.data import Dataset

albumentations = pytest.importorskip("albumentations")


class Pictures(Dataset):
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        image = np.full((192, 192, 3), index, np.uint8)
        image = self.transform(image=image)["image"]
        return torch.from_numpy(np.ascontiguousarray(image)), index


class OwnBlur(albumentations.ImageOnlyTransform):
    def apply(self, img: Any, **params: Any) -> Any:
        small = img[::2]
        for _ in range(60):
            small = np.sort(small, axis=0)
        return img


def _blur(**more: Any) -> Any:
    return albumentations.MedianBlur(blur_limit=(15, 15), **{"p": 1, **more})


def _chain(_: Any) -> Any:
    return Pictures(albumentations.Compose([albumentations.HorizontalFlip(p=1), _blur(), albumentations.Normalize()]))


def _nested(_: Any) -> Any:
    inner = albumentations.Sequential([albumentations.HorizontalFlip(p=1), _blur()], p=1)
    return Pictures(albumentations.Compose([albumentations.Transpose(p=1), inner, albumentations.Normalize()]))


def _one_of(_: Any) -> Any:
    choice = albumentations.OneOf([albumentations.HorizontalFlip(p=1), _blur()], p=1)
    return Pictures(albumentations.Compose([choice, albumentations.Transpose(p=1)]))


def _some_of(_: Any) -> Any:
    some = albumentations.SomeOf([albumentations.HorizontalFlip(p=1), _blur(), albumentations.Transpose(p=1)], n=2)
    return Pictures(albumentations.Compose([some, albumentations.Normalize()]))


def _own(_: Any) -> Any:
    return Pictures(albumentations.Compose([albumentations.HorizontalFlip(p=1), OwnBlur(p=1)]))


CASES = [
    Case("albumentations", "Compose", _chain, "MedianBlur"),
    Case("albumentations", "Sequential in Compose", _nested, "MedianBlur"),
    Case("albumentations", "OneOf", _one_of, "MedianBlur"),
    Case("albumentations", "SomeOf", _some_of, "MedianBlur"),
    Case("albumentations", "own ImageOnlyTransform", _own, "OwnBlur"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_transform_is_named(case: Case, tmp_path: Any) -> None:
    """The transform that takes the time is named by its class, however deep the library's composition nests it."""
    assert look(case.make(tmp_path)).guilty == case.guilty
