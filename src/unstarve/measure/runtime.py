"""What compiled variants talk to: an observer that times units and keeps values, and a server that gives them back."""

from __future__ import annotations

import functools
import operator
import os
import resource
import sysconfig
import time
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from unstarve.measure import split, values
from unstarve.measure.pool import Pool
from unstarve.measure.split import ANY_ITERATION, Address, Split, Unsplittable

_LIBRARY_PATHS = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def resolve(callee: Any, arguments: tuple[Any, ...]) -> tuple[types.FunctionType, tuple[Any, ...]] | None:
    """The Python function that a call would run, with the arguments it would get; None if there is none to enter."""
    if isinstance(callee, str):  # a subscript: the callee is the name of the special method
        method = getattr(type(arguments[0]), callee, None)
        return (method, arguments) if isinstance(method, types.FunctionType) else None
    if isinstance(callee, functools.partial) and not callee.keywords:
        return resolve(callee.func, (*callee.args, *arguments))
    if isinstance(callee, types.FunctionType):
        return callee, arguments
    if isinstance(callee, types.MethodType):
        function = callee.__func__
        return (function, (callee.__self__, *arguments)) if isinstance(function, types.FunctionType) else None
    if isinstance(callee, torch.nn.Module):
        return _resolve_module(callee, arguments)
    method = getattr(type(callee), "__call__", None)
    if isinstance(callee, type) or not isinstance(method, types.FunctionType):
        return None
    return method, (callee, *arguments)


def _resolve_module(module: torch.nn.Module, arguments: tuple[Any, ...]) -> Any:
    has_hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    is_plain = type(module).__call__ is torch.nn.Module.__call__ and "forward" not in vars(module)
    forward = getattr(type(module), "forward", None)
    if has_hooks or not is_plain or not isinstance(forward, types.FunctionType):
        return None
    return forward, (module, *arguments)


def call_plainly(callee: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Make the call as the user's code would."""
    if isinstance(callee, str):
        return operator.getitem(*arguments)
    return callee(*arguments, **keywords)


def is_library(filename: str) -> bool:
    """Whether the file belongs to the standard library or an installed package, and not to the user."""
    if os.sep + os.path.join("unstarve", "demo") + os.sep in filename:
        return False
    return filename.startswith(("<frozen", *_LIBRARY_PATHS)) or "site-packages" in filename


# --- Observing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Cost:
    """What one unit cost on each timed sample."""

    name: str
    """Class of the transform, function called, or the statement."""
    text: str
    """The statement."""
    source: str
    """`file:line`."""
    callee: str | None = None
    """The function entered or called, as written."""
    is_item: bool = False
    """Whether it is one iteration of a loop over callables: a transform."""
    can_enter: bool = False
    """Whether the call runs a Python function of the user that could be looked into."""
    is_loop: bool = False
    """Whether it is a loop whose statements could be looked into."""
    why_whole: str | None = None
    """Why it was not looked into although that was asked for."""
    defined: str | None = None
    """`file:line` of the function called, where it is the user's."""
    takes_data: bool = True
    """Whether the call gets or gives data, rather than plain numbers."""
    wall_ns: list[int] = field(default_factory=list)
    """Wall time of each sample."""
    cpu_ns: list[int] = field(default_factory=list)
    """CPU time (process, all threads) of each sample."""
    read_bytes: int = 0
    """Bytes read by system calls."""
    read_calls: int = 0
    """Read system calls."""
    faults: int = 0
    """Page faults."""


@dataclass(slots=True)
class _Open:
    """A unit, iteration or call that has started and not ended."""

    number: int
    wall_ns: int
    cpu_ns: int
    overhead_ns: int
    reads: tuple[int, int]
    faults: int
    locals: dict[str, Any] | None = None
    parts: Split | None = None
    local_address: list[int] | None = None
    item: Any = None
    count: int = -1
    is_iteration: bool = False
    is_loop: bool = False


class Observer:
    """Runtime of `watched` variants: times units, and snapshots values at wanted cut points.

    Args:
        opened: addresses of units whose call or loop is to be looked into, beyond containers and nested datasets.
        wanted: cut points to fill, by address.
        limit: values to keep at each cut point.
    """

    def __init__(self, opened: Iterable[Address] = (), wanted: Iterable[Address] = (), limit: int = 0) -> None:
        self._opened = set(opened)
        self._wanted = set(wanted)
        self._limit = limit
        self._stack: list[_Open] = []
        self._overhead_ns = 0
        self._sample: dict[Address, list[int]] = {}
        self.costs: dict[Address, Cost] = {}
        self.pools: dict[Address, Pool] = {address: Pool() for address in self._wanted}
        self.chains: dict[Address, list[tuple[Split, Address]]] = {}
        self.refused: dict[Address, str] = {}
        self._io = _open_io()
        self._is_recording = True

    def close(self) -> None:
        """Give back the file descriptor of the read counters."""
        if self._io is not None:
            os.close(self._io)
            self._io = None

    def run(self, function: types.FunctionType, arguments: tuple[Any, ...], *, record: bool = True) -> Any:
        """The result of `function(*arguments)`, watched; costs are kept if `record`.

        Raises:
            Unsplittable: the function cannot be taken apart.
        """
        parts = split.split(function)
        self._stack.clear()
        self._sample.clear()
        self._is_recording = record
        result = self._run(parts, (), arguments, {})
        if record:
            self._close_sample()
        return result

    def _close_sample(self) -> None:
        for address, (wall, cpu, read_bytes, calls, faults) in self._sample.items():
            cost = self.costs[address]
            cost.wall_ns.append(wall)
            cost.cpu_ns.append(cpu)
            cost.read_bytes += read_bytes
            cost.read_calls += calls
            cost.faults += faults

    def _run(self, parts: Split, address: Address, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        opened = frozenset(unit.number for unit in parts.units if unit.is_loop and (*address, unit.number) in self._opened)
        variant = split.watched(parts, opened)(self)
        base = len(self._stack)
        self._stack.append(_Open(0, 0, 0, 0, (0, 0), 0, parts=parts))
        try:
            return variant(*arguments, **keywords)
        finally:
            del self._stack[base:]

    def _address(self) -> Address:
        return tuple(item.number for item in self._stack if item.parts is None)

    # Called by watched variants ------------------------------------------------------------------

    def enter(self, number: int, _names: tuple[str, ...], frame: dict[str, Any]) -> None:
        """A unit starts."""
        began = time.perf_counter_ns()
        reads, faults = self._reads(), _faults()
        item = self._push(began, number, reads, faults, frame)
        item.is_loop = self._unit()[1].is_loop

    def _push(self, began: int, number: int, reads: tuple[int, int], faults: int, frame: dict[str, Any] | None) -> _Open:
        item = _Open(number, 0, 0, 0, reads, faults, locals=frame)
        self._stack.append(item)
        item.cpu_ns = time.process_time_ns()
        now = time.perf_counter_ns()
        self._overhead_ns += now - began
        item.overhead_ns = self._overhead_ns
        item.wall_ns = now
        return item

    def leave(self, number: int, names: tuple[str, ...], frame: dict[str, Any]) -> None:
        """A unit has ended; `frame` holds the function's locals."""
        for name in names:
            if name in frame:
                values.force(frame[name])
        now, cpu = time.perf_counter_ns(), time.process_time_ns()
        while self._stack[-1].is_iteration or self._stack[-1].number != number:
            self._stack.pop()  # an iteration that a `continue` or `break` left open, or a unit in it
        address = self._address()
        item = self._stack[-1]
        self._account(address, item, now, cpu)
        self._describe_unit(address, item, names, frame)
        self._keep(address, frame)
        self._stack.pop()
        self._overhead_ns += time.perf_counter_ns() - now

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items of a loop, remembered one by one so that iterations can be named."""
        for item in items:
            self._stack[-1].item = item
            yield item

    def iteration(self, by_item: bool) -> None:
        """An iteration of a loop starts."""
        began = time.perf_counter_ns()
        while self._stack[-1].is_iteration or not self._stack[-1].is_loop:
            self._stack.pop()  # the iteration before, which a `continue` left open
        loop = self._stack[-1]
        loop.count += 1
        number = loop.count if by_item else ANY_ITERATION
        item = self._push(began, number, self._reads() if by_item else (0, 0), _faults() if by_item else 0, None)
        item.is_iteration = True
        item.item = loop.item

    def iterated(self, _number: int, names: tuple[str, ...], frame: dict[str, Any]) -> None:
        """An iteration of a loop has ended."""
        while not self._stack[-1].is_iteration:
            self._stack.pop()
        item = self._stack[-1]
        if item.number != ANY_ITERATION:
            for name in names:
                if name in frame:
                    values.force(frame[name])
            now, cpu = time.perf_counter_ns(), time.process_time_ns()
            address = self._address()
            self._account(address, item, now, cpu)
            if address not in self.costs:
                self.costs[address] = self._describe_item(address, item)
            self._keep(address, frame)
            self._overhead_ns += time.perf_counter_ns() - now
        self._stack.pop()

    def call(self, callee: Any, *arguments: Any, **keywords: Any) -> Any:
        """A unit's call: entered if it leads to a container, a nested dataset, or where the observer was sent."""
        began = time.perf_counter_ns()
        address = self._address()
        found = resolve(callee, arguments) if not keywords or not isinstance(callee, str) else None
        inside = self._enterable(address, found, callee) if found is not None else None
        self._stack[-1].item = (callee, found, inside, arguments)
        self._overhead_ns += time.perf_counter_ns() - began
        if inside is None or found is None:
            return call_plainly(callee, arguments, keywords)
        return self._run(inside, address, found[1], keywords)

    # --------------------------------------------------------------------------------------------

    def _enterable(self, address: Address, found: tuple[types.FunctionType, tuple[Any, ...]], callee: Any) -> Split | None:
        function, arguments = found
        is_asked = address in self._opened
        is_nested = isinstance(callee, str) and isinstance(arguments[0], torch.utils.data.Dataset)
        try:
            parts = split.split(function)
        except Unsplittable as error:
            if is_asked:
                self.refused[address] = str(error)
            return None
        is_container = any(split.is_callable_loop(node) for node in parts.node.body)
        return parts if is_asked or is_nested or is_container else None

    def _account(self, address: Address, item: _Open, now: int, cpu: int) -> None:
        overhead = self._overhead_ns - item.overhead_ns
        reads, faults = self._reads(), _faults()
        figures = (
            max(0, now - item.wall_ns - overhead),
            max(0, cpu - item.cpu_ns - overhead),
            reads[0] - item.reads[0],
            reads[1] - item.reads[1],
            faults - item.faults,
        )
        total = self._sample.setdefault(address, [0, 0, 0, 0, 0])
        for position, figure in enumerate(figures):
            total[position] += figure

    def _describe_unit(self, address: Address, item: _Open, names: tuple[str, ...], frame: dict[str, Any]) -> None:
        if address in self.costs:
            return
        parts, unit = self._unit()
        cost = Cost(
            name=unit.callee or unit.text,
            text=unit.text,
            source=f"{parts.filename}:{unit.line}",
            callee=unit.callee,
            is_loop=unit.is_loop,
        )
        if isinstance(item.item, tuple) and len(item.item) == 4:
            self._describe_call(cost, item.item, [frame.get(name) for name in names])
        cost.why_whole = self.refused.get(address)
        self.costs[address] = cost

    def _describe_call(self, cost: Cost, call: tuple[Any, Any, Any, Any], results: list[Any]) -> None:
        callee, found, inside, arguments = call
        if isinstance(callee, torch.nn.Module):
            cost.name = type(callee).__name__
        cost.takes_data = any(_is_data(value) for value in (*arguments, *results))
        if found is None:
            return
        code = found[0].__code__
        if not is_library(code.co_filename):
            cost.defined = f"{code.co_filename}:{code.co_firstlineno}"
            cost.can_enter = inside is None

    def _describe_item(self, address: Address, item: _Open) -> Cost:
        parts, unit = self._unit()
        target = item.item
        found = resolve(target, (None,))
        cost = Cost(name=_item_name(target), text=unit.text, source=f"{parts.filename}:{unit.line}", is_item=True)
        if found is not None and not is_library(found[0].__code__.co_filename):
            cost.defined = f"{found[0].__code__.co_filename}:{found[0].__code__.co_firstlineno}"
        return cost

    def _unit(self) -> tuple[Split, split.Unit]:
        parts = self._frame_parts()
        return parts, split.unit_at(parts, self._local_address())[0]

    def _frame_parts(self) -> Split:
        return next(item.parts for item in reversed(self._stack) if item.parts is not None)

    def _local_address(self) -> Address:
        local: list[int] = []
        for item in reversed(self._stack):
            if item.parts is not None:
                break
            local.insert(0, item.number)
        return tuple(local)

    # Filling pools -------------------------------------------------------------------------------

    def _keep(self, address: Address, frame: dict[str, Any]) -> None:
        if address not in self._wanted or address in self.refused or len(self.pools[address]) >= self._limit:
            return
        try:
            chain, frames = self._frames(frame)
            if self.chains.setdefault(address, chain) != chain:
                raise values.Uncopyable("it is reached through different functions for different samples")
            shared = self._shared(frames)
            known = {id(item) for item in shared}
            marked = [
                {name: values.Shared(item) if id(item) in known else item for name, item in level.items()}
                for level in frames
            ]
            self.pools[address].add(values.snapshot(marked, shared))
        except (values.Uncopyable, Unsplittable) as error:
            self.refused[address] = str(error)

    def _frames(self, innermost: dict[str, Any]) -> tuple[list[tuple[Split, Address]], list[dict[str, Any]]]:
        """For each function on the way to here, its part of the address and the locals that its rest will read."""
        chain: list[tuple[Split, Address]] = []
        frames: list[dict[str, Any]] = []
        rest = self._address()
        levels = self._levels()
        for position, (parts, local, known) in enumerate(levels):
            visible = innermost if position == len(levels) - 1 else known
            names = split.live_after(parts, rest)
            frames.append({name: visible[name] for name in names if name in visible})
            chain.append((parts, rest))
            rest = rest[len(local) :]
        return chain, frames

    def _levels(self) -> list[tuple[Split, list[int], dict[str, Any]]]:
        levels: list[tuple[Split, list[int], dict[str, Any]]] = []
        for item in self._stack:
            if item.parts is not None:
                levels.append((item.parts, [], {}))
            else:
                parts, local, known = levels[-1]
                levels[-1] = (parts, [*local, item.number], item.locals if item.locals is not None else known)
        return levels

    def _shared(self, frames: list[dict[str, Any]]) -> tuple[Any, ...]:
        owners = [frame["self"] for frame in frames if "self" in frame]
        owners += [item.locals["self"] for item in self._stack if item.locals and "self" in item.locals]
        inner = [value for owner in owners for value in getattr(owner, "__dict__", {}).values()]
        nested = [item for value in inner if isinstance(value, (list, tuple)) and len(value) < 256 for item in value]
        callables = [value for value in nested if callable(value)]
        return tuple(item for item in (*owners, *inner, *callables) if not isinstance(item, _PLAIN))

    # Counters ------------------------------------------------------------------------------------

    def _reads(self) -> tuple[int, int]:
        if self._io is None:
            return 0, 0
        fields = os.pread(self._io, 256, 0).split()
        return int(fields[1]), int(fields[5])


_PLAIN = (bool, int, float, str, bytes, type(None))


def _open_io() -> int | None:
    try:
        return os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not Linux, or not allowed
        return None


def _faults() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def _item_name(item: Any) -> str:
    if isinstance(item, functools.partial):
        return _item_name(item.func)
    if isinstance(item, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return item.__name__
    return type(item).__name__


def _is_data(value: Any) -> bool:
    return value is not None and not isinstance(value, (bool, int, float, types.ModuleType, type))


# --- Serving ----------------------------------------------------------------------------------------------------------


class _Unset:
    """Stands for a local that was not set when the snapshot was taken."""


UNSET = _Unset()


class Server:
    """Runtime of `resumed` and `stubbed` variants: hands out the locals of a served snapshot, level by level."""

    def __init__(self, pool: Pool, chain: list[tuple[Split, Address]], *, resume: bool) -> None:
        make = split.resumed if resume else split.stubbed
        self.pool = pool
        self._functions = [parts.function for parts, _ in chain]
        self._variants: list[Callable[..., Any]] = []
        for parts, address in chain:
            factory, _used = make(parts, address)
            self._variants.append(factory(self))
        self._is_resume = resume
        self._level = 0
        self._frames: list[dict[str, Any]] = []

    def run(self, arguments: tuple[Any, ...]) -> Any:
        """The outermost function's result, from the cut on or with the stage stubbed."""
        self._level = 0
        self._frames = []
        if self._is_resume:
            self._take()
        return self._variants[0](*arguments)

    def _take(self) -> None:
        self._frames = self.pool.serve()

    def load(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """The snapshot's values of these locals of the current function."""
        if not self._is_resume:
            self._take()
        frame = self._frames[self._level]
        found = [frame.get(name, UNSET) for name in names]
        return tuple([item.target if isinstance(item, values.Shared) else item for item in found])

    def resume(self) -> Any:
        """The result of the call in which the cut lies, from the cut on."""
        self._level += 1
        try:
            variant = self._variants[self._level]
            code = variant.__code__
            return variant(*[None] * code.co_argcount, **dict.fromkeys(_keyword_only(code)))
        finally:
            self._level -= 1

    def descend(self, callee: Any, *arguments: Any, **keywords: Any) -> Any:
        """The result of the call in which the stubbed stage lies."""
        found = resolve(callee, arguments)
        if found is None or found[0] is not self._functions[self._level + 1]:
            return call_plainly(callee, arguments, keywords)
        self._level += 1
        try:
            return self._variants[self._level](*found[1], **keywords)
        finally:
            self._level -= 1

    def sequence(self, items: Iterable[Any]) -> list[Any]:
        """The callables of a loop, so that the rest can be sliced."""
        return list(items)

    def enumerate(self, items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """The callables of a loop with their numbers."""
        return enumerate(items)


def _keyword_only(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
