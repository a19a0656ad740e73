"""Data sets over files of h5py, zarr, pandas, pyarrow and lmdb."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from looking import Case, look
from torch.utils.data import Dataset

SHAPE = (48, 64, 64)


class Stored(Dataset):
    """A data set that opens its file in the worker, on the first sample."""

    def __init__(self, path: Any) -> None:
        self.path, self.file = str(path), None

    def __len__(self) -> int:
        return SHAPE[0]

    def open(self) -> Any:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = self.open()
        image = self.read(index)
        return torch.from_numpy(np.array(image)).float().mean()


class Hdf5(Stored):
    def open(self) -> Any:
        return pytest.importorskip("h5py").File(self.path)

    def read(self, index: int) -> Any:
        return self.file["images"][index, 0]


class Zarr(Stored):
    def open(self) -> Any:
        return pytest.importorskip("zarr").open(self.path, mode="r")

    def read(self, index: int) -> Any:
        return self.file[index]


class Lmdb(Stored):
    def open(self) -> Any:
        return pytest.importorskip("lmdb").open(self.path, readonly=True, lock=False)

    def read(self, index: int) -> Any:
        with self.file.begin() as transaction:
            data = transaction.get(str(index).encode())
        image = pickle.loads(data)
        for _ in range(20):
            image = np.sort(image, axis=0)
        return image


class Frame(Stored):
    def open(self) -> Any:
        return pytest.importorskip("pandas").read_parquet(self.path)

    def read(self, index: int) -> Any:
        rows = self.file[self.file["group"] == index]
        return rows["value"].to_numpy()


class Arrow(Stored):
    def open(self) -> Any:
        return pytest.importorskip("pyarrow.parquet").ParquetFile(self.path)

    def read(self, index: int) -> Any:
        group = self.file.read_row_group(index)
        return group.column("value").to_numpy()


def _images() -> Any:
    return np.random.default_rng(0).integers(0, 99, SHAPE, dtype=np.uint8)


def _hdf5(root: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    with h5py.File(root / "images.h5", "w") as file:
        file.create_dataset("images", data=_images().repeat(32, 1), chunks=(1, 2048, 64), compression="gzip")
    return Hdf5(root / "images.h5")


def _zarr(root: Any) -> Any:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(root / "images.zarr"), shape=SHAPE, chunks=(1, *SHAPE[1:]), dtype="uint8")
    array[:] = _images()
    return Zarr(root / "images.zarr")


def _lmdb(root: Any) -> Any:
    lmdb = pytest.importorskip("lmdb")
    environment = lmdb.open(str(root), map_size=1 << 26)
    with environment.begin(write=True) as transaction:
        for index, image in enumerate(_images()):
            transaction.put(str(index).encode(), pickle.dumps(image))
    environment.close()
    return Lmdb(root)


def _values() -> dict[str, Any]:
    return {"group": np.arange(48 * 4000) % 48, "value": np.random.default_rng(0).random(48 * 4000)}


def _frame(root: Any) -> Any:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas").DataFrame(_values()).to_parquet(root / "table.parquet")
    return Frame(root / "table.parquet")


def _arrow(root: Any) -> Any:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(_values()), root / "table.parquet", row_group_size=4000)
    return Arrow(root / "table.parquet")


CASES = [
    Case("h5py", "compressed chunks", _hdf5, 'return self.file["images"][index, 0]'),
    Case("zarr", "compressed chunks", _zarr, "return self.file[index]"),
    Case("lmdb", "pickled arrays", _lmdb, "np.sort"),
    Case("pandas", "a frame in memory", _frame, 'rows = self.file[self.file["group"] == index]'),
    Case("pyarrow", "row groups", _arrow, "self.file.read_row_group"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.library)
def test_the_guilty_statement_is_named(case: Case, tmp_path: Any) -> None:
    """The user's statement that reads or computes most is named, and not what the library does for it."""
    assert look(case.make(tmp_path)).guilty == case.guilty
