"""Loaders that a thread of the script drains into a queue, from which the loop takes its batches.

`prefetch_generator`'s `DataLoaderX`, MONAI's `ThreadDataLoader` and many a hand-written prefetcher do so. As the queue is
bounded, the thread goes at the pace of the loop, or of the loader where that is slower; so its requests are clocked in
place of the loop's. What it waits for the queue is the loop's step.
"""

from __future__ import annotations

import ctypes
import os
import queue
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from unstarve import estimate
from unstarve.errors import Finished
from unstarve.measure.body import is_waiting, running
from unstarve.recording import Block

REST_S = 5.0
"""How long the main thread may take until it waits for a batch; then it is ended wherever it is."""

PUTTING = frozenset({"put", "put_nowait"})
"""Methods of queues by which a thread hands something on."""

LOOK_S = 0.01
"""Between two looks at what it does."""


class Drain:
    """A thread of the script that takes a loader's batches ahead of the loop, which is in the main thread.

    Args:
        depth: batches that its queue has room for.
        frame: where it takes them.
    """

    def __init__(self, depth: int, frame: FrameType) -> None:
        self.depth = depth
        self.code = frame.f_code
        self.place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        self.thread = threading.get_ident()
        self.loop_thread = threading.main_thread().ident or 0
        self._asked = 0

    def end_loop(self, parting: Sequence[Any]) -> Any:
        """End the loop where it waits for a batch: it meets `Finished` when this thread gives it one more, or the word that
        there are none. A thread that asks on and on ends as well.

        Args:
            parting: that batch, if there is one.

        Raises:
            StopIteration: there are no more batches.
            SystemExit: nor will there ever be.
        """
        self._asked += 1
        if self._asked == 1:
            until = time.monotonic() + REST_S
            while time.monotonic() < until and not is_waiting(running(self.loop_thread)):
                time.sleep(LOOK_S)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.loop_thread), ctypes.py_object(Finished))
            if parting:
                return parting[0]
        if self._asked <= 2:
            raise StopIteration
        raise SystemExit


def find(frame: FrameType | None) -> Drain | None:
    """The draining that the present thread is at, if it is one that puts something into a bounded queue; `frame` asks for a
    batch."""
    if frame is None or threading.current_thread() is threading.main_thread():
        return None
    depths = [found.maxsize for caller, _ in traceback.walk_stack(frame) for found in _queues(caller)]
    bounded = [depth for depth in depths if depth > 0]
    return Drain(max(bounded), frame) if bounded else None


def as_the_loop_sees(blocks: Sequence[Block], fed: str) -> tuple[Block, ...]:
    """The blocks with the waits and bodies of the loop's own steps: its body takes as long as it does under the rung `fed`,
    or as a whole step where that is shorter; the rest of the step it waits.

    The thread itself waits for the loop only while the queue is full.
    """
    periods = [(block.end_ns - block.start_ns) / block.steps for block in blocks if block.rung == fed]
    if not periods:
        return tuple(blocks)
    usual = int(estimate.mean(periods))
    return tuple(_as_seen(block, usual) for block in blocks)


def _as_seen(block: Block, usual_ns: int) -> Block:
    spans = [wait + body for wait, body in zip(block.waits_ns, block.bodies_ns, strict=True)]
    bodies = [min(span, usual_ns) for span in spans]
    waits = [span - body for span, body in zip(spans, bodies, strict=True)]
    return replace(block, waits_ns=tuple(waits), bodies_ns=tuple(bodies))


def _queues(frame: FrameType) -> Iterator[queue.Queue[Any]]:
    """Queues that a function may put something into: among its variables, and the attributes of the object that it is a
    method of."""
    if not PUTTING & {*frame.f_code.co_names}:
        return iter(())
    found = [*frame.f_locals.values(), *(frame.f_globals.get(name) for name in frame.f_code.co_names)]
    found += getattr(frame.f_locals.get("self"), "__dict__", {}).values()
    return (value for value in found if isinstance(value, queue.Queue))
