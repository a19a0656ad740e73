"""One loader's workers under our control: the loader's own iterator, made from a copy of the loader with ours added.

The user's loader is never changed: a shallow copy of it gets the wrapped `worker_init_fn` and, where the length of an
epoch is known, a batch sampler that can begin again at its end, so that one fleet of workers can serve several epochs.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import math
import os
import signal
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, _DatasetKind
from torch.utils.data.dataloader import _BaseDataLoaderIter

from unstarve.errors import Stalled
from unstarve.measure import draws
from unstarve.measure.body import BodySampler
from unstarve.measure.switchboard import Switchboard
from unstarve.measure.worker import Instruments, Telemetry, Token, WorkerInit, untagged
from unstarve.recording import BodyLine, Settings

LONG_START_NS = 50_000_000
"""A sampler that takes longer to begin an epoch is watched when it begins the next."""

_NOTHING = object()

JOIN_S = 2.0
"""Longest wait for a worker that was told to end."""


class Endless:
    """A sampler that, once allowed to, starts another epoch whenever one ends.

    Until then it ends like the user's own, so that a loader that is only watched draws its random numbers, ends its
    workers and starts its epochs exactly as without us.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.may_repeat = False
        """Whether the next epoch follows by itself."""
        self.epochs = 0
        """Epochs begun so far."""
        self.start_ns = 0
        """Time that the present epoch's first item took."""
        self.has_ended = False
        """Whether an epoch has ended for good before repeating was allowed."""
        self.lines: list[BodyLine] = []
        """Where the beginning of the present epoch spent its time, if that was expected to take long."""
        self._seen_ns = 0

    def __iter__(self) -> Iterator[Any]:
        self.has_ended = False
        return self._items(*self._begun())  # begun now, as without us: samplers may draw when they are asked to begin

    def _begun(self) -> tuple[Iterator[Any], int]:
        """The sampler's own iterator, and the time that making it took."""
        began, self.lines, self._seen_ns = time.perf_counter_ns(), [], 0
        with self._seen():
            items = iter(self._sampler)
        return items, time.perf_counter_ns() - began

    def _items(self, items: Iterator[Any], taken_ns: int) -> Iterator[Any]:
        while True:
            began = time.perf_counter_ns()
            with self._seen():
                first = next(items, _NOTHING)
            if first is not _NOTHING:
                self.start_ns = taken_ns + time.perf_counter_ns() - began
                self.epochs += 1
                yield first
                yield from items
            if first is _NOTHING or not self.may_repeat:
                self.has_ended = True
                return
            items, taken_ns = self._begun()

    @contextlib.contextmanager
    def _seen(self) -> Iterator[None]:
        """Sample what runs inside, where the epoch before took long to begin."""
        if not self.may_repeat or self.start_ns < LONG_START_NS:
            yield
            return
        sampler, began = BodySampler(), time.perf_counter_ns()
        sampler.start()
        try:
            yield
        finally:
            lines, taken_ns = sampler.stop(), time.perf_counter_ns() - began
            if taken_ns > self._seen_ns:
                self.lines, self._seen_ns = lines, taken_ns

    def let_go(self) -> None:
        """Forget the sampler, which knows the data set; no further epoch begins."""
        self._sampler, self.may_repeat = (), False

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_sampler"], name)


def epoch_length(loader: Any) -> int | None:
    """Batches of an epoch, where the loader is a plain one over indexed data; None where that cannot be relied upon."""
    is_plain = has_workers_of_ours(loader) and type(loader).__len__ is DataLoader.__len__
    if not is_plain or loader._dataset_kind != _DatasetKind.Map:
        return None
    return promised_length(loader)


def promised_length(loader: Any) -> int | None:
    """Batches of an epoch by the loader's own account, which may be wrong for a stream; None where it gives none."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    samplers = (getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
    sources = [*draws.shared(), *(source for sampler in samplers for source in draws.own(sampler))]
    attributes = getattr(loader, "__dict__", {})
    counted = {name: attributes[name] for name in (_COUNTED,) if name in attributes}
    with draws.put_back(sources):  # a sampler may draw its batches to count them
        try:
            return len(loader)
        except Exception:  # a length that cannot be told before the first epoch, by the sampler's own method
            return None
        finally:
            attributes.update(counted)  # or torch would warn of a stream's length that the script never asked for


_COUNTED = "_IterableDataset_len_called"
"""Where torch keeps the length of a stream that somebody asked for."""


def has_workers_of_ours(loader: Any, make_iterator: Callable[[Any], Any] | None = None) -> bool:
    """Whether iterating over the loader gives what torch's `_get_iterator` makes, with the workers that we know.

    Args:
        loader: the loader.
        make_iterator: how it is iterated; the class's own `__iter__` by default.
    """
    if not isinstance(loader, DataLoader):
        return False
    code = getattr(inspect.unwrap(make_iterator or type(loader).__iter__), "__code__", None)
    return code is not None and "_get_iterator" in code.co_names


def end_workers(loader: Any, iterator: Any) -> None:
    """End the workers of one of the loader's iterators, which it does not go on to keep; it may be gone itself."""
    if loader is not None and loader.__dict__.get("_iterator") is iterator:
        loader.__dict__["_iterator"] = None
    shut_down = getattr(_torch_iterator(iterator), "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


ORDERING = Endless._items.__code__
"""What the user's sampler runs below."""


class Fleet:
    """The workers of one loader.

    Args:
        loader: the user's loader; it is read, never changed.
        make_iterator: the loader class's own `__iter__`.
        patience_s: longest wait for a batch.
        can_repeat: whether the sampler may be made to begin again, so that the caller decides where an epoch ends.
        number: tells this fleet from others of the same loader.
        settings: the loader's settings to try; None for the script's own.
        when_orphaned: called when the loader is gone, maybe by the garbage collector, in any thread.
    """

    def __init__(
        self,
        loader: Any,
        make_iterator: Callable[[Any], Any],
        *,
        board: Switchboard,
        patience_s: float,
        can_repeat: bool,
        number: int,
        settings: Settings | None = None,
        when_orphaned: Callable[[Any], None] | None = None,
    ) -> None:
        self.sampler: Endless | None = None
        self.number = number
        self.settings = settings
        self._patience = _Patience(patience_s)
        self._clone: Any = object.__new__(_kind_of_copies(type(loader)))
        self._clone.__dict__.update(loader.__dict__)
        if settings is not None:
            self._clone.__dict__.update(_attributes(settings, loader))
        self.workers: int = self._clone.num_workers
        self._clone.__dict__["worker_init_fn"] = WorkerInit(board, loader.worker_init_fn)
        self._board = board
        if can_repeat:
            name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
            self.sampler = Endless(getattr(loader, name))
            self._clone.__dict__[name] = self.sampler
        self._make_iterator = make_iterator
        self._iterator: Any = None
        self._loader = weakref.ref(loader, when_orphaned)
        self._inner: Any = None
        self._unwrapped: tuple[Any, Telemetry | None] = (None, None)
        self._is_kept_busy = False

    @property
    def is_orphaned(self) -> bool:
        """Whether the loader is gone."""
        return self._loader() is None

    def outlives_epoch(self, loader: Any) -> bool:
        """Whether its workers go on with the next epoch of this loader, as they would without us."""
        is_persistent = self._clone is not None and self._clone.persistent_workers and self.workers > 0
        return is_persistent and not self.is_orphaned and self._loader() is loader

    def has_data_of(self, loader: Any) -> bool:
        """Whether its workers make the batches that new ones of this loader would make: of the very data set, by the very
        collate function."""
        if self._clone is None or self._clone.dataset is not loader.dataset:
            return False
        mine, other = self._clone.collate_fn, loader.collate_fn
        return mine is other or (isinstance(mine, types.MethodType) and mine == other)

    def issue(self, order: dict[str, Any]) -> int:
        """Publish an order to the workers; returns its generation."""
        self._is_kept_busy = order["mode"] == "busy"
        return self._board.write(order)

    @property
    def is_held(self) -> bool:
        """Whether the workers make batches as without us, the last order being held back."""
        return self._board.is_held

    def hold(self) -> None:
        """Hold the last order back until `release`, or until the next."""
        self._board.hold()

    def release(self) -> None:
        """Let the order that was held back hold again."""
        self._board.release()

    def start(self, *, must_obey: bool = False) -> None:
        """Make the iterator: workers start, or go on with another epoch if they are persistent.

        Args:
            must_obey: whether an iterator will not do that the loader has already, without our instruments: one that keeps
                its workers, or that a stateful loader has made to be asked for its state; another then begins in that
                state, under other random draws.
        """
        before = dict(self._clone.__dict__)
        if must_obey and before.get("_initial_iter_for_state_dict"):
            self._clone.load_state_dict(self._clone.state_dict())
        elif must_obey:
            self._clone.__dict__["_iterator"] = None
        self._iterator = self._make_iterator(self._clone)
        self._mirror(before)
        inner = _torch_iterator(self._iterator)
        fetcher = getattr(inner, "_dataset_fetcher", None)
        if fetcher is not None and not isinstance(fetcher, Instruments):
            inner._dataset_fetcher = Instruments(self._board, -1).attach(fetcher)
        if inner is not self._iterator and inner is not self._inner:
            self._unwrap(inner)
        self._inner = inner
        if self.settings is not None:
            self._let_die(inner)

    def _let_die(self, inner: Any) -> None:
        """Workers on trial may die without torch's signal handler ending whatever the script does at that moment; that
        they have died is seen when their batch is waited for."""
        forget = getattr(torch._C, "_remove_worker_pids", None)
        if forget is not None and getattr(inner, "_worker_pids_set", False):
            forget(id(inner))
            inner._worker_pids_set = False

    def _mirror(self, before: dict[str, Any]) -> None:
        """What a loader's own `__iter__` noted on the copy, such as how far it got, belongs on the user's loader."""
        loader = self._loader()
        definer = next(kind for kind in type(self._clone).__mro__ if "__iter__" in vars(kind))
        if definer is DataLoader or loader is None:
            return
        for name, value in self._clone.__dict__.items():
            if name not in before or before[name] is not value:
                loader.__dict__[name] = value

    def _unwrap(self, inner: Any) -> None:
        """Take the batch out of what torch's iterator gives before another iterator around it works on the batch."""
        make = inner._next_data

        def next_data() -> Any:
            data, telemetry = untagged(make())
            # what stands for a batch is nothing that the iterator around could work on
            self._unwrapped = (self._unwrapped[0] if isinstance(data, Token) else data, telemetry)
            return self._unwrapped[0]

        inner._next_data = next_data

    def repeat(self) -> None:
        """Let one epoch follow the other from now on, without new workers."""
        if self.sampler is not None:
            self.sampler.may_repeat = True
        self._extend_timeout()

    def _extend_timeout(self) -> None:
        """Leave it to our patience how long a batch may take: what we have workers do may take longer than theirs."""
        if getattr(self._inner, "_timeout", 0):
            self._inner._timeout = 0
        self._clone.__dict__["timeout"] = 0

    def wait_as_without_us(self) -> None:
        """Let a batch take as long as it may from now on."""
        self._patience = _Patience(math.inf)

    @property
    def is_endless(self) -> bool:
        """Whether batches go on coming when an epoch is over."""
        return self.sampler is not None and self.sampler.may_repeat and not self.sampler.has_ended

    @property
    def iterator(self) -> Any:
        """The loader's own iterator."""
        return self._iterator

    def pull(self) -> tuple[Any, Telemetry | None]:
        """The next batch and how it was made.

        Raises:
            StopIteration: the epoch has ended.
            Stalled: nothing came within the patience.
        """
        with self._patience:
            item = next(self._iterator)
        batch, telemetry = untagged(item)
        return batch, telemetry or self._unwrapped[1]

    def close(self) -> None:
        """End the workers for good, and let go of the loader's data set."""
        if self._is_kept_busy:  # or they would be waited for
            self.issue({"mode": "idle"})
        iterator, self._iterator = self._iterator, None
        inner, self._inner = self._inner, None
        self._clone, self._unwrapped = None, (None, None)
        if self.sampler is not None:
            self.sampler.let_go()
        if iterator is not None:
            end_workers(self._loader(), iterator)
        for worker in getattr(inner, "_workers", ()):
            worker.join(timeout=JOIN_S)  # one that had to be terminated is not gone at once


def _kind_of_copies(kind: type[Any]) -> type[Any]:
    """The class of a copy of a loader: the copy does not own what the loader does away with at its own end."""
    if not hasattr(kind, "__del__"):
        return kind
    members = {"__del__": lambda self: None, "__module__": kind.__module__}
    return types.new_class(kind.__name__, (kind,), exec_body=lambda namespace: namespace.update(members))


def _attributes(settings: Settings, loader: Any) -> dict[str, Any]:
    """The loader's attributes that follow from `settings`."""
    has_workers = settings.num_workers > 0
    found: dict[str, Any] = {
        "num_workers": settings.num_workers,
        "prefetch_factor": settings.prefetch_factor if has_workers else None,
        "persistent_workers": loader.persistent_workers and has_workers,
        "pin_memory": settings.pin_memory,
        "timeout": loader.timeout if has_workers else 0,
        "_iterator": None,
    }
    if hasattr(loader, "in_order"):  # torch 2.6 and later
        found["in_order"] = settings.in_order
    return found


def _torch_iterator(iterator: Any) -> Any:
    """The iterator of torch's that gives the batches: this one, or the one that it is wrapped around."""
    if isinstance(iterator, _BaseDataLoaderIter):
        return iterator
    held = getattr(iterator, "__dict__", {}).values()
    return next((value for value in held if isinstance(value, _BaseDataLoaderIter)), iterator)


class _Patience:
    """Interrupts a wait in the main thread that lasts too long; one wait after the other."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._has_fired = False
        self._main = threading.main_thread().ident

    def __enter__(self) -> None:
        self._has_fired = False
        if threading.get_ident() == self._main and self._seconds < 1e6:
            self._began = time.perf_counter()
            _WATCH.start(self)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        _WATCH.stop(self)
        if kind is KeyboardInterrupt and self._has_fired:
            raise Stalled(f"no batch arrived within {self._seconds:.0f} s") from None

    @property
    def is_over(self) -> bool:
        """Whether the wait has lasted too long."""
        return time.perf_counter() - self._began > self._seconds

    def fire(self) -> None:
        """Interrupt the main thread as Ctrl-C would; torch's waits end every five seconds, for where that is ignored, as it
        is in what a shell script starts in the background, or would run a handler of the script's."""
        self._has_fired = True
        is_signalled = os.name == "posix"  # elsewhere `os.kill` would end the process
        if is_signalled and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            main = ctypes.c_ulong(threading.main_thread().ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(KeyboardInterrupt))


class _Watch(threading.Thread):
    """One thread for all waits, asleep but for a glance every half second: a timer per batch would cost too much."""

    def __init__(self) -> None:
        super().__init__(name="unstarve-patience", daemon=True)
        self._waiting: _Patience | None = None
        self._pid = 0

    def start(self, wait: _Patience | None = None) -> None:  # type: ignore[override]
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]
            self._pid = os.getpid()
            super().start()
        self._waiting = wait

    def stop(self, wait: _Patience) -> None:
        self._waiting = None

    def run(self) -> None:
        while True:
            time.sleep(0.5)
            wait = self._waiting
            if wait is not None and wait.is_over:
                self._waiting = None
                wait.fire()


_WATCH = _Watch()

__all__ = ["ORDERING", "Fleet", "Token", "epoch_length"]
