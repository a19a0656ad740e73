"""A pool must serve copies until later stages are proven harmless, and again as soon as one is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from unstarve.measure.cuts.pool import GUARDED_USES, WATCHED_AT_ONCE, Pool


def pool_of(*items: Any) -> Pool:
    pool = Pool()
    for item in items:
        pool.add(item)
    return pool


def use(pool: Pool, times: int, stage: Callable[[Any], Any] = lambda item: None) -> None:
    for _ in range(times):
        pool.settle(stage(pool.serve()))


def test_harmless_stages_end_the_copying() -> None:
    """After each value was used as a copy and left alone, the values themselves are served."""
    items = [torch.zeros(3), torch.ones(3)]
    pool = pool_of(*items)
    first = pool.serve()
    assert first is not items[0]
    pool.settle(None)
    use(pool, 2 * GUARDED_USES)
    assert not pool.is_copying
    assert {id(pool.serve()), id(pool.serve())} == {id(item) for item in items}


def test_values_are_served_in_turn() -> None:
    """A pool shows its variety."""
    pool = pool_of(1, 2, 3)
    assert [pool.serve() for _ in range(6)] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(
    ("make", "stage"),
    [
        (lambda: torch.zeros(3), lambda v: v.add_(1) * 2),
        (lambda: torch.zeros(3), lambda v: v[1:].fill_(1) * 2),
        (lambda: torch.zeros(3), lambda v: v.numpy().fill(1)),
        (lambda: np.zeros(3), lambda v: torch.from_numpy(v).add_(1) * 2),
        (lambda: {"a": [np.zeros(3)]}, lambda v: v["a"][0].fill(1)),
        (lambda: {"a": 1}, lambda v: v.pop("a")),
        (lambda: Image.new("L", (2, 2)), lambda v: v.putpixel((0, 0), 1)),
        (lambda: torch.zeros(3), lambda v: [v[1:]]),
        (lambda: torch.zeros(3), lambda v: {"x": v.numpy()}),
        (lambda: {"target": {"a": 1}}, lambda v: [v["target"]]),
    ],
)
def test_harmful_stages_keep_it_copying(make: Any, stage: Any) -> None:
    """Writing to what was served, or keeping it in the batch, leaves the pool at copies, and its values whole."""
    pool = pool_of(make(), make())
    use(pool, 20, stage)
    assert pool.is_copying
    served = pool.serve()
    again = pool_of(make())
    assert str(served) == str(again.serve()) or isinstance(served, Image.Image)


def test_every_value_is_watched_whatever_the_batch() -> None:
    """A stage that spoils only some of the values is found although few uses of a batch are watched."""
    pool = pool_of(*(torch.full((2,), float(number)) for number in range(2 * WATCHED_AT_ONCE)))
    for _ in range(10):
        for _ in range(2 * WATCHED_AT_ONCE):
            item = pool.serve()
            if item[0] == 2 * WATCHED_AT_ONCE - 1:
                item[1] = 99
        pool.settle(None)
    assert pool.is_copying
    assert all(pool.serve()[1] != 99 for _ in range(2 * WATCHED_AT_ONCE))


@pytest.mark.parametrize("make", [lambda: torch.zeros(3), lambda: np.zeros(3)])
def test_a_stage_that_writes_late_is_found(make: Any) -> None:
    """Copying is taken up again when a value is written to after it was thought safe."""
    pool = pool_of(make())
    use(pool, 10)
    assert not pool.is_copying
    use(pool, 1, lambda item: item.__setitem__(0, 1))
    assert pool.is_copying


def test_a_pool_for_transport_always_copies() -> None:
    """A batch re-enters shared memory as new memory each time."""
    pool = Pool(always_copy=True)
    pool.add(torch.zeros(3))
    use(pool, 20)
    assert pool.serve() is not pool.serve()


def test_the_cost_of_copies_is_known() -> None:
    """Time spent on copies is counted by the clock given."""
    ticks = iter(range(0, 1000, 5))
    pool = Pool(clock_ns=lambda: next(ticks))
    pool.add(torch.zeros(3))
    pool.serve()
    assert pool.copied_ns == 5


def test_shared_objects_survive_serving() -> None:
    """What a snapshot keeps by reference is kept by reference in every copy."""
    owned = [1, 2]
    pool = Pool()
    pool.add({"x": [owned]}, (owned,))
    assert pool.serve()["x"][0] is owned
    assert pool.serve()["x"][0] is owned


def test_memory_is_counted() -> None:
    """A pool knows the bytes that it holds, storages behind views included."""
    pool = pool_of(torch.zeros(100)[:1], np.zeros(10))
    assert pool.bytes == 480
