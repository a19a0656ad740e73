"""Transforms that timm makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from looking import Case, look
from PIL import Image
from torch.utils.data import Dataset

pytest.importorskip("timm")
from timm.data import create_transform
from timm.data.dataset import ImageDataset


class Pictures(Dataset):
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.new("RGB", (96, 96), (index, 0, 0)))


class SlowWash:
    def __call__(self, image: Any) -> Any:
        rows = np.asarray(image)
        for _ in range(320):  # far dearer than anything a busy disk adds to opening a picture
            rows = np.sort(rows, axis=0)
        return Image.fromarray(rows)


def _training() -> Any:
    transform = create_transform(64, is_training=True, auto_augment="rand-m9-mstd0.5")
    transform.transforms.insert(2, SlowWash())
    return transform


def _separate() -> Any:
    first, second, third = create_transform(64, is_training=True, auto_augment="rand-m9", separate=True)
    second.transforms.append(SlowWash())
    import torchvision

    return torchvision.transforms.Compose([first, second, third])


def _folder(root: Any) -> Any:
    for kind in ("cat", "dog"):
        (root / kind).mkdir()
        for number in range(4):
            Image.new("RGB", (96, 96), (number, 0, 0)).save(root / kind / f"{number}.png")
    return ImageDataset(str(root), transform=_training())


CASES = [
    Case("timm", "create_transform", lambda _: Pictures(_training()), "SlowWash"),
    Case("timm", "create_transform, separate", lambda _: Pictures(_separate()), "SlowWash"),
    Case("timm", "ImageDataset", _folder, "SlowWash"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_transform_is_named(case: Case, tmp_path: Any) -> None:
    """The step that takes the time is named, among those that timm has put together."""
    found = look(case.make(tmp_path))
    assert found.guilty == case.guilty, found
