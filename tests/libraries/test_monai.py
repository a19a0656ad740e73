"""Pipelines and data sets of MONAI."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from looking import Case, look
from torch.utils.data import Dataset

pytest.importorskip("monai")
from monai import data
from monai import transforms as mt

SHAPE = (1, 40, 40, 40)


class LoadVolume(mt.MapTransform):
    """A reader as users write them."""

    def __call__(self, item: Any) -> Any:
        return {**item, "image": torch.from_numpy(np.load(item["path"]))}


class Volumes(Dataset):
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        volume = torch.full(SHAPE, float(index))
        return self.transform(volume)


def _smooth() -> Any:
    return mt.GaussianSmooth(sigma=3.0)


def _smoothd() -> Any:
    return mt.RandGaussianSmoothd("image", prob=1.0, sigma_x=(3, 3), sigma_y=(3, 3), sigma_z=(3, 3))


def _records(root: Any, count: int = 8) -> list[dict[str, str]]:
    for number in range(count):
        np.save(root / f"{number}.npy", np.full(SHAPE, number, np.float32))
    return [{"path": str(root / f"{number}.npy")} for number in range(count)]


def _dictionary(*more: Any) -> Any:
    return mt.Compose([LoadVolume("path"), mt.ScaleIntensityd("image"), *more, mt.RandFlipd("image", prob=0.5)])


def _array(_: Any) -> Any:
    return Volumes(mt.Compose([mt.ScaleIntensity(), mt.Compose([mt.Flip(0), _smooth()]), mt.RandFlip(0.5)]))


def _one_of(_: Any) -> Any:
    return Volumes(mt.Compose([mt.ScaleIntensity(), mt.OneOf([mt.Flip(0), _smooth()])]))


def _random_order(_: Any) -> Any:
    return Volumes(mt.Compose([mt.ScaleIntensity(), mt.RandomOrder([mt.Flip(0), _smooth()])]))


def _cached(root: Any) -> Any:
    return data.CacheDataset(_records(root), _dictionary(_smoothd()), progress=False)


def _persistent(root: Any) -> Any:
    return data.PersistentDataset(_records(root), _dictionary(_smoothd()), cache_dir=root / "cache")


CASES = [
    Case("monai", "Compose in Compose", _array, "GaussianSmooth"),
    Case("monai", "OneOf", _one_of, "GaussianSmooth"),
    Case("monai", "RandomOrder", _random_order, "GaussianSmooth"),
    Case("monai", "Dataset", lambda root: data.Dataset(_records(root), _dictionary(_smoothd())), "RandGaussianSmoothd"),
    Case("monai", "CacheDataset", _cached, "RandGaussianSmoothd"),
    Case("monai", "PersistentDataset", _persistent, "RandGaussianSmoothd"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_transform_is_named(case: Case, tmp_path: Any) -> None:
    """The transform that takes the time is named by its class, through MONAI's functions that apply it."""
    assert look(case.make(tmp_path)).guilty == case.guilty
