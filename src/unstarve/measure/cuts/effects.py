"""What a stage changes, and what the rest of a sample does with what comes from it: whether it can be served alone."""

from __future__ import annotations

import inspect
import itertools
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from unstarve.measure.cuts import keeping, split, values, variants
from unstarve.measure.cuts.resolving import attributes_of, is_library, resolve_special
from unstarve.measure.cuts.split import Address, Split, Unsplittable
from unstarve.measure.cuts.tree import RUNTIME


@dataclass(slots=True)
class Level:
    """One function on the way to a cut point."""

    parts: Split
    """The function."""
    address: Address
    """Where the cut lies, seen from this function."""
    served: set[str] = field(default_factory=set, compare=False)
    """Locals that a stub must replace: what the stage assigned or changed in place, and what is entangled with it."""
    why_not_alone: str | None = field(default=None, compare=False)
    """Why the stage must not be served without what comes before it."""
    left_in: str | None = field(default=None, compare=False)
    """The same, as most samples show that were kept."""
    sets: set[str] = field(default_factory=set, compare=False)
    """Attributes of the function's owner that the rest of it sets to what comes from the stage."""


@dataclass(slots=True)
class Marks:
    """What a stage found when it started, so that its changes show when it has ended."""

    prints: list[dict[str, Any]]
    """For each function on the way, fingerprints of the locals that will be read later."""


@dataclass(slots=True)
class Kept:
    """What there was when a value was kept, so that what the rest of the sample leaves behind shows at its end."""

    written_bytes: int
    """What the thread had written."""
    states: list[tuple[Level, Any, dict[str, Any]]]
    """The methods on the way, with their owners and the attributes of these."""
    content_bytes: int
    """Size of what came from the stage."""


_LAZY_CALLS = frozenset({"draft", "thumbnail", "verify"})
"""Methods of a picture that mean something only before it is decoded."""


def owner_of(function: types.FunctionType, arguments: tuple[Any, ...]) -> Any:
    """The object that `function` is a method of, in a call with these arguments."""
    if not arguments or not function.__code__.co_argcount:
        return None
    mro = type(arguments[0]).__mro__
    return arguments[0] if any(_is_behind(vars(kind).get(function.__name__), function) for kind in mro) else None


def _is_behind(method: Any, function: types.FunctionType) -> bool:
    """Whether the function is what a method is made of, below decorators that say what they wrap."""
    try:
        return method is not None and inspect.unwrap(getattr(method, "__func__", method)) is function
    except ValueError:  # it wraps itself
        return False


def state_of(owner: Any) -> dict[str, Any]:
    """The attributes of `owner`, so that setting one or changing it in place shows later."""
    return {name: _trace(value) for name, value in attributes_of(owner).items()}


def _trace(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return (id(value), len(value))
    size = _nbytes(value)
    if isinstance(value, torch.Tensor) or (size is not None and size > SMALL_BYTES):
        return (id(value), values.versions(values.tensors(value)))
    if type(value).__module__ == "numpy" and size is not None:
        return (id(value), values.fingerprint(value))
    return value if isinstance(value, (bool, int, float, str)) else id(value)


def _nbytes(value: Any) -> int | None:
    """Size of an array; proxies of remote things answer to any name, or raise whatever they like."""
    try:
        size = getattr(value, "nbytes", None)
    except Exception:
        return None
    return size if isinstance(size, int) else None


SMALL_BYTES = 2**22
"""Arrays up to this size are compared by checksum when pools are filled."""


def attributes_read(parts: Split, address: Address, owner: type) -> frozenset[str]:
    """Attributes that the rest of the function reads, directly or in methods of the owner that it names."""
    read = set(variants.attributes_after(parts, address))
    waiting = list(read)
    while waiting:
        method = getattr(owner, waiting.pop(), None)
        method = method.fget if isinstance(method, property) else method
        names = set(method.__code__.co_names) if isinstance(method, types.FunctionType) else set()
        waiting += names - read
        read |= names
    return frozenset(read)


def why_not_alone(level: Level, frame: dict[str, Any], owner: Any, known: set[int]) -> str | None:
    """The reason if what comes from the stage is put into an object of the program's by the rest of the function: a
    cache of the user's would keep the values of another sample under the key of this one."""
    parts = level.parts
    code = parts.function.__code__
    for name, attribute, item in sorted(keeping.stores_after(parts, level.address, from_stage(level)), key=str):
        if attribute is not None:
            holder = attributes_of(owner).get(attribute) if name in code.co_varnames[:1] else None
            is_program = type(holder) in (list, dict) and (item not in frame or _is_among(frame[item], holder))
        elif name in frame:
            is_program = id(frame[name]) in known
        else:
            is_program = name not in {*code.co_varnames, *code.co_cellvars} and not name.startswith(RUNTIME)
        if is_program:
            return keeps(name if attribute is None else f"{name}.{attribute}")
    # nobody looks at the attributes of a first argument that is not the owner
    if owner is None and keeping.sets_after(parts, level.address, from_stage(level)):
        return next((keeps(name) for name in code.co_varnames[:1] if id(frame.get(name)) in known), None)
    return _kept_by_methods(owner, keeping.hands_after(parts, level.address, from_stage(level)), set())


def _kept_by_methods(owner: Any, hands: Iterable[keeping.Hand], seen: set[keeping.Hand]) -> str | None:
    """The reason if one of the owner's methods puts what it is handed into a cache, other than lists and dictionaries: these
    show by growing."""
    for method, places in sorted(set(hands) - seen, key=str):
        seen.add((method, places))
        function, _ = resolve_special(method, owner, ()) or (None, ())
        if function is None or is_library(function.__code__.co_filename):
            continue
        try:
            parts = split.split(function)
        except Unsplittable:
            continue
        parameters = function.__code__.co_varnames[1 : function.__code__.co_argcount]
        names = frozenset(name for number, name in enumerate(parameters) if not places.isdisjoint((number, name)))
        for name, attribute in sorted(keeping.stores_within(parts, names), key=str):
            holder = attributes_of(owner).get(attribute or "")
            if type(holder) not in (list, dict):
                return keeps(name if attribute is None else f"{name}.{attribute}")
        found = _kept_by_methods(owner, keeping.hands_within(parts, names), seen)
        if found is not None:
            return found
    return None


def _is_among(value: Any, holder: Any) -> bool:
    """Whether the list or dictionary holds this very value, and no copy of it."""
    return any(value is item for item in (holder.values() if isinstance(holder, dict) else holder))


def from_stage(level: Level) -> frozenset[str]:
    """Locals that hold what comes from the stage."""
    return frozenset(level.served).union(variants.unit_at(level.parts, level.address)[0].outputs)


def keeps(what: str) -> str:
    return f"what comes from it is kept in {what}, where values of another sample must not end up"


def left_in(kept: Kept, written_bytes: int) -> str | None:
    """The reason if the sample has put data into the owner of a function, or into a file, since its value was kept."""
    for level, owner, state in kept.states:
        now = attributes_of(owner)
        if _has_grown(state, now):
            return keeps(type(owner).__name__)
        for name in sorted(level.sets & now.keys()):
            if state.get(name) != _trace(now[name]) and values.holds_data(now[name]):
                return keeps(f"{type(owner).__name__}.{name}")
    is_file = is_as_large(written_bytes - kept.written_bytes, kept.content_bytes)
    return keeps("a file") if is_file else None


def is_as_large(written_bytes: int, content_bytes: int) -> bool:
    """Whether so much was written that it may be this content, compressed; lines that are logged, or what is asked of a
    server, are less."""
    return written_bytes > max(PRINTED_BYTES, min(content_bytes // 2, SMALL_FILE_BYTES))


def _has_grown(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a list or dictionary among the attributes holds more data than before; numbers, names and handles do not
    count, which are there to count samples or to open a file once."""
    for name, value in now.items():
        trace = before.get(name)
        if isinstance(value, (list, dict)) and isinstance(trace, tuple) and trace[0] == id(value):
            items = value.values() if isinstance(value, dict) else value
            if any(map(values.holds_data, itertools.islice(reversed(items), max(0, len(value) - trace[1])))):
                return True
    return False


PRINTED_BYTES = 128
"""So much of what is written may be a line that is printed; the smallest array in a file is more."""


SMALL_FILE_BYTES = 4096
"""A file with a large value in it, such as a picture, has more."""


def refuse_undecoded(frames: list[tuple[Level, dict[str, Any]]]) -> None:
    """Refuse to copy a picture that its function goes on to tell how to be decoded: copying it decodes it."""
    for level, frame in frames:
        is_unloaded = any(values.is_unloaded(value) for value in frame.values())
        if is_unloaded and not _LAZY_CALLS.isdisjoint(variants.attributes_after(level.parts, level.address)):
            raise values.Uncopyable("a picture there is decoded later, and copying it would change what it does")


def print_of(value: Any, known: set[int]) -> Any:
    """What changes with the value; the pixels of a picture that is not decoded yet are not looked at."""
    if id(value) in known:
        return id(value)
    if values.is_unloaded(value):
        return id(value), value.mode, value.size
    return id(value), values.fingerprint(value)


def changed_by(frames: list[tuple[Level, dict[str, Any]]], marks: Marks, known: set[int]) -> list[set[str]]:
    """For each function, the locals that are other values than before, or that were changed in place."""
    pairs = zip(frames, marks.prints, strict=True)
    return [
        {name for name, value in frame.items() if name not in before or before[name] != print_of(value, known)}
        for (_, frame), before in pairs
    ]


def entangled_with(
    frames: list[tuple[Level, dict[str, Any]]], changed: list[set[str]], known: set[int]
) -> list[set[str]]:
    """`changed`, and every local that shares memory with one of them, directly or through others."""
    memory = {
        (number, name): values.memory_of(value)
        for number, (_, frame) in enumerate(frames)
        for name, value in frame.items()
        if id(value) not in known
    }
    found = {(number, name) for number, names in enumerate(changed) for name in names}
    while True:
        reached = set().union(*(memory.get(key, set()) for key in found))
        more = {key for key, pieces in memory.items() if key not in found and not pieces.isdisjoint(reached)}
        if not more:
            return [{name for level, name in found if level == number} for number in range(len(frames))]
        found |= more


def marked(frame: dict[str, Any], known: set[int]) -> dict[str, Any]:
    """The frame with objects of the program, and methods bound to them, marked as such."""
    return {name: values.Shared(item) if _is_known(item, known) else item for name, item in frame.items()}


def _is_known(item: Any, known: set[int]) -> bool:
    if id(item) in known:
        return True
    return isinstance(item, types.MethodType) and id(item.__self__) in known


def shared_of(owners: Iterable[Any]) -> tuple[Any, ...]:
    """The owners of functions, and what hangs on them: objects of the program that a snapshot keeps by reference."""
    owners = list(owners)
    inner = [value for owner in owners for value in attributes_of(owner).values()]
    lists = [value for value in inner if isinstance(value, (list, tuple, dict)) and len(value) < 256]
    nested = [item for value in lists for item in (value.values() if isinstance(value, dict) else value)]
    callables = [value for value in nested if callable(value)]
    return tuple([item for item in (*owners, *inner, *callables) if not isinstance(item, _PLAIN)])


_PLAIN = (bool, int, float, str, bytes, type(None))


def why_refused(error: Exception) -> str:
    """Why nothing is kept at a cut point, after what looking at its values raised."""
    if isinstance(error, (values.Uncopyable, Unsplittable)):
        return str(error)
    return f"its values cannot be looked at ({type(error).__name__}: {error})"
