"""The accelerator that the loop feeds: a real one that the script uses, or the simulated one; otherwise none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unstarve import simulate
from unstarve.measure import cuda
from unstarve.measure.cuts import values


@dataclass(frozen=True, slots=True)
class Device:
    """What the experiment needs of an accelerator."""

    name: str
    """How a person calls it."""
    synchronize: Callable[[], None]
    """Wait until all work given to it is done."""
    put: Callable[[Any, frozenset[str] | None], Any]
    """A batch with the tensors of these paths on the device, all for None; containers fresh."""
    send: Callable[[torch.Tensor], torch.Tensor]
    """A tensor on the device, its copy queued where that can be."""
    adopt: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    """A tensor that was computed from ones on the device, known to be there too."""
    copy_ahead: Callable[[Any, frozenset[str] | None], Callable[[], Any]] | None = None
    """Start the copy of a batch's tensors of these paths, all for None, to the device beside what it computes; what is
    returned gives the batch. None where that cannot be had."""
    has_room: Callable[[int], bool] = lambda size: True
    """Whether so many bytes more can be kept on it."""
    is_apart: bool = True
    """Whether what lies on it is out of reach for code that computes on the host."""
    pin: Callable[[Any], Any] = lambda batch: batch
    """The batch in memory from which the device can copy by itself."""


def current() -> Device | None:
    """The accelerator in use; None where the loop runs on the CPU, even if an idle accelerator is present."""
    simulated = simulate.current()
    if simulated is not None:
        return Device(
            "simulated accelerator", simulated.synchronize, lambda batch, paths: simulated.to_device(batch),
            lambda tensor: simulated.to_device(tensor, non_blocking=True), simulated.adopt,
            lambda batch, paths: simulated.copy_ahead(batch), is_apart=False,
        )  # fmt: skip
    found = _real_device()
    if found is None:
        return None
    name, synchronize = found
    return Device(
        name, synchronize, lambda batch, paths: _moved(batch, name, paths),
        lambda tensor: tensor.to(name, non_blocking=True),
        copy_ahead=_ahead(name) if name.startswith("cuda") else None,
        has_room=functools.partial(_has_room, name),
        pin=lambda batch: values.rewrap(batch, _pinned),
    )  # fmt: skip


def _real_device() -> tuple[str, Callable[[], None]] | None:
    if numbers := cuda.devices_in_use():
        return f"cuda:{numbers[0]}", lambda: _synchronize(torch.cuda)
    mps = getattr(torch, "mps", None)
    if mps is not None and torch.backends.mps.is_available() and mps.current_allocated_memory() > 0:
        return "mps", mps.synchronize
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and hasattr(xpu, "memory_allocated") and (numbers := cuda.devices_in_use(xpu)):
        return f"xpu:{numbers[0]}", lambda: _synchronize(xpu)
    return None


def _synchronize(kind: Any) -> None:
    """Wait for every device that the script uses: a model may lie on several."""
    for number in cuda.devices_in_use(kind):
        kind.synchronize(number)


def _pinned(leaf: Any) -> Any:
    is_pageable = isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and not leaf.is_pinned()
    return leaf.pin_memory() if is_pageable else leaf


def _moved(batch: Any, name: str, paths: frozenset[str] | None, non_blocking: bool = False) -> Any:
    """The batch with tensors on the device; one that is there under several names is moved if one of them is."""
    wanted = {id(leaf) for path, leaf in values.named_leaves(batch, "batch") if paths is None or path in paths}

    def move(leaf: Any) -> Any:
        is_wanted = isinstance(leaf, torch.Tensor) and id(leaf) in wanted
        return leaf.to(name, non_blocking=non_blocking) if is_wanted else leaf

    return values.rewrap(batch, move)


def _ahead(name: str) -> Callable[[Any, frozenset[str] | None], Callable[[], Any]]:
    """`Device.copy_ahead` of a CUDA device."""
    stream = cuda.CopyStream(name)
    return lambda batch, paths: stream.start(lambda: _moved(batch, name, paths, non_blocking=True))


def _has_room(name: str, size: int) -> bool:
    """Whether a batch of this size leaves the device half of the memory that is free: the script may need more later."""
    return not name.startswith("cuda") or 2 * size < torch.cuda.mem_get_info(name)[0]
