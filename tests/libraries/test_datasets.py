"""Data sets of Hugging Face's `datasets`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from looking import Case, look

datasets = pytest.importorskip("datasets")


def slow(value: int) -> float:
    rows = np.full((64, 300), value, np.float64)
    for _ in range(40):
        rows = np.sort(rows, axis=0)
    return float(rows[0, 0])


def prepare(batch: dict[str, Any]) -> dict[str, Any]:
    labels = [value % 2 for value in batch["value"]]
    features = [slow(value) for value in batch["value"]]
    return {"feature": features, "label": labels}


class Prepare:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        feature = torch.tensor([slow(value) for value in batch["value"]])
        return {"feature": feature, "label": torch.tensor(batch["value"])}


def _table() -> Any:
    return datasets.Dataset.from_dict({"value": list(range(64)), "row": [[0.0] * 8] * 64})


class Wrapped(torch.utils.data.Dataset):
    def __init__(self, table: Any) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        item = self.table[index]
        feature = slow(int(item["value"]))
        return item["row"], feature


def _wide() -> Any:
    table = datasets.Dataset.from_dict({"row": np.zeros((64, 5000), np.float32)})
    return torch.utils.data.DataLoader(table, 4, collate_fn=list)


CASES = [
    Case("datasets", "set_transform", lambda _: _with_set_transform(), "slow"),
    Case("datasets", "with_transform", lambda _: _table().with_transform(Prepare()), "slow"),
    Case("datasets", "with_format in a data set", lambda _: Wrapped(_table().with_format("torch")), "slow"),
    Case("datasets", "rows as lists", lambda _: _wide(), "format_table"),
]  # fmt: skip


def _with_set_transform() -> Any:
    table = _table()
    table.set_transform(prepare)
    return table


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_statement_is_named(case: Case, tmp_path: Any) -> None:
    """The statement of the user's transform is found below the library's formatters; where there is none, the
    library's own step is named."""
    assert look(case.make(tmp_path)).guilty == case.guilty
