"""Batches kept in the process of the loop: on the host and on the device, served in turns in place of the loader's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from unstarve.measure import device
from unstarve.measure.cuts import values
from unstarve.measure.use import UseAudit
from unstarve.recording import Note

Lent = tuple[Any, Any]
"""A batch with a mark by which a change of it is seen."""

DEAR_NS = 20_000_000
"""Batches that take longer than this to be marked are not marked but once."""


class CachedBatches:
    """What `host`, `device` and `ahead` batches come from.

    Args:
        use: what the loop was seen to do with its batches.
        note: takes observations for the report.
    """

    def __init__(self, use: UseAudit, note: Callable[[Note], None]) -> None:
        self._use = use
        self._note = note
        self.host: list[Any] = []
        """Batches as the loader gave them."""
        self.device: device.Device | None = None
        """The accelerator in use when they were kept."""
        self._on_device: list[Any] = []
        self._pinned: list[Any] = []
        self._copying: Callable[[], Any] | None = None
        self._next = 0
        self._are_copied = self._are_left_alone = self._are_dear = False
        self._tensors: dict[int, tuple[Any, list[torch.Tensor]]] = {}
        self._plain: dict[int, frozenset[int]] = {}
        self._served: tuple[Any, tuple[int, ...]] | None = None
        self._served_before: tuple[Any, tuple[int, ...]] | None = None
        self._lent_before: Lent | None = None

    @property
    def has_device_batches(self) -> bool:
        """Whether batches are kept on a device."""
        return bool(self._on_device)

    def fill_device(self) -> None:
        """Keep the batches on the device as well, as far as there is room: those of their fields that the loop needs
        there alone. Where there are none, no batch is kept."""
        if self.device is None:
            return
        try:
            for batch in self.host:
                paths = self._paths_moved(batch)
                if paths == frozenset():
                    sentence = "Batches were not kept on the device: the loop uses their tensors on the host as well."
                    self._note(Note(id="device-pool", sentence=sentence))
                    break
                if not self.device.has_room(values.content_bytes(batch)):
                    break
                self._on_device.append(self.device.put(batch, paths))
        except Exception as error:  # out of memory, or a container that cannot be rebuilt
            self._on_device.clear()
            sentence = f"Batches could not be kept on the device: {type(error).__name__}: {error}."
            self._note(Note(id="device-pool", sentence=sentence))

    def paths_on_host(self) -> set[str]:
        """The tensors that the loop uses on the host, where the device has memory of its own."""
        is_apart = self.device is not None and self.device.is_apart
        return self._use.on_host if is_apart else set()

    def _paths_moved(self, batch: Any) -> frozenset[str] | None:
        """The tensors of a batch that the loop was seen to move to the device, all where it was seen to move none; without
        those that it uses on the host as well. None for all."""
        kept, moved = self.paths_on_host(), frozenset(self._use.moved)
        if not moved and kept:
            leaves = values.named_leaves(batch, "batch")
            moved = frozenset(path for path, leaf in leaves if isinstance(leaf, torch.Tensor))
        return moved - kept if moved else None

    def is_like(self, batch: Any) -> bool:
        """Whether a batch has the form of those kept: the same leaves of the same types, and of the same sizes as far as
        the kept ones agree in them. True where there is nothing to compare it with."""
        try:
            form, kept = _form(batch), [_form(other) for other in self.host]
        except Exception:  # of a kind never met, whose own methods fail
            return True
        has_leaves = (
            any(form.keys() == other.keys() for other in kept) or len({frozenset(other) for other in kept}) != 1
        )
        return has_leaves and all(
            _fits(leaf, [other[path] for other in kept if path in other]) for path, leaf in form.items()
        )

    # Serving -------------------------------------------------------------------------------------

    def copy(self) -> None:
        """Serve copies from now on: nobody can see in time whether the loop writes into what it gets."""
        self._are_copied = True

    def serve(self, source: str) -> Any:
        """The next batch from the `host` or the `device`, from the host where nothing is kept on the device.

        Raises:
            Exception: of any kind, where a batch `ahead` could not be had, such as for want of memory that can be pinned.
        """
        if source == "ahead":
            return self._serve_ahead()
        pool = (self._on_device or self.host) if source == "device" else self.host
        item = pool[self._next % len(pool)]
        self._next += 1
        if self._are_copied:
            return values.rewrap(item, values.duplicate)
        self._served = (item, values.versions(self._tensors_in(item)))
        return values.rewrap(item, lambda leaf: leaf, self._plain_in(item) if self._are_left_alone else ())

    def _serve_ahead(self) -> Any:
        """A batch from host memory whose copy to the device has gone on since the last was served."""
        try:
            if not self._pinned and self.device is not None:
                self._pinned = [self.device.pin(batch) for batch in self.host]
            take = self._copying or self._copy_ahead()
            self._copying = self._copy_ahead()
            return take()
        except Exception:
            self._copying = None
            raise

    def _copy_ahead(self) -> Callable[[], Any]:
        assert self.device is not None
        assert self.device.copy_ahead is not None
        self._next += 1
        batch = self._pinned[self._next % len(self._pinned)]
        return self.device.copy_ahead(batch, self._paths_moved(batch))

    def end_copying(self) -> None:
        """Forget the copy that was begun for the next batch: that comes from elsewhere."""
        self._copying = None

    def _tensors_in(self, item: Any) -> list[torch.Tensor]:
        """The tensors of a cached batch, which is gone through once: it is served in every step."""
        if id(item) not in self._tensors:
            self._tensors[id(item)] = item, values.tensors(item)  # kept, or another could get its number
        return self._tensors[id(item)][1]

    def _plain_in(self, item: Any) -> frozenset[int]:
        """The parts of a cached batch, which `_tensors` keeps, that a loop which only reads its batches may have as they are."""
        if id(item) not in self._plain:
            self._plain[id(item)] = values.plain_parts(item)
        return self._plain[id(item)]

    # Loops that write into their batches ---------------------------------------------------------

    def lend(self, batch: Any) -> Lent | None:
        """The batch with a mark by which a change of it is seen; None where there is no mark, or marks are dear and one batch
        has had one."""
        if self._are_dear:
            return None
        began = time.perf_counter_ns()
        mark = _fingerprint(batch)
        self._are_dear = time.perf_counter_ns() - began > DEAR_NS
        return None if mark is None else (batch, mark)

    def check(self, lent: Lent | None) -> None:
        """Copy cached batches before use if the loop wrote into one of the last two that it was handed, of those served
        and of those lent: one that fetches ahead works on a batch after it has asked for the next."""
        if (lent or self._lent_before or self._served or self._served_before) is None:
            return
        found = [each for each in (self._lent_before, lent) if each is not None]
        self._lent_before = None if self._are_dear else lent
        if any(_fingerprint(batch) not in (mark, None) for batch, mark in found):
            self._start_copying()
            self._lent_before = None
        elif found:
            self._are_left_alone = True
        served = [each for each in (self._served_before, self._served) if each is not None]
        self._served_before, self._served = self._served, None
        spoilt = [item for item, versions in served if values.versions(self._tensors_in(item)) != versions]
        if spoilt:
            self._start_copying()
            for pool in (self.host, self._on_device):
                kept = [item for item in pool if not any(item is other for other in spoilt)]
                pool[:] = kept or pool[:1]

    def _start_copying(self) -> None:
        self._are_copied = True
        sentence = "The loop writes into its batches, so cached batches are copied before use."
        self._note(Note(id="batch-mutated", sentence=sentence))

    def clear(self) -> None:
        """Let go of everything."""
        self.host, self._on_device, self._pinned, self._copying = [], [], [], None
        self._tensors.clear()
        self._plain.clear()
        self._served = self._served_before = self._lent_before = None


def _form(batch: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Type and sizes of each leaf of a batch."""
    leaves = values.named_leaves(batch, "batch")
    return {path: (getattr(leaf, "dtype", type(leaf)), tuple(getattr(leaf, "shape", ()))) for path, leaf in leaves}


def _fits(leaf: tuple[Any, tuple[int, ...]], kept: list[tuple[Any, tuple[int, ...]]]) -> bool:
    """Whether a leaf is one that `kept` ones can stand for: a size in which these differ may be any."""
    kind, shape = leaf
    alike = [other for of, other in kept if of == kind and len(other) == len(shape)]
    sizes = zip(shape, *alike, strict=True)
    return not kept or (bool(alike) and all(size in others or len(set(others)) > 1 for size, *others in sizes))


def _fingerprint(batch: Any) -> Any:
    """A mark by which a change of the batch is seen; None for one that cannot be looked at."""
    try:
        return values.fingerprint(batch)
    except Exception:  # of a kind never met, whose own methods fail; it must not end the user's loop
        return None
