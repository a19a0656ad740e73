"""What the loop does with its batches, seen in a few steps: which fields it reads, moves and uses on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unstarve.measure import payload
from unstarve.measure.payload import UseWatch
from unstarve.payload import Field

MOST_CUTS = 2
"""Ends of epochs that may cut short what is seen of a batch's use before that is given up."""


class UseAudit:
    """Watches some steps, and sums up what they did."""

    def __init__(self) -> None:
        self._watch: UseWatch | None = None
        self._is_seen = False
        """Whether the loop has asked for two more batches since the first that is watched, and so worked on all of them."""
        self._wanted = self._cuts = 0
        self._reads: list[set[str] | None] = []
        self._read_as: dict[str, set[str | None]] = {}
        self.moved: set[str] = set()
        """Fields that the loop was seen to move to the device."""
        self.on_host: set[str] = set()
        """Fields that it was seen to use on the host."""

    def want(self, steps: int) -> None:
        """Watch the next steps that are fed from host memory."""
        self._wanted = steps

    def begin(self, batch: Any, *, is_from_host: bool) -> None:
        """The loop is handed a batch."""
        self._is_seen = not self._wanted
        if self._wanted and is_from_host:
            self._wanted -= 1
            if self._watch is not None:
                self._watch.go_on(batch)
                return
            self._watch = UseWatch()
            self._watch.start(batch)

    def end(self) -> None:
        """The loop asks for a batch; one that fetches ahead works on the last one after that."""
        if self._watch is not None and self._is_seen:
            self._reads.append(self._watch.stop())
            self.moved |= self._watch.moved
            self.on_host |= self._watch.on_host
            for path, found in self._watch.read_as.items():
                self._read_as.setdefault(path, set()).update(found)
            self._watch = None

    def cut(self) -> None:
        """Stop watching before all of the use was seen."""
        if self._watch is None:
            return
        self._watch.stop()
        self.on_host |= self._watch.on_host
        self._watch = None
        if self._cuts < MOST_CUTS:
            self._cuts, self._wanted = self._cuts + 1, self._wanted + 1
        else:
            self._reads.append(None)

    def audit(self, batches: Sequence[Any], on_host: set[str]) -> tuple[Field, ...]:
        """What the batches carry, with which of it the watched steps read; no more steps are watched.

        Args:
            batches: some of the loop's.
            on_host: fields to be said to be used on the host.
        """
        self._wanted = 0
        seen = [read for read in self._reads if read is not None]
        is_known = bool(seen) and len(seen) == len(self._reads)
        read = set().union(*seen) if is_known else None
        return payload.audit(batches, read, self.moved, on_host, self._read_as if is_known else {})
