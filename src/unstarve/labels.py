"""Names that users give to regions of their own code, for as long as the region runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_open = threading.local()  # a region belongs to the thread that runs it


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A name for a region of one's own code: `with unstarve.stage("decode"): ...`.

    It changes nothing but what reports call the statements inside.
    """
    outer = current()
    _open.name = name
    try:
        yield
    finally:
        _open.name = outer


def current() -> str | None:
    """The innermost open region's name; None outside of any."""
    return getattr(_open, "name", None)
