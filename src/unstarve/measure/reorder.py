"""Another order of transforms: looked for on real samples in a worker, and put in place there while it is tried.

A chain is a list of callables on the dataset in which each gets what the one before it gave; that is seen while a batch is
made, and not guessed by names. A transform that makes data smaller moves ahead, one place after the other, as long as
both orders give the same for the same random draws; before a transform that draws itself only if they do under many of
them, since it may do nothing to most samples.
"""

from __future__ import annotations

import ast
import statistics
import sys
import time
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unstarve.measure import draws
from unstarve.measure.cuts import values
from unstarve.measure.cuts.resolving import MOST_CHOICES, item_name
from unstarve.recording import Reordering

SAMPLES = 8
"""Samples on which an order is compared with the script's own."""

FEWEST_SAMPLES = 3
"""With fewer nothing is claimed."""

QUICK_SAMPLES = 2
"""Samples on which each single move is checked, before all moves together are."""

MOST_BATCHES = 8
"""Batches after which collecting samples ends all the same."""

DRAWS = 64
"""Random draws under which an order is compared that puts a transform before one that draws: one that is applied to a
tenth of the samples is missed by 8 of them in two of five searches, and by so many in one of 800."""

FEWEST_DRAWS = 32
"""With fewer, where patience ends, nothing is put before what draws."""

PATIENCE_NS = 3_000_000_000
"""After so long no further move is looked for, and no further draw is tried."""

LONGEST_CHAIN_NS = 500_000_000
"""A chain that takes longer for a sample is left alone: comparing orders would hold the loop up too long."""

SMALLER = 0.8
"""A transform that gives less than this share of the bytes it gets makes data smaller."""

WORTH_SAVING = 0.05
"""Share of a chain's time that another order must save to be tried in the loop."""

ROUNDING = 8.0
"""Numbers that differ by so many units in the last place of the largest one count as the same but for rounding."""

BORDER = 8
"""A border is at most the outer eighth of an image on each side."""

DEPTH = 6
"""Attributes and items between a dataset and its chains at most."""

MOST_OBJECTS = 2_000
"""Objects looked through on the way to them at most."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What one worker found."""

    found: tuple[Reordering, ...]
    """Other orders that give the same and take less time, those that save most first."""


# --- Chains -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chain:
    """A list of callables that can be put into another order."""

    path: tuple[str, ...]
    """How it is reached from the dataset, such as `(".transform", ".transforms")`."""
    owner: Any
    """What holds it."""
    container: Any
    """The list, tuple, `ModuleList` or `Sequential`."""
    steps: tuple[Any, ...]
    """Its callables, in the script's order."""

    def put(self, steps: Sequence[Any]) -> None:
        """Let the container hold these callables, in this order.

        Raises:
            Exception: a tuple's owner may refuse another one.
        """
        if isinstance(self.container, list):
            self.container[:] = steps
        elif isinstance(self.container, torch.nn.Module):
            modules = self.container._modules
            modules.update(zip(list(modules), steps, strict=True))
        elif self.path[-1].startswith("."):
            setattr(self.owner, self.path[-1][1:], tuple(steps))
        else:
            self.owner[ast.literal_eval(self.path[-1][1:-1])] = tuple(steps)


def chains(dataset: Any) -> list[Chain]:
    """Lists of at least two callables, and of nothing else, that hang on the dataset."""
    found = []
    for path, owner, part in hanging(dataset):
        steps = _steps(part)
        if steps is not None:
            found.append(Chain(path, owner, part, steps))
    return found


def hanging(dataset: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Everything that hangs on the dataset, the nearest first: how it is reached, what holds it, and itself."""
    seen = {id(dataset)}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), dataset)]
    for path, value in waiting:  # grows meanwhile
        for step, part in _parts(value):
            if id(part) in seen or len(seen) >= MOST_OBJECTS:
                continue
            seen.add(id(part))
            yield (*path, step), value, part
            if len(path) + 1 < DEPTH:
                waiting.append(((*path, step), part))


def chain_at(dataset: Any, path: Sequence[str]) -> Chain:
    """The chain at a path.

    Raises:
        LookupError: there is none.
    """
    owner, value = None, dataset
    for step in path:
        owner, value = value, next((part for name, part in _parts(value) if name == step), None)
    steps = _steps(value)
    if steps is None:
        raise LookupError(f"no chain of transforms at dataset{''.join(path)}")
    return Chain(tuple(path), owner, value, steps)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What hangs on a value, and how it is reached; data are not looked into."""
    if isinstance(value, _CLOSED):
        return
    if isinstance(value, (list, tuple)):
        yield from ((f"[{number}]", item) for number, item in enumerate(value[:MOST_CHOICES]))
        return
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items())[:MOST_CHOICES] if isinstance(key, str))
        return
    is_module = isinstance(value, torch.nn.Module)
    if is_module:
        is_list = isinstance(value, _MODULES)
        yield from ((f"[{name}]" if is_list else f".{name}", part) for name, part in value._modules.items())
    attributes = list(getattr(value, "__dict__", {}).items())
    yield from ((f".{name}", part) for name, part in attributes if not (is_module and name.startswith("_")))


_CLOSED = (str, bytes, int, float, type, types.ModuleType, types.FunctionType, types.MethodType, torch.Tensor)

_MODULES = (torch.nn.ModuleList, torch.nn.Sequential)


def _steps(value: Any) -> tuple[Any, ...] | None:
    if type(value) not in (list, tuple) and not isinstance(value, _MODULES):
        return None
    steps = tuple(value)
    is_chain = 2 <= len(steps) <= MOST_CHOICES and all(callable(step) and not isinstance(step, type) for step in steps)
    return steps if is_chain else None


class Arrangement:
    """At most one chain that is in another order for the time being."""

    def __init__(self) -> None:
        self._chain: Chain | None = None

    def put(self, dataset: Any, path: Sequence[str], order: Sequence[int]) -> None:
        """Put the chain at `path` into another order, unless one is in another order already.

        Raises:
            LookupError: there is no chain of as many callables.
        """
        if self._chain is not None:
            return
        chain = chain_at(dataset, path)
        if sorted(order) != list(range(len(chain.steps))):
            raise LookupError(f"dataset{''.join(path)} has {len(chain.steps)} transforms, not {len(order)}")
        chain.put([chain.steps[number] for number in order])
        self._chain = chain

    def undo(self) -> None:
        """Put the script's own order back."""
        if self._chain is not None:
            self._chain.put(self._chain.steps)
            self._chain = None


# --- Seeing what runs through a chain ---------------------------------------------------------------------------------


_Sample = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of the first callable."""


class _Tap:
    """Stands in a chain for one of its callables, passes for an instance of its class, and tells of its calls."""

    def __init__(self, trace: _Trace, position: int, step: Any) -> None:
        object.__setattr__(self, "_tapped", (trace, position, step))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.__dict__["_tapped"][2].__class__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._told(self.__dict__["_tapped"][2], arguments, keywords)

    def _told(self, call: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        trace, position, _ = self.__dict__["_tapped"]
        trace.enter(position, arguments, keywords)
        result = call(*arguments, **keywords)
        trace.leave(position, result)
        return result

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["_tapped"][2], name)
        if name != "forward":  # a module's, which some containers call directly
            return value
        return lambda *arguments, **keywords: self._told(value, arguments, keywords)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_tapped"][2], name, value)


class _Trace:
    """Whether the callables of a list run one after the other, and what the first of them got."""

    def __init__(self, size: int, limit_bytes: int) -> None:
        self._size = size
        self._left_bytes = limit_bytes
        self._next = 0
        self._last: Any = None
        self._first: _Sample | None = None
        self.is_chain = True
        self.was_met = False
        """Whether anything ran through it since that was last asked."""
        self.samples: list[_Sample] = []

    @property
    def has_enough(self) -> bool:
        return not self.is_chain or len(self.samples) >= SAMPLES or self._left_bytes < 0

    def enter(self, position: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.was_met = True
        if self.has_enough:
            return
        try:
            if position == 0 and self._next in (0, self._size):
                self._first = values.snapshot((arguments, keywords))
                self._next = 1
            elif position == self._next and _flows(self._last, arguments, keywords):
                self._next += 1
            else:
                self.is_chain = False
        except Exception:  # what cannot be copied cannot be run twice
            self.is_chain = False

    def leave(self, position: int, result: Any) -> None:
        self._last = result
        if position == self._size - 1 == self._next - 1 and self._first is not None:
            self.samples.append(self._first)
            self._left_bytes -= values.size_bytes(self._first)
            self._first = None


def _flows(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a call gets exactly what another gave."""
    if keywords:
        is_same = isinstance(result, dict) and not arguments and result.keys() == keywords.keys()
        return is_same and all(result[name] is keywords[name] for name in keywords)
    if len(arguments) == 1:
        return arguments[0] is result
    return isinstance(result, tuple) and len(result) == len(arguments) and all(map(_is, result, arguments))


def _is(left: Any, right: Any) -> bool:
    return left is right


class Search:
    """Looks for other orders of a dataset's chains, on samples of the batches that the worker makes anyway.

    Args:
        dataset: the worker's.
        limit_bytes: memory that the samples, and what becomes of them, may take; one sample of each chain is kept.
    """

    def __init__(self, dataset: Any, limit_bytes: int = 1 << 62) -> None:
        try:
            found = chains(dataset)
        except Exception:  # attributes of the user's objects may raise anything
            found = []
        each_bytes = limit_bytes // (2 * max(1, len(found)))  # half is for their results
        self._traced = [(chain, _Trace(len(chain.steps), each_bytes)) for chain in found]
        self._batches = 0

    @property
    def has_enough(self) -> bool:
        """Whether no further batch is needed."""
        return self._batches >= MOST_BATCHES or all(trace.has_enough for _, trace in self._traced)

    def follow(self, make: Callable[[], Any]) -> Any:
        """What `make` gives; the samples on the way are kept."""
        self._batches += 1
        tapped = []
        try:
            for chain, trace in self._traced:
                if not trace.has_enough:
                    trace.was_met = False
                    tapped.append(chain)
                    chain.put([_Tap(trace, number, step) for number, step in enumerate(chain.steps)])
            return make()
        finally:
            for chain in tapped:
                chain.put(chain.steps)
            self._traced = [(chain, trace) for chain, trace in self._traced if trace.was_met]

    def orders(self) -> Orders:
        """What was found, once; nothing about chains on which something goes wrong."""
        found = []
        traced, self._traced = self._traced, []
        for chain, trace in traced:
            if trace.is_chain and len(trace.samples) >= FEWEST_SAMPLES:
                try:
                    reordering = _Comparison(chain, trace.samples).better()
                except Exception:  # transforms of the user's may fail in any way
                    continue
                if reordering is not None:
                    found.append(reordering)
        return Orders(tuple(sorted(found, key=lambda item: item.after_ns - item.before_ns)))


# --- Comparing orders -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """One sample through a chain."""

    result: Any
    walls_ns: tuple[int, ...]
    """For each callable, in the script's order, its wall time."""
    ratios: tuple[float, ...]
    """For each callable, in the script's order, bytes given over bytes got."""
    drew: tuple[bool, ...]
    """For each callable, in the script's order, whether it drew random numbers."""


class _Comparison:
    """Runs samples through one chain in several orders.

    Random generators are seeded before each callable, alike in every order, so that each draws the same numbers wherever
    it stands; they are left as they were found.
    """

    def __init__(self, chain: Chain, samples: Sequence[_Sample]) -> None:
        self._chain = chain
        self._samples = list(samples)
        self._sources = [draws.shared() + draws.own(step) for step in chain.steps]
        self._deadline = time.perf_counter_ns() + PATIENCE_NS

    def better(self) -> Reordering | None:
        """An order that gives the same in less time; None where there is none."""
        with draws.put_back([source for sources in self._sources for source in sources]):
            return self._better()

    def _better(self) -> Reordering | None:
        own = tuple(range(len(self._chain.steps)))
        self._run(own, 0)  # what is made on first use is made now
        first = self._run(own, 0)
        if sum(first.walls_ns) > LONGEST_CHAIN_NS:
            return None
        runs = [first, *(self._run(own, number) for number in range(1, len(self._samples)))]
        results = [run.result for run in runs]
        ratios = [statistics.median(ratios) for ratios in zip(*(run.ratios for run in runs), strict=True)]
        drawing = {step for step in own if any(run.drew[step] for run in runs)}
        order = self._moved(own, results, ratios, behind=drawing)
        further = self._moved(order, results, ratios)
        # what draws may do something else to each sample, and to most of them nothing
        more = self._under_more_draws(own, further) if further != order else []
        order = further if more else order
        return self._checked(own, order, results, more) if order != own else None

    def _moved(
        self, order: tuple[int, ...], results: list[Any], ratios: list[float], behind: Collection[int] = ()
    ) -> tuple[int, ...]:
        """The order in which everything that makes data smaller stands as early as gives the same, and `behind` these
        where it stands behind them."""
        for step in sorted(order):
            place = order.index(step)
            while ratios[step] < SMALLER and place > 0 and time.perf_counter_ns() < self._deadline:
                if order[place - 1] in behind:
                    break
                swapped = (*order[: place - 1], step, order[place - 1], *order[place + 1 :])
                if not self._is_alike(swapped, results):
                    break
                order, place = swapped, place - 1
        return order

    def _is_alike(self, order: tuple[int, ...], results: list[Any]) -> bool:
        try:
            return all(
                compare(results[number], self._run(order, number).result).is_alike for number in range(QUICK_SAMPLES)
            )
        except Exception:  # a transform may not take what it gets in this order
            return False

    def _under_more_draws(self, own: tuple[int, ...], order: tuple[int, ...]) -> list[Likeness]:
        """How far the order gives the same under as many random draws as there is time for; nothing where it does not, or
        where these are too few to tell."""
        found: list[Likeness] = []
        for number in range(len(self._samples), DRAWS):
            if time.perf_counter_ns() > self._deadline:
                break
            try:
                found.append(compare(self._run(own, number).result, self._run(order, number).result))
            except Exception:  # a transform may not take what it gets in this order
                return []
            if not found[-1].is_alike:
                return []
        return found if len(self._samples) + len(found) >= FEWEST_DRAWS else []

    def _checked(
        self, own: tuple[int, ...], order: tuple[int, ...], results: list[Any], more: list[Likeness]
    ) -> Reordering | None:
        """The order as a finding, if it holds for all samples, as it did under `more` draws, and saves time."""
        found = list(more)
        wholes, savings = [], []
        moved = _touched(own, order)
        for number, result in enumerate(results):
            runs = {}
            for turn in (own, order) if number % 2 else (order, own):
                runs[turn] = self._run(turn, number)
            if compare(result, runs[own].result) != EXACT:
                return None  # it draws numbers that cannot be repeated: nothing can be said
            found.append(compare(result, runs[order].result))
            wholes.append(sum(runs[own].walls_ns))
            savings.append(sum(runs[own].walls_ns[step] - runs[order].walls_ns[step] for step in moved))
        before, saved = int(statistics.median(wholes)), int(statistics.median(savings))
        if not all(likeness.is_alike for likeness in found) or saved < WORTH_SAVING * before:
            return None
        return Reordering(
            path=self._chain.path,
            names=tuple(item_name(step) for step in self._chain.steps),
            order=order,
            likeness=max((likeness.kind for likeness in found), key=_KINDS.index),
            differing=statistics.fmean(likeness.differing for likeness in found),
            samples=len(results),
            before_ns=before,
            after_ns=before - saved,
        )

    def _run(self, order: tuple[int, ...], number: int) -> _Run:
        """A sample through the chain, with random draws of its own for each number; samples come again after the last."""
        arguments, keywords = values.snapshot(self._samples[number % len(self._samples)])
        spread = len(arguments) != 1
        ratios, drew = [1.0] * len(order), [False] * len(order)
        walls, size = [0] * len(order), values.content_bytes((arguments, keywords))
        result: Any = None
        for step in order:
            for source in self._sources[step]:
                draws.seed(source, 1 + number * len(order) + step)
            marks = [draws.mark(source) for source in self._sources[step]]
            began = time.perf_counter_ns()
            result = self._chain.steps[step](*arguments, **keywords)
            values.force(result)
            walls[step] = time.perf_counter_ns() - began
            drew[step] = marks != [draws.mark(source) for source in self._sources[step]]
            given = values.content_bytes(result)
            ratios[step] = given / size if size else 1.0
            size = given
            arguments, keywords = _passed_on(result, bool(keywords), spread)
        return _Run(
            values.snapshot(result), tuple(walls), tuple(ratios), tuple(drew)
        )  # a transform may use the memory that it gave again


def _touched(own: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """The callables that get other values in the other order; what the rest takes differs only by chance."""
    places = [place for place, (left, right) in enumerate(zip(own, order, strict=True)) if left != right]
    return own[places[0] : places[-1] + 1]


def _passed_on(result: Any, by_keyword: bool, spread: bool) -> _Sample:
    if by_keyword:
        return (), dict(result)
    return (tuple(result), {}) if spread else ((result,), {})


# --- Whether two results are the same ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Likeness:
    """How far two results are the same."""

    kind: str
    """`exact`, `rounding`, `border` or `no`."""
    differing: float = 0.0
    """Share of the values that differ."""

    @property
    def is_alike(self) -> bool:
        """Whether one may stand for the other, for all that can be seen."""
        return self.kind != "no"


EXACT, NO = Likeness("exact"), Likeness("no", 1.0)

_KINDS = ("exact", "rounding", "border", "no")


def compare(left: Any, right: Any) -> Likeness:
    """How far two results of a chain are the same: every array, picture and number in them, types and shapes included."""
    sides = list(values.leaves(left)), list(values.leaves(right))
    if type(left) is not type(right) or len(sides[0]) != len(sides[1]):
        return NO
    pairs = list(zip(*sides, strict=True))
    found = [_compare_leaves(first, second) for first, second in pairs]
    sizes = [max(1, getattr(_numbers(first), "size", 1)) for first, _ in pairs]
    kind = max((likeness.kind for likeness in found), key=_KINDS.index, default="exact")
    differing = sum(likeness.differing * size for likeness, size in zip(found, sizes, strict=True))
    return Likeness(kind, differing / max(1, sum(sizes)))


def _compare_leaves(left: Any, right: Any) -> Likeness:
    first, second = _numbers(left), _numbers(right)
    if first is None or second is None or type(left) is not type(right):
        return EXACT if left is right or (type(left) is type(right) and bool(left == right)) else NO
    if first.shape != second.shape or _type(left) != _type(right):
        return NO
    return _compare_numbers(first, second, _spacing(left), _plane(left, first))


def _is_picture(leaf: Any) -> bool:
    return hasattr(leaf, "getbands")


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, sys.modules["numpy"].ndarray)


def _type(leaf: Any) -> Any:
    return leaf.mode if _is_picture(leaf) else leaf.dtype


def _numbers(leaf: Any) -> Any:
    """The leaf's values as an array; None for other things."""
    if isinstance(leaf, torch.Tensor):
        if leaf.layout != torch.strided or leaf.is_quantized:
            return None
        plain = leaf.detach().as_subclass(torch.Tensor).cpu()
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    if _is_picture(leaf):
        return sys.modules["numpy"].asarray(leaf)
    return leaf if _is_array(leaf) else None


def _spacing(leaf: Any) -> float:
    """Relative distance of neighbouring numbers of the leaf's type; 0 for whole numbers."""
    if isinstance(leaf, torch.Tensor):
        return torch.finfo(leaf.dtype).eps if leaf.is_floating_point() else 0.0
    if _is_array(leaf) and leaf.dtype.kind == "f":
        return float(sys.modules["numpy"].finfo(leaf.dtype).eps)
    return 0.0


def _plane(leaf: Any, numbers: Any) -> tuple[int, ...]:
    """The axes along which an image, or a signal, extends."""
    if numbers.ndim < 2:
        return tuple(range(numbers.ndim))
    has_channels_last = _is_picture(leaf) or (_is_array(leaf) and numbers.ndim == 3 and numbers.shape[-1] <= 4)
    return (0, 1) if has_channels_last else (numbers.ndim - 2, numbers.ndim - 1)


def _compare_numbers(left: Any, right: Any, spacing: float, plane: tuple[int, ...]) -> Likeness:
    numpy = sys.modules["numpy"]
    equal = (left == right) | ((left != left) & (right != right))
    if equal.all():
        return EXACT
    close = equal
    if spacing:
        wide = left.astype("float64"), right.astype("float64")
        finite = [numpy.abs(side[numpy.isfinite(side)]).max(initial=0.0) for side in wide]
        with numpy.errstate(invalid="ignore"):
            close = equal | (numpy.abs(wide[0] - wide[1]) <= ROUNDING * spacing * max(finite))
    if close.all():
        return Likeness("rounding", float(1 - equal.mean()))
    if _is_border(~close, plane):
        return Likeness("border", float(1 - close.mean()))
    return NO


def _is_border(apart: Any, plane: tuple[int, ...]) -> bool:
    """Whether all places that are apart lie at the edge of the plane."""
    if not plane:
        return False
    numpy = sys.modules["numpy"]
    flat = apart.any(axis=tuple(axis for axis in range(apart.ndim) if axis not in plane))
    places, last = numpy.argwhere(flat), numpy.array(flat.shape) - 1
    depth = numpy.minimum(places, last - places).min(axis=1).max()
    return bool((depth + 1) * BORDER <= min(flat.shape))
