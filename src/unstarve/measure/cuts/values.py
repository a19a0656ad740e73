"""Copying, sizing and watching arbitrary values that flow through a pipeline.

A cache must neither repair the fault it measures nor plant one. So a copy keeps what transport and later stages depend
on: the number of tensors, their views and the storages behind them (a view that drags a large storage still drags it),
arrays as arrays with their strides. And a value says whether somebody changed it in place since it was looked at.
"""

from __future__ import annotations

import array
import collections
import copy
import ctypes
import dataclasses
import functools
import io
import itertools
import pickle
import random
import sys
import types
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, MutableMapping, MutableSequence
from typing import Any

import torch

_ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type, super, types.ModuleType, types.FunctionType,
    torch.dtype, torch.device, torch.Generator, torch.nn.Module, torch.utils.data.Dataset, random.Random,
)  # fmt: skip
"""Values that are immutable, or that belong to the program and not to a sample: shared, never copied.

Random generators are among them: a copy would draw the same numbers each time that it is served.
"""

_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque, collections.UserDict, collections.UserList)
"""Looked through. Other mappings may be views of a file, and reading them would be work."""

DRAGGED_BYTES = 64 * 2**20
DRAGGED_TIMES = 16
"""A view is copied without the storage behind it if that is larger than this, and this many times larger than the view:
then the storage is the whole data set, held in memory, and a copy for each sample would not fit."""

FORCED_ITEMS = 8
"""Items of a list that are looked at for lazy values: where one is lazy, the others are."""

FORCED_BYTES = 64 * 2**20
"""Larger parts of memory maps are not read when they are taken: nobody reads all of them for one sample."""

FORCED_FILE_BYTES = 8 * 2**20
"""The same for maps of whole files, of which a sample may be a part."""

NUMBER_BYTES = 8
"""An array or a tensor of so many bytes is a number."""

_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
"""Bytes that a picture holds for a pixel, by its mode; all others hold four, be they used or not."""

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
"""Immutable values without parts."""

_NUMBERS = frozenset((bool, int, float, complex, type(None)))
"""Of these, those that are no text."""

DEEP = 3
"""Level below a batch from which on plain data of a loop that does not write into its batches is not made anew for it."""

LONG = 32
"""A list of more plain values is handled as one thing."""

_NEVER_LAZY = (torch.Tensor, type(None), bool, int, float, complex, str, bytes)


class Shared:
    """A reference inside a snapshot to an object of the program, such as the dataset itself: never copied."""

    __slots__ = ("target",)

    def __init__(self, target: Any) -> None:
        self.target = target


class Uncopyable(Exception):
    """A value that cannot be cached; the message says why."""


# --- Copying ----------------------------------------------------------------------------------------------------------


def snapshot(value: Any, shared: tuple[Any, ...] = ()) -> Any:
    """A copy of `value` that later stages can do nothing to.

    Objects in `shared` (a dataset's own attributes) and program objects (functions, modules, datasets) are kept by
    reference. Views, storages and the number of tensors are preserved, and with them what is aliased inside the value.

    Raises:
        Uncopyable: the value holds something that cannot be copied, such as an open file, a generator or a lock.
    """
    memo: dict[int, Any] = {id(item): item for item in shared if not _is_atom(item)}
    try:
        _copy_dragging(value, memo)
        duplicate = _copy(value, memo)
        _refuse_mixed_aliases(value)
    except Uncopyable:
        raise
    except Exception as error:  # a user's __deepcopy__ may raise anything
        raise Uncopyable(f"a value of type {type(value).__name__} cannot be copied ({error})") from error
    return duplicate


def _copy_dragging(value: Any, memo: dict[int, Any]) -> None:
    """Copy the views in `value` that are to leave their storage behind, before `copy.deepcopy` would take it along."""
    found = [part for part in _parts(value, set(memo)) if isinstance(part, torch.Tensor) and _is_dragging(part)]
    memo.update((id(part), _copy_part(part)) for part in found if id(part) not in memo)
    memo[id(memo)] = found  # kept, as `copy` does: a view that a property made must not leave its number to another


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    if type(value) in _PLAIN:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, types.FunctionType):
        _refuse_closure(value)
    if _is_atom(value):
        return value
    known = _copy_known(value, memo)
    if known is not None:
        memo[id(value)] = known
        return known
    _refuse_live(value)
    _share_atoms(value, memo)
    return copy.deepcopy(value, memo)


def _copy_known(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of a tensor, picture, method or plain container; None for everything else."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return _copy_tensor(value, memo)
    if _is_picture(value):
        return _copy_picture(value)
    if kind is list:
        return _copy_plain_list(value) if _is_plain_list(value) else [_copy(item, memo) for item in value]
    if kind is tuple:
        return tuple([_copy(item, memo) for item in value])
    if kind is dict:
        return {key: _copy(item, memo) for key, item in value.items()}
    if _is_array(value):
        return _copy_array(value, memo)
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, _copy(value.__self__, memo))
    if isinstance(value, types.BuiltinFunctionType):
        return _copy_builtin_method(value, memo)
    return None


def _copy_plain_list(value: list[Any]) -> list[Any]:
    return [row[:] for row in value] if type(value[0]) is list else value[:]


def _copy_builtin_method(value: Any, memo: dict[int, Any]) -> Any:
    owner = value.__self__
    if owner is None or _is_atom(owner):
        return value
    duplicate = _copy(owner, memo)
    return value if duplicate is owner else getattr(duplicate, value.__name__)


def _copy_tensor(value: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if value.requires_grad and not value.is_leaf:
        raise Uncopyable("a tensor that is part of a gradient graph cannot be copied")
    return copy.deepcopy(value, memo)


def _is_dragging(value: torch.Tensor) -> bool:
    """Whether the storage behind a view is the whole data set."""
    if type(value) is not torch.Tensor or value.layout != torch.strided or value.requires_grad:
        return False
    return _is_far_larger(value.untyped_storage().nbytes(), value.numel() * value.element_size())


def _is_far_larger(held: int, size: int) -> bool:
    return held > max(DRAGGED_BYTES, DRAGGED_TIMES * size)


def _copy_part(value: torch.Tensor) -> torch.Tensor:
    """A copy of the part of its storage that a view spans, with the same strides; of the view alone where it lies scattered
    over all of it, as a column does."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    if value.numel() == 0 or _is_far_larger(span * value.element_size(), value.numel() * value.element_size()):
        return value.clone()
    part = value.as_strided((span,), (1,), value.storage_offset()).clone()
    return part.as_strided(value.shape, value.stride())


def _copy_picture(value: Any) -> Any:
    if not getattr(value, "_close_exclusive_fp_after_loading", True) and getattr(value, "is_animated", False):
        raise Uncopyable("a picture with several frames reads from its file later")
    if not _decode(value):
        raise Uncopyable("a picture that cannot be decoded cannot be copied")
    duplicate = value.copy()
    own = vars(value)
    if _needs_file(value):
        own = {name: own[name] for name in ("format", "filename") if name in own}
    else:
        duplicate.__class__ = type(value)
    for name in own.keys() - vars(duplicate).keys():
        part = own[name]
        setattr(duplicate, name, copy.copy(part) if isinstance(part, (list, dict)) else part)
    duplicate.format = value.format
    return duplicate


def _needs_file(picture: Any) -> bool:
    """Whether what its kind of picture can do takes the file, which a copy does not have."""
    reads_exif = getattr(vars(picture).get("_exif"), "fp", None) is not None and "exif" not in picture.info
    return reads_exif or any(map(_is_open_file, vars(picture).values()))


def _is_open_file(value: Any) -> bool:
    kind = type(value)
    is_file = isinstance(value, io.IOBase) or hasattr(kind, "fileno") or hasattr(kind, "readinto")
    return is_file and not getattr(value, "closed", False)


def _copy_array(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of an array with its strides; views of one array stay views of one array, unless it is much larger."""
    if value.dtype.hasobject:
        return copy.deepcopy(value, memo)
    root = _root_of(value)
    plain = sys.modules["numpy"].ndarray
    is_whole = root is value or type(value) is not plain or type(root) is not plain or not _is_contiguous(root)
    if not is_whole and root.nbytes <= max(DRAGGED_TIMES * value.nbytes, 4096) and id(root) not in memo:
        memo[id(root)] = _copy_whole(root)
    held = memo.get(id(root)) if not is_whole else None
    if held is None or held is root:  # a root that is shared belongs to the program
        return _copy_whole(value)
    offset = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    duplicate = plain(value.shape, value.dtype, held.ravel(order="K"), offset, value.strides)
    duplicate.flags.writeable = value.flags.writeable
    return duplicate


def _root_of(array: Any) -> Any:
    """The array that an array is a view of, at last; itself if it is none."""
    while True:
        base = array.base
        if base is not None and not _is_array(base):
            base = getattr(base, "base", None)  # numpy.lib.stride_tricks puts an object of its own between
        if not _is_array(base):
            return array
        array = base


def _is_contiguous(array: Any) -> bool:
    return array.flags.c_contiguous or array.flags.f_contiguous


def _copy_whole(value: Any) -> Any:
    numpy = sys.modules["numpy"]
    if _is_contiguous(value) or type(value) is not numpy.ndarray or value.size == 0:
        duplicate = value.copy(order="K")
    else:
        duplicate = _copy_span(value, numpy)
    if type(value) is numpy.ndarray:
        duplicate.flags.writeable = value.flags.writeable
    return duplicate


def _copy_span(value: Any, numpy: Any) -> Any:
    """A copy of the stretch of memory that a view spans, seen through the same strides; of the view alone where it lies
    scattered over far more, such as a column of the whole data set."""
    start = value.__array_interface__["data"][0]
    reach = [(size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True)]
    low = start + sum(step for step in reach if step < 0)
    high = start + sum(step for step in reach if step > 0) + value.itemsize
    if _is_far_larger(high - low, value.nbytes):
        return value.copy(order="K")
    memory = numpy.frombuffer((ctypes.c_char * (high - low)).from_address(low), numpy.uint8).copy()
    return numpy.ndarray(value.shape, value.dtype, memory, start - low, value.strides)


def _refuse_closure(function: types.FunctionType) -> None:
    """A nested function may see variables of the call that made it, which a copy would not."""
    if function.__closure__ and "<locals>" in function.__qualname__:
        raise Uncopyable(f"the nested function {function.__name__} may share variables with the code around it")


def _refuse_live(value: Any) -> None:
    kind = type(value)  # a dictionary whose keys are attributes may answer to any name
    if isinstance(value, io.IOBase) or hasattr(kind, "fileno") or hasattr(kind, "readinto"):
        raise Uncopyable(f"an open file of type {type(value).__name__} cannot be copied")
    if isinstance(value, Iterator):
        raise Uncopyable(f"an iterator of type {type(value).__name__} can be used only once")


def _share_atoms(value: Any, memo: dict[int, Any], depth: int = 3) -> None:
    """Let `copy.deepcopy` keep program objects inside a plain object by reference."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for part in (*parts, *getattr(value, "__dict__", {}).values()):
        if _is_atom(part):
            memo[id(part)] = part
        elif depth:
            _share_atoms(part, memo, depth - 1)


def _refuse_mixed_aliases(value: Any) -> None:
    """Refuse an array and a tensor, or a record, of it side by side: their copies would not share memory."""
    found = list(leaves(value))
    records = {_owner_of(leaf.base) for leaf in found if _is_record(leaf)}
    arrays = {_owner_of(leaf) for leaf in found if _is_array(leaf) and leaf.size}
    storages = {leaf.untyped_storage().data_ptr() for leaf in found if _has_storage(leaf)} - {0}
    if not arrays.isdisjoint(storages):
        raise Uncopyable("a tensor and an array share memory")
    if not arrays.isdisjoint(records):
        raise Uncopyable("a record and its array share memory")


# --- Looking through values -------------------------------------------------------------------------------------------


def _is_atom(value: Any) -> bool:
    if isinstance(value, (*_ATOMS, Shared)):
        return True
    numpy = sys.modules.get("numpy.random")
    return numpy is not None and isinstance(value, (numpy.Generator, numpy.RandomState, numpy.BitGenerator))


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_record(value: Any) -> bool:
    """Whether the value is an element of a structured array, which is a view of it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.void) and _is_array(value.base)


def _is_picture(value: Any) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _is_leaf(value: Any) -> bool:
    if type(value) in _PLAIN:
        return True
    if isinstance(value, torch.Tensor) or _is_atom(value) or _is_array(value) or _is_picture(value):
        return True
    return _is_plain_list(value)


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta


def is_unloaded(value: Any) -> bool:
    """Whether the value is a picture of PIL's that has not been decoded: decoding it now would change what it can do."""
    return _is_picture(value) and (bool(getattr(value, "tile", None)) or has_failed(value))


def force(value: Any, depth: int = 2) -> None:
    """Make a lazy value do its work now, so that the cost falls on the stage that created it.

    Pictures are decoded, memory maps are read; containers are looked through. The user's code meets the error of a value
    whose work fails where it uses the value, if it does.
    """
    if depth < 0 or isinstance(value, _NEVER_LAZY):
        return
    if _is_picture(value):
        _decode(value)
    elif _is_array(value):
        if isinstance(value, sys.modules["numpy"].memmap) and 0 < value.nbytes <= _most_forced(value):
            _touch_pages(value)
    elif isinstance(value, (dict, collections.UserDict)) and len(value) <= 64:
        for item in value.values():
            force(item, depth - 1)
    elif isinstance(value, (list, tuple)):
        for item in value[:FORCED_ITEMS]:
            force(item, depth - 1)


def _most_forced(array: Any) -> int:
    """A map of a whole file may be there to take a part of, and that part to be read."""
    return FORCED_BYTES if _is_array(array.base) else FORCED_FILE_BYTES


def _decode(picture: Any) -> bool:
    """Whether the picture can be decoded, which is done now; if not, the next that decodes it meets the same error."""
    if has_failed(picture):
        return False
    tile = getattr(picture, "tile", None)
    try:
        picture.load()
    except Exception as error:  # decoders raise many kinds, and which one is for the user's code to see
        if tile is not None:  # it comes from a file
            picture.load = _FailedLoad(picture, tile, error)
        return False
    return True


def has_failed(value: Any) -> bool:
    """Whether the value is a picture that could not be decoded, of which the user's code is still to learn."""
    return _is_picture(value) and type(getattr(value, "__dict__", {}).get("load")) is _FailedLoad


class _FailedLoad:
    """The `load` of a picture that we have tried to decode: it fails once more, for the user's code to see.

    After some errors PIL takes a picture for decoded, however little of it is there, and the next `load` would succeed.
    """

    def __init__(self, picture: Any, tile: Any, error: Exception) -> None:
        self._picture, self._tile, self._frame, self._error = picture, tile, picture.tell(), error
        self._trace = error.__traceback__ and error.__traceback__.tb_next
        self._tile_left = picture.tile
        picture.tile = tile  # so that it counts as not decoded, as it would without us

    def __call__(self) -> Any:
        picture = self._picture
        del picture.load
        if picture.tile is not self._tile or picture.tell() != self._frame:  # another frame was gone to
            return picture.load()
        picture.tile = self._tile_left
        raise self._error.with_traceback(self._trace)


def _touch_pages(array: Any) -> None:
    step = max(1, 4096 // max(1, array.itemsize))
    (array.reshape(-1)[::step] if array.flags.c_contiguous else array).tobytes()


def _is_plain_list(value: Any) -> bool:
    """Whether `value` is a long list of plain numbers or strings, or of lists of such, which is handled as one thing."""
    if type(value) is not list or not value:
        return False
    if type(value[0]) is list and type(value[-1]) is list:
        if set(map(type, value)) != {list} or sum(map(len, value)) <= LONG:
            return False
        return _PLAIN.issuperset(map(type, itertools.chain.from_iterable(value)))
    is_long = len(value) > LONG and type(value[0]) in _PLAIN and type(value[-1]) in _PLAIN
    return is_long and _PLAIN.issuperset(map(type, value))


def _rows(value: list[Any]) -> list[list[Any]]:
    """The lists of plain values that a list which is handled as one thing consists of."""
    return value if type(value[0]) is list else [value]


def leaves(value: Any) -> Iterator[Any]:
    """The tensors, arrays, pictures and atoms inside `value`, containers and plain objects looked through once."""
    for item in _parts(value, set()):
        if _ends_walk(item):
            yield item


def named_leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What `leaves` gives, each with the expression that leads to it from `name`, such as `batch['image'][0]`."""
    yield from _named_leaves(value, name, set())


def _named_leaves(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if _ends_walk(value):
        yield name, value
    if _is_leaf(value) or id(value) in seen:
        return
    seen.add(id(value))
    for step, part in zip(_steps(value), _inner(value), strict=False):  # some steps go on without end
        yield from _named_leaves(part, name + step, seen)


def _steps(value: Any) -> Iterator[str]:
    """How each part that `_inner` gives is reached from `value`, in the same order."""
    if isinstance(value, (dict, collections.UserDict)):
        return (f"[{key!r}]" for key in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (f".{name}" for name in value._fields)
    if isinstance(value, _CONTAINERS):
        return (f"[{position}]" for position in itertools.count())
    if isinstance(value, (functools.partial, types.MethodType, types.BuiltinFunctionType)):
        return itertools.repeat("(…)")
    if hasattr(value, "__dict__"):
        return (f".{name}" for name in vars(value))
    return (f".{field.name}" for field in dataclasses.fields(value)) if dataclasses.is_dataclass(value) else iter(())


def _ends_walk(value: Any) -> bool:
    if type(value) in _PLAIN:
        return True
    return (not isinstance(value, _CONTAINERS) or _is_plain_list(value)) and not _is_opened(value)


def _is_opened(value: Any) -> bool:
    """Whether `leaves` yields the parts of the object and not the object."""
    return not _is_leaf(value) and (hasattr(value, "__dict__") or dataclasses.is_dataclass(value))


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """`value` and everything in it, each container before what is in it."""
    ways = [iter((value,))]  # generators within generators would pass on each leaf as often as it lies deep
    while ways:
        for part in ways[-1]:
            is_leaf = _is_leaf(part)
            if id(part) not in seen:
                if not is_leaf or isinstance(part, torch.Tensor):
                    seen.add(id(part))
                yield part
                if not is_leaf:
                    ways.append(_inner(part))
                    break
            elif is_leaf:
                yield part
        else:
            ways.pop()


def _inner(value: Any) -> Iterator[Any]:
    """What a container or plain object consists of."""
    if isinstance(value, (dict, collections.UserDict)):
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (*value.args, *value.keywords.values())
    elif isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        yield value.__self__
    elif hasattr(value, "__dict__"):
        yield from vars(value).values()
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors inside `value`."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def size_bytes(value: Any) -> int:
    """Bytes that `value` holds, storages behind views counted whole and once."""
    seen: set[int] = set()
    total = 0
    for leaf in leaves(value):
        if isinstance(leaf, torch.Tensor):
            total += _tensor_bytes(leaf, seen)
        elif _is_array(leaf):
            total += _array_bytes(leaf, seen)
        elif _is_picture(leaf):
            total += leaf.size[0] * leaf.size[1] * _PIXEL_BYTES.get(leaf.mode, 4)
        elif type(leaf) is list:
            total += sum(40 * len(row) for row in _rows(leaf))
        else:
            total += sys.getsizeof(leaf, 64)
    return total


def _array_bytes(leaf: Any, seen: set[int]) -> int:
    """As of a tensor: what a view holds is the array that it is a view of, unless that is a file."""
    root = _root_of(leaf)
    if isinstance(root, sys.modules["numpy"].memmap):
        return int(leaf.nbytes)
    if id(root) in seen:
        return 0
    seen.add(id(root))
    return int(root.nbytes)


def content_bytes(value: Any) -> int:
    """Bytes of the pixels, numbers and texts in `value`, whatever memory is behind them: what storing it takes."""
    return sum(map(_content_bytes, leaves(value)))


def _content_bytes(leaf: Any) -> int:
    if isinstance(leaf, torch.Tensor):
        parts = _sparse_parts(leaf)
        return sum(part.numel() * part.element_size() for part in parts or (leaf,))
    if _is_picture(leaf):
        each = _PIXEL_BYTES.get(leaf.mode, 4) if len(leaf.getbands()) == 1 else len(leaf.getbands())
        return int(leaf.size[0] * leaf.size[1] * each)
    if isinstance(leaf, (str, bytes, bytearray)):
        return len(leaf)
    if type(leaf) is list:
        return sum(len(item) if isinstance(item, (str, bytes)) else 8 for row in _rows(leaf) for item in row)
    return int(getattr(leaf, "nbytes", 0))


def holds_data(value: Any, depth: int = 4) -> bool:
    """Whether a tensor, array, picture or bytes of more than one number are in `value`; containers are looked through, and
    other objects are handles."""
    if isinstance(value, _CONTAINERS) or dataclasses.is_dataclass(value):
        return depth > 0 and any(holds_data(part, depth - 1) for part in _inner(value))
    if _is_array(value) and isinstance(value, sys.modules["numpy"].memmap):
        return False
    is_kind = isinstance(value, (torch.Tensor, bytes, bytearray)) or _is_array(value) or _is_picture(value)
    return is_kind and _content_bytes(value) > NUMBER_BYTES


def _sparse_parts(leaf: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What a sparse tensor is made of; nothing of another."""
    if leaf.layout == torch.sparse_coo:
        return leaf._indices(), leaf._values()
    if leaf.layout in (torch.sparse_csr, torch.sparse_bsr):
        return leaf.crow_indices(), leaf.col_indices(), leaf.values()
    if leaf.layout in (torch.sparse_csc, torch.sparse_bsc):
        return leaf.ccol_indices(), leaf.row_indices(), leaf.values()
    return ()


def _tensor_bytes(leaf: torch.Tensor, seen: set[int]) -> int:
    if not _has_storage(leaf):
        return sum(_tensor_bytes(part, seen) for part in _sparse_parts(leaf)) or 64
    storage = leaf.untyped_storage()
    if storage.data_ptr() in seen:
        return 0
    seen.add(storage.data_ptr())
    return storage.nbytes()


# --- Watching values --------------------------------------------------------------------------------------------------


def fingerprint(value: Any) -> tuple[Any, ...]:
    """Changes when `value` is changed in place: by version counters, checksums, and the lengths of containers."""
    return tuple(_mark(part) for part in _parts(value, set()))


def _mark(part: Any) -> Any:
    if isinstance(part, torch.Tensor):
        return _tensor_mark(part)
    if _is_array(part):
        return (part.shape, part.strides, id(part) if part.dtype.hasobject else zlib.adler32(_memory(part)))
    if _is_picture(part) and (is_unloaded(part) or not _decode(part)):
        return (part.mode, part.size, id(part))
    if _is_picture(part):
        return (part.mode, part.size, zlib.adler32(part.tobytes()))
    if _is_plain_list(part):
        return (id(part), len(part), zlib.adler32(pickle.dumps(part, pickle.HIGHEST_PROTOCOL)))
    if _is_record(part):
        return (id(part), id(part.base) if part.dtype.hasobject else zlib.adler32(part.tobytes()))
    if isinstance(part, (bytearray, array.array)):
        return (id(part), len(part), zlib.adler32(part))
    if isinstance(part, _CONTAINERS):
        return (id(part), len(part), tuple(map(_key, part)) if isinstance(part, (dict, set)) else None)
    if isinstance(part, (bool, int, float, str, bytes)):
        return part if isinstance(part, (str, bytes)) else repr(part)  # True equals 1, and 0.0 equals -0.0
    return id(part)


def _key(key: Any) -> Any:
    return key if isinstance(key, (str, int, tuple)) else id(key)


def _tensor_mark(part: torch.Tensor) -> tuple[Any, ...]:
    """The version counter does not see writes through `.numpy()` and `.data`; the checksum does."""
    version = 0 if part.is_inference() else part._version
    if not _has_storage(part) or part.device.type != "cpu" or part.dtype.is_complex or part.is_quantized:
        return (version,)
    memory: Any = part.detach().contiguous().reshape(-1).view(torch.uint8).numpy() if part.numel() else b""
    return (version, part.shape, part.stride(), zlib.adler32(memory))


def _memory(array: Any) -> Any:
    if not array.size:
        return b""
    if array.flags.c_contiguous and array.dtype.kind in "biuf":
        return array.reshape(-1).view("uint8")
    return array.tobytes()


def versions(found: Iterable[torch.Tensor]) -> tuple[int, ...]:
    """Version counters of tensors: they grow when a tensor or a view of it is written to."""
    return tuple(leaf._version for leaf in found if not leaf.is_inference())


def share_storage(left: Any, right: Any) -> bool:
    """Whether `right` holds memory of `left`: of a tensor or array, a picture, or a container that can be changed."""
    held = memory_of(left)
    return bool(held) and not held.isdisjoint(memory_of(right))


def memory_of(value: Any) -> set[int]:
    """Names of the pieces of memory in `value` that can be changed in place: values that share one are entangled."""
    found: set[int] = set()
    for part in _parts(value, set()):
        if _has_storage(part):
            found.add(part.untyped_storage().data_ptr())
        elif _is_array(part) and part.size:
            found.add(_owner_of(part))
        elif _is_record(part):
            found.add(_owner_of(part.base))
        elif not _is_atom(part) and not isinstance(part, (torch.Tensor, tuple, frozenset, types.BuiltinFunctionType)):
            found.add(id(part))
            found.update(map(id, _rows(part)) if _is_plain_list(part) else ())
    found.discard(0)
    return found


def _owner_of(array: Any) -> int:
    """Address of the memory that an array is a view of."""
    array = _root_of(array)
    if isinstance(array.base, torch.Tensor):
        return array.base.untyped_storage().data_ptr()
    return array.__array_interface__["data"][0]


# --- Rebuilding values ------------------------------------------------------------------------------------------------


def plain_parts(value: Any) -> frozenset[int]:
    """Ids of the lists and dictionaries at the `DEEP` level of `value` that hold nothing but plain values, however deep."""
    found: set[int] = set()
    _is_plain(value, 0, found)
    return frozenset(found)


def _is_plain(value: Any, depth: int, found: set[int]) -> bool:
    if type(value) in _PLAIN:
        return True
    if type(value) not in (dict, list, tuple):
        return False
    items = value.values() if type(value) is dict else value
    parts = [_is_plain(item, depth + 1, found) for item in items]
    is_plain = all(parts)
    if is_plain and depth == DEEP:
        found.add(id(value))
    return is_plain


def rewrap(value: Any, change: Callable[[Any], Any], kept: Container[int] = ()) -> Any:
    """`value` with fresh containers and each leaf replaced by `change(leaf)`, but for numbers and long lists of plain values;
    types of containers are kept. Parts whose ids are `kept` are passed on as they are."""
    return _rewrap(value, change, {}, kept)


def _rewrap(value: Any, change: Callable[[Any], Any], made: dict[int, Any], kept: Container[int]) -> Any:
    if type(value) in _NUMBERS or id(value) in kept:
        return value
    if isinstance(value, torch.Tensor) or _is_array(value) or _is_picture(value) or isinstance(value, (str, bytes)):
        return change(value)
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, tuple):
        items = [_rewrap(item, change, made, kept) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if type(value) is list:
        # lists of plain values inside such a list are kept: making them all takes longer than what a cache is to spare
        return value[:] if _is_plain_list(value) else [_rewrap(item, change, made, kept) for item in value]
    if type(value) is dict:
        return {key: _rewrap(item, change, made, kept) for key, item in value.items()}
    if _is_atom(value) or isinstance(value, (set, frozenset, bytearray, types.MethodType, types.BuiltinFunctionType)):
        return value
    return _rewrap_object(value, change, made, kept)


def _rewrap_object(value: Any, change: Callable[[Any], Any], made: dict[int, Any], kept: Container[int]) -> Any:
    """A shallow copy of a mapping, sequence, dataclass or plain object with its parts rewrapped."""
    try:
        duplicate = copy.copy(value)
    except Exception:  # a user's __copy__ may raise anything
        return value
    made[id(value)] = duplicate  # an object may lead back to itself
    if isinstance(duplicate, MutableMapping):
        for key in list(duplicate):
            duplicate[key] = _rewrap(duplicate[key], change, made, kept)
    elif isinstance(duplicate, MutableSequence):
        for position, item in enumerate(list(duplicate)):
            duplicate[position] = _rewrap(item, change, made, kept)
    elif hasattr(duplicate, "__dict__") or dataclasses.is_dataclass(duplicate):
        for name in _attribute_names(value):
            object.__setattr__(duplicate, name, _rewrap(getattr(value, name), change, made, kept))
    return duplicate


def _attribute_names(value: Any) -> list[str]:
    names = list(getattr(value, "__dict__", ()))
    if dataclasses.is_dataclass(value):
        names += [field.name for field in dataclasses.fields(value) if field.name not in names]
    return [name for name in names if hasattr(value, name)]


def duplicate(leaf: Any) -> Any:
    """A copy of one tensor, in the same kind of memory, or of another leaf."""
    if not isinstance(leaf, torch.Tensor):
        return snapshot(leaf)
    if leaf.is_pinned():
        return torch.empty_like(leaf, pin_memory=True).copy_(leaf)
    return leaf.clone()
