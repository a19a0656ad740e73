"""What resumed and stubbed variants talk to: it gives back the values that were kept."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from unstarve.measure.cuts import values, variants
from unstarve.measure.cuts.effects import Level
from unstarve.measure.cuts.pool import Pool
from unstarve.measure.cuts.resolving import resolve
from unstarve.measure.cuts.split import Unsplittable


class Unset:
    """Stands for a local that was not set when the snapshot was taken."""


UNSET = Unset()

FEW_FAILED, SHARE_FAILED = 4, 0.2
"""So many samples, and this share of all, may fail behind what was served and be handled by the script, as a corrupt record is
without us; where more do, it is our doing."""


class Server:
    """Runtime of `resumed` and `stubbed` variants: hands out the locals of a served snapshot, level by level."""

    getitem = staticmethod(operator.getitem)
    """How variants name a subscript's callee."""

    def __init__(self, pool: Pool, chain: list[Level], *, resume: bool) -> None:
        make = variants.resumed if resume else variants.stubbed
        reasons = (reason for level in chain for reason in (level.why_not_alone, level.left_in))
        why_not = next(filter(None, reasons), None)
        if why_not is not None and not resume:
            raise Unsplittable(why_not)
        self.pool = pool
        self._chain = chain
        self._variants: list[Callable[..., Any]] = []
        self._blanks: list[tuple[list[None], dict[str, None]]] = []
        for level in chain:
            factory, _used = make(level.parts, level.address)
            variant = factory(self)
            self._variants.append(variant)
            self._blanks.append(_blank_arguments(variant.__code__))
        self._is_resume = resume
        self._level = 0
        self._frames: list[dict[str, Any]] = []
        self._has_served = self._has_failed = False
        self._runs = self._failed = 0

    def run(self, arguments: tuple[Any, ...]) -> Any:
        """The outermost function's result, from the cut on or with the stage stubbed.

        Raises:
            Unsplittable: too many exceptions behind the cut were caught; what the user does then is more than the rest.
        """
        self._level = 0
        self._has_served, self._has_failed = self._is_resume, False
        self._frames = self.pool.serve() if self._is_resume else []
        result = self._variants[0](*arguments)
        self._runs += 1
        self._failed += self._has_failed
        if self._failed > FEW_FAILED + SHARE_FAILED * self._runs:
            raise Unsplittable("what follows the values that were served raised exceptions, which the script caught")
        return result

    def caught(self) -> None:
        """The user's code handles whatever was raised."""
        self._has_failed |= self._has_served

    def load(self, names: tuple[str, ...], present: dict[str, Any] | None = None) -> list[Any]:
        """Values of these locals of the current function: the snapshot's, or the `present` ones that may stay."""
        if present is not None:
            return self._replaced(names, present)
        frame = self._frames[self._level]
        found = [frame.get(name, UNSET) for name in names]
        return [item.target if type(item) is values.Shared else item for item in found]

    def _replaced(self, names: tuple[str, ...], present: dict[str, Any]) -> list[Any]:
        is_innermost = self._level == len(self._chain) - 1
        if is_innermost:
            self._has_served = True
            self._frames = self.pool.serve(self._replacements)
        if not self._frames:  # this sample did not come through the stage
            return [present.get(name, UNSET) for name in names]
        frame, served = self._frames[self._level], self._chain[self._level].served
        found = [(frame if name in served and name in frame else present).get(name, UNSET) for name in names]
        return [item.target if type(item) is values.Shared else item for item in found]

    def _replacements(self, frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of a snapshot's locals, those that a stub replaces: only they need to be copied."""
        return [
            {name: value for name, value in frame.items() if name in level.served}
            for frame, level in zip(frames, self._chain, strict=True)
        ]

    def resume(self) -> Any:
        """The result of the call in which the cut lies, from the cut on."""
        self._level += 1
        try:
            positional, keywords = self._blanks[self._level]
            return self._variants[self._level](*positional, **keywords)
        finally:
            self._level -= 1

    def descend(self, callee: Any, /, *arguments: Any, **keywords: Any) -> Any:
        """The result of the call in which the stubbed stage lies."""
        found = resolve(callee, arguments)
        if found is None or found[0] is not self._chain[self._level + 1].parts.function:
            return callee(*arguments, **keywords)
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


def _blank_arguments(code: types.CodeType) -> tuple[list[None], dict[str, None]]:
    """Arguments for a resumed function, which loads what it needs."""
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return [None] * code.co_argcount, dict.fromkeys(keyword_only)
