"""The iterators that loops get in place of the loaders' own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unstarve import errors
from unstarve.measure.session import Session

if TYPE_CHECKING:
    from unstarve.measure.engine import Engine


class Watched:
    """The iterator that a loop gets in place of the loader's own; everything it does not do goes through to that."""

    def __init__(self, engine: Engine, session: Session, loader: Any) -> None:
        self._engine = engine
        self._session = session
        self._loader = loader  # as torch's own iterator keeps alive what it needs
        self.is_over = False
        """Whether it gives no more batches."""
        self._has_begun = False

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        if self.is_over:
            raise StopIteration
        if not self._has_begun:
            self._has_begun = True
            if threading.get_ident() != self._engine.thread:
                self._engine.follow_thread(self._session)
        try:
            if threading.get_ident() != self._engine.thread:
                return self._engine.next_elsewhere(self._session)
            return self._engine.next_batch(self._session, self)
        except (StopIteration, errors.Finished, errors.Stalled):
            self.is_over = True
            if self._session.current is self:
                self._session.ended_ns = self._engine.clock_ns()
            self._engine.pause(self._session)
            raise
        except BaseException as error:
            # torch's iterators go on after an error of the dataset, and loops may count on it
            if (
                self._engine.drain is not None and self._engine.is_closed
            ):  # the loop was ended, and needs no more batches
                raise StopIteration from None
            self._engine.was_interrupted = self._engine.was_interrupted or isinstance(error, KeyboardInterrupt)
            self._engine.pause(self._session)
            raise

    def __len__(self) -> int:
        return len(self._loader)

    def __del__(self) -> None:
        self.is_over = True
        with contextlib.suppress(Exception):  # the interpreter may be on its way out
            self._engine.dropped(self._session)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_session" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._session.inner_iterator(), name)


class Beside:
    """The loader's own iterator, for a loop that asks for one while another over the same loader is under way.

    Where that was dropped before this one is asked for its first batch, `take_over` says what gives the batches.
    """

    def __init__(self, session: Session, iterator: Any, take_over: Callable[[Any], Any]) -> None:
        self._session = session
        self._iterator = iterator
        self._take_over = take_over
        self._has_begun = False

    def __iter__(self) -> Beside:
        return self

    def __next__(self) -> Any:
        if not self._has_begun:
            self._has_begun = True
            if not self._session.is_iterated:  # the other was dropped for this one
                self._session.is_taken_over = True
                self._iterator = self._take_over(self._iterator)
        return next(self._iterator)

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_iterator" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._iterator, name)
