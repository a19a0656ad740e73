"""Which part of a pipeline gives the same every time, so that what it makes of a sample could be stored once.

A head is everything that runs before a cut point. Some real samples are made several times in a worker, under other random
draws, and what passes each cut point is compared. A head that draws random numbers does not count as repeatable, whatever
it gave: a transform that is applied to one sample in a hundred would hardly show in a few. Nor does one whose code asks for
the epoch: a generator that is made for each sample and epoch gives the same all through one of them.
"""

from __future__ import annotations

import ast
import statistics
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unstarve.measure import draws
from unstarve.measure.cuts import values
from unstarve.measure.cuts.observer import Known, Observer
from unstarve.measure.cuts.pool import Pool
from unstarve.measure.cuts.resolving import is_library, resolve
from unstarve.measure.cuts.split import Address, Split, simple_statements
from unstarve.measure.reorder import EXACT, compare, hanging

SAMPLES = 8
"""Samples that are made more than once."""

FEWEST_SAMPLES = 3
"""With fewer nothing is claimed."""

TIMES = 3
"""How often each is made."""

PATIENCE_NS = 4_000_000_000
"""After so long no further sample is made."""

WHOLE: Address = ()
"""Stands for the head that is the whole of the data set's work on a sample."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """What making samples more than once showed of one head."""

    is_repeatable: bool
    """Whether it gave the same each time, drew no random numbers, and asks for no number of an epoch."""
    samples: int
    """Samples that were made."""
    content_bytes: int
    """What it gives of a sample, in bytes, on average."""
    is_seeded: bool = False
    """Whether its code seeds a generator itself."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """What one worker found."""

    found: dict[Address, Repeat]
    """The heads by the cut point at which they end; empty where too few samples could be made."""


@dataclass(frozen=True, slots=True)
class Making:
    """How samples are made and watched."""

    function: types.FunctionType
    """The outermost function that makes a sample."""
    dataset: Any
    """What it is a method of."""
    opened: Sequence[Address]
    """Units that are looked into."""
    wanted: Sequence[Address]
    """Cut points."""
    known: Known
    """What the process has learnt about the code."""
    limit_bytes: int = 1 << 62
    """Memory that values may take while they are compared; cut points that it has no room for are not repeatable."""


def repeated(making: Making, indices: Sequence[Any]) -> Repeats:
    """What making the samples at these indices over and over shows; generators are left as they were found.

    Raises:
        Exception: whatever the user's code raises, or what watching it does.
    """
    parts = [part for _, _, part in hanging(making.dataset)]
    own = [part for part in parts if draws.is_generator(part)]
    own += draws.named([making.function, making.dataset, *parts])
    deadline = time.perf_counter_ns() + PATIENCE_NS
    seen: list[dict[Address, Repeat]] = []
    with draws.put_back([*draws.shared(), *own]):
        for position, index in enumerate(indices[:SAMPLES]):
            if time.perf_counter_ns() > deadline:
                break
            made = (_made(making, index, own, 1 + position * TIMES + turn) for turn in range(TIMES))
            seen.append(_compared((*making.wanted, WHOLE), made))
    return Repeats(_summary(seen) if len(seen) >= FEWEST_SAMPLES else {})


def _summary(seen: Sequence[dict[Address, Repeat]]) -> dict[Address, Repeat]:
    return {
        address: Repeat(
            all(sample[address].is_repeatable for sample in seen),
            len(seen),
            int(statistics.fmean(sample[address].content_bytes for sample in seen)),
            any(sample[address].is_seeded for sample in seen),
        )
        for address in seen[0]
    }


@dataclass(frozen=True, slots=True)
class _Passed:
    """What came past a cut point."""

    frames: list[dict[str, Any]]
    """For each function on the way, the locals that its rest may read."""
    has_drawn: bool
    """Whether random numbers had been drawn."""
    seeding: frozenset[str]
    """Names of what seeds generators or tells the epoch, in the code that had run."""


def _made(making: Making, index: Any, own: Iterable[Any], seed: int) -> dict[Address, _Passed]:
    """What passes the cut points while the sample at an index is made; those it does not come to are left out."""
    shared = draws.shared()
    for source in shared:
        draws.seed(source, seed)
    observer = _Observer(making, [*shared, *own])
    try:
        result = observer.run(making.function, (making.dataset, index), record=False)
        passed = observer.passed()
        if observer.has_room:
            drawn = observer.has_drawn(), frozenset(observer.seeding)
            passed[WHOLE] = _Passed([{"result": values.snapshot(result)}], *drawn)
    finally:
        observer.close()
    return passed


class _Observer(Observer):
    """Keeps one value at each cut point, and sees whether random numbers were drawn on the way there."""

    def __init__(self, making: Making, sources: Sequence[Any]) -> None:
        super().__init__(making.opened, making.wanted, limit=1, known=making.known)
        self.pools = {address: Pool(always_copy=True) for address in making.wanted}
        self._sources = sources
        self._marks = [draws.mark(source) for source in sources]
        self._drawn: dict[Address, tuple[bool, frozenset[str]]] = {}
        self.seeding: set[str] = set()
        """Names of what seeds generators or tells the epoch, in the code that has run."""
        self._looked_at: set[tuple[types.CodeType, int]] = set()
        self._room_bytes = making.limit_bytes // 3  # the first making's, this one's, and a copy of that

    @property
    def has_room(self) -> bool:
        """Whether more may be kept."""
        return sum(pool.bytes for pool in self.pools.values()) <= self._room_bytes

    def _needs(self, address: Address) -> bool:
        return super()._needs(address) and self.has_room

    def _keep(self, address: Address, item: Any, frame: dict[str, Any]) -> None:
        super()._keep(address, item, frame)
        if address not in self._drawn:
            self._drawn[address] = self.has_drawn(), frozenset(self.seeding)

    def _drop(self, since: int) -> None:
        super()._drop(since)
        self._drawn = {address: drawn for address, drawn in self._drawn.items() if len(self.pools.get(address, ()))}

    def _push(self, began: int, number: int, frame: dict[str, Any], *, counts: bool) -> None:
        super()._push(began, number, frame, counts=counts)
        parts, number = self._unit()[0], self._stack[self._base + 1].number
        place = (parts.function.__code__, number)
        if place not in self._looked_at and not is_library(parts.filename):
            self._looked_at.add(place)
            owner = next((frame.get(name) for name in parts.function.__code__.co_varnames[:1]), None)
            until, inside = _names_until(parts, number)
            self.seeding |= draws.seeding_names(until) | draws.seeding_names(inside, parts.function, owner)

    def _bound(
        self, began: int, callee: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Callable[[], Any]:
        found = resolve(callee, arguments)
        if found is not None:
            owner = next(iter(found[1]), None)
            place = (found[0].__code__, id(owner))
            if place not in self._looked_at and self._enterable(self._address(), found, callee) is None:
                self._looked_at.add(place)
                self.seeding |= draws.seeding(found[0], owner)
        return super()._bound(began, callee, arguments, keywords)

    def has_drawn(self) -> bool:
        """Whether random numbers have been drawn since this observer was made."""
        pairs = zip(self._sources, self._marks, strict=True)
        return any(draws.mark(source) != before for source, before in pairs)

    def passed(self) -> dict[Address, _Passed]:
        """What was kept."""
        kept = {a: pool for a, pool in self.pools.items() if len(pool) and a not in self.refused}
        return {address: _Passed(pool.serve(), *self._drawn[address]) for address, pool in kept.items()}


def _names_until(parts: Split, number: int) -> tuple[set[str], set[str]]:
    """Names in a function up to the end of one of its units, with the conditions on the way; and those in the unit, without
    that of the function it calls, which is seen when it is called."""
    nodes = [node for statement in parts.node.body for node in ast.walk(statement)]
    unit = list(simple_statements(parts.node.body))[number]
    last = unit.end_lineno or unit.lineno
    until = {_name(node) for node in nodes if getattr(node, "lineno", last) <= last}
    inside = {_name(node) for node in ast.walk(unit)}
    called = parts.units[number].callee if number not in parts.bodies else None
    return until - {""}, inside - {"", (called or "").rpartition(".")[2]}


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _compared(addresses: Iterable[Address], made: Iterator[dict[Address, _Passed]]) -> dict[Address, Repeat]:
    """Whether one sample came past the cut points each time, in the same state as the first."""
    first = next(made)
    found = {address: _of_one(first.get(address)) for address in addresses}
    for turn in made:
        for address, repeat in found.items():
            if repeat.is_repeatable and not _is_again(first[address], turn.get(address)):
                found[address] = replace(repeat, is_repeatable=False)
        del turn  # the next is made without it in memory
    return found


def _of_one(passed: _Passed | None) -> Repeat:
    """What one making shows."""
    if passed is None:
        return Repeat(False, 1, 0)
    stored = [value for frame in passed.frames for value in frame.values() if type(value) is not values.Shared]
    return Repeat(_may_repeat(passed), 1, values.content_bytes(stored), bool(passed.seeding))


def _is_again(first: _Passed, other: _Passed | None) -> bool:
    return other is not None and _may_repeat(other) and _is_same(first.frames, other.frames)


def _may_repeat(passed: _Passed) -> bool:
    return not passed.has_drawn and passed.seeding <= draws.SEEDING


def _is_same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    if [frame.keys() for frame in left] != [frame.keys() for frame in right]:
        return False
    pairs = [(first[name], second[name]) for first, second in zip(left, right, strict=True) for name in first]
    try:
        return all(_is_same_value(first, second) for first, second in pairs)
    except Exception:  # comparing objects of the user's may raise anything
        return False


def _is_same_value(left: Any, right: Any) -> bool:
    if type(left) is values.Shared and type(right) is values.Shared:
        is_method = isinstance(left.target, types.MethodType)
        return left.target is right.target or (is_method and bool(left.target == right.target))
    return compare(left, right) == EXACT
