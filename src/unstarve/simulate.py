"""An accelerator that only keeps time, to learn on a machine without one whether a pipeline would feed it.

It computes nothing and moves nothing: a launch books time on an in-order queue, a copy books the time its bytes
would take. How fast to pretend it is belongs to the caller; measuring against it belongs to `measure`.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_RESIDENT = "_unstarve_resident_on"


class SimulatedAccelerator:
    """An in-order queue of work, kept as the one moment `free_at` when all of it is done.

    It sleeps where a real one would make the host wait and never spins, since that would take a core from the
    workers. Any thread may use it.

    Args:
        bandwidth_bytes_per_s: speed of copies from the host; the default is that of a PCIe 3 x16 link in practice.
        depth: unfinished launches at which the next one makes the host wait, as a full launch queue does.
        clock: seconds, from any origin.
        sleep: waits that many seconds of `clock`.

    Raises:
        ValueError: the bandwidth is not positive, or the depth is less than one.
    """

    def __init__(
        self,
        *,
        bandwidth_bytes_per_s: float = 12e9,
        depth: int = 64,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not bandwidth_bytes_per_s > 0:
            raise ValueError(f"bandwidth_bytes_per_s is {bandwidth_bytes_per_s}, expected a positive number")
        if depth < 1:
            raise ValueError(f"depth is {depth}, expected at least 1")
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self.depth = depth
        self.free_at = clock()
        self._clock = clock
        self._sleep = sleep
        self._ends: deque[float] = deque()
        self._copied_at = self.free_at
        self._lock = threading.Lock()
        # A name of its own rather than `id(self)`, which a later accelerator could inherit.
        self._mark = uuid.uuid4().hex

    def launch(self, seconds: float) -> None:
        """Queue work of that length; return at once unless `depth` launches are unfinished, else when one is done.

        Raises:
            ValueError: `seconds` is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds is {seconds}, expected zero or more")
        while (room_at := self._book(seconds)) is not None:
            self._sleep_until(room_at)

    def synchronize(self) -> None:
        """Return when all queued work is done."""
        self._sleep_until(self.free_at)

    def to_device(self, batch: Any, non_blocking: bool = False) -> Any:
        """The batch with every tensor resident, having waited for the copy, or queued it where `non_blocking`.

        Dicts, lists, tuples and dataclasses are rebuilt in their own type; whatever else is no tensor is passed
        on. A tensor that was not resident becomes a new tensor object on the same memory, so that the host's own
        stays unmarked; it is cut off from the autograd graph. A resident one costs nothing. `non_blocking` is taken
        at its word: without an accelerator torch cannot page-lock memory, so it is not asked whether it is.
        """
        placed, copied = self._placed(batch)
        for size_bytes in copied:
            self.launch(size_bytes / self.bandwidth_bytes_per_s)
        if copied and not non_blocking:
            self.synchronize()
        return placed

    def copy_ahead(self, batch: Any) -> Callable[[], Any]:
        """Start the copy of a batch beside the queue, as on a stream of its own; what is returned gives the batch with
        every tensor resident, and has the queue wait for the rest of the copy."""
        placed, copied = self._placed(batch)
        with self._lock:
            ready_at = max(self._clock(), self._copied_at) + sum(copied) / self.bandwidth_bytes_per_s
            self._copied_at = ready_at

        def take() -> Any:
            with self._lock:
                self.free_at = max(self.free_at, ready_at)
            return placed

        return take

    def is_resident(self, tensor: torch.Tensor) -> bool:
        """Whether `to_device` of this accelerator made that tensor object (what is computed from it does not count)."""
        return getattr(tensor, _RESIDENT, None) == self._mark

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as one that was computed on this accelerator from resident ones: it is resident, at no cost."""
        return self._marked(tensor)

    def _book(self, seconds: float) -> float | None:
        """Queue the work; or, where the queue is full, leave it and return the moment when there is room."""
        with self._lock:
            now = self._clock()
            while self._ends and self._ends[0] <= now:
                self._ends.popleft()
            if len(self._ends) == self.depth:
                return self._ends[0]
            self.free_at = max(now, self.free_at) + seconds
            self._ends.append(self.free_at)
            return None

    def _placed(self, batch: Any) -> tuple[Any, list[int]]:
        """The batch with every tensor resident, and the bytes of each tensor that was not."""
        copied: list[int] = []

        def place(tensor: torch.Tensor) -> torch.Tensor:
            if self.is_resident(tensor):
                return tensor
            copied.append(_size_bytes(tensor))
            return self._marked(tensor)

        return _map_tensors(batch, place), copied

    def _marked(self, tensor: torch.Tensor) -> torch.Tensor:
        # `detach` rather than `view_as`: it also takes sparse tensors and keeps subclasses such as `tv_tensors.Image`.
        resident = tensor.detach()
        # An attribute rather than a weak registry: torch revives tensor objects that C++ still holds, and weak
        # references to them are dead by then.
        setattr(resident, _RESIDENT, self._mark)
        return resident

    def _sleep_until(self, moment: float) -> None:
        while (left := moment - self._clock()) > 0:
            self._sleep(left)


# A plain stack and not a ContextVar: trainers run the loop, or its copies to the device, in threads of their own,
# which start with an empty context and would find no accelerator.
_active: list[SimulatedAccelerator] = []


@contextmanager
def use(accelerator: SimulatedAccelerator) -> Iterator[SimulatedAccelerator]:
    """Make the accelerator the current one, for every thread of the process, while the block runs."""
    _active.append(accelerator)
    try:
        yield accelerator
    finally:
        _active.remove(accelerator)


def current() -> SimulatedAccelerator | None:
    """The accelerator whose `use` block was entered last and is still open, or None."""
    return _active[-1] if _active else None


def _size_bytes(tensor: torch.Tensor) -> int:
    if tensor.is_sparse:
        return _size_bytes(tensor._indices()) + _size_bytes(tensor._values())
    return tensor.numel() * tensor.element_size()


def _map_tensors(value: Any, place: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with `place` applied to every tensor in it, in containers of the same types."""
    import torch

    if isinstance(value, torch.Tensor):
        return place(value)
    if isinstance(value, Mapping):
        return _rebuild_mapping(value, {key: _map_tensors(item, place) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return _rebuild_sequence(value, [_map_tensors(item, place) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Copied and then filled: `dataclasses.replace` would call `__init__`, which need not accept every field.
        clone = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(clone, field.name, _map_tensors(getattr(value, field.name), place))
        return clone
    return value


def _rebuild_mapping(original: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if not isinstance(original, MutableMapping):
        return items
    # Copied and then filled, so that a `defaultdict` or a tokenizer's batch keeps what it holds beside its items;
    # item by item, since some such types (Hugging Face's `ModelOutput`) refuse `update`.
    clone = copy.copy(original)
    for key, item in items.items():
        clone[key] = item
    return clone


def _rebuild_sequence(original: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    if isinstance(original, list):
        clone = copy.copy(original)
        clone[:] = items
        return clone
    if hasattr(original, "_fields"):
        return type(original)(*items)
    return type(original)(items)
