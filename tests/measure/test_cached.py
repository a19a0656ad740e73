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


def tracks() -> list[list[list[dict[str, Any]]]]:
    """Annotations of two samples, as plain data."""
    return [[[{"box": [1.0, 2.0], "id": frame}] for frame in range(3)] for _ in range(2)]


@pytest.mark.parametrize("does_write", [False, True])
def test_only_a_loop_that_leaves_its_batches_alone_gets_deep_plain_data_as_it_is(does_write: bool) -> None:
    """Making thousands of dictionaries anew for every step takes longer than the step; what the loop changes is made anew."""
    cached = CachedBatches(UseAudit(), lambda note: None)
    lent = batch(2, 3, tracks=tracks())
    cached.host = [batch(2, 3, tracks=tracks())]
    mark = cached.lend(lent)
    if does_write:
        lent["tracks"][0][0][0]["id"] = 7
    cached.check(mark)
    served, kept = cached.serve("host")["tracks"], cached.host[0]["tracks"]
    assert served == kept
    assert served[0] is not kept[0]
    assert (served[0][0] is kept[0][0]) is not does_write


def test_batches_that_are_dear_to_mark_are_marked_but_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up must not take its time for looks at batches."""
    monkeypatch.setattr("unstarve.measure.cached.DEAR_NS", 0)
    cached = CachedBatches(UseAudit(), lambda note: None)
    found = [cached.lend(batch(2, 3)) for _ in range(3)]
    assert [mark is not None for mark in found] == [True, False, False]
