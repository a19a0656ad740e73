"""Random generators that the code of a data set may draw from: which there are, and how they are seeded and put back."""

from __future__ import annotations

import pickle
import random
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from unstarve.measure.cuts.resolving import code_names, is_library

SEEDING = frozenset(
    {
        "default_rng", "RandomState", "Random", "Generator", "SeedSequence", "manual_seed", "seed", "fork_rng",
        "set_state", "setstate", "set_rng_state",
    }
)  # fmt: skip
"""What code names that seeds a generator itself: what it draws then shows on no generator that is kept."""

SEEDING_DEPTH = 3
"""Calls, from function to function, through which such names are looked for."""


def shared() -> list[Any]:
    """The generators of this process."""
    found = [getattr(random, "_inst"), torch.default_generator]  # noqa: B009
    numpy = sys.modules.get("numpy.random")
    return found if numpy is None else [*found, numpy.mtrand._rand]


def own(value: Any) -> list[Any]:
    """The generators that an object keeps for itself, or that its class or the modules of its methods keep."""
    kept = [item for item in getattr(value, "__dict__", {}).values() if is_generator(item)]
    return list({id(item): item for item in (*kept, *named([value]))}.values())


def named(values: Sequence[Any]) -> list[Any]:
    """The generators, other than those of the process, that have a name in the classes of these objects, in the modules
    that their methods are from, or in modules of the user's that are used there."""
    kinds = {kind: None for value in values for kind in type(value).__mro__}
    functions = [value for value in values if type(value) is types.FunctionType]
    spaces = [dict(vars(kind)) for kind in kinds] + [function.__globals__ for function in functions]
    seen = {id(space) for space in spaces}
    found: dict[int, Any] = {}
    for space in spaces:  # grows meanwhile
        for item in list(space.values()):
            if is_generator(item) and _can_be_put_back(item):
                found[id(item)] = item
            inner = _space_of(item)
            if inner is not None and id(inner) not in seen and len(seen) < MOST_SPACES:
                seen.add(id(inner))
                spaces.append(inner)
    own_of_process = {id(item) for item in shared()}
    return [item for number, item in found.items() if number not in own_of_process]


MOST_SPACES = 500
"""Classes and modules that are looked through."""


def _can_be_put_back(source: Any) -> bool:
    """Whether it has a state that can be read here: the system's has none, and a device's is not for workers to touch."""
    is_elsewhere = isinstance(source, torch.Generator) and source.device.type != "cpu"
    return not (is_elsewhere or isinstance(source, random.SystemRandom))


def _space_of(item: Any) -> dict[str, Any] | None:
    """The names that a function sees, or those of a module of the user's."""
    item = item.__func__ if type(item) in (staticmethod, classmethod) else item
    if type(item) is types.FunctionType and not is_library(item.__code__.co_filename):
        return item.__globals__
    is_own = type(item) is types.ModuleType and not is_library(item.__dict__.get("__file__") or "<frozen")
    return vars(item) if is_own else None


def is_generator(value: Any) -> bool:
    """Whether numbers can be drawn from the object."""
    numpy = sys.modules.get("numpy.random")
    kinds = (random.Random, torch.Generator, *((numpy.RandomState, numpy.Generator) if numpy is not None else ()))
    return issubclass(type(value), kinds)  # a proxy that is asked for its class may raise anything


def seeding(function: types.FunctionType, owner: Any = None) -> set[str]:
    """Names in the code of a function that seed a generator, or tell the number of the epoch; also in the functions of the
    user's that it names in its module or on its owner. Nothing is said of a library's own code, only of the functions that
    the owner, such as a transform made of a lambda, keeps."""
    if not is_library(function.__code__.co_filename):
        return seeding_names(code_names(function.__code__), function, owner)
    kept = [item for item in getattr(owner, "__dict__", {}).values() if type(item) is types.FunctionType]
    return set().union(*(seeding(item) for item in kept if not is_library(item.__code__.co_filename)))


def seeding_names(names: set[str], function: types.FunctionType | None = None, owner: Any = None) -> set[str]:
    """The same for some of the names in a function; of the names alone where that is not given."""
    found = {name for name in names if name in SEEDING or "epoch" in name.lower()}
    if function is None:
        return found
    seen: set[types.CodeType] = set()
    waiting = [(names, function, 0)]
    for named, user, depth in waiting:  # grows meanwhile
        spaces = [user.__globals__, *(vars(kind) for kind in type(owner).__mro__)]
        for item in [space[name] for name in named for space in spaces if name in space]:
            item = item.__func__ if type(item) in (staticmethod, classmethod) else item
            is_function = type(item) is types.FunctionType and not is_library(item.__code__.co_filename)
            if is_function and item.__code__ not in seen and depth < SEEDING_DEPTH:
                seen.add(item.__code__)
                inner = code_names(item.__code__)
                found |= seeding_names(inner)
                waiting.append((inner, item, depth + 1))
    return found


@contextmanager
def put_back(sources: Iterable[Any]) -> Iterator[None]:
    """Leave these generators as they were found, as far as their state can be read, whatever is drawn or seeded meanwhile."""
    states = [(source, _state(source)) for source in sources if _can_be_put_back(source)]
    try:
        yield
    finally:
        for source, state in states:
            _restore(source, state)


def mark(source: Any) -> bytes:
    """Changes when numbers are drawn from the generator."""
    state = _state(source)
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state)


def seed(source: Any, number: int) -> None:
    """Have the generator begin anew with a seed."""
    if isinstance(source, torch.Generator):
        source.manual_seed(number)
    elif hasattr(source, "bit_generator"):
        source.bit_generator.state = type(source.bit_generator)(number).state
    else:
        source.seed(number)


def _state(source: Any) -> Any:
    if isinstance(source, random.Random):
        return source.getstate()
    if hasattr(source, "bit_generator"):
        return source.bit_generator.state
    return source.get_state()


def _restore(source: Any, state: Any) -> None:
    if isinstance(source, random.Random):
        source.setstate(state)
    elif hasattr(source, "bit_generator"):
        source.bit_generator.state = state
    else:
        source.set_state(state)
