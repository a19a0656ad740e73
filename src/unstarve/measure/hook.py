"""Putting the engine between a script's loops and its loaders, and taking it out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from unstarve.measure.engine import Engine


@contextmanager
def installed(engine: Engine) -> Iterator[None]:
    """While open, every iteration over a `DataLoader` of this process goes through `engine`.

    Subclasses that override `__iter__` reach us through `super()`; other processes are left alone.
    """
    original = DataLoader.__iter__

    def __iter__(self: Any) -> Any:
        return engine.iterate(self, original)

    DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataLoader.__iter__ = original  # type: ignore[method-assign]
        engine.close()
