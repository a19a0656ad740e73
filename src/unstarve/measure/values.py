"""Copying, sizing and watching arbitrary values that flow through a pipeline.

A cache must neither repair the fault it measures nor plant one. So a copy keeps what transport depends on: the number
of tensors, their views and the storages behind them (a view that drags a large storage still drags it), arrays as
arrays. And a value says whether somebody changed it in place since it was looked at.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
import types
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any

import torch

_ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type, types.ModuleType, types.FunctionType,
    types.BuiltinFunctionType, types.MethodType, torch.dtype, torch.device, torch.Generator, torch.nn.Module,
    torch.utils.data.Dataset,
)  # fmt: skip
"""Values that are immutable, or that belong to the program and not to a sample: shared, never copied."""


class Shared:
    """A reference inside a snapshot to an object of the program, such as the dataset itself: never copied."""

    __slots__ = ("target",)

    def __init__(self, target: Any) -> None:
        self.target = target


class Uncopyable(Exception):
    """A value that cannot be cached; the message says why."""


def snapshot(value: Any, shared: tuple[Any, ...] = ()) -> Any:
    """A copy of `value` that later stages can do nothing to.

    Objects in `shared` (a dataset's own attributes) and program objects (functions, modules, datasets) are kept by
    reference. Views, storages and the number of tensors are preserved (`copy.deepcopy` of tensors keeps both).

    Raises:
        Uncopyable: the value holds something that cannot be copied, such as an open file, a generator or a lock.
    """
    memo: dict[int, Any] = {id(item): item for item in shared if not _is_atom(item)}
    try:
        return _copy(value, memo)
    except Uncopyable:
        raise
    except Exception as error:  # a user's __deepcopy__ may raise anything
        raise Uncopyable(f"a value of type {type(value).__name__} cannot be copied ({error})") from error


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    if _is_atom(value):
        return value
    if id(value) in memo:
        return memo[id(value)]
    known = _copy_known(value, memo)
    if known is not None:
        memo[id(value)] = known
        return known
    _refuse_live(value)
    return copy.deepcopy(value, memo)


def _copy_known(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of a tensor, picture or plain container; None for everything else."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        if value.requires_grad and not value.is_leaf:
            raise Uncopyable("a tensor that is part of a gradient graph cannot be copied")
        return copy.deepcopy(value, memo)
    if _is_picture(value):
        return value.copy()
    if kind is list:
        return [_copy(item, memo) for item in value]
    if kind is tuple:
        return tuple(_copy(item, memo) for item in value)
    if kind is dict:
        return {key: _copy(item, memo) for key, item in value.items()}
    if _is_array(value):
        return value.copy() if value.dtype != object else copy.deepcopy(value, memo)
    return None


def _refuse_live(value: Any) -> None:
    if isinstance(value, Iterator):
        raise Uncopyable(f"an iterator of type {type(value).__name__} can be used only once")
    if hasattr(value, "fileno") or hasattr(value, "readinto"):
        raise Uncopyable(f"an open file of type {type(value).__name__} cannot be copied")


def _is_atom(value: Any) -> bool:
    return isinstance(value, (*_ATOMS, Shared))


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_picture(value: Any) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def force(value: Any) -> None:
    """Make a lazy value do its work now, so that the cost falls on the stage that created it.

    Pictures are decoded, memory maps are read; containers are looked through.
    """
    if isinstance(value, (torch.Tensor, *_ATOMS)):
        return
    if _is_picture(value):
        value.load()
    elif _is_array(value):
        if isinstance(value, sys.modules["numpy"].memmap) and value.nbytes:
            _touch_pages(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            force(item)
    elif isinstance(value, (list, tuple)):
        for item in value[:64]:
            force(item)


def _touch_pages(array: Any) -> None:
    step = max(1, 4096 // max(1, array.itemsize))
    array.reshape(-1)[::step].sum() if array.flags.c_contiguous else array.sum()


def leaves(value: Any) -> Iterator[Any]:
    """The tensors, arrays, pictures and atoms inside `value`, containers and plain objects looked through."""
    if isinstance(value, (torch.Tensor, str, bytes)) or _is_atom(value) or _is_array(value) or _is_picture(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from leaves(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name, None))
    else:
        inner = getattr(value, "data", None)
        if isinstance(inner, Mapping):  # UserDict, BatchEncoding
            yield from leaves(inner)
        elif hasattr(value, "__dict__"):
            yield from leaves(vars(value))
        else:
            yield value


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors inside `value`."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def size_bytes(value: Any) -> int:
    """Bytes that `value` holds, storages behind views counted whole and once."""
    seen: set[int] = set()
    total = 0
    for leaf in leaves(value):
        if isinstance(leaf, torch.Tensor):
            if leaf.layout != torch.strided:
                total += leaf.element_size() * leaf._nnz() if leaf.is_sparse else 64
                continue
            storage = leaf.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                total += storage.nbytes()
        elif _is_array(leaf):
            total += leaf.nbytes
        elif _is_picture(leaf):
            total += leaf.size[0] * leaf.size[1] * len(leaf.getbands())
        else:
            total += sys.getsizeof(leaf, 64)
    return total


def fingerprint(value: Any) -> tuple[Any, ...]:
    """Changes when `value` is changed in place. Tensors by version counter (free), the rest by checksum."""
    return tuple(_mark(leaf) for leaf in leaves(value))


def _mark(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return None if leaf.is_inference() else leaf._version
    if _is_array(leaf):
        return (leaf.shape, zlib.adler32(memoryview(leaf.tobytes()))) if leaf.dtype != object else len(leaf)
    if _is_picture(leaf):
        return (leaf.mode, leaf.size, zlib.adler32(leaf.tobytes()))
    if isinstance(leaf, (int, float, str, bytes)):
        return leaf
    return id(leaf)


def versions(value: Any) -> tuple[int, ...]:
    """Version counters of the tensors inside `value`: they grow when a tensor or a view of it is written to."""
    return tuple(leaf._version for leaf in tensors(value) if not leaf.is_inference())


def rewrap(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with fresh containers and each leaf replaced by `change(leaf)`; types of containers are kept."""
    if isinstance(value, torch.Tensor) or _is_array(value) or _is_picture(value) or isinstance(value, (str, bytes)):
        return change(value)
    if isinstance(value, tuple):
        items = [rewrap(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if type(value) is list:
        return [rewrap(item, change) for item in value]
    if type(value) is dict:
        return {key: rewrap(item, change) for key, item in value.items()}
    if _is_atom(value) or isinstance(value, (set, frozenset)):
        return value
    return _rewrap_object(value, change)


def _rewrap_object(value: Any, change: Callable[[Any], Any]) -> Any:
    """A shallow copy of a mapping, sequence, dataclass or plain object with its parts rewrapped."""
    try:
        duplicate = copy.copy(value)
    except Exception:  # a user's __copy__ may raise anything
        return value
    if isinstance(duplicate, MutableMapping):
        for key in list(duplicate):
            duplicate[key] = rewrap(duplicate[key], change)
    elif isinstance(duplicate, MutableSequence):
        for position, item in enumerate(list(duplicate)):
            duplicate[position] = rewrap(item, change)
    elif hasattr(duplicate, "__dict__"):
        for name, item in vars(value).items():
            object.__setattr__(duplicate, name, rewrap(item, change))
    return duplicate


def share_storage(left: Any, right: Any) -> bool:
    """Whether a tensor or array in `left` shares memory with one in `right`."""
    pointers = _pointers(left)
    return bool(pointers) and not pointers.isdisjoint(_pointers(right))


def _pointers(value: Any) -> set[int]:
    found: set[int] = set()
    for leaf in leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            found.add(leaf.untyped_storage().data_ptr())
        elif _is_array(leaf) and leaf.size:
            owner = leaf
            while _is_array(owner.base):
                owner = owner.base
            found.add(owner.__array_interface__["data"][0])
    found.discard(0)
    return found
