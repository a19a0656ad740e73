"""What only CUDA can tell about a loop body: where it waits for the device, and how much of a step the device computes."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from unstarve.measure.body import user_line
from unstarve.measure.cuts import values

CURRENT_TIMES = 10
"""A device that holds so many times as much memory as the current one is where the script computes: what lies on the
current one is astray. One that holds less may have the later layers of a model, whose inputs go to the current one."""

_SYNC_MESSAGE = "called a synchronizing CUDA operation"
"""What torch warns of in its synchronisation debug mode."""


class SyncWatch:
    """Counts, from `start` to `stop`, where the loop's code waits for the device: `.item()`, `.cpu()`, `print` of a
    tensor and the like, by torch's synchronisation debug mode, and explicit calls of `torch.cuda.synchronize`.

    A thread that waits for CUDA spins, so that its CPU time looks like work.
    """

    def __init__(self) -> None:
        self.places: Counter[tuple[str, int]] = Counter()
        """Waits by file and line of the user's code."""
        self.is_on = False
        """Whether it counts now."""
        self._mode = 0
        self._synchronize = torch.cuda.synchronize

    def start(self) -> None:
        """Begin counting, or go on after `pause`.

        Raises:
            RuntimeError: torch has no synchronisation debug mode here.
        """
        self._mode, self._synchronize = torch.cuda.get_sync_debug_mode(), torch.cuda.synchronize
        torch.cuda.set_sync_debug_mode("warn")
        self.is_on = True
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.filterwarnings("always", message=_SYNC_MESSAGE)
        show = warnings.showwarning

        def count(message: Any, category: Any, *arguments: Any, **keywords: Any) -> None:
            if _SYNC_MESSAGE in str(message):
                self._count()
            else:
                show(message, category, *arguments, **keywords)

        def synchronize(*arguments: Any, **keywords: Any) -> None:
            self._count()
            self._synchronize(*arguments, **keywords)

        warnings.showwarning = count
        torch.cuda.synchronize = synchronize

    def _count(self) -> None:
        place = user_line(sys._getframe(2))  # past the stand-in that calls this
        if place is not None:
            self.places[place] += 1

    def pause(self) -> None:
        """Leave everything as it was, to go on later with `start`."""
        if not self.is_on:
            return
        self.is_on = False
        torch.cuda.set_sync_debug_mode(self._mode)
        torch.cuda.synchronize = self._synchronize
        self._warnings.__exit__(None, None, None)

    def stop(self) -> None:
        """End counting and leave everything as it was."""
        self.pause()


class DeviceProfile:
    """Records, from `start` to `stop`, when the device computes or copies.

    Args:
        synchronize: waits for the device.
        clock_ns: nanoseconds from any origin.
    """

    def __init__(self, synchronize: Callable[[], None], clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.is_on = False
        """Whether it records now."""
        self._synchronize = synchronize
        self._clock_ns = clock_ns
        self._busy_s = self._span_s = 0.0

    def start(self) -> None:
        """Begin recording, or go on after `pause`."""
        self._synchronize()
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self._profile.__enter__()
        self.is_on = True
        self._began_ns = self._clock_ns()

    def pause(self) -> None:
        """Stop recording, to go on later with `start`."""
        if not self.is_on:
            return
        self.is_on = False
        try:
            self._synchronize()
            span_s = (self._clock_ns() - self._began_ns) / 1e9
        finally:
            self._profile.__exit__(None, None, None)
        self._busy_s += self._recorded_s()
        self._span_s += span_s

    def stop(self) -> float:
        """End recording; the share of the time in which at least one kernel or copy ran."""
        self.pause()
        return min(1.0, self._busy_s / self._span_s) if self._span_s else 0.0

    def _recorded_s(self) -> float:
        events = self._profile.events() or ()
        spans = [
            (event.time_range.start, event.time_range.end)
            for event in events
            if event.device_type == torch.autograd.DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
        ]
        return covered(spans) / 1e6


class CopyStream:
    """Copies batches to the device on a stream of its own, while the device computes.

    The consumer's stream waits for the copy, and the memory is recorded as used by it: without that the allocator could
    hand the memory out again, to the next copy, while the step still computes on it.

    Args:
        name: the device, such as `cuda:0`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream = torch.cuda.Stream(name)

    def start(self, move: Callable[[], Any]) -> Callable[[], Any]:
        """Start the copies that `move` asks for without waiting; what is returned gives its batch, to be used at once."""
        with torch.cuda.stream(self._stream):
            moved = move()
        done = self._stream.record_event()

        def take() -> Any:
            current = torch.cuda.current_stream(self._name)
            current.wait_event(done)
            for _, leaf in values.named_leaves(moved, "batch"):
                if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                    leaf.record_stream(current)
            return moved

        return take


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def devices_in_use(kind: Any = torch.cuda) -> list[int]:
    """Numbers of the devices that hold memory of this process, the one that batches go to first; none where it has not
    touched any. A script may compute on another device than the current one.

    Args:
        kind: `torch.cuda`, or a module like it.
    """
    if not (kind.is_available() and kind.is_initialized()):
        return []
    held = {number: kind.memory_allocated(number) for number in range(kind.device_count())}
    current = kind.current_device()
    rank = {number: size * (CURRENT_TIMES if number == current else 1) for number, size in held.items() if size > 0}
    return sorted(rank, key=lambda number: -rank[number])


def is_in_use() -> bool:
    """Whether this process computes on a CUDA device, so that the above has something to see."""
    return bool(devices_in_use())


def is_profiled() -> bool:
    """Whether a profiler is on already; torch allows one at a time."""
    return bool(torch.autograd._profiler_enabled())
