"""A batch that carries less from a worker to the loop, where it is made again what it was.

What is sent less of says `payload.changes`. The worker packs the collated batch, and compares it with what comes out of
unpacking, since a later batch may hold what the audited ones did not; only what the step rounds anyway comes rounded,
and what it does not read all alike. The loop's side unpacks on the device where the loop uses one, and the script's own
copy to it then has nothing left to do.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unstarve.measure import device
from unstarve.measure.cuts import values
from unstarve.measure.device import Device
from unstarve.payload import Change

ALIKE = ("once", "left out")
"""Changes after which all values of a field are its first."""

PACKED = "unstarve:packed"
"""First item of what travels in place of a packed batch; the second is the batch, the third its changes as JSON, which
goes through pinning as it is."""


def as_order(changes: tuple[Change, ...]) -> dict[str, Any]:
    """The order under which workers pack."""
    return {"mode": "lean", "changes": [dataclasses.asdict(change) for change in changes]}


def packed(batch: Any, told: list[dict[str, Any]]) -> Any:
    """What to send instead of the batch.

    Args:
        batch: as it was collated; it is left as it is.
        told: the changes, as the order has them.

    Raises:
        ValueError: unpacking would not give the same values again, or a field is not there.
    """
    changes = {item["path"]: Change(**item) for item in told}
    paths = list(values.named_leaves(batch, "batch"))
    uses = Counter(id(leaf) for _, leaf in paths)
    found = {id(leaf): changes[path] for path, leaf in paths if path in changes and uses[id(leaf)] == 1}
    if len(found) != len(changes):
        raise ValueError("the batch lacks a field that is to be sent as less, or carries it twice")
    for path, leaf in paths:
        if path in changes:
            _check(changes[path], leaf)
    return PACKED, _replaced(batch, found, _pack), json.dumps(told)


def unpacked(data: Any, *, on_host: bool = False) -> Any:
    """The batch in what a worker sent, whole again; anything else as it is.

    Args:
        data: what the worker sent.
        on_host: whether to leave the device alone.

    Raises:
        Exception: what the device raises, such as for want of memory; on the host nothing is.
    """
    if type(data) not in (tuple, list) or len(data) != 3 or type(data[0]) is not str or data[0] != PACKED:
        return data
    changes = {item["path"]: Change(**item) for item in json.loads(data[2])}
    target = None if on_host else device.current()
    found = {id(leaf): changes[path] for path, leaf in values.named_leaves(data[1], "batch") if path in changes}
    return _replaced(data[1], found, lambda change, leaf: _unpack(change, leaf, target if change.is_moved else None))


def _replaced(batch: Any, found: dict[int, Change], make: Callable[[Change, torch.Tensor], torch.Tensor]) -> Any:
    """The batch with what `make` gives for the leaves that are to change, by identity."""
    return values.rewrap(batch, lambda leaf: make(found[id(leaf)], leaf) if id(leaf) in found else leaf)


def _check(change: Change, leaf: torch.Tensor) -> None:
    again = _unpack(change, _pack(change, leaf))
    wanted = leaf.to(getattr(torch, change.small)).to(leaf.dtype) if change.how == "rounded" else leaf
    is_same = change.how == "left out" or torch.equal(again, wanted)
    if type(again) is not type(leaf) or again.dtype != leaf.dtype or not is_same:
        raise ValueError(f"{change} would change its values, or its class")


def _pack(change: Change, leaf: torch.Tensor) -> torch.Tensor:
    if change.how in ALIKE:
        return leaf.reshape(-1)[:1].clone().expand(leaf.shape)
    small = getattr(torch, change.small)
    if change.how == "ids":
        return leaf.argmax(-1).to(small)
    if change.how == "bits":
        return torch.from_numpy(np.packbits(leaf.numpy() != 0, axis=-1))
    return (leaf * 255).round_().to(small) if change.how == "scaled" else leaf.to(small)


def _unpack(change: Change, leaf: torch.Tensor, target: Device | None = None) -> torch.Tensor:
    """The field's values, on the target where there is one; only what is small goes there."""
    small = leaf[(0,) * leaf.ndim].clone() if change.how in ALIKE else leaf
    small = target.send(small) if target is not None else small
    whole = _whole(change, small, leaf.shape)
    return target.adopt(whole) if target is not None else whole


def _whole(change: Change, small: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    dtype = getattr(torch, change.dtype)
    if change.how in ALIKE:
        return small.expand(shape).contiguous()
    if change.how == "ids":
        return torch.nn.functional.one_hot(small.long(), change.classes).to(dtype)
    if change.how == "bits":
        return _bits(small)[..., : change.classes].to(dtype).contiguous()
    return small.to(dtype).div_(255) if change.how == "scaled" else small.to(dtype)


def _bits(packed: torch.Tensor) -> torch.Tensor:
    """Eight values for each byte, in the order of `numpy.packbits`."""
    return (packed.unsqueeze(-1) >> torch.arange(7, -1, -1, device=packed.device) & 1).flatten(-2)
