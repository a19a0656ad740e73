"""Which functions of libraries lead to the user's code or to a choice of transforms: those are worth looking into.

A library may put half a dozen calls between a statement of the user's and the transforms that the user chose. One
sample made under the interpreter's profile hook shows which calls lead there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from unstarve.measure.cuts import split
from unstarve.measure.cuts.observer import Known
from unstarve.measure.cuts.resolving import held, is_library, step_of
from unstarve.script import is_package_file

WORTH_SHARE = 0.05
"""A function that took less of a sample's time is not worth the way to it."""

LEAST_NS = 20_000
"""What took less is not looked at closely."""

SAMPLES = 2
"""Samples followed in each process: a transform may be left out of one."""


class Scout:
    """Follows some samples, and learns the ways.

    Args:
        samples: how many to follow.
    """

    def __init__(self, samples: int = SAMPLES) -> None:
        self._left = samples
        self.is_new = True
        """Whether no sample was followed yet."""
        self.known = Known()
        """What was learnt."""

    @property
    def is_done(self) -> bool:
        """Whether enough samples were followed."""
        return self._left <= 0

    def follow(self, make: Callable[[], Any]) -> Any:
        """What `make` gives; not followed where the program has a profiler of its own."""
        self._left -= 1
        self.is_new = False
        if sys.getprofile() is not None:
            return make()
        trail = _Trail()
        began = time.perf_counter_ns()
        sys.setprofile(trail.note)
        try:
            return make()
        finally:
            sys.setprofile(None)
            self.known.ways |= _ways(trail, WORTH_SHARE * (time.perf_counter_ns() - began))


class _Trail:
    """Which code called which, and how long each took at most."""

    def __init__(self) -> None:
        self._stack: list[tuple[CodeType, int]] = []
        self.callers: dict[CodeType, set[CodeType]] = {}
        self.longest_ns: dict[CodeType, int] = {}
        self.choosers: set[CodeType] = set()
        """Code of methods that call something out of a list of their object's, or hand it on."""
        self.callables: dict[CodeType, set[str]] = {}
        """Locals that were callable when the function of this code returned."""

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Hook of the interpreter; what went wrong here must not reach the code that it follows."""
        try:
            self._note(frame, event)
        except Exception:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str) -> None:
        if event == "call":
            if self._stack:
                callers = self.callers.setdefault(frame.f_code, set())
                if self._stack[-1][0] not in callers:
                    callers.add(self._stack[-1][0])
                    self._look_at(frame)
            self._stack.append((frame.f_code, time.perf_counter_ns()))
        elif event == "return" and self._stack:
            code, began = self._stack.pop()
            taken = time.perf_counter_ns() - began
            if taken > self.longest_ns.get(code, 0):
                self.longest_ns[code] = taken
            if taken >= LEAST_NS and is_library(code.co_filename):
                self._keep_callables(frame, code)

    def _keep_callables(self, frame: FrameType, code: CodeType) -> None:
        own = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
        found = {name for name in own if step_of(frame.f_locals.get(name)) is not None}
        if found:
            self.callables.setdefault(code, set()).update(found)

    def _look_at(self, frame: FrameType) -> None:
        caller = frame.f_back
        owner = _arguments(caller)[:1] if caller is not None else []
        kept = held(owner[0]) if owner else {}
        if caller is not None and kept and any(id(argument) in kept for argument in _arguments(frame)):
            self.choosers.add(caller.f_code)


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals.get(name) for name in names]


def _ways(trail: _Trail, least_ns: float) -> set[CodeType]:
    """Library code from which calls lead to a goal that took at least so long."""
    waiting = [code for code, taken in trail.longest_ns.items() if taken >= least_ns and _is_goal(code, trail)]
    found: set[CodeType] = set()
    while waiting:
        code = waiting.pop()
        if code not in found:
            found.add(code)
            waiting += trail.callers.get(code, ())
    return {code for code in found if is_library(code.co_filename)}


def _is_goal(code: CodeType, trail: _Trail) -> bool:
    """Whether it is the user's, or runs transforms: one of several, or one after the other."""
    if code.co_filename.startswith("<") or is_package_file(code.co_filename):
        return False
    if code in trail.choosers or not is_library(code.co_filename):
        return True
    names = trail.callables.get(code)
    return names is not None and not names.isdisjoint(split.chain_targets(code))
