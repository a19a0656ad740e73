"""Pools: the K values cached at one cut point, served in turn, copied only where a later stage would spoil them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from unstarve.measure.cuts import values

GUARDED_USES = 2
"""How often each value is served as a watched copy before it may be served as it is."""

WATCHED_AT_ONCE = 8
"""Uses that are watched between two calls of `settle`; checksums of all of a large batch would take too long."""


class Pool:
    """Values cached at one cut point of one process.

    The first uses of each value are served as copies and watched: if a later stage wrote to one of them, or kept its
    memory in a batch, the pool goes on copying; otherwise it serves the values themselves from then on, and looks at one of
    them in every batch.

    Args:
        always_copy: serve fresh memory every time, as for values that cross the process boundary as they are.
    """

    def __init__(self, *, always_copy: bool = False, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._items: list[Any] = []
        self._shared: list[tuple[Any, ...]] = []
        self._clean_uses: list[int] = []
        self._next = 0
        self._in_use: list[tuple[int, Any, Any]] = []
        self._is_guarded = not always_copy
        self._clock_ns = clock_ns
        self.is_copying = True
        """Whether values are served as copies."""
        self.copied_ns = 0
        """Time spent on those copies so far, and on seeing whether they are needed."""
        self.bytes = 0
        """Memory held."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any, shared: tuple[Any, ...] = ()) -> None:
        """Keep `value`, which must already be a snapshot that nobody else holds.

        Args:
            value: what to keep.
            shared: objects of the program inside it, which copies keep by reference as the snapshot did.
        """
        self._items.append(value)
        self._shared.append(shared)
        self._clean_uses.append(0)
        self.bytes += values.size_bytes(value)

    def drop_last(self) -> None:
        """Forget the value that was added last."""
        self._shared.pop()
        self._clean_uses.pop()
        self.bytes -= values.size_bytes(self._items.pop())

    def trust(self) -> None:
        """Serve the values as they are from now on: what uses them is known to copy, and to leave them alone."""
        self._is_guarded = self.is_copying = False

    @property
    def mean_bytes(self) -> float:
        """Memory of one value, on average."""
        return self.bytes / max(1, len(self._items))

    def serve(self, part: Callable[[Any], Any] | None = None) -> Any:
        """The next value, in turn; only the `part` of it that is wanted, if so asked."""
        position = self._next
        self._next = (position + 1) % len(self._items)
        item = self._items[position] if part is None else part(self._items[position])
        if not self.is_copying:
            self._watch_bare(position, item)
            return item
        before = self._clock_ns()
        duplicate = values.snapshot(item, self._shared[position])
        if self._is_guarded and len(self._in_use) < WATCHED_AT_ONCE and self._clean_uses[position] < GUARDED_USES:
            self._in_use.append((position, duplicate, values.fingerprint(duplicate)))
        self.copied_ns += self._clock_ns() - before
        return duplicate

    def _watch_bare(self, position: int, item: Any) -> None:
        """Watch the first value of a batch that is served as it is, in full; more would cost what not copying saves."""
        if self._in_use:
            return
        before = self._clock_ns()
        self._in_use.append((position, item, values.fingerprint(item)))
        self.copied_ns += self._clock_ns() - before

    def settle(self, result: Any) -> None:
        """Say that everything served so far has been used, and led to `result`: decides whether copies are needed."""
        in_use, self._in_use = self._in_use, []
        if not in_use:
            return
        before = self._clock_ns()
        self._decide(in_use, result)
        self.copied_ns += self._clock_ns() - before

    def _decide(self, in_use: list[tuple[int, Any, Any]], result: Any) -> None:
        was_written = any(values.fingerprint(item) != mark for _, item, mark in in_use)
        if not self.is_copying:
            self.is_copying = was_written
        elif self._is_guarded:
            served = [item for _, item, _ in in_use]
            self._settle_guarded([position for position, _, _ in in_use], was_written, served, result)

    def _settle_guarded(self, positions: list[int], was_written: bool, served: list[Any], result: Any) -> None:
        if was_written or values.share_storage(served, result):
            self._is_guarded = False
            return
        for position in positions:
            self._clean_uses[position] += 1
        if min(self._clean_uses) >= GUARDED_USES:
            self._is_guarded = self.is_copying = False
