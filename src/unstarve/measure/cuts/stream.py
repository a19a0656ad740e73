"""Cuts in data sets that are generators: the statements of loops that yield, in chains of generators.

A generator cannot be exchanged while it runs. So the one that an iterable data set makes at the start of an epoch, before
it has begun, is replaced by its `switched` variant, and so is every generator that such a loop draws from. While the
stream is off, a turn of a loop costs a test and the way through one generator of ours more than before; while it is on,
each statement of the turn is timed, or kept, or skipped with what it makes coming from a pool.

Addresses name statements from the outside in: the statement of the outermost generator, and where that statement draws from another
generator, the statement in it. What a statement calls is watched like any other function; such addresses go on after
`ANY_ITERATION`, which says that only the statement as a whole can be served.
"""

from __future__ import annotations

import collections
import functools
import inspect
import numbers
import operator
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import ChainDataset

from unstarve import labels
from unstarve.measure.counters import ReadCount, RunDelay, WriteCount, cpu_ns, page_faults
from unstarve.measure.cuts import keeping, split, values
from unstarve.measure.cuts.effects import is_as_large, keeps, marked, shared_of, why_refused
from unstarve.measure.cuts.observer import Cost, Known, Observer, is_data, without_overhead
from unstarve.measure.cuts.pool import Pool
from unstarve.measure.cuts.resolving import attributes_of, bound_to, defined_at, is_library, resolve
from unstarve.measure.cuts.server import UNSET
from unstarve.measure.cuts.split import ANY_ITERATION, Address, Unsplittable
from unstarve.measure.cuts.switched import Statement, Switched, switched
from unstarve.measure.cuts.tree import RUNTIME, is_temporary
from unstarve.script import is_package_file

OPAQUE_SHARE = 0.5
"""From this share of the time on that goes into iterables which cannot be looked into, sampling tells more."""

_PLAIN = (list, tuple, range, str, bytes, dict)
"""What can be iterated without work."""

MOST_IN_A_ROW = 2000
"""Steps served without a sample for the loop: what follows drops all of the few that were kept."""

_BUFFERS = (list, dict, set, bytearray, collections.deque)
"""A statement that makes one of these longer or shorter leaves something for later turns, so that it must run."""

_QUEUES = (list, bytearray, collections.deque)
"""The same among the attributes of an object, where a dictionary that grows is a memory of what was made, and a list of
figures and names a log."""

Place = tuple[types.CodeType, int]
"""A statement, by its function's code and its number."""


class Stream:
    """The iterator of one iterable data set in one worker, switched.

    Args:
        dataset: the data set.
        generator: what `iter(dataset)` gave, not yet begun.
        effects: what statements were seen to change beside what they assign; it grows meanwhile.

    Raises:
        Unsplittable: the generator cannot be switched.
    """

    def __init__(self, dataset: Any, generator: Any, effects: dict[Place, Effects]) -> None:
        self._dataset = dataset
        self._gave_up: str | None = None
        self._generator = self._adopted(generator, ())
        self.is_on = False
        """Whether statements are watched or served; read by every turn of a loop."""
        self.watch: StreamObserver | None = None
        """Who watches, if anyone does."""
        self.serving: Serving | None = None
        """What is served, if anything is."""
        self.effects = effects
        self.served_in_a_row = 0
        """Steps served since the last item was asked for."""

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        self.served_in_a_row = 0
        is_serving = self.serving is not None
        try:
            item = next(self._generator)
        except StopIteration:
            raise
        except Exception:
            self._gave_up = None
            if is_serving:  # an exception ends a generator, and this one was our doing: the data set starts anew
                self._generator = self.adopted(iter(self._dataset), ())
            raise
        if self._gave_up is not None:
            reason, self._gave_up = self._gave_up, None
            raise Unsplittable(reason)
        return item

    def observe(self, observer: StreamObserver | None) -> None:
        """Have statements watched from their next turn on, or no longer."""
        self.watch, self.is_on = observer, observer is not None

    def serve(self, serving: Serving | None) -> None:
        """Have statements served from their next turn on, or no longer."""
        self.serving, self.is_on = serving, serving is not None

    def count_served(self) -> None:
        """Note that a statement was served.

        Raises:
            Unsplittable: too many were, without a sample for the loop.
        """
        self.served_in_a_row += 1
        if self.served_in_a_row > MOST_IN_A_ROW and self._gave_up is None:
            self._gave_up = "of the samples that were kept none comes through what follows"
            self.serve(None)  # the user's code may catch what is raised here: it goes on without us
            raise Unsplittable(self._gave_up)

    def adopted(self, items: Any, base: Address) -> Any:
        """The iterable, switched if it is a generator of the user's that has not begun; else as it is."""
        try:
            return self._adopted(items, base)
        except Unsplittable:
            return items

    def _adopted(self, generator: Any, base: Address) -> Any:
        if type(generator) is not types.GeneratorType or inspect.getgeneratorstate(generator) != inspect.GEN_CREATED:
            raise Unsplittable(f"what it runs over is no generator of Python's that has not begun ({_kind(generator)})")
        if is_library(generator.gi_code.co_filename) and generator.gi_code is not ChainDataset.__iter__.__code__:
            raise Unsplittable("its generator is a library's")
        function, arguments = _origin(generator)
        parts = switched(function)
        variant = parts.bind(Turns(self, parts, base))(*arguments)
        generator.close()  # it has not begun, so nothing of it runs; what it holds is let go
        return variant


class _Begun:
    """An iterator that was asked for already: a `for` asks once, and not every iterator bears to be asked again."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __iter__(self) -> Any:
        return self._iterator


def _kind(value: Any) -> str:
    return type(value).__name__


def _origin(generator: Any) -> tuple[types.FunctionType, list[Any]]:
    """The function that made a generator, and with which arguments."""
    code, frame = generator.gi_code, generator.gi_frame
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_kwonlyargcount:
        raise Unsplittable("its generator takes any number of arguments")
    names = code.co_varnames[: code.co_argcount]
    found = frame.f_locals
    arguments = [found[name] for name in names]
    candidates = [frame.f_globals.get(code.co_name)]
    if arguments:
        candidates += [vars(kind).get(code.co_name) for kind in type(arguments[0]).__mro__]
    for candidate in candidates:
        function = inspect.unwrap(getattr(candidate, "__func__", candidate)) if candidate is not None else None
        if isinstance(function, types.FunctionType) and function.__code__ is code and _closes_over(function, found):
            return function, arguments
    if not code.co_freevars:
        return types.FunctionType(code, frame.f_globals, code.co_name), arguments
    raise Unsplittable("the function of its generator was not found")


def _closes_over(function: types.FunctionType, found: Mapping[str, Any]) -> bool:
    """Whether the function sees these values of the variables around it: others may share its code."""
    try:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        return all(cell.cell_contents is found[name] for name, cell in cells)
    except (KeyError, ValueError):  # a variable that is not set
        return False


def is_sole(holder: Any) -> bool:
    """Whether nobody but the attribute `dataset_iter` of the holder knows the iterator there."""
    return sys.getrefcount(holder.dataset_iter) <= _IN_ATTRIBUTE


class _Probe:
    """Counts references as `Turns.adopt` will find them, for an object that only one local variable names."""

    def __init__(self) -> None:
        self.dataset_iter = iter([None])

    def adopt(self, number: int, items: Any, is_own: bool) -> int:
        return sys.getrefcount(items)

    def count(self) -> int:
        fresh = iter([None])
        return self.adopt(0, fresh, True)


_PROBE = _Probe()
_IN_ATTRIBUTE = sys.getrefcount(_PROBE.dataset_iter)
_IN_LOCAL = _PROBE.count()


@dataclass(slots=True)
class Effects:
    """What one statement was seen to do to its locals beyond assigning."""

    is_lasting: bool = False
    """Whether it puts something into a buffer that outlives the turn, or takes something out."""
    changed: set[str] = field(default_factory=set)
    """Locals of the turn that it changed in place."""
    noted: set[str] = field(default_factory=set)
    """Attributes to which it adds small plain values: a log, unless some statement takes from it."""
    taken: set[str] = field(default_factory=set)
    """Attributes that it makes shorter."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served: all of a turn up to a statement, or the statement alone."""

    address: Address
    """The statement."""
    pool: Pool
    """Snapshots of the locals of a turn when the statement had ended."""
    resume: bool
    """Whether what comes before the statement is skipped too."""


class Turns:
    """Runtime of one switched generator.

    Args:
        stream: what it belongs to.
        parts: the generator's function.
        base: address of the statement that draws from it; empty for the outermost.
    """

    getitem = staticmethod(operator.getitem)
    """How variants name a subscript's callee."""

    def __init__(self, stream: Stream, parts: Switched, base: Address) -> None:
        self.stream = stream
        self._parts = parts
        self._base = base
        self._transparent: set[int] = set()
        """Loops that draw from a generator that is looked into."""
        self._serving: Serving | None = None
        self._skips: frozenset[int] = frozenset()
        self._frame: dict[str, Any] = {}

    # Called by switched variants -----------------------------------------------------------------

    def source(self, number: int, items: Iterable[Any]) -> Iterator[Any]:
        """The items that a loop runs over; nothing is drawn for turns that are served."""
        address = (*self._base, number)
        is_opaque = number not in self._transparent and not isinstance(items, _PLAIN)
        draw = iter(items).__next__
        del items
        while True:
            if self.stream.is_on and number in self._skipped():
                self.stream.count_served()
                yield None
                continue
            watch = self.stream.watch
            if watch is not None:
                watch.start(address)
            try:
                item = [draw()]
            except StopIteration:
                return
            if watch is not None and watch is self.stream.watch:
                watch.end(address, self._parts.statements[number], self._parts.filename, is_opaque=is_opaque)
            yield item.pop()  # the loop alone shall know it

    def adopt(self, number: int, items: Any, is_own: bool) -> Any:
        """What a loop runs over, switched where that is a generator of the user's that nobody else holds: one that has
        not begun, or one that an object makes when it is iterated."""
        if isinstance(items, _PLAIN):
            return items
        if is_own and type(items) is types.GeneratorType:
            if sys.getrefcount(items) > _IN_LOCAL:
                return items
            found = items
        elif hasattr(type(items), "__next__") or not hasattr(type(items), "__iter__"):
            return items
        else:
            found = iter(items)
            if type(found) is not types.GeneratorType:
                return _Begun(found)
        adopted = self.stream.adopted(found, (*self._base, number))
        if _is_ours(adopted):
            self._transparent.add(number)
        return adopted

    def turns(self, number: int) -> bool:
        """Whether a turn of a loop has a real item; if not, a snapshot is chosen for it."""
        skipped = self._skipped()
        serving = self._serving
        if serving is not None and serving.resume and self._loop_of(serving) == number:
            self._frame = serving.pool.serve()[0]
        return number not in skipped

    def turned(self, number: int, frame: dict[str, Any]) -> None:
        """A turn has its item: it is kept if so wanted."""
        if self.stream.watch is not None:
            self._keep(number, frame)
        frame.clear()

    def starts(self, number: int, frame: dict[str, Any]) -> bool:
        """A statement is about to run, or to be skipped: then its locals come from a snapshot."""
        if self.stream.serving is not None and number in self._skipped():
            return False
        watch = self.stream.watch
        if watch is not None and watch.is_filling:
            watch.mark((*self._base, number), frame, self._parts.statements[number], self._owner(frame))
        frame.clear()  # up to Python 3.12 the frame keeps this dictionary, and all that is in it
        if watch is not None:
            watch.start((*self._base, number))
        return True

    def ends(self, number: int, frame: dict[str, Any]) -> None:
        """A statement has ended."""
        watch = self.stream.watch
        if watch is not None:
            statement = self._parts.statements[number]
            watch.end((*self._base, number), statement, self._parts.filename)
            if watch.is_filling:
                owner = self._owner(frame)
                watch.note_effects((*self._base, number), self._effects(number), frame, statement, owner)
                self._keep(number, frame)
        frame.clear()

    def bound(self, callee: Any, /, *arguments: Any, **keywords: Any) -> Callable[[], Any]:
        """A statement's call, for the variant to make: looked into where the watch was sent there, or where it leads to
        transforms."""
        watch = self.stream.watch
        return watch.bound(callee, arguments, keywords) if watch is not None else bound_to(callee, arguments, keywords)

    def load(self, number: int, names: tuple[str, ...], present: dict[str, Any]) -> list[Any]:
        """Values of these locals: the snapshot's, or the present ones."""
        assert self._serving is not None
        self.stream.count_served()
        if self._serving.resume:
            frame = self._frame = self._frame or self._serving.pool.serve()[0]
        else:
            missing = [name for name in names if name not in present]  # such as what the statement's own call would be
            wanted = {*self._from(number), *missing}
            part = self._serving.pool.serve(lambda frames: [{n: v for n, v in frames[0].items() if n in wanted}])
            frame = part[0]
        found = [frame[name] if name in frame else present.get(name, UNSET) for name in names]
        present.clear()
        return [item.target if type(item) is values.Shared else item for item in found]

    # --------------------------------------------------------------------------------------------

    def _owner(self, frame: dict[str, Any]) -> Any:
        """What the generator is a method of, or its first argument."""
        code = self._parts.function.__code__
        return frame.get(code.co_varnames[0]) if code.co_argcount else None

    def _effects(self, number: int) -> Effects:
        return self.stream.effects.setdefault((self._parts.function.__code__, number), Effects())

    def _is_lasting(self, number: int) -> bool:
        """Whether the statement works on a buffer that outlives the turn."""
        effects = self._effects(number)
        is_taken = any(not effects.noted.isdisjoint(other.taken) for other in self.stream.effects.values())
        return effects.is_lasting or is_taken

    def _skipped(self) -> frozenset[int]:
        """Steps of this generator that the present order skips."""
        if self.stream.serving is not self._serving:
            self._serving, self._frame = self.stream.serving, {}
            self._skips = frozenset(self._now_skipped(self._serving)) if self._serving is not None else frozenset()
        return self._skips

    def _now_skipped(self, serving: Serving) -> Iterator[int]:
        address = serving.address
        if address[:-1] != self._base:
            return
        last = address[-1]
        if not serving.resume:
            yield last
            return
        yield from self._until(last)[0]

    def _until(self, last: int) -> tuple[set[int], set[int]]:
        """Of the statements of a turn up to the `last`, those that a cut after it skips, and those that run all the same, with
        what makes temporaries for them: no snapshot has these, since they are gone when their statement has ended."""
        loop = self._parts.statements[last].loop
        until = {number: item for number, item in enumerate(self._parts.statements[: last + 1]) if item.loop == loop}
        skipped = {number for number, statement in until.items() if self._can_skip(number, statement)}
        while True:
            read = {name for number in until.keys() - skipped for name in until[number].outputs if is_temporary(name)}
            makers = {number for number in skipped - {last} if not read.isdisjoint(until[number].unit.outputs)}
            if not makers:
                return skipped, until.keys() - skipped
            skipped -= makers

    def _can_skip(self, number: int, statement: Statement) -> bool:
        makes_locals = statement.unit.is_loop or bool(statement.unit.outputs) or bool(self._effects(number).changed)
        return statement.can_skip and makes_locals and not self._is_lasting(number)

    def _loop_of(self, serving: Serving) -> int | None:
        if serving.address[:-1] != self._base:
            return None
        return self._parts.statements[serving.address[-1]].loop

    def _keep(self, number: int, frame: dict[str, Any]) -> None:
        watch = self.stream.watch
        address = (*self._base, number)
        if watch is None or not watch.is_filling:
            return
        watch.guarded(address, lambda: self._note_alone(watch, number, frame))
        if not watch.needs(address):
            return
        watch.guarded(address, lambda: self._add(watch.pools[address], number, frame))

    def _add(self, pool: Pool, number: int, frame: dict[str, Any]) -> None:
        statement = self._parts.statements[number]
        self._check(statement, number, frame)
        first = self._parts.function.__code__.co_varnames[:1]
        shared = shared_of([frame[name] for name in first if name in frame])
        running = [self._parts.statements[other].outputs for other in self._until(number)[1]]
        names = {*statement.carried, *statement.outputs}.union(*running)
        kept = marked({name: frame[name] for name in names if name in frame}, {id(item) for item in shared})
        if any(values.has_failed(value) for value in kept.values()):
            return  # the next sample may have a picture that is whole
        if any(values.is_unloaded(value) for value in kept.values()):
            raise values.Uncopyable("a picture there is decoded later, and looking at it would change what it does")
        snapshot = values.snapshot([kept], shared)
        pool.add(snapshot, shared)
        watch = self.stream.watch
        if watch is not None and statement.loop != number:
            own = snapshot[0].keys() & self._from(number)
            watch.note_kept((*self._base, number), [snapshot[0][name] for name in own])

    def _from(self, number: int) -> frozenset[str]:
        """Locals that hold what comes from the statement."""
        statement = self._parts.statements[number]
        own = statement.outputs if statement.unit.is_loop else statement.unit.outputs
        return frozenset(own) | self._effects(number).changed

    def _note_alone(self, watch: StreamObserver, number: int, frame: dict[str, Any]) -> None:
        """What a loop draws comes with its key; parts of it, which generators below make, do not."""
        address, reason = (*self._base, number), self._why_not_alone(number, frame)
        if self._parts.statements[number].loop == number:
            watch.draws[address] = reason
        elif reason is not None:
            watch.kept_after[address] = reason

    def _why_not_alone(self, number: int, frame: dict[str, Any]) -> str | None:
        """The reason if the rest of the turn puts what comes from the statement into a cache: it would keep the values of
        another sample under the key of this one. A list or a queue is where samples wait, and may get others."""
        if self._parts.statements[number].loop is None:
            return None
        function = self._parts.function
        for name, attribute in sorted(keeping.stores_in_turn(self._parts, number, self._from(number)), key=str):
            holder = frame.get(name, function.__globals__.get(name))
            if attribute is not None:
                holder = attributes_of(holder).get(attribute)
            if not isinstance(holder, _QUEUES):
                return keeps(name if attribute is None else f"{name}.{attribute}")
        return None

    def _check(self, statement: Statement, number: int, frame: dict[str, Any]) -> None:
        """Refuse cuts after which the generator would not go on as it does.

        Raises:
            Unsplittable: they are of that kind.
        """
        if not statement.can_skip:
            raise Unsplittable("what it changes outlives a turn of its loop")
        if self._is_lasting(number):
            raise Unsplittable("it works on a buffer that outlives a turn of its loop")
        if not statement.unit.is_loop and any(_is_drawn_from(frame.get(name)) for name in statement.foreign):
            raise Unsplittable("it draws from something that outlives a turn of its loop")


def _is_ours(items: Any) -> bool:
    return type(items) is types.GeneratorType and RUNTIME in items.gi_code.co_freevars


def _is_drawn_from(value: Any) -> bool:
    """Whether the value is a file, an iterator or the like, whose state a statement moves on."""
    if isinstance(value, dict):  # whose keys may be attributes, so that it answers to any name
        return False
    return hasattr(value, "__next__") or hasattr(value, "read") or hasattr(value, "recv")


@dataclass(slots=True)
class _Open:
    """A statement that has started and not ended."""

    address: Address
    figures: tuple[int, ...]
    overhead_ns: int


class StreamObserver:
    """Times the statements of a stream, sample by sample, and snapshots locals at wanted cut points.

    Args:
        opened: addresses of statements whose calls are to be looked into.
        wanted: cut points to fill, by address.
        limit: snapshots to keep at each.
        known: what this process has learnt about code; it grows meanwhile.
        limit_bytes: after so many bytes no more are kept at a cut point.
    """

    def __init__(
        self,
        opened: Iterable[Address] = (),
        wanted: Iterable[Address] = (),
        limit: int = 0,
        known: Known | None = None,
        limit_bytes: int = 1 << 62,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._opened = list(opened)
        self._known = known
        self._limit = limit
        self._stack: list[_Open] = []
        self._sample: dict[Address, list[int]] = {}
        self._inner: dict[Address, Observer] = {}
        self._statements: dict[Address, Cost] = {}
        self._opaque: set[Address] = set()
        self._calls: dict[Address, tuple[str | None, bool]] = {}
        self._marks: dict[str, Any] = {}
        self._lengths: dict[str, int] = {}
        self._record = False
        self._overhead_ns = 0
        self._delay = RunDelay()
        self._reads = ReadCount()
        self._last: tuple[int, ...] | None = None
        """The figures at the end of a statement, for the one that follows at once."""
        self.is_filling = limit > 0
        """Whether locals are kept, and effects noted."""
        self.pools: dict[Address, Pool] = {address: Pool() for address in wanted}
        self.chains: dict[Address, list[Any]] = {}
        """As of an `Observer`: nothing leads to a statement but its generators."""
        self.refused: dict[Address, str] = {}
        self.kept_after: dict[Address, str] = {}
        """Why a statement must not be served without what comes before it."""
        self.draws: dict[Address, str | None] = {}
        """For each loop that was met, why what lies below it must not, if there is a reason."""
        self._writes = WriteCount()
        self._kept: dict[Address, tuple[int, int]] = {}
        """Of this sample's values: what the thread had written when they were kept, and their size."""
        self._left: dict[Address, list[bool]] = {}
        """For each cut point and each sample kept there, whether a file took it in."""

    @property
    def overhead_ns(self) -> int:
        """Wall time that watching has taken so far."""
        return self._overhead_ns + sum(observer.overhead_ns for observer in self._inner.values())

    @property
    def costs(self) -> dict[Address, Cost]:
        """Costs of statements, and of what they call, by address."""
        inner = {
            (*address, ANY_ITERATION, *inside): cost
            for address, observer in self._inner.items()
            for inside, cost in observer.costs.items()
        }
        return {**self._statements, **inner}

    @property
    def why_not_alone(self) -> dict[Address, str]:
        """Of the cut points that must not be served without what comes before them, the reason."""
        statements = [address for address in self.pools if address not in self.draws]
        around = {a: [self.draws.get(a[:length]) for length in range(1, len(a))] for a in statements}
        reasons = {a: [self.kept_after.get(a), *around[a]] for a in statements}
        return {a: reason for a, found in reasons.items() for reason in found if reason is not None}

    @property
    def opaque_share(self) -> float:
        """Share of the time that went into iterables which cannot be looked into."""
        spent = {address: sum(cost.wall_ns) for address, cost in self._statements.items()}
        whole = sum(wall for address, wall in spent.items() if address[:-1] not in spent)
        return sum(spent.get(address, 0) for address in self._opaque) / max(1, whole)

    def close(self) -> None:
        """Give back file descriptors."""
        for observer in self._inner.values():
            observer.close()
        self._reads.close()
        self._writes.close()

    def watch(self, stream: Stream, draw: Callable[[], Any], *, record: bool) -> Any:
        """What `draw` takes from the stream, watched; costs are kept if `record`."""
        self._record = record
        self._stack.clear()
        self._sample.clear()
        self._kept.clear()
        self._last = None
        stream.observe(self)
        try:
            result = draw()
            self._see_what_is_written()
        finally:
            stream.observe(None)
        if record:
            self._close_sample()
        return result

    def _close_sample(self) -> None:
        for address, figures in self._sample.items():
            self._statements[address].add(*figures)

    # Called by generators ------------------------------------------------------------------------

    def start(self, address: Address) -> None:
        """A statement starts."""
        began = time.perf_counter_ns()
        last, self._last = self._last, None
        figures = self._figures() if last is None else (began, cpu_ns(), *last[2:])
        item = _Open(address, figures, 0)
        self._stack.append(item)
        self._overhead_ns += time.perf_counter_ns() - began
        item.overhead_ns = self.overhead_ns

    def end(self, address: Address, statement: Statement, filename: str, *, is_opaque: bool = False) -> None:
        """A statement has ended; statements above it that an exception left open are forgotten."""
        began = time.perf_counter_ns()
        places = [place for place, item in enumerate(self._stack) if item.address == address]
        if not places:  # it started before watching did
            return
        item = self._stack[places[-1]]
        del self._stack[places[-1] :]
        figures = self._figures()
        self._last = figures if not self.is_filling else None
        differences = [now - then for now, then in zip(figures, item.figures, strict=True)]
        overhead = self.overhead_ns - item.overhead_ns
        wall, cpu, *others = differences
        total = self._sample.setdefault(address, [0] * len(differences))
        for position, figure in enumerate((*without_overhead(wall, cpu, overhead), *others)):
            total[position] += figure
        if address not in self._statements:
            self._statements[address] = self._described(address, statement, filename)
        if is_opaque:
            self._opaque.add(address)
        self._overhead_ns += time.perf_counter_ns() - began

    def bound(self, callee: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Callable[[], Any]:
        """A statement's call, looked into if need be."""
        if not self._stack:
            return bound_to(callee, arguments, keywords)
        began = time.perf_counter_ns()
        address = self._stack[-1].address
        found = resolve(callee, arguments)
        self._calls[address] = (defined_at(found), any(is_data(value) for value in (*arguments, *keywords.values())))
        observer = self._observer(address, found)
        self._overhead_ns += time.perf_counter_ns() - began
        if observer is None or found is None:
            return bound_to(callee, arguments, keywords)
        instead = bound_to(callee, arguments, keywords)
        return functools.partial(self._run_inside, observer, address, found, keywords, instead)

    def _run_inside(
        self,
        observer: Observer,
        address: Address,
        found: tuple[types.FunctionType, tuple[Any, ...]],
        keywords: dict[str, Any],
        instead: Callable[[], Any],
    ) -> Any:
        try:
            return observer.run(found[0], found[1], keywords, record=self._record)
        except Exception as error:
            if not isinstance(error, Unsplittable) and not _is_of_ours(error):
                raise  # calling it again would move on what it draws from
            self.refused[address] = f"watching it failed ({type(error).__name__}: {error})"
            return instead()

    def _observer(self, address: Address, found: Any) -> Observer | None:
        """Who watches the function that a statement calls, if it is to be looked into."""
        if found is None or address in self.refused:
            return None
        if address not in self._inner:
            try:
                parts = split.split(found[0])
            except Unsplittable as error:
                if address in self._opened:
                    self.refused[address] = str(error)
                return None
            is_way = self._known is not None and found[0].__code__ in self._known.ways
            if not (address in self._opened or is_way or split.is_container(parts)):
                return None
            depth = len(address) + 1
            inside = [other[depth:] for other in self._opened if other[:depth] == (*address, ANY_ITERATION)]
            self._inner[address] = Observer([rest for rest in inside if rest], known=self._known)
        return self._inner[address]

    def _described(self, address: Address, statement: Statement, filename: str) -> Cost:
        unit = statement.unit
        cost = Cost(
            name=unit.callee or unit.text,
            text=unit.text,
            source=f"{filename}:{unit.line}",
            callee=unit.callee,
            is_source=unit.is_loop,
            label=labels.current(),
            why_whole=self.refused.get(address),
        )
        cost.defined, cost.takes_data = self._calls.get(address, (None, True))
        cost.can_enter = cost.defined is not None and address not in self._inner
        return cost

    # Filling pools -------------------------------------------------------------------------------

    def needs(self, address: Address) -> bool:
        """Whether a snapshot is wanted at this cut point."""
        if address not in self.pools or address in self.refused:
            return False
        pool = self.pools[address]
        return len(pool) < self._limit and pool.bytes <= self._limit_bytes

    def mark(self, address: Address, frame: dict[str, Any], statement: Statement, owner: Any) -> None:
        """Remember what a statement gets, so that its changes show when it has ended."""
        self.guarded(address, lambda: self._set_marks(frame, statement, owner))

    def _set_marks(self, frame: dict[str, Any], statement: Statement, owner: Any) -> None:
        self._marks, self._lengths = _prints(frame, statement), _lengths(frame, statement, owner)

    def note_effects(
        self, address: Address, effects: Effects, frame: dict[str, Any], statement: Statement, owner: Any
    ) -> None:
        """Add to `effects` what the statement did to its locals, and to the buffers that the owner keeps."""
        self.guarded(address, lambda: self._add_effects(effects, frame, statement, owner))

    def _add_effects(self, effects: Effects, frame: dict[str, Any], statement: Statement, owner: Any) -> None:
        now = _prints(frame, statement)
        own = set(statement.unit.outputs)
        effects.changed |= {name for name, mark in now.items() if name not in own and self._marks.get(name) != mark}
        lengths = _lengths(frame, statement, owner)
        for name in self._lengths.keys() | lengths.keys():
            more = lengths.get(name, 0) - self._lengths.get(name, 0)
            if more > 0 and name[0] == "." and _is_log(getattr(owner, name[1:]), more):
                effects.noted.add(name)
            elif more != 0:
                effects.is_lasting = True
                effects.taken |= {name} if more < 0 else set()

    def note_kept(self, address: Address, served: list[Any]) -> None:
        """Remember that values were kept, so that it shows when the sample is there whether a file took them in."""
        self._kept[address] = self._writes.read(), values.content_bytes(served)

    def _see_what_is_written(self) -> None:
        if not self._kept:
            return
        began = time.perf_counter_ns()
        written = self._writes.read()
        for address, (before, content) in self._kept.items():
            left = self._left.setdefault(address, [])
            left.append(is_as_large(written - before, content))
            if 2 * sum(left) > len(left):
                self.kept_after[address] = keeps("a file")
        self._overhead_ns += time.perf_counter_ns() - began

    def guarded(self, address: Address, action: Callable[[], None]) -> None:
        """Carry out `action`, which looks at objects of the user's; whatever goes wrong costs this cut point only."""
        began = time.perf_counter_ns()
        try:
            action()
        except Exception as error:
            self.refused[address] = why_refused(error)
        self._overhead_ns += time.perf_counter_ns() - began

    # Counters ------------------------------------------------------------------------------------

    def _figures(self) -> tuple[int, ...]:
        """Wall time, CPU time, bytes and calls of reading, bytes from storage, page faults, delay so far."""
        reads = self._reads.read()
        delay, cpu, faults = self._delay.read_ns(), cpu_ns(), page_faults()
        return time.perf_counter_ns(), cpu, *reads, faults, delay


def _lengths(frame: dict[str, Any], statement: Statement, owner: Any) -> dict[str, int]:
    seen = {name: frame[name] for name in statement.foreign if isinstance(frame.get(name), _BUFFERS)}
    kept = {f".{name}": item for name, item in attributes_of(owner).items() if isinstance(item, _QUEUES)}
    return {name: len(item) for name, item in (seen | kept).items()}


def _is_log(items: Any, more: int) -> bool:
    """Whether a list that has grown by so much looks like a log of figures and names, and not like a buffer of data."""
    is_list = isinstance(items, (list, collections.deque))
    return is_list and more <= _MOST_NOTED and all(_is_note(item) for item in (items[0], items[-1]))


def _is_note(value: Any) -> bool:
    if type(value) in (tuple, list, dict):
        inner = [*value.values()] if type(value) is dict else value
        return len(inner) <= _MOST_NOTED and all(_is_note(item) for item in inner)
    return isinstance(value, (numbers.Number, types.NoneType)) or (
        isinstance(value, str) and len(value) <= _NOTED_CHARS
    )


_MOST_NOTED = 8
"""A list that grows by more in a turn, or by a value of more parts, gathers data, such as a text's tokens."""

_NOTED_CHARS = 256
"""A longer text may be a sample."""


def _prints(frame: dict[str, Any], statement: Statement) -> dict[str, Any]:
    seen = {name: frame[name] for name in statement.outputs if name in frame}
    return {name: (id(item), values.fingerprint(item)) for name, item in seen.items() if not values.is_unloaded(item)}


def _is_of_ours(error: BaseException) -> bool:
    """Whether the exception was raised by code of this package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and is_package_file(trace.tb_frame.f_code.co_filename)
