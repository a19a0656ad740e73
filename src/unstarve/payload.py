"""What a batch carries against what the loop needs of it: facts about its fields, and what to send instead.

`measure.payload` looks at live batches and makes the facts. What follows from them is decided here, without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

LEAST_BYTES = 64 * 2**10
"""Fields with fewer bytes a step are left alone: a copy of that size takes about as long as starting it."""

LEAST_FRACTION = 0.01
"""Fields with a smaller share of the batch are left alone."""

PADDED_FRACTION = 0.2
"""Padding above this share of a field is a finding."""

SPARSE_FRACTION = 0.05
"""A smaller share of non-zero values makes a field sparse."""

INDEX_BYTES = 4
"""Of the position that goes with each value of a sparse field."""

DRAGGED_TIMES = 2
"""A view that holds more than this many times its own bytes drags its storage along."""

SMALL_BYTES = 4 * 2**10
MOST_SMALL = 64
"""More tensors than this, of a smaller mean size than that, cost more to hand over than their bytes do."""

_ITEM_BYTES = {
    "float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4, "float16": 2, "bfloat16": 2,
    "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip

_NARROWER = (("uint8", 0, 255), ("int16", -(2**14), 2**14), ("int32", -(2**30), 2**30))
"""Integer types with the values that are trusted to them. The signed ones keep half of their range in reserve, since a
later batch may hold larger numbers; bytes do not, since what fits them is mostly made of them."""

_EXACT_IN_FLOAT32 = 2.0**24
"""Numbers beyond it, such as timestamps, lose their fraction in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A leaf of the batch, as it was seen in the batches that were looked at."""

    path: str
    """Expression that leads to it, such as `batch[0]` or `batch['mask']`."""
    kind: str
    """`tensor`, `array` or `other`."""
    dtype: str
    """Type of its values such as `float32`; for other leaves the class."""
    shape: tuple[int, ...] = ()
    """Shape in the first batch that had it; empty for other leaves."""
    bytes: int
    """Mean size of its values in one batch, in bytes."""
    storage_bytes: int
    """Mean size of the memory behind it in bytes, its share where several leaves are views of one piece."""
    is_pinned: bool = False
    """Whether it lies in page-locked memory."""
    seen_batches: int = 1
    """Batches that had it."""
    looked_batches: int = 1
    """Batches that were looked at."""
    looked_values: int = 0
    """Values behind the facts below, `min`, `max` and `is_constant` excepted, which rest on all of them."""
    min: float | None = None
    """Smallest value; None where it was not looked at, or is not finite."""
    max: float | None = None
    """Largest value; None where it was not looked at, or is not finite."""
    is_integral: bool = False
    """Whether all values are whole numbers, whatever their type."""
    is_scaled_bytes: bool = False
    """Whether all values are k / 255 for a whole k from 0 to 255, to within 1e-4 of k."""
    distinct: int | None = None
    """Number of distinct values; None where there are more than 256."""
    is_constant: bool = False
    """Whether all values of all batches are the same."""
    nonzero_fraction: float | None = None
    """Share of values that are not zero."""
    row_is_one_hot: bool = False
    """Whether each row of the last dimension holds a single one and otherwise zeros."""
    padding_fraction: float = 0.0
    """Mean share, along the axis where it is largest, of the run of one value with which the samples end."""
    duplicate_of: str | None = None
    """`path` of an earlier leaf that had the same values in every batch."""
    moved_by_step: bool | None = None
    """Whether the step was seen to move it to a device; None where nothing was."""
    used_on_host: bool = False
    """Whether the step was seen to use it on the host, be it that it moves it as well."""
    read_by_step: bool | None = None
    """Whether an operation of the loop body read it; None where that is unknown."""
    rounded_to: str | None = None
    """Narrower floating type to which the step was seen to round the values, always the same, before it read them; None
    where it read them as they are, or that is unknown."""

    @property
    def bytes_per_step(self) -> int:
        """Bytes of values that an average batch carries of it."""
        return self.bytes * self.seen_batches // self.looked_batches

    @property
    def storage_bytes_per_step(self) -> int:
        """Bytes of memory that an average batch holds for it."""
        return self.storage_bytes * self.seen_batches // self.looked_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a batch carries without need."""

    id: str
    """Stable name of the kind: `unread`, `constant`, `duplicate`, `class-ids`, `mask`, `uint8`, `narrow-int`, `sparse`,
    `float32`, `half`, `padding`, `view` or `small-tensors`."""
    path: str
    """`Field.path`; for `small-tensors` that of the first of them."""
    advice: str
    """What to do, and what to make sure of before."""
    patch: str | None = None
    """The change as code, where it fits into a line or two."""
    bytes_before: int
    """Bytes a step that the finding is about."""
    bytes_after: int
    """Bytes a step that are left when it is mended alone; savings of two findings on one field do not add up."""


Rule = Callable[[Field], "Finding | None"]


def findings(fields: Iterable[Field], *, batch_size: int | None) -> tuple[Finding, ...]:
    """What the batch carries without need, what saves most first.

    A field that need not be carried at all gets that finding and no other. Otherwise it gets at most one finding on its
    encoding, the one that saves most, and may have padding or drag a storage besides.

    Args:
        fields: the leaves of the batch.
        batch_size: samples of a batch, where known.
    """
    fields = tuple(fields)
    total = sum(field.bytes_per_step for field in fields)
    found = [_dragged_storage(field) for field in fields if _matters(field.storage_bytes_per_step, total)]
    for field in fields:
        if _matters(field.bytes_per_step, total):
            found += _findings_of(field)
    found.append(_small_tensors(fields, batch_size))
    return tuple(sorted(filter(None, found), key=lambda finding: finding.bytes_after - finding.bytes_before))


def _matters(size_bytes: int, total_bytes: int) -> bool:
    return size_bytes >= LEAST_BYTES and size_bytes >= LEAST_FRACTION * total_bytes


def _findings_of(field: Field) -> list[Finding | None]:
    needless = next(filter(None, (rule(field) for rule in _NEEDLESS)), None)
    if needless is not None:
        return [needless]
    encoded = [finding for rule in _ENCODINGS if (finding := rule(field)) is not None]
    return [min(encoded, key=lambda finding: finding.bytes_after, default=None), _padding(field)]


def _finding(field: Field, id: str, bytes_after: float, advice: str, patch: str | None = None) -> Finding:
    return Finding(
        id=id,
        path=field.path,
        advice=advice,
        patch=patch,
        bytes_before=field.bytes_per_step,
        bytes_after=math.ceil(bytes_after),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A field sent as something smaller, from which the loop's side can make the same values again."""

    path: str
    """`Field.path`."""
    how: str
    """`cast` to another type, `scaled` from k / 255 to k, `ids` instead of one-hot rows, `bits` for a mask of bytes, `once`
    for one value that stands for all, `rounded` to a type to which the step rounds it anyway, or `left out`: then its first
    value stands for those that no step was seen to read."""
    dtype: str
    """Type of the field's values."""
    small: str
    """Type of what is sent."""
    classes: int = 0
    """Length of one-hot rows, or of those whose bits are packed."""
    is_moved: bool = True
    """Whether the step needs it on the device alone, if there is one."""
    saved_bytes: int
    """Bytes a step that need not be sent."""

    def __str__(self) -> str:
        if self.how == "once":
            return f"`{self.path}` made in the loop"
        if self.how == "left out":
            return f"no `{self.path}`"
        what = {"ids": f"{self.small} ids", "bits": "packed bits"}.get(self.how, self.small)
        return f"`{self.path}` as {what} instead of {self.dtype}"


def changes(fields: Iterable[Field], *, batch_size: int | None) -> tuple[Change, ...]:
    """For the tensors among the findings that can be undone, or are not missed, how to send less."""
    by_path = {field.path: field for field in fields}
    found = []
    for item in findings(by_path.values(), batch_size=batch_size):
        field = by_path[item.path]
        how = _how(item, field) if field.kind == "tensor" else None
        if how is not None:
            found.append(
                Change(
                    path=item.path, how=how[0], dtype=field.dtype, small=how[1], classes=how[2],
                    is_moved=field.moved_by_step is not False and not field.used_on_host,
                    saved_bytes=item.bytes_before - item.bytes_after,
                )
            )  # fmt: skip
    return tuple(found)


def _how(item: Finding, field: Field) -> tuple[str, str, int] | None:
    if item.id == "unread":
        return "left out", field.dtype, 0
    if item.id == "constant":
        return "once", field.dtype, 0
    if item.id == "class-ids":
        return "ids", _smallest_type(0, field.shape[-1] - 1) or "int64", field.shape[-1]
    if item.id == "mask":
        return ("cast", "bool", 0) if _ITEM_BYTES[field.dtype] > 1 else ("bits", "uint8", field.shape[-1])
    if item.id in ("half", "float32") and (dtype := _rounded_to(field)) is not None:
        return "rounded", dtype, 0
    if item.id == "uint8":
        return "cast" if field.is_integral else "scaled", "uint8", 0
    if item.id == "narrow-int" and field.min is not None and field.max is not None:
        return "cast", _smallest_type(field.min, field.max) or field.dtype, 0
    return None


# --- Fields that need not be carried ----------------------------------------------------------------------------------


def _unread(field: Field) -> Finding | None:
    if field.read_by_step is not False:
        return None
    advice = (
        f"No torch operation of the watched steps read `{field.path}`: leave it out of the batch, unless other code "
        "(an extension, another thread, a step not watched) uses it."
    )
    return _finding(field, "unread", 0, advice)


def _constant(field: Field) -> Finding | None:
    if not field.is_constant or field.seen_batches < 2:
        return None
    advice = (
        f"`{field.path}` is {field.min:g} throughout, in all {field.seen_batches} batches looked at: make it on the "
        "device, once, if it is always so."
    )
    return _finding(field, "constant", 0, advice)


def _duplicate(field: Field) -> Finding | None:
    if field.duplicate_of is None:
        return None
    advice = f"`{field.path}` holds the same values as `{field.duplicate_of}`: send one of them, and use it for both."
    is_item = field.path.endswith(("']", '"]'))  # of a dictionary; what has a number may lie in a tuple
    patch = f"{field.path} = {field.duplicate_of}  # in the loop, on the device" if is_item else None
    return _finding(field, "duplicate", 0, advice, patch)


_NEEDLESS: tuple[Rule, ...] = (_unread, _constant, _duplicate)


# --- Encodings --------------------------------------------------------------------------------------------------------


def _cast(field: Field, dtype: str) -> str:
    return f".to(torch.{dtype})" if field.kind == "tensor" else f'.astype("{dtype}")'


def _as_tensor(field: Field) -> str:
    return field.path if field.kind == "tensor" else f"torch.from_numpy({field.path})"


def _items(field: Field) -> float:
    return field.bytes_per_step / _ITEM_BYTES[field.dtype]


def _is_float(field: Field) -> bool:
    return field.dtype in ("float32", "float64")


def _lies_in(field: Field, low: float, high: float) -> bool:
    return field.min is not None and field.max is not None and low <= field.min and field.max <= high


def _is_binary(field: Field) -> bool:
    return field.distinct == 2 and field.is_integral and (field.min, field.max) == (0, 1)


def _looked(field: Field) -> str:
    return f"{field.looked_values:,} values looked at"


def _class_ids(field: Field) -> Finding | None:
    if not field.row_is_one_hot or not field.shape or field.dtype not in _ITEM_BYTES:
        return None
    classes = field.shape[-1]
    dtype = _smallest_type(0, classes - 1)
    rows = _items(field) / classes
    advice = (
        f"The rows of `{field.path}` are one-hot ({_looked(field)}): send the {classes} classes as {dtype} ids, and "
        "expand them on the device; most losses take ids as they are."
    )
    back = "" if field.dtype == "int64" else f".to(torch.{field.dtype})"
    patch = f"torch.nn.functional.one_hot({_as_tensor(field)}.long(), {classes}){back}  # in the loop, only if rows are needed"
    return _finding(field, "class-ids", rows * _ITEM_BYTES[dtype or "int64"], advice, patch)


def _mask(field: Field) -> Finding | None:
    if not _is_binary(field) or field.row_is_one_hot or field.dtype not in _ITEM_BYTES or field.dtype == "bool":
        return None
    if _ITEM_BYTES[field.dtype] == 1:
        advice = (
            f"`{field.path}` is a mask of bytes, 0 or 1 ({_looked(field)}): pack eight into one "
            "(`numpy.packbits`), and unpack on the device."
        )
        return _finding(field, "mask", _items(field) / 8, advice)
    advice = (
        f"`{field.path}` is a mask of {field.dtype}, 0 or 1 ({_looked(field)}): send it as bool, or as packed bits "
        "(`numpy.packbits`), and convert on the device."
    )
    return _finding(
        field, "mask", _items(field), advice, f"{field.path}{_cast(field, 'bool')}  # before the batch is sent"
    )


def _bytes(field: Field) -> Finding | None:
    if not _is_float(field):
        return None
    if field.is_integral and _lies_in(field, 0, 255):
        what, back = "whole numbers from 0 to 255", ""
    elif field.is_scaled_bytes and _lies_in(field, 0, 1):
        what, back = "bytes divided by 255", ".div_(255)"
    else:
        return None
    advice = (
        f"`{field.path}` is {field.dtype} but holds only {what} ({_looked(field)}): send the bytes as uint8, and convert "
        "on the device."
    )
    patch = (
        f"{_as_tensor(field)}.to(device, non_blocking=True).to(torch.{field.dtype}){back}  "
        "# in the loop; the dataset gives uint8"
    )
    return _finding(field, "uint8", _items(field), advice, patch)


def _narrow_int(field: Field) -> Finding | None:
    if field.dtype not in ("int64", "int32", "int16") or field.min is None or field.max is None:
        return None
    dtype = _smallest_type(field.min, field.max)
    if dtype is None or _ITEM_BYTES[dtype] >= _ITEM_BYTES[field.dtype]:
        return None
    advice = (
        f"`{field.path}` is {field.dtype} with values from {field.min:.0f} to {field.max:.0f}: send it as {dtype}, if no "
        "batch can hold values that do not fit, and widen on the device where an operation asks for it."
    )
    patch = f"{field.path}{_cast(field, dtype)}  # before the batch is sent"
    return _finding(field, "narrow-int", _items(field) * _ITEM_BYTES[dtype], advice, patch)


def _smallest_type(low: float, high: float) -> str | None:
    return next((name for name, least, most in _NARROWER if least <= low and high <= most), None)


def _sparse(field: Field) -> Finding | None:
    if field.nonzero_fraction is None or field.dtype not in _ITEM_BYTES:
        return None
    if field.nonzero_fraction >= SPARSE_FRACTION * (1 - field.padding_fraction):
        return None
    item_bytes = INDEX_BYTES + (0 if _is_binary(field) else _ITEM_BYTES[field.dtype])
    bytes_after = _items(field) * field.nonzero_fraction * item_bytes
    if bytes_after >= field.bytes_per_step / 2:
        return None
    advice = (
        f"{field.nonzero_fraction:.1%} of `{field.path}` is not zero ({_looked(field)}): send the positions and values "
        "of those, and scatter them on the device."
    )
    return _finding(field, "sparse", bytes_after, advice)


def _float32(field: Field) -> Finding | None:
    if field.dtype != "float64":
        return None
    if field.min is not None and not _lies_in(field, -_EXACT_IN_FLOAT32, _EXACT_IN_FLOAT32):
        return None
    advice = f"`{field.path}` is float64: make it float32 where it is made, unless the step computes in float64."
    patch = f"{field.path}{_cast(field, 'float32')}  # before the batch is sent"
    return _finding(field, "float32", field.bytes_per_step / 2, advice, patch)


def _rounded_to(field: Field) -> str | None:
    """The type that the step was seen to round the field to, if it is one that batches are sent in: floats of 8 bits are not."""
    return field.rounded_to if field.rounded_to in _ITEM_BYTES else None


def _rounded(field: Field) -> Finding | None:
    dtype = _rounded_to(field)
    if dtype is None or not _is_float(field):
        return None
    advice = (
        f"The step rounds `{field.path}` to {dtype} before it reads it, as far as was seen: round it before it is sent, and "
        "the step gets the same values."
    )
    size_bytes = _items(field) * _ITEM_BYTES[dtype]
    id = "half" if _ITEM_BYTES[dtype] == 2 else "float32"
    return _finding(field, id, size_bytes, advice, f"{field.path}{_cast(field, dtype)}  # before the batch is sent")


_ENCODINGS: tuple[Rule, ...] = (_class_ids, _mask, _bytes, _narrow_int, _sparse, _rounded, _float32)
"""Of two that save the same, the first is given."""


# --- Shape and memory -------------------------------------------------------------------------------------------------


def _padding(field: Field) -> Finding | None:
    if field.padding_fraction <= PADDED_FRACTION or _is_binary(field):
        return None
    advice = (
        f"Samples of `{field.path}` end in one value for {field.padding_fraction:.0%} of their length: if that is "
        "padding, pad each batch only to its longest sample, batch samples of similar length, or pack them end to end."
    )
    return _finding(field, "padding", field.bytes_per_step * (1 - field.padding_fraction), advice)


def _dragged_storage(field: Field) -> Finding | None:
    if field.kind != "tensor" or field.storage_bytes <= DRAGGED_TIMES * field.bytes:
        return None
    return Finding(
        id="view",
        path=field.path,
        advice=(
            f"`{field.path}` is a view of a storage {field.storage_bytes / max(1, field.bytes):.0f} times its size, which "
            "goes with it from the worker: clone the view before it is sent."
        ),
        patch=f"{field.path}.clone()  # in the worker",
        bytes_before=field.storage_bytes_per_step,
        bytes_after=field.bytes_per_step,
    )


def _small_tensors(fields: tuple[Field, ...], batch_size: int | None) -> Finding | None:
    """The smallest tensors, as many as have a small mean size."""
    tensors = sorted((field for field in fields if field.kind == "tensor"), key=lambda field: field.bytes)
    sums = accumulate(field.bytes for field in tensors)
    fitting = sum(size < SMALL_BYTES * number for number, size in enumerate(sums, 1))
    small = tensors[:fitting]
    number = sum(field.seen_batches / field.looked_batches for field in small)
    if number <= MOST_SMALL:
        return None
    each = f" ({number / batch_size:.1f} a sample)" if batch_size else ""
    size_bytes = sum(field.bytes_per_step for field in small)
    return Finding(
        id="small-tensors",
        path=next(field.path for field in fields if field.kind == "tensor" and field.bytes <= small[-1].bytes),
        advice=(
            f"A batch holds {number:.0f} small tensors{each} of {size_bytes / number:.0f} bytes on average: join them "
            "into one in the collate function, with their lengths beside it, and split it in the loop."
        ),
        bytes_before=size_bytes,
        bytes_after=size_bytes,
    )
