"""The switchboard: a cell of shared memory that tells every worker, at every fetch, what to do.

One process writes, many read. The cell survives fork, spawn and forkserver (a `RawArray` goes along with the process
object), belongs to nobody's file system and vanishes with the last process that maps it.
"""

from __future__ import annotations

import json
import multiprocessing.sharedctypes
from typing import Any

CAPACITY = 1 << 16
"""Bytes of the cell: one order as JSON, the largest being a list of a few hundred addresses."""

_HEADER = 16


class Switchboard:
    """Carries one order, a JSON object, from the process that runs the experiment to those that make batches."""

    def __init__(self) -> None:
        self._cell = multiprocessing.sharedctypes.RawArray("B", _HEADER + CAPACITY)
        self._attach()
        self._order: dict[str, Any] = {"mode": "run"}
        self._seen = 0
        self._last = 0
        self._held: tuple[int, dict[str, Any]] | None = None

    def __getstate__(self) -> Any:
        return self._cell

    def __setstate__(self, cell: Any) -> None:
        self._cell = cell
        self._attach()
        self._order = {"mode": "run"}
        self._seen = 0
        self._last = 0
        self._held = None

    def _attach(self) -> None:
        self._bytes = memoryview(self._cell).cast("B")
        self._words = self._bytes[:_HEADER].cast("Q")

    def write(self, order: dict[str, Any]) -> int:
        """Publish `order`; returns its generation, which every batch made under it carries back. One process writes.

        Raises:
            ValueError: the order does not fit.
        """
        self._held = None
        self._last += 2
        self._publish(order, self._last)
        return self._last

    def _publish(self, order: dict[str, Any], generation: int) -> None:
        text = json.dumps(order).encode()
        if len(text) > CAPACITY:
            raise ValueError(f"an order of {len(text)} bytes does not fit into the switchboard's {CAPACITY}")
        self._words[0] = generation - 1  # odd: being written
        self._words[1] = len(text)
        self._bytes[_HEADER : _HEADER + len(text)] = text
        self._words[0] = generation

    @property
    def is_held(self) -> bool:
        """Whether the last order is held back."""
        return self._held is not None

    def hold(self) -> None:
        """Let batches be made as without us until `release`, or until the next order."""
        generation, order = self.read()
        if self._held is None and order["mode"] != "run":
            self.write({"mode": "run"})
            self._held = generation, order

    def release(self) -> None:
        """Publish the order that was held back, under its own generation, if no other has come since."""
        if self._held is not None:
            (generation, order), self._held = self._held, None
            self._publish(order, generation)

    def read(self) -> tuple[int, dict[str, Any]]:
        """The current generation and order; one comparison of integers where nothing changed."""
        generation = self._words[0]
        if generation == self._seen or generation % 2:
            return self._seen, self._order
        text = bytes(self._bytes[_HEADER : _HEADER + self._words[1]])
        if self._words[0] == generation:
            self._order = json.loads(text)
            self._seen = generation
        return self._seen, self._order
