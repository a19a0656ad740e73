"""Random generators that the code of a data set may draw from: which there are, and how they are seeded and put back."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def shared() -> list[Any]:
    """The generators of this process."""
    found = [getattr(random, "_inst"), torch.default_generator]  # noqa: B009
    numpy = sys.modules.get("numpy.random")
    return found if numpy is None else [*found, numpy.mtrand._rand]


def own(value: Any) -> list[Any]:
    """The generators that an object keeps for itself."""
    return [item for item in getattr(value, "__dict__", {}).values() if is_generator(item)]


def is_generator(value: Any) -> bool:
    """Whether numbers can be drawn from the object."""
    numpy = sys.modules.get("numpy.random")
    kinds = (random.Random, torch.Generator, *((numpy.RandomState, numpy.Generator) if numpy is not None else ()))
    return isinstance(value, kinds)


@contextmanager
def put_back(sources: Iterable[Any]) -> Iterator[None]:
    """Leave these generators as they were found, whatever is drawn or seeded meanwhile."""
    states = [(source, _state(source)) for source in sources]
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
