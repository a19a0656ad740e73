"""One loader of the script while the script runs: its workers, its account, and the step that is under way."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from unstarve.measure.describe import told_length
from unstarve.measure.fleet import Endless, Fleet
from unstarve.measure.switchboard import Switchboard
from unstarve.measure.worker import Telemetry
from unstarve.recording import BRIEF, FEWEST_ANEW, BodyLine, Loader, Settings, Start

if TYPE_CHECKING:
    from unstarve.measure.iterators import Watched

DROP_PATIENCE_NS = 3_000_000_000
"""A loop that has only dropped batches for so long is taken as it is, where the length of an epoch is not known."""

LONGEST_DROP_NS = 10_000_000_000
"""The same, however long an epoch is: a starved loop that only launches work on a device looks like one that drops."""

SOME = 3
"""A loop that uses more than one batch in so many does something with them."""

FIRST_CYCLES = 4
"""Cycles, as long as it took until the loop first worked, in which it may show that it takes several batches at once."""

DROP_SHARE = 1 / 3
"""A loop that has only dropped batches for so much of an epoch is taken as it is: it may be there to time the loader."""


@dataclass(slots=True)
class Pending:
    """A batch that was handed out and whose step has not ended."""

    delivered_ns: int
    wait_ns: int
    telemetry: Telemetry | None
    is_whole: bool = True
    has_gradients: bool = True
    lent: tuple[Any, Any] | None = None
    delayed_ns: int = 0
    """For how long the loop had waited for a core by then."""


def is_grad_enabled() -> bool:
    """Whether the loop trains with what it is given, as far as can be told."""
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def likeness(loader: Any) -> tuple[Any, ...]:
    """What a loader has in common with another that the same line of the script made for the same purpose, whose loop
    cannot tell their batches apart by their form; classes and functions by their names, since a function may define them
    each time. The length is not among it: shards of one data set differ in it."""
    parts = (loader, *(getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler")))
    names = [(type(part).__module__, type(part).__qualname__) for part in parts]
    collate: Any = getattr(loader, "collate_fn", None)
    collate = collate if hasattr(collate, "__qualname__") else type(collate)
    batches = [(getattr(part, "batch_size", None), getattr(part, "drop_last", None)) for part in (parts[0], parts[3])]
    workers = getattr(loader, "num_workers", None)
    return *names, (getattr(collate, "__module__", None), collate.__qualname__), *batches, workers


class Session:
    """One loader of the script, with its workers and its account."""

    def __init__(self, loader: Any, facts: Loader, length: int | None) -> None:
        self.attach(loader, length)
        self.facts = facts
        self.promised: int | None = None
        """Batches after which a stream's epoch is over, while it may get some from cache as well; None for all it has."""
        self.has_new_data = False
        """Whether its workers are of other data than those of the epoch before, and no batch of theirs was seen yet."""
        self.boards: dict[Settings | None, Switchboard] = {}
        self.fleet: Fleet | None = None
        self.ordered: Fleet | None = None
        """The workers that got the last order; others make no batch under its generation."""
        self.resting: dict[Settings | None, Fleet] = {}
        self.refused: set[Settings | None] = set()
        self.fleets_made = 0
        self.make_iterator: Callable[[Any], Any] = iter
        self.iterator: Iterator[Any] | None = None
        self._current: Callable[[], Watched | None] = lambda: None
        self.is_taken_over = False
        """Whether the script was seen to drop an iterator in the middle for another of the same loader."""
        self.starts: list[Start] = []
        self.created_ns = 0
        self.others_before = 0
        """Batches of other loaders when the present iterator was made."""
        self.others_last = 0
        """The same when it last gave a batch."""
        self.ended_ns = 0
        """When the present iterator ended; 0 while it has not."""
        self.construct_ns = 0
        self.closing_ns = 0
        """Of the time to make the present iterator, what ending our workers of the epoch before took."""
        self.closed_ns = 0
        """What ending the present iterator took when the loop let go of it in the middle."""
        self.first_wait_ns = -1
        self.wait_ns = self.wait_cpu_ns = 0
        self.delivered = 0
        self.is_natural = True
        self.has_started = True
        """Whether workers started for the present iterator as they would have without us."""
        self.is_seamless = False
        """Whether the present epoch followed the last at once, from workers that went on."""
        self.with_gradients = 0
        """Batches in a row that it used with gradients enabled."""
        self.used = 0
        """Batches that the loop did something with."""
        self.cycle = 1
        """Batches that the loop takes at once, to work on all of them before it takes the next; those of an epoch's end may
        be fewer."""
        self._gap = 0
        self._worked_at = self._first_worked_at = 0
        self.dropped = 0
        """Batches of this iterator that it dropped before it was taken for the training loader."""
        self.dropped_ns = 0
        self.total = 0
        self.pending: Pending | None = None
        self.epochs = 0

    def attach(self, loader: Any, length: int | None) -> None:
        """The script has this loader now; it is not kept alive by us.

        Args:
            loader: the loader.
            length: batches of an epoch, where that can be relied upon.
        """
        self.length = length
        self.samples = told_length(getattr(loader, "dataset", None))
        self.likeness = likeness(loader)
        self.with_grad = is_grad_enabled()
        try:
            self._loader: Callable[[], Any] = weakref.ref(loader)
        except TypeError:  # a list, for instance
            self._loader = lambda: loader

    @property
    def loader(self) -> Any:
        """The script's loader; None once it is gone."""
        return self._loader()

    @property
    def current(self) -> Watched | None:
        """The iterator that the loop has; None where it has dropped it."""
        return self._current()

    @property
    def begins_as_without_us(self) -> bool:
        """Whether the first batch of the present iterator is made as without us, and waited for: its start is clocked as one
        of the script's own, or it shows what the present data is like."""
        return self.has_started and (len(self.starts) < 2 or self.has_new_data)

    def hand_out(self, iterator: Watched) -> None:
        """This is the iterator that the loop has from now on; it is not kept alive by us."""
        self._current = weakref.ref(iterator)

    @property
    def is_iterated(self) -> bool:
        """Whether the loop has an iterator that may still be asked for batches."""
        current = self.current
        return current is not None and not current.is_over

    @property
    def is_under_way(self) -> bool:
        """Whether that iterator has batches left, as far as is known: a loop that counts does not ask after the last."""
        return self.is_iterated and (self.length is None or self.delivered < self.length)

    def is_abreast_of(self, other: Session) -> bool:
        """Whether the loop takes a batch of both in every step, as of loaders in a `zip`."""
        return self.total > 1 and abs(self.total - other.total) <= 1

    @property
    def usual_wait_ns(self) -> float:
        """Mean wait for a batch, without the first of each iterator."""
        waited = self.wait_ns - max(0, self.first_wait_ns) + sum(s.wait_ns - s.first_wait_ns for s in self.starts)
        return waited / max(1, self.total - 1 - len(self.starts))

    def is_begun_in_steps_of(self, loop: Session) -> bool:
        """Whether the loop over another loader begins this one anew in its steps, for a batch or two each time."""
        begun = len(self.starts)
        return begun >= FEWEST_ANEW and 2 * begun >= loop.total and self.total <= BRIEF * (begun + 1)

    def note_work(self) -> None:
        """The loop has worked after the batch that it was given last: on that one, or on all since it did so last, as where
        gradients are accumulated over batches that are taken together."""
        gap, self._worked_at = self.total - self._worked_at, self.total
        self._first_worked_at = self._first_worked_at or self.total
        self.cycle = gap if gap == self._gap else self.cycle
        self._gap = gap
        if self.cycle > 1:
            self.dropped = self.dropped_ns = 0

    def only_drops(self) -> bool:
        """Whether the loop has dropped nearly all batches for so long that it will not do anything else."""
        may_show_cycle = self._worked_at and self.total <= FIRST_CYCLES * self._first_worked_at
        if SOME * self.used > self.total or may_show_cycle:
            return False
        if self.length is None:
            return self.dropped_ns > DROP_PATIENCE_NS
        return self.total > DROP_SHARE * self.length or self.dropped_ns > LONGEST_DROP_NS

    def sampler_ns(self) -> int:
        """Time that the sampler took before its first index in the present epoch."""
        return self._sampler.start_ns if self._sampler is not None else 0

    def sampler_lines(self) -> tuple[BodyLine, ...]:
        """Where that time went, if it was expected to be long."""
        return tuple(self._sampler.lines) if self._sampler is not None else ()

    @property
    def _sampler(self) -> Endless | None:
        return self.fleet.sampler if self.fleet is not None else None

    def has_begun_epoch(self) -> bool:
        """Whether the sampler began an epoch since this was asked last; that may take long, and belongs to the start."""
        epochs = self._sampler.epochs if self._sampler is not None else 0
        has_begun, self.epochs = epochs != self.epochs, epochs
        return has_begun

    def inner_iterator(self) -> Any:
        """The loader's own iterator."""
        return self.fleet.iterator if self.fleet is not None else self.iterator
