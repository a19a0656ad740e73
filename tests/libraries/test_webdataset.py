"""Pipelines of WebDataset, and streams of Hugging Face's `datasets`."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import numpy as np
import pytest
from looking import Case, look
from PIL import Image
from torch.utils.data import DataLoader

wds = pytest.importorskip("webdataset")


def _shard(root: Any, size: int = 160) -> str:
    path = root / "shard.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(24):
            stream = io.BytesIO()
            Image.fromarray(np.random.default_rng(number).integers(0, 255, (size, size, 3), np.uint8)).save(
                stream, "png"
            )
            for suffix, content in (("png", stream.getvalue()), ("cls", str(number).encode())):
                entry = tarfile.TarInfo(f"{number:04d}.{suffix}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return str(path)


def slow(sample: Any) -> Any:
    rows = np.arange(160 * 160, dtype=np.float32).reshape(160, 160)
    for _ in range(12):
        rows = np.sort(rows[::-1], axis=0)
    return sample


def _stream(root: Any, size: int = 160) -> Any:
    return wds.WebDataset(_shard(root, size), shardshuffle=False, empty_check=False).repeat()


def _batches(pipeline: Any) -> Any:
    return DataLoader(pipeline, batch_size=12, collate_fn=list)


CASES = [
    Case("webdataset", "map", lambda root: _batches(_stream(root, 8).map(slow)), "rows = np.sort(rows[::-1], axis=0)"),
    Case("webdataset", "decode", lambda root: _batches(_stream(root).decode("rgb").to_tuple("png", "cls")), "map(Decoder)"),
    Case("webdataset", "DataPipeline", lambda root: _batches(_pipeline(root)), "decode"),
]  # fmt: skip


def _pipeline(root: Any) -> Any:
    shards = wds.ResampledShards(_shard(root))
    return wds.DataPipeline(shards, wds.tarfile_to_samples(), wds.decode("rgb"), wds.to_tuple("png", "cls"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_stage_is_named(case: Case, tmp_path: Any) -> None:
    """The user's line is named, or the stage of the pipeline where the library does the work."""
    assert look(case.make(tmp_path)).guilty == case.guilty
