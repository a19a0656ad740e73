"""What watched variants talk to: it times their units, and keeps values at wanted cut points."""

from __future__ import annotations

import contextlib
import functools
import operator
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from unstarve import labels
from unstarve.measure.counters import PAGE_BYTES, ReadCount, RunDelay, WriteCount, cpu_ns, page_faults
from unstarve.measure.cuts import keeping, split, values, variants
from unstarve.measure.cuts.effects import (
    _LAZY_CALLS,
    Kept,
    Level,
    Marks,
    attributes_read,
    changed_by,
    entangled_with,
    from_stage,
    left_in,
    marked,
    owner_of,
    print_of,
    refuse_undecoded,
    shared_of,
    state_of,
    why_not_alone,
    why_refused,
)
from unstarve.measure.cuts.pool import Pool
from unstarve.measure.cuts.resolving import (
    attributes_of,
    bound_to,
    defined_at,
    held,
    is_library,
    item_name,
    resolve,
    step_of,
)
from unstarve.measure.cuts.split import ANY_ITERATION, FIRST_CHOICE, Address, Split, Unit, Unsplittable

_VARIES = "which of several callables runs there differs between samples"


LONG_LOOP = 100
"""Iterations of a loop of plain statements that are watched in one run of it; they stand for all."""


_UNKNOWN = object()
"""Stands for the result of a unit that did not come to its end."""


_IN_LOOP = 2
"""Items of the stack that stand before an iteration: its function and its loop."""


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
    label: str | None = None
    """The name that the user gave to the region around it."""
    is_item: bool = False
    """Whether it is one iteration of a loop over callables: a transform."""
    can_enter: bool = False
    """Whether the call runs a Python function of the user that could be looked into."""
    is_loop: bool = False
    """Whether it is a loop whose statements could be looked into."""
    is_source: bool = False
    """Whether it is what a loop of a generator draws from: earlier stages of the pipeline lie below it."""
    is_mixed: bool = False
    """Whether it is a loop over callables that come in another order for other samples."""
    why_whole: str | None = None
    """Why it was not looked into although that was asked for."""
    defined: str | None = None
    """`file:line` of the function called, where it is the user's."""
    takes_data: bool = True
    """Whether the call gets or gives data, rather than plain numbers."""
    wall_ns: list[int] = field(default_factory=list)
    """Wall time of each sample."""
    cpu_ns: list[int] = field(default_factory=list)
    """CPU time of each sample, as `counters.cpu_ns` tells it."""
    delay_ns: list[int] = field(default_factory=list)
    """How long each sample was ready to run but had no core."""
    read_bytes: int = 0
    """Bytes read by system calls."""
    read_calls: int = 0
    """Read system calls."""
    read_samples: int = 0
    """Timed samples that read at least a page: a module imported on first use is read once, data every time."""
    reading_samples: int = 0
    """Timed samples that read anything."""
    faults: int = 0
    """Page faults."""
    storage_bytes: int = 0
    """Bytes that came from storage."""

    def add(
        self,
        wall_ns: int,
        cpu_ns: int,
        read_bytes: int,
        read_calls: int,
        storage_bytes: int,
        faults: int,
        delay_ns: int,
    ) -> None:
        """Add the figures of one more sample."""
        self.wall_ns.append(wall_ns)
        self.cpu_ns.append(cpu_ns)
        self.delay_ns.append(delay_ns)
        self.read_bytes += read_bytes
        self.read_calls += read_calls
        self.read_samples += read_bytes >= PAGE_BYTES
        self.reading_samples += read_bytes > 0
        self.storage_bytes += storage_bytes
        self.faults += faults


@dataclass(slots=True)
class _Call:
    """What stands behind a unit's call."""

    callee: Any
    found: tuple[types.FunctionType, tuple[Any, ...]] | None
    is_entered: bool
    arguments: tuple[Any, ...]


@dataclass(slots=True)
class _Open:
    """A unit, iteration or function that has started and not ended."""

    number: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    overhead_ns: int = 0
    delay_ns: int = 0
    reads: tuple[int, int, int] = (0, 0, 0)
    faults: int = 0
    locals: dict[str, Any] = field(default_factory=dict)
    call: _Call | None = None
    count: int = -1
    item: Any = None
    used: set[int] | None = None
    marks: Marks | None = None
    parts: Split | None = None
    owner: Any = None
    state: dict[str, Any] | None = None
    before: dict[Address, list[int]] | None = None
    held: dict[int, int] | None = None
    """Of a function: the callables that its owner keeps in lists, once that was asked."""


@dataclass(slots=True)
class Known:
    """What one process has learnt about the code that it runs."""

    ways: set[types.CodeType] = field(default_factory=set)
    """Code of library functions that lead to the user's code or to transforms."""
    plain_loops: set[tuple[types.CodeType, int]] = field(default_factory=set)
    """Loops that look as if they ran over callables and do not, by function and number."""


class Observer:
    """Runtime of `watched` variants: times units, and snapshots values at wanted cut points.

    Args:
        opened: addresses of units whose call or loop is to be looked into, beyond containers and nested datasets.
        wanted: cut points to fill, by address.
        limit: values to keep at each cut point.
        known: what this process has learnt about code; it grows meanwhile.
        limit_bytes: after so many bytes no more are kept at a cut point.
    """

    getitem = staticmethod(operator.getitem)
    """How variants name a subscript's callee."""

    def __init__(
        self,
        opened: Iterable[Address] = (),
        wanted: Iterable[Address] = (),
        limit: int = 0,
        known: Known | None = None,
        limit_bytes: int = 1 << 62,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._known = known or Known()
        self._root: Any = None
        self._steps: dict[Address, list[Any]] = {}
        self._mixed: set[Address] = set()
        self._opened = set(opened)
        self._wanted = set(wanted)
        self._limit = limit
        self._stack: list[_Open] = []
        self._base = 0
        self._muted = -1
        """Base of the function in whose loop nothing more is watched; -1 while all is."""
        self._overhead_ns = 0
        self._sample: dict[Address, list[int]] = {}
        self._unsettled: dict[Address, int] = {}
        self.costs: dict[Address, Cost] = {}
        self.pools: dict[Address, Pool] = {address: Pool() for address in self._wanted}
        self.chains: dict[Address, list[Level]] = {}
        self.refused = {address: _VARIES for address in self._wanted if min(address) <= FIRST_CHOICE}
        self._delay = RunDelay()
        self._reads = ReadCount()
        self._writes = WriteCount()
        self._kept: dict[Address, Kept] = {}
        self._added: list[Address] = []
        """Where this sample has left values, in order."""
        self._left: dict[Address, list[str | None]] = {}
        """For each cut point and each sample kept there, why the stage must not be served alone, as far as that showed."""
        self._last: tuple[tuple[int, int, int], int, int] | None = None
        """The kernel's counts at the end of a unit, for the one that follows at once: asking costs microseconds each."""

    @property
    def overhead_ns(self) -> int:
        """Wall time that the observer itself has taken so far."""
        return self._overhead_ns

    def close(self) -> None:
        """Give back the file descriptors of the counters."""
        self._reads.close()
        self._writes.close()

    def run(
        self,
        function: types.FunctionType,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any] = MappingProxyType({}),
        *,
        record: bool = True,
    ) -> Any:
        """The result of `function(*arguments, **keywords)`, watched; costs are kept if `record`.

        Raises:
            Unsplittable: the function cannot be taken apart.
        """
        parts = split.split(function)
        self._root = arguments[0] if arguments else None
        self._stack.clear()
        self._sample.clear()
        self._kept.clear()
        self._added.clear()
        self._muted, self._last = -1, None
        try:
            result = self._prepared(parts, (), arguments)(*arguments, **keywords)
            self._leave_function(0)
            self._see_what_is_left()
        except BaseException:
            self._drop(0)
            raise
        finally:
            self._stack.clear()
            self._kept.clear()
        if record:
            self._close_sample()
        return result

    def _close_sample(self) -> None:
        for address in self._mixed & self.costs.keys():
            self.costs[address].is_mixed = True
        for address, figures in self._sample.items():
            self.costs[address].add(*figures)

    def _prepared(self, parts: Split, address: Address, arguments: tuple[Any, ...]) -> types.FunctionType:
        """The watched variant of a function that is about to be called; `_leave_function` must follow."""
        opened = [unit.number for unit in parts.units if unit.is_loop and (*address, unit.number) in self._opened]
        code = parts.function.__code__
        closed = (
            [number for number in parts.bodies if (code, number) in self._known.plain_loops]
            if self._known.plain_loops
            else []
        )
        variant = variants.watched(parts, frozenset(opened), frozenset(closed))(self)
        self._base = len(self._stack)
        entered = _Open(parts=parts)
        if self._wanted:
            entered.owner = owner_of(parts.function, arguments)
            entered.state = state_of(entered.owner)
        self._stack.append(entered)
        return variant

    def _leave_function(self, outer: int) -> None:
        self._unmute()
        self._close(1)  # what a `return` left open
        del self._stack[self._base :]
        self._base = outer

    def _close(self, height: int) -> None:
        """End what is still open above the function's first `height` items; no value is kept of it."""
        if len(self._stack) <= self._base + height:
            return
        now, cpu = time.perf_counter_ns(), cpu_ns()
        while len(self._stack) > self._base + height:
            item, address = self._stack[-1], self._address()
            if item.number != ANY_ITERATION:
                is_unit = (len(self._stack) - self._base) % 2 == 0  # units and iterations, or choices, take turns
                self._account(address, item, now, cpu)
                if address not in self.costs:
                    describe = self._describe_unit if is_unit else self._describe_item
                    self.costs[address] = describe(address, item, [_UNKNOWN])
            self._stack.pop()
        self._overhead_ns += time.perf_counter_ns() - now

    def _address(self) -> Address:
        return tuple([item.number for item in self._stack if item.parts is None])

    # Called by watched variants ------------------------------------------------------------------

    def enter(self, number: int, depth: int, frame: dict[str, Any]) -> None:
        """A unit starts; `frame` holds the function's locals, and `depth` is 1 inside a loop."""
        if self._muted == self._base:
            if depth:
                return
            self._unmute()
        self._close(1 + 2 * depth)  # what an exception or a `continue` left open
        self._push(time.perf_counter_ns(), number, frame, counts=True)

    def _push(self, began: int, number: int, frame: dict[str, Any], *, counts: bool) -> None:
        """Open a unit or iteration inside what is open."""
        item = _Open(number, locals=frame)
        self._stack.append(item)
        if self._wanted:
            self._mark(item)
        last, self._last = self._last, None
        if last is not None:
            item.reads, item.faults, item.delay_ns = last
        else:
            if counts:
                item.reads, item.faults = self._reads.read(), page_faults()
            item.delay_ns = self._delay.read_ns()
        item.cpu_ns = cpu_ns()
        item.wall_ns = time.perf_counter_ns()
        self._overhead_ns += item.wall_ns - began
        item.overhead_ns = self._overhead_ns

    def pinned(self, frame: dict[str, Any]) -> None:
        """Operands that a unit's call will get, and later ones, are evaluated; from here on it may change things."""
        if self._muted == self._base:
            return
        began = time.perf_counter_ns()
        self._stack[-1].locals = frame
        if self._wanted:
            self._mark(self._stack[-1])
        self._overhead_ns += time.perf_counter_ns() - began

    def leave(self, number: int, depth: int, names: tuple[str, ...], frame: dict[str, Any]) -> None:
        """A unit has ended, which assigned `names`."""
        if self._muted == self._base:
            if depth:
                return
            self._unmute()
        self._close(2 + 2 * depth)
        self._end(names, frame, self._describe_unit)

    def _end(self, names: tuple[str, ...], frame: dict[str, Any], describe: Callable[..., Cost]) -> None:
        self._force([frame[name] for name in names if name in frame])
        now, cpu = time.perf_counter_ns(), cpu_ns()
        address, item = self._address(), self._stack[-1]
        self._account(address, item, now, cpu)
        if address not in self.costs:
            self.costs[address] = describe(address, item, [frame.get(name) for name in names])
        if address in self._wanted:
            self._keep(address, item, frame)
        self._stack.pop()
        self._overhead_ns += time.perf_counter_ns() - now

    def _force(self, results: list[Any]) -> None:
        """Have lazy values do their work, unless the function goes on to tell a picture how to be decoded."""
        if any(values.is_unloaded(value) for value in results) and self._is_told_how():
            return
        for value in results:
            with contextlib.suppress(Exception):  # the user's own kinds of dictionary and list may answer anything
                values.force(value)

    def _is_told_how(self) -> bool:
        parts = self._stack[self._base].parts
        if parts is None:
            return True
        try:
            own = tuple(item.number for item in self._stack[self._base + 1 :])
            return not _LAZY_CALLS.isdisjoint(variants.attributes_after(parts, own))
        except Unsplittable:
            return True

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items of a loop, remembered one by one so that iterations can be named."""
        for item in items:
            loop, parts = self._stack[self._base + 1], self._stack[self._base].parts
            if loop.count < 0 and parts is not None and step_of(item) is None:
                self._known.plain_loops.add((parts.function.__code__, loop.number))
            loop.item = item
            yield item

    def iteration(self, by_item: bool, frame: dict[str, Any]) -> None:
        """An iteration of a loop starts."""
        loop = self._stack[self._base + 1]
        loop.count += 1
        if self._muted == self._base:
            return
        self._close(_IN_LOOP)
        began = time.perf_counter_ns()
        if loop.count == LONG_LOOP and step_of(loop.item) is None and not self._wanted:
            self._muted, self._last = self._base, None  # its clocks would cost far more than the loop does
            return
        if loop.count == 0:
            address = self._address()
            loop.before = {a: list(f) for a, f in self._sample.items() if a[: len(address)] == address}
        step = step_of(loop.item) if by_item else None
        number = ANY_ITERATION if step is None else self._position(loop, step)
        self._push(began, number, frame, counts=step is not None)
        self._stack[-1].item = step

    def _unmute(self) -> None:
        """Watch again after a long loop, whose iterations that were watched stand for those that were not."""
        if self._muted != self._base:
            return
        self._muted, loop = -1, self._stack[self._base + 1]
        address = self._address()
        factor = (loop.count + 1) / LONG_LOOP
        for inside, figures in self._sample.items():
            if len(inside) > len(address) and inside[: len(address)] == address:
                before = (loop.before or {}).get(inside, [0] * len(figures))
                figures[:] = [b + round((f - b) * factor) for b, f in zip(before, figures, strict=True)]

    def _position(self, loop: _Open, step: Any) -> int:
        """The number of one of the loop's callables: its place, or that which it had when it was met first."""
        address = self._address()
        known = self._steps.setdefault(address, [])
        if loop.count == 0 or loop.used is None:
            loop.used = set()
        used = loop.used
        place = loop.count if loop.count < len(known) and _is_alike(known[loop.count], step) else None
        if place is None:
            met = (number for number, other in enumerate(known) if _is_alike(other, step) and number not in used)
            place = next(met, len(known))
        if place == len(known):
            known.append(step)
        used.add(place)
        if place != loop.count:
            self._mixed.add(address)
        return place

    def iterated(self, names: tuple[str, ...], frame: dict[str, Any]) -> None:
        """An iteration of a loop has ended, which assigned `names`."""
        if self._muted == self._base:
            return
        self._close(1 + _IN_LOOP)
        if self._stack[-1].number == ANY_ITERATION:
            self._stack.pop()
        else:
            self._end(names, frame, self._describe_item)

    def bound(self, callee: Any, /, *arguments: Any, **keywords: Any) -> Callable[[], Any]:
        """A unit's call, for the variant to make: entered if it leads to a container, a nested dataset, a method of a
        library's dataset, or where the observer was sent."""
        if self._muted == self._base:
            return bound_to(callee, arguments, keywords)
        began = time.perf_counter_ns()
        chosen = self._chosen(callee, (*arguments, *keywords.values()))
        if chosen is None:
            return self._bound(began, callee, arguments, keywords)
        self._stack[-1].call = _Call(callee, None, True, arguments)
        self._overhead_ns += time.perf_counter_ns() - began
        return functools.partial(self._run_choice, *chosen, callee, arguments, keywords)

    def _run_choice(
        self, number: int, step: Any, callee: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        self._push(time.perf_counter_ns(), number, self._stack[-1].locals, counts=True)
        self._stack[-1].item = step
        result = self._bound(time.perf_counter_ns(), callee, arguments, keywords)()
        self._end((), {}, self._describe_item)
        return result

    def caught(self) -> None:
        """The user's code handles whatever was raised: what this sample has left in pools may lead there again."""
        self._drop(0)

    def _bound(
        self, began: int, callee: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Callable[[], Any]:
        address = self._address()
        found = resolve(callee, arguments)
        inside = self._enterable(address, found, callee) if found is not None else None
        self._stack[-1].call = _Call(callee, found, inside is not None, arguments)
        self._overhead_ns += time.perf_counter_ns() - began
        if inside is None or found is None:
            return bound_to(callee, arguments, keywords)
        return functools.partial(self._run_inside, inside, address, found[1], keywords)

    def _run_inside(self, inside: Split, address: Address, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        began, outer, added = time.perf_counter_ns(), self._base, len(self._added)
        variant = self._prepared(inside, address, arguments)
        self._overhead_ns += time.perf_counter_ns() - began
        try:
            return variant(*arguments, **keywords)
        except BaseException:
            self._drop(added)
            raise
        finally:
            self._leave_function(outer)

    def _chosen(self, callee: Any, arguments: Iterable[Any]) -> tuple[int, Any] | None:
        """The number of the callable that is called or handed on, if it is one of several that its owner keeps."""
        item, parts = self._stack[-1], self._stack[self._base].parts
        if parts is None or item.parts is not None or not parts.function.__code__.co_argcount:
            return None
        function = self._stack[self._base]
        if function.held is None:
            function.held = held(item.locals.get(parts.function.__code__.co_varnames[0]))
        kept = function.held
        if not kept:
            return None
        step = self._stack[self._base + _IN_LOOP].item if len(self._stack) > self._base + _IN_LOOP else None
        unit = self._unit()[1]
        for candidate in (callee, *arguments) if unit.outputs else (callee,):
            is_by_name = (unit.callee or "").endswith(item_name(candidate))
            if id(candidate) in kept and candidate is not step and not is_by_name:
                return FIRST_CHOICE - kept[id(candidate)], candidate
        return None

    # --------------------------------------------------------------------------------------------

    def _enterable(
        self, address: Address, found: tuple[types.FunctionType, tuple[Any, ...]], callee: Any
    ) -> Split | None:
        function, arguments = found
        is_asked = address in self._opened
        is_nested = callee is operator.getitem and isinstance(arguments[0], torch.utils.data.Dataset)
        try:
            parts = split.split(function)
        except Unsplittable as error:
            if is_asked:
                self.refused[address] = str(error)
            return None
        is_own = bool(arguments) and arguments[0] is self._root and is_library(function.__code__.co_filename)
        is_way = function.__code__ in self._known.ways
        return parts if is_asked or is_nested or is_own or is_way or split.is_container(parts) else None

    def _account(self, address: Address, item: _Open, now: int, cpu: int) -> None:
        overhead = self._overhead_ns - item.overhead_ns
        reads, faults, delay = self._reads.read(), page_faults(), self._delay.read_ns()
        wall_ns, used_ns = without_overhead(now - item.wall_ns, cpu - item.cpu_ns, overhead)
        self._last = (reads, faults, delay) if not self._wanted else None  # keeping a value reads, too
        total = self._sample.get(address)
        if total is None:
            total = self._sample[address] = [0] * 7
        total[0] += wall_ns
        total[1] += used_ns
        total[2] += reads[0] - item.reads[0]
        total[3] += reads[1] - item.reads[1]
        total[4] += reads[2] - item.reads[2]
        total[5] += faults - item.faults
        total[6] += delay - item.delay_ns

    def _describe_unit(self, address: Address, item: _Open, results: list[Any]) -> Cost:
        parts, unit = self._unit()
        cost = Cost(
            name=unit.callee or unit.text,
            text=unit.text,
            source=f"{parts.filename}:{unit.line}",
            callee=unit.callee,
            is_loop=unit.is_loop,
            label=labels.current(),
        )
        if item.call is not None:
            _describe_call(cost, item.call, results)
        cost.why_whole = self.refused.get(address)
        return cost

    def _describe_item(self, address: Address, item: _Open, results: list[Any]) -> Cost:
        parts, unit = self._unit()
        cost = Cost(name=item_name(item.item), text=unit.text, source=f"{parts.filename}:{unit.line}", is_item=True)
        cost.defined = defined_at(resolve(item.item, (None,)))
        cost.can_enter = item.call is not None and not item.call.is_entered and cost.defined is not None
        return cost

    def _unit(self) -> tuple[Split, Unit]:
        parts = self._stack[self._base].parts
        assert parts is not None
        return parts, variants.unit_at(parts, tuple([item.number for item in self._stack[self._base + 1 :]]))[0]

    # Filling pools -------------------------------------------------------------------------------

    def _needs(self, address: Address) -> bool:
        if address not in self._wanted or address in self.refused:
            return False
        pool = self.pools[address]
        return len(pool) < self._limit and pool.bytes <= self._limit_bytes

    def _mark(self, item: _Open) -> None:
        address = self._address()
        if self._needs(address):
            self._guarded(address, lambda: self._set_marks(item))

    def _set_marks(self, item: _Open) -> None:
        frames = self._frames(item.locals)
        known = {id(value) for value in self._shared()}
        item.marks = Marks([{name: print_of(value, known) for name, value in frame.items()} for _, frame in frames])

    def _keep(self, address: Address, item: _Open, frame: dict[str, Any]) -> None:
        if self._needs(address) and item.marks is not None:
            self._guarded(address, lambda: self._add(address, item, frame))

    def _guarded(self, address: Address, action: Callable[[], None]) -> None:
        """Carry out `action`; whatever goes wrong with keeping a value costs this cut point and nothing else."""
        try:
            action()
        except Exception as error:  # properties and hashes of the user's objects may raise anything
            self.refused[address] = why_refused(error)

    def _add(self, address: Address, item: _Open, innermost: dict[str, Any]) -> None:
        if any(address[:length] in self._mixed for length in range(1, len(address))):
            raise values.Uncopyable("its transforms come in another order for other samples")
        frames = self._frames(innermost)
        if any(values.has_failed(value) for _, frame in frames for value in frame.values()):
            return  # the next sample may have a picture that is whole
        shared = self._shared()
        known = {id(value) for value in shared}
        carrier = self._carrier(frames)
        if carrier is not None:  # the first sample may open files or make caches; a habit is another matter
            self._unsettled[address] = self._unsettled.get(address, 0) + 1
            if self._unsettled[address] > 1:
                raise Unsplittable(f"data pass through {carrier}, which a cache at this point does not see")
            return
        refuse_undecoded(frames)
        chain = self._chain(address, frames, item, known)
        snapshot = values.snapshot([marked(frame, known) for _, frame in frames], shared)
        self.pools[address].add(snapshot, shared)
        self._added.append(address)
        served = [
            frame[name] for frame, level in zip(snapshot, chain, strict=True) for name in frame.keys() & level.served
        ]
        functions = [item for item in self._stack if item.parts is not None]
        owned = [(level, item.owner) for level, item in zip(chain, functions, strict=True) if item.owner is not None]
        states = [(level, owner, state_of(owner)) for level, owner in owned]
        self._kept[address] = Kept(self._writes.read(), states, values.content_bytes(served))

    def _drop(self, since: int) -> None:
        """Take what this sample has left in pools out again, all but the first values of so many."""
        while len(self._added) > since:
            address = self._added.pop()
            self.pools[address].drop_last()
            self._kept.pop(address, None)

    def _see_what_is_left(self) -> None:
        """Note the stages whose results the sample has put into a cache of the program's, or into a file."""
        if not self._kept:
            return
        began = time.perf_counter_ns()
        written = self._writes.read()
        for address, kept in self._kept.items():
            self._guarded(address, functools.partial(self._note_left, address, kept, written))
        self._overhead_ns += time.perf_counter_ns() - began

    def _note_left(self, address: Address, kept: Kept, written_bytes: int) -> None:
        """Most samples count: something made on first use, or for a few of them, is no cache of what the stage gives."""
        left = self._left.setdefault(address, [])
        left.append(left_in(kept, written_bytes))
        reasons = [reason for reason in left if reason is not None]
        self.chains[address][0].left_in = reasons[-1] if 2 * len(reasons) > len(left) else None

    def _frames(self, innermost: dict[str, Any]) -> list[tuple[Level, dict[str, Any]]]:
        """For each function on the way to here, its part of the address and the locals that its rest may read."""
        rest = self._address()
        found = []
        starts = [position for position, item in enumerate(self._stack) if item.parts is not None]
        for start, end in zip(starts, [*starts[1:], len(self._stack)], strict=True):
            parts = self._stack[start].parts
            assert parts is not None
            visible = innermost if end == len(self._stack) else self._stack[end - 1].locals
            names = variants.live_after(parts, rest)
            found.append((Level(parts, rest), {name: visible[name] for name in names if name in visible}))
            rest = rest[end - start - 1 :]
        return found

    def _chain(
        self, address: Address, frames: list[tuple[Level, dict[str, Any]]], item: _Open, known: set[int]
    ) -> list[Level]:
        """The functions on the way, which must be the same for all samples, with what the stage was seen to change."""
        chain = self.chains.setdefault(address, [level for level, _ in frames])
        if chain != [level for level, _ in frames]:
            raise values.Uncopyable("it is reached through different functions for different samples")
        assert item.marks is not None
        changed = changed_by(frames, item.marks, known)
        changed[-1] |= set(variants.outputs_at(chain[-1].parts, chain[-1].address))
        for level, names in zip(chain, entangled_with(frames, changed, known), strict=True):
            level.served |= names
        functions = [item for item in self._stack if item.parts is not None]
        for level, (_, frame), function in zip(chain, frames, functions, strict=True):
            level.why_not_alone = level.why_not_alone or why_not_alone(level, frame, function.owner, known)
            level.sets |= keeping.sets_after(level.parts, level.address, from_stage(level))
        return chain

    def _carrier(self, frames: list[tuple[Level, dict[str, Any]]]) -> str | None:
        """An attribute that was set or changed on the way here and is read later, if there is one."""
        functions = [item for item in self._stack if item.parts is not None]
        for item, (level, frame) in zip(functions, frames, strict=True):
            if item.state is None:
                continue
            now = state_of(item.owner)
            moved = {name for name in now if name not in item.state or item.state[name] != now[name]}
            held = {id(value) for value in frame.values()}
            moved_held = {name for name in moved if id(attributes_of(item.owner).get(name)) in held}
            read = moved & attributes_read(level.parts, level.address, type(item.owner)) | moved_held
            if read:
                return f"{type(item.owner).__name__}.{min(read)}"
        return None

    def _shared(self) -> tuple[Any, ...]:
        """Objects of the program that a snapshot keeps by reference: owners of functions, and what hangs on them."""
        owners = [item.owner for item in self._stack if item.owner is not None]
        owners += [item.locals["self"] for item in self._stack if "self" in item.locals]
        return shared_of(owners)


def without_overhead(wall_ns: int, cpu_ns: int, overhead_ns: int) -> tuple[int, int]:
    """Wall and CPU time without what watching took, which was on a core only part of its time."""
    net = max(0, wall_ns - overhead_ns)
    return net, max(0, cpu_ns - overhead_ns, cpu_ns * net // max(1, wall_ns))


def _is_alike(known: Any, step: Any) -> bool:
    """Whether two callables do the same, as far as their kind tells."""
    if isinstance(known, types.FunctionType) and isinstance(step, types.FunctionType):
        return known.__code__ is step.__code__
    return known is step or item_name(known) == item_name(step)


def _describe_call(cost: Cost, call: _Call, results: list[Any]) -> None:
    if isinstance(call.callee, torch.nn.Module):
        cost.name = type(call.callee).__name__
    cost.takes_data = any(is_data(value) for value in (*call.arguments, *results))
    cost.defined = defined_at(call.found)
    cost.can_enter = cost.defined is not None and not call.is_entered


def is_data(value: Any) -> bool:
    return value is not None and not isinstance(value, (bool, int, float, types.ModuleType, type))
