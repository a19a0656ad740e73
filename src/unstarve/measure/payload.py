"""Facts about what batches carry, and about which of it a step reads. What follows from them says `unstarve.payload`."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch as dispatching
from torch.utils._device import DeviceContext

from unstarve.measure.cuts import values
from unstarve.payload import Field

SAMPLE_VALUES = 2**18
"""So many values of a leaf are looked at, a MiB of float32; of a larger one, evenly spaced slices of at most that."""

LAST_AXIS_FAVOUR = 64
"""Slices are left out of the last dimension only if it is this many times longer than the others: rows stay whole."""

MOST_VALUED = 256
"""Leaves of a batch whose values are looked at; where there are more, they are small. Of the further ones all that are no
tensors or arrays, such as the numbers in ragged lists, are one field."""

FURTHER = "batch(…)"
"""Path of that field."""

MOST_DISTINCT = 256
PEEKED = 4096
"""Values that are looked at first, since most leaves hold more distinct values than are counted."""

SEQUENCE_ITEMS = 8
"""Shorter dimensions are no sequences: that one ends in the same value as the next is chance."""

SCALED_TOLERANCE = 1e-4


# --- Facts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """What the values of a leaf are like in one batch; fields as in `Field`."""

    number: int
    min: float
    max: float
    is_integral: bool
    is_scaled_bytes: bool
    distinct: frozenset[float] | None
    nonzero_fraction: float
    row_is_one_hot: bool
    padding_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A leaf in one batch."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    storage_bytes: int
    is_pinned: bool
    is_watchable: bool
    values: _Values | None
    duplicate_of: str | None


def audit(
    batches: Iterable[Any],
    read: set[str] | None = None,
    moved: Collection[str] = (),
    on_host: Collection[str] = (),
    read_as: Mapping[str, Collection[str | None]] = MappingProxyType({}),
) -> tuple[Field, ...]:
    """The leaves of the batches, in order of appearance, None excepted.

    Smallest and largest values are taken over all values; the other facts from at most `SAMPLE_VALUES` of each leaf,
    in evenly spaced slices. Neither the batches nor any random state is changed. What cannot be looked at, such as
    the values of a sparse or complex tensor, is left unknown.

    Args:
        batches: some batches of one loader, on the host.
        read: paths of the tensors that the step read, as `UseWatch.stop` gives them, of all watched steps together.
        moved: paths of those that it moved to a device; none where that is not known.
        on_host: paths of those that it used on the host.
        read_as: as `UseWatch.read_as`, of all watched steps together.
    """
    looks: dict[str, list[_Look]] = {}
    number = 0
    with torch.no_grad(), _one_thread():
        for batch in batches:
            number += 1
            for path, look in _looks(batch).items():
                looks.setdefault(path, []).append(look)
    found = [
        replace(_field(path, seen, number, read), used_on_host=path in on_host, rounded_to=_sole(read_as.get(path, ())))
        for path, seen in looks.items()
    ]
    return tuple(replace(field, moved_by_step=field.path in moved) if moved else field for field in found)


def _sole(found: Collection[str | None]) -> str | None:
    return next(iter(found)) if len(found) == 1 else None


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: where the workers fill the cores, several that wait for each other are far slower."""
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


def _looks(batch: Any) -> dict[str, _Look]:
    leaves = {path: leaf for path, leaf in values.named_leaves(batch, "batch") if leaf is not None}
    valued = dict(itertools.islice(leaves.items(), MOST_VALUED))
    tensors = {path: tensor for path, leaf in valued.items() if (tensor := _as_tensor(leaf)) is not None}
    samples = {path: _thinned(tensor).cpu() for path, tensor in tensors.items()}
    shares = _storage_shares(leaves)
    duplicates = _duplicates(tensors, samples)
    found = {}
    further = {path: leaf for path, leaf in itertools.islice(leaves.items(), MOST_VALUED, None) if _is_other(leaf)}
    for path, leaf in leaves.items():
        if path in further:
            continue
        facts = _values(tensors[path], samples[path]) if path in tensors else None
        try:
            found[path] = _look(leaf, facts, shares.get(path), duplicates.get(path))
        except (RuntimeError, TypeError):
            continue  # nested tensors have no shape, and subclasses may refuse anything: it is left out
    if further:
        size_bytes = sum(map(_size_bytes, further.values()))
        first = _look(next(iter(further.values())), None, None, None)
        found[FURTHER] = replace(first, bytes=size_bytes, storage_bytes=size_bytes)
    return found


def _look(leaf: Any, facts: _Values | None, share: float | None, duplicate_of: str | None) -> _Look:
    is_tensor = isinstance(leaf, torch.Tensor)
    is_array = not is_tensor and _is_array(leaf)
    size_bytes = _size_bytes(leaf)
    return _Look(
        kind="tensor" if is_tensor else "array" if is_array else "other",
        dtype=_type_name(leaf.dtype) if is_tensor or is_array else type(leaf).__name__,
        shape=tuple(leaf.shape) if is_tensor or is_array else (),
        bytes=size_bytes,
        storage_bytes=size_bytes if share is None else round(share),
        is_pinned=is_tensor and torch.cuda.is_initialized() and leaf.is_pinned(),
        is_watchable=_is_plain(leaf),
        values=facts,
        duplicate_of=duplicate_of,
    )


def _is_other(leaf: Any) -> bool:
    return not (isinstance(leaf, torch.Tensor) or _is_array(leaf))


def _is_array(leaf: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(leaf, numpy.ndarray)


def _size_bytes(leaf: Any) -> int:
    if _is_plain(leaf):
        return leaf.numel() * leaf.element_size()
    return int(leaf.nbytes) if _is_array(leaf) else values.size_bytes(leaf)


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_meta and not leaf.is_nested


def _storage_shares(leaves: dict[str, Any]) -> dict[str, float]:
    """For each tensor, the bytes of its storage, divided among the views of it by their sizes."""
    plain = {path: leaf for path, leaf in leaves.items() if _is_plain(leaf)}
    viewed: Counter[int] = Counter()
    for leaf in plain.values():
        viewed[_key(leaf)] += _size_bytes(leaf)
    return {
        path: leaf.untyped_storage().nbytes() * _size_bytes(leaf) / max(1, viewed[_key(leaf)])
        for path, leaf in plain.items()
    }


def _key(leaf: torch.Tensor) -> int:
    return leaf.untyped_storage()._cdata


def _as_tensor(leaf: Any) -> torch.Tensor | None:
    """The leaf as a plain tensor, on the same memory where possible; None if it has no values to look at."""
    if _is_plain(leaf):
        has_values = leaf.numel() and not leaf.dtype.is_complex and not leaf.is_quantized
        return leaf.detach().as_subclass(torch.Tensor) if has_values else None
    if not _is_array(leaf) or not leaf.size or leaf.dtype.kind not in "biuf":
        return None
    if isinstance(leaf, sys.modules["numpy"].memmap):  # may be a whole data set
        return None
    if not leaf.flags.writeable or any(step < 0 for step in leaf.strides):
        leaf = leaf.copy()
    try:
        return torch.from_numpy(leaf)
    except (TypeError, ValueError):  # a type that torch lacks, or foreign byte order
        return None


def _thinned(tensor: torch.Tensor) -> torch.Tensor:
    """A view with every second slice of the longest dimension left out, as often as it takes."""
    while tensor.numel() > SAMPLE_VALUES:
        lengths = [*tensor.shape[:-1], tensor.shape[-1] / LAST_AXIS_FAVOUR]
        axis = lengths.index(max(lengths))
        tensor = tensor[(slice(None),) * axis + (slice(None, None, 2),)]
    return tensor


def _values(tensor: torch.Tensor, sample: torch.Tensor) -> _Values | None:
    try:
        low, high = (float(end) for end in torch.aminmax(tensor))
        numbers = sample.double()
    except (RuntimeError, TypeError):  # types that can be stored but not computed with
        return None
    return _Values(
        number=numbers.numel(),
        min=low,
        max=high,
        is_integral=_are_whole(numbers, 0.0),
        is_scaled_bytes=low >= 0 and high <= 1 and _are_whole(numbers * 255, SCALED_TOLERANCE),
        distinct=_distinct(numbers),
        nonzero_fraction=numbers.count_nonzero().item() / numbers.numel(),
        row_is_one_hot=(low, high) == (0, 1) and tensor.shape[-1] == sample.shape[-1] and _is_one_hot(numbers),
        padding_fraction=_padding_fraction(numbers),
    )


def _are_whole(numbers: torch.Tensor, tolerance: float) -> bool:
    return bool(((numbers - numbers.round()).abs() <= tolerance).all())


def _distinct(numbers: torch.Tensor) -> frozenset[float] | None:
    flat = numbers.flatten()
    if flat[:PEEKED].unique().numel() > MOST_DISTINCT:
        return None
    found = flat.unique()
    return frozenset(found.tolist()) if found.numel() <= MOST_DISTINCT else None


def _is_one_hot(numbers: torch.Tensor) -> bool:
    if numbers.ndim < 2 or numbers.shape[-1] < 2:
        return False
    return bool(((numbers != 0).sum(-1) == 1).all() and ((numbers == 1).sum(-1) == 1).all())


def _padding_fraction(numbers: torch.Tensor) -> float:
    """Mean share of the run of one value with which the samples end, along the dimension where it is largest.

    The value is the one that most samples end with; samples that end otherwise count as not padded.
    """
    axes = [axis for axis in range(1, numbers.ndim) if numbers.shape[axis] >= SEQUENCE_ITEMS]
    if not axes:
        return 0.0
    last = numbers.flatten(1)[:, -1]
    is_padding = numbers == last.mode().values
    return max(_ending_run(is_padding, axis) for axis in axes)


def _ending_run(is_padding: torch.Tensor, axis: int) -> float:
    """Mean share of the slices along `axis` at the end of each sample that are padding as a whole."""
    slices = is_padding.movedim(axis, 1).flatten(2).all(2) if is_padding.ndim > 2 else is_padding
    return slices.flip(1).int().cumprod(1).sum(1).double().mean().item() / slices.shape[1]


def _duplicates(tensors: dict[str, torch.Tensor], samples: dict[str, torch.Tensor]) -> dict[str, str]:
    """For each leaf that equals an earlier one, the path of the first such."""
    firsts: dict[tuple[Any, ...], str] = {}
    found = {}
    for path, tensor in tensors.items():
        first = firsts.setdefault((tensor.dtype, tensor.shape, tensor.device, _checksum(samples[path])), path)
        if first != path and torch.equal(tensors[first], tensor):
            found[path] = first
    return found


def _checksum(sample: torch.Tensor) -> int:
    memory: Any = sample.contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.adler32(memory)


def _field(path: str, looks: list[_Look], looked_batches: int, read: set[str] | None) -> Field:
    first = looks[0]
    return Field(
        path=path,
        kind=first.kind,
        dtype=first.dtype,
        shape=first.shape,
        bytes=sum(look.bytes for look in looks) // len(looks),
        storage_bytes=sum(look.storage_bytes for look in looks) // len(looks),
        is_pinned=all(look.is_pinned for look in looks),
        seen_batches=len(looks),
        looked_batches=looked_batches,
        duplicate_of=first.duplicate_of if len({look.duplicate_of for look in looks}) == 1 else None,
        read_by_step=path in read if read is not None and first.is_watchable else None,
        **_joined([look.values for look in looks if look.values is not None]),
    )


def _joined(found: list[_Values]) -> dict[str, Any]:
    """The facts of several batches as arguments of `Field`."""
    if not found:
        return {}
    low, high = min(item.min for item in found), max(item.max for item in found)
    is_finite = all(math.isfinite(item.min) and math.isfinite(item.max) for item in found)
    distinct = frozenset[float]().union(*(item.distinct or () for item in found))
    is_counted = all(item.distinct is not None for item in found) and len(distinct) <= MOST_DISTINCT
    number = sum(item.number for item in found)
    return {
        "looked_values": number,
        "min": low if is_finite else None,
        "max": high if is_finite else None,
        "is_integral": all(item.is_integral for item in found),
        "is_scaled_bytes": all(item.is_scaled_bytes for item in found),
        "distinct": len(distinct) if is_counted else None,
        "is_constant": is_finite and low == high,
        "nonzero_fraction": sum(item.nonzero_fraction * item.number for item in found) / number,
        "row_is_one_hot": all(item.row_is_one_hot for item in found),
        "padding_fraction": sum(item.padding_fraction * item.number for item in found) / number,
    }


# --- What the step reads ----------------------------------------------------------------------------------------------


_MOVES = frozenset({"_to_copy", "clone", "_pin_memory"})
"""Operations whose result is the leaf again, elsewhere or in another type: the leaf is read when the result is."""

_GLANCES = frozenset({"detach", "alias", "lift_fresh", "record_stream", "is_pinned"})
"""Operations that touch no value, and give at most another view of the same memory."""

_PIN = "pin_memory"
"""The call, by whatever operations it is done: it reads nothing, and fails on a device."""

_ESCAPES = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "numpy", "tolist", "item", "data_ptr", "__array__", "__dlpack__", "__reduce_ex__", "__deepcopy__",
        "untyped_storage",
    )
) | {torch.Tensor.__cuda_array_interface__.__get__}  # type: ignore[attr-defined]  # fmt: skip
"""Ways out of torch: whoever takes one may read the values unseen."""


class UseWatch:
    """Sees which tensors of some batches the operations between `start` and `stop` read.

    A tensor that is only moved (`.to`, `.cuda`, `.clone`, `.pin_memory`) counts as read when the result is; one that is
    copied into memory made elsewhere, or whose memory is handed out of torch, counts as read at once. Not seen are
    operations in other threads, kernels of extensions that bypass torch's dispatcher, replays of recorded graphs, and
    printing. Compiled code runs uncompiled meanwhile.

    Where it could disturb, because other modes are active, or where something goes wrong, it steps aside.
    """

    def __init__(self) -> None:
        self._read: set[str] = set()
        self.moved: set[str] = set()
        """Paths of the tensors that were moved to a device."""
        self.on_host: set[str] = set()
        """Paths of those that were used on the host, where they or a copy of them lay: on a device the same code may fail,
        or wait."""
        self.read_as: dict[str, set[str | None]] = {}
        """For the paths of those that were read, the narrower floating types to which they had been rounded before; None
        stands for their own."""
        self._narrowed: dict[int, torch.dtype] = {}
        self._paths: dict[int, set[str]] = {}
        self._at_host: set[int] = set()
        self._held: list[StorageWeakRef] = []
        self._modes: tuple[_Operations, _Functions] | None = None
        self._thread = 0
        self._is_sound = False

    def start(self, batch: Any) -> None:
        """Begin to watch the use of the batch, in this thread."""
        try:
            self._follow_leaves(batch)
            self._is_sound = bool(self._paths) and _is_free_of_modes() and not _would_recompile()
        except Exception:  # a batch of a kind never met must not end the user's loop
            self._is_sound = False
        if self._is_sound:
            self._thread = threading.get_ident()
            self._modes = (_Operations(self), _Functions(self))
            for mode in self._modes:
                mode.__enter__()

    def go_on(self, batch: Any) -> None:
        """Watch the use of another batch as well: a loop that fetches ahead works on one after it has the next."""
        if not self._is_sound:
            return
        try:
            with torch._C.DisableTorchFunction():
                self._follow_leaves(batch)
        except Exception:
            self._is_sound = False

    def stop(self) -> set[str] | None:
        """Stop watching; paths of the tensors that were read, as in `Field.path`, or None where that is unknown.

        It is unknown too where none was read: then the loop uses its batches at another time, or unseen.
        """
        if self._modes is None:
            return None
        was_whole = threading.get_ident() == self._thread and _take_out(*self._modes)
        is_known = was_whole and self._is_sound and self._read
        self._is_sound, self._modes = False, None
        self._paths.clear()
        self._narrowed.clear()
        self._at_host.clear()
        self._held.clear()
        return self._read if is_known else None

    def saw(self, name: str, given: Any, result: Any) -> None:
        """Note an operation; `name` is that of torch's dispatcher, without namespace and overload."""
        if not self._is_sound or name in _GLANCES:
            return
        try:
            with torch._C.DisableTorchFunction():
                keys = {_key(tensor) for tensor in values.tensors(given) if _is_plain(tensor)}
                if not keys.isdisjoint(self._paths):
                    self._note(name, keys, given, result)
        except Exception:  # an operation of a kind never met must not end the user's loop
            self._is_sound = False

    def _note(self, name: str, keys: set[int], given: Any, result: Any) -> None:
        """Note an operation on these storages."""
        paths, at_host = self._paths_of(keys), keys & self._at_host
        is_elsewhere = isinstance(result, torch.Tensor) and result.device.type != "cpu"
        if name == _PIN:
            self.on_host |= self._paths_of(at_host)
        elif name in _MOVES:
            self._follow(result, paths, at_host=bool(at_host) and not is_elsewhere)
            self._note_rounding(keys, given, result)
            self.moved |= paths if is_elsewhere else set()
        else:
            self._read |= paths
            for key in keys & self._paths.keys():
                dtype = self._narrowed.get(key)
                for path in self._paths[key]:
                    self.read_as.setdefault(path, set()).add(_type_name(dtype) if dtype else None)
            if name == "copy_" and is_elsewhere:
                self.moved |= paths
            elif not _gives_back(keys, result):
                self.on_host |= self._paths_of(at_host)

    def _note_rounding(self, keys: set[int], given: Any, result: torch.Tensor) -> None:
        """What was moved is as it was, or rounded to the type of the result."""
        source = next(iter(values.tensors(given))).dtype
        before = next((self._narrowed[key] for key in keys if key in self._narrowed), None)
        is_rounding = source.is_floating_point and result.dtype.is_floating_point and result.itemsize < source.itemsize
        now = result.dtype if is_rounding else before
        if now is not None:
            self._narrowed[_key(result)] = now

    def _paths_of(self, keys: set[int]) -> set[str]:
        return set().union(*(self._paths.get(key, ()) for key in keys))

    def _follow_leaves(self, batch: Any) -> None:
        for path, leaf in values.named_leaves(batch, "batch"):
            if _is_plain(leaf):
                self._follow(leaf, {path}, at_host=leaf.device.type == "cpu")

    def _follow(self, tensor: torch.Tensor, paths: set[str], *, at_host: bool) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._paths:
            self._held.append(StorageWeakRef(storage))  # frees the memory as before, but its name is not used again
        self._paths.setdefault(storage._cdata, set()).update(paths)
        if at_host:
            self._at_host.add(storage._cdata)


def _type_name(dtype: Any) -> str:
    """The name of torch's type of values, or of NumPy's."""
    return str(dtype).removeprefix("torch.")


def _gives_back(keys: set[int], result: Any) -> bool:
    """Whether an operation on these storages took one, and gave nothing but views of it: that can be done anywhere."""
    given = {_key(tensor) if _is_plain(tensor) else None for tensor in values.tensors(result)}
    return len(keys) == 1 and given == keys


class _Operations(dispatching.TorchDispatchMode):
    """Tells a watch of the operations that reach torch's dispatcher."""

    supports_higher_order_operators = True

    def __init__(self, watch: UseWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(getattr(func, "overloadpacket", func), "__name__", "")
        self._watch.saw(name, (args, kwargs), result)
        return result


class _Functions(TorchFunctionMode):
    """Tells a watch of the calls that take values out of torch without an operation."""

    def __init__(self, watch: UseWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ESCAPES:
            self._watch.saw("escape", args, None)
        elif func is torch.Tensor.pin_memory:
            self._watch.saw(_PIN, args, None)
        return func(*args, **(kwargs or {}))


def _is_free_of_modes() -> bool:
    """Whether no mode is active but that of a default device, which keeps to the bottom of the stack.

    The others expect to be the last in when they leave, and would put out ours instead of themselves.
    """
    functions = torch.overrides._get_current_function_mode_stack()
    return not dispatching._get_current_dispatch_mode_stack() and all(isinstance(m, DeviceContext) for m in functions)


def _would_recompile() -> bool:
    """Whether code that was compiled would be compiled once more for each watch, as before torch 2.6 (seen in 2.4)."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    is_old = not hasattr(torch.compiler, "set_stance")
    backends = getattr(frames, "cached_backends", {})  # None among them is code that shall not be compiled
    return is_old and any(callable(backend) for backend in backends.values())


def _take_out(operations: _Operations, functions: _Functions) -> bool:
    """End both modes wherever they are in their stacks; whether both were there."""
    return all(
        [
            _take_one_out(operations, dispatching._get_current_dispatch_mode_stack(), dispatching),
            _take_one_out(functions, torch.overrides._get_current_function_mode_stack(), torch.overrides),
        ]
    )


def _take_one_out(mode: Any, stack: list[Any], module: Any) -> bool:
    """End a mode of which `module` keeps the stack; modes entered after it stay."""
    if not any(other is mode for other in stack):
        return False
    above = []
    while stack[-1] is not mode:
        above.append(module._pop_mode())
        stack.pop()
    mode.__exit__(None, None, None)
    for other in reversed(above):
        module._push_mode(other)
    return True
