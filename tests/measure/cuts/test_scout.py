"""The scout finds the functions of libraries that lead to the user's code or to transforms, and no others."""

from __future__ import annotations

import itertools
import linecache
import sys
import time
import types
from typing import Any

import pytest

from unstarve.measure.cuts.observer import Observer
from unstarve.measure.cuts.scout import Scout

_numbers = itertools.count()

LIBRARY = """
import time
class Slow:
    def __call__(self, x):
        time.sleep(0.002)
        return x + 1
class Fast:
    def __call__(self, x):
        return x * 2
class OneOf:
    def __init__(self, steps):
        self.steps = steps
        self.next = 0
    def __call__(self, x):
        self.next = (self.next + 1) % len(self.steps)
        step = self.steps[self.next]
        return step(x)
class Shuffled:
    def __init__(self, steps):
        self.steps = steps
    def __call__(self, x):
        self.steps.append(self.steps.pop(0))
        for step in self.steps:
            x = step(x)
        return x
def apply(step, x):
    return step(x)
class Handing:
    def __init__(self, steps):
        self.steps = steps
    def __call__(self, x):
        for step in self.steps:
            x = apply(step, x)
        return x
def outer(x):
    return inner(x)
def inner(x):
    y = Slow()(x)
    for part in range(3):
        y = max(part, y)
    return y
def back(function, x):
    return function(x)
"""


def module(source: str, folder: str) -> types.ModuleType:
    filename = f"{folder}/scouted_{next(_numbers)}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    made = types.ModuleType("scouted")
    exec(compile(source, filename, "exec"), made.__dict__)
    return made


@pytest.fixture
def library() -> types.ModuleType:
    return module(LIBRARY, "/site-packages/library")


def ways(library: Any, make: Any) -> set[str]:
    """Qualified names, which code itself knows only from Python 3.11 on."""
    scout = Scout()
    scout.follow(make)
    found = [item for kind in vars(library).values() for item in (kind, *getattr(kind, "__dict__", {}).values())]
    names = {item.__code__: item.__qualname__ for item in found if isinstance(item, types.FunctionType)}
    return {names.get(code, code.co_name) for code in scout.known.ways}


def own(x: int) -> int:
    time.sleep(0.002)
    return x


def test_the_way_to_the_users_code_is_found(library: Any) -> None:
    """A library function that calls back is worth looking into; one that only works is not."""
    assert ways(library, lambda: library.back(own, 1)) == {"back"}
    assert ways(library, lambda: library.outer(1)) == set()


def test_the_way_to_transforms_is_found(library: Any) -> None:
    """Choices among an object's own callables, and loops over callables, are what the user chose."""
    assert "OneOf.__call__" in ways(library, lambda: library.OneOf([library.Fast(), library.Slow()])(1))
    assert {"Handing.__call__"} <= ways(library, lambda: library.back(library.Handing([library.Slow()]), 1))


def test_a_profiler_of_the_program_stays(library: Any) -> None:
    """The hook of a profiler that runs already is not taken away."""
    seen = []
    sys.setprofile(lambda *event: seen.append(event))
    try:
        Scout().follow(lambda: library.outer(1))
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    assert seen


def test_an_exception_passes_and_the_hook_goes(library: Any) -> None:
    """What the user's code raises comes through, and nothing goes on being followed."""
    with pytest.raises(ZeroDivisionError):
        Scout().follow(lambda: 1 // 0)
    assert sys.getprofile() is None


def names(library: Any, transform: Any) -> dict[str, tuple[int, ...]]:
    """Transforms found, by name, after some samples."""
    user = module("def f(tf, x):\n    x = tf(x)\n    return x\n", "/home/user")
    scout = Scout()
    scout.follow(lambda: transform(1))
    observer = Observer(known=scout.known)
    for sample in range(4):
        observer.run(user.f, (transform, sample))
    observer.close()
    return {cost.name: address for address, cost in observer.costs.items() if cost.is_item}


def test_each_of_several_choices_is_a_stage(library: Any) -> None:
    """Of callables that take turns, each has figures of its own."""
    found = names(library, library.OneOf([library.Fast(), library.Slow()]))
    assert found.keys() == {"Fast", "Slow"}
    assert all(address[-1] < -1 for address in found.values())


def test_transforms_in_another_order_keep_their_figures(library: Any) -> None:
    """A transform is known again wherever it stands in the chain of a sample."""
    found = names(library, library.Shuffled([library.Fast(), library.Slow()]))
    assert found.keys() == {"Fast", "Slow"}


def test_transforms_handed_on_are_found(library: Any) -> None:
    """A loop that hands its callables to a function is a chain as much as one that calls them."""
    assert names(library, library.Handing([library.Fast(), library.Slow()])).keys() == {"Fast", "Slow"}
