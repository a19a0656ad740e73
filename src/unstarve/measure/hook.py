"""Putting the engine between a script's loops and its loaders, and taking it out again."""

from __future__ import annotations

import functools
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
    original, make = DataLoader.__iter__, DataLoader.__init__

    @functools.wraps(make)
    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        engine.remember(self)
        make(self, *arguments, **keywords)

    def __iter__(self: Any) -> Any:
        return engine.iterate(self, original)

    DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
    DataLoader.__init__ = __init__  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataLoader.__iter__ = original  # type: ignore[method-assign]
        DataLoader.__init__ = make  # type: ignore[method-assign]
        engine.close()
