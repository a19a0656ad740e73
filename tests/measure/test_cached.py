"""Batches kept in the process of the loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from unstarve.measure.cached import CachedBatches
from unstarve.measure.use import UseAudit


def batch(*sizes: int, dtype: torch.dtype = torch.float32, **more: Any) -> dict[str, Any]:
    return {"image": torch.zeros(sizes, dtype=dtype), "name": ["a", "b"], **more}


@pytest.mark.parametrize(
    ("kept", "new", "is_like"),
    [
        ([], batch(2, 3), True),
        ([batch(2, 3), batch(2, 3)], batch(2, 3), True),
        ([batch(2, 3), batch(2, 3)], batch(2, 4), False),
        ([batch(2, 3), batch(2, 5)], batch(2, 4), True),
        ([batch(2, 3), batch(2, 5)], batch(3, 4), False),
        ([batch(2, 3)], batch(2, 3, 1), False),
        ([batch(2, 3)], batch(2, 3, dtype=torch.int64), False),
        ([batch(2, 3)], batch(2, 3, label=torch.zeros(2)), False),
        ([batch(2, 3), batch(2, 3, label=torch.zeros(2))], batch(2, 3), True),
        ([torch.zeros(2)], [torch.zeros(2)], False),
    ],
    ids=["none kept", "same", "larger", "varies", "more samples", "axis", "type", "field", "field varies", "container"],
)
def test_batches_that_are_kept_stand_for_those_of_their_form(kept: list[Any], new: Any, is_like: bool) -> None:
    """A loop may rely on fields, types and sizes that are always the same; on others it cannot."""
    cached = CachedBatches(UseAudit(), lambda note: None)
    cached.host = kept
    assert cached.is_like(new) == is_like
