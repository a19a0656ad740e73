"""Where code that is not taken apart spends its time: a thread samples the one that runs it.

Used on the loop body while batches come from cache, and on data sets whose code cannot be split, such as streams.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import CodeType, FrameType

import torch

from unstarve import syntax
from unstarve.measure.counters import RunDelay
from unstarve.measure.cuts.resolving import is_library, item_name
from unstarve.measure.memory import Collector
from unstarve.recording import BodyLine
from unstarve.script import is_package_file

INTERVAL_S = 0.002
"""Between two samples; the GIL is taken for some microseconds each time."""

SWITCH_S = 5e-5
"""How soon the sampled thread lets go while it is sampled. The usual five milliseconds would have most samples wait until it
calls something that lets go by itself, and blame that."""

WORTH_FRACTION = 0.05
"""Lines with a smaller share of the body are not reported."""

_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
_TRAINING = tuple(
    _TORCH_FOLDER + os.path.join(*parts)
    for parts in (("autograd", "__init__.py"), ("autograd", "graph.py"), ("optim", ""))
)
"""Where gradients are computed and used."""

Place = tuple[str, int]
"""File and line of the user's code."""


class BodySampler:
    """Samples a thread, the one that makes it unless another is given, from `start` to `stop`.

    Each sample is charged with the wall time and the thread's CPU time since the one before, at the innermost line of
    the user's code and, for inclusive times, at the lines that led there.

    Args:
        interval_s: between two samples.
        iterator: the generator between the loader and the loop, if there is one.
        with_stages: where no code of the user's runs, charge the innermost generator of a library: a pipeline's stage.
        below: charge only what runs below this function of ours.
        delay: what tells how long that thread waited for a core, if anything does.
        thread: the thread's `threading.get_ident`.
        beside: that of another, in which `iterator` runs: while the thread waits to be told something, it waits for that.
    """

    def __init__(
        self,
        interval_s: float = INTERVAL_S,
        *,
        iterator: CodeType | None = None,
        with_stages: bool = False,
        below: CodeType | None = None,
        delay: RunDelay | None = None,
        thread: int | None = None,
        beside: int | None = None,
    ) -> None:
        self._interval_s = interval_s
        self._iterator = iterator
        self._in_iterator_ns: dict[Place, int] = defaultdict(int)
        self._with_stages = with_stages
        self._below = below
        self._delay_ns = delay.read_ns if delay is not None else int
        self._names: dict[tuple[str, int], str] = {}
        self._target = threading.get_ident() if thread is None else thread
        self._beside = beside
        self.is_on = False
        """Whether it samples now."""
        self._thread: threading.Thread | None = None
        self._wall_ns: dict[Place, int] = defaultdict(int)
        self._cpu_ns: dict[Place, int] = defaultdict(int)
        self._torch_ns: dict[Place, int] = defaultdict(int)
        self._inclusive_ns: dict[Place, int] = defaultdict(int)
        self._inclusive_wall_ns: dict[Place, int] = defaultdict(int)
        self._inclusive_busy_ns: dict[Place, int] = defaultdict(int)
        self._inclusive_delay_ns: dict[Place, int] = defaultdict(int)
        self._depth: dict[Place, int] = {}

    def start(self) -> None:
        """Begin sampling, or go on after `pause`."""
        self.is_on = True
        self._interval_of_switches_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._thread = threading.Thread(target=self._run, name="unstarve-body", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        cpu_ns = cpu_clock(self._target)
        wall, cpu, delay = time.perf_counter_ns(), cpu_ns(), self._delay_ns()
        while self.is_on:
            time.sleep(self._interval_s)
            frame = running(self._target)
            if self._beside is not None and is_waiting(frame):
                frame = running(self._beside)
            stack = _stack(frame)
            now, used, delayed = time.perf_counter_ns(), cpu_ns(), self._delay_ns()
            if self._below is not None and not _is_below(frame, self._below):
                frame, stack = None, []
            if way := _user_lines(stack):
                self._charge(way, frame, now - wall, used - cpu, delayed - delay)
                self._charge_iterator(frame, now - wall)
            elif (stage := self._stage(frame)) is not None:
                self._charge([stage], frame, now - wall, used - cpu, delayed - delay)
            wall, cpu, delay = now, used, delayed

    def _charge(self, way: list[Place], frame: FrameType | None, wall_ns: int, cpu_ns: int, delay_ns: int) -> None:
        self._wall_ns[way[-1]] += wall_ns
        self._cpu_ns[way[-1]] += cpu_ns
        for depth, place in enumerate(way):
            self._depth.setdefault(place, depth)
            self._inclusive_wall_ns[place] += wall_ns
            self._inclusive_busy_ns[place] += cpu_ns
            self._inclusive_delay_ns[place] += delay_ns
        if _is_in_torch(frame):
            self._torch_ns[way[-1]] += cpu_ns
            return
        for place in way:
            self._inclusive_ns[place] += cpu_ns

    def _charge_iterator(self, frame: FrameType | None, wall_ns: int) -> None:
        trains = False
        while self._iterator is not None and frame is not None:
            trains = trains or frame.f_code.co_filename.startswith(_TRAINING)
            if frame.f_code is not self._iterator:
                frame = frame.f_back
            elif trains:
                self._iterator = None  # it is the training loop itself, and yields what that gives
                self._in_iterator_ns.clear()
            else:
                self._in_iterator_ns[frame.f_code.co_filename, frame.f_lineno] += wall_ns
                return

    def _stage(self, frame: FrameType | None) -> Place | None:
        while self._with_stages and frame is not None and not is_package_file(frame.f_code.co_filename):
            code = frame.f_code
            is_ours = code.co_filename == ast.__file__  # taking code apart
            if code.co_flags & inspect.CO_GENERATOR and not is_ours:
                place = (code.co_filename, code.co_firstlineno)
                if place not in self._names:
                    self._names[place] = _stage_name(frame)
                return place
            frame = frame.f_back
        return None

    def pause(self) -> None:
        """Stop sampling, to go on later with `start`."""
        if self.is_on and self._thread is not None:
            self.is_on = False
            self._thread.join()
            sys.setswitchinterval(self._interval_of_switches_s)

    def stop(self) -> list[BodyLine]:
        """End sampling; the expensive lines, most expensive first."""
        self.pause()
        return self.lines()

    def lines(self) -> list[BodyLine]:
        """The expensive lines so far, most expensive first: those that take time, then those that lead there."""
        total = max(1, sum(self._wall_ns.values()))
        spent = self._inclusive_wall_ns
        lines = [
            self._line(place, total)
            for place in spent
            if spent[place] >= WORTH_FRACTION * total or self._in_iterator_ns.get(place)
        ]
        return sorted(lines, key=lambda line: -line.wall_fraction)

    def _line(self, place: Place, total: int) -> BodyLine:
        filename, number = place
        return BodyLine(
            source=f"{filename}:{number}",
            text=self._names.get(place) or linecache.getline(filename, number).strip(),
            wall_fraction=self._wall_ns[place] / total,
            cpu_fraction=min(1.0, self._cpu_ns[place] / total),
            is_torch=self._torch_ns[place] > 0.5 * self._cpu_ns[place] > 0,
            cpu_inclusive=min(1.0, self._inclusive_ns[place] / total),
            busy_inclusive=min(1.0, self._inclusive_busy_ns[place] / total),
            wall_inclusive=min(1.0, self._inclusive_wall_ns[place] / total),
            delay_inclusive=min(1.0, self._inclusive_delay_ns[place] / total),
            depth=self._depth.get(place, 0),
            loop=_loops(filename).get(number, 0),
            in_iterator=min(1.0, self._in_iterator_ns[place] / total),
        )


@functools.lru_cache(maxsize=32)
def _loops(filename: str) -> dict[int, int]:
    return syntax.loops("".join(linecache.getlines(filename)))


def running(thread: int) -> FrameType | None:
    """What the thread runs. Our clock of collections is beside the point, though it is where a line that sets one off lets
    go of the interpreter."""
    frame = sys._current_frames().get(thread)
    return frame.f_back if frame is not None and frame.f_code is Collector.note.__code__ else frame


def is_waiting(frame: FrameType | None) -> bool:
    """Whether a thread waits to be told something, as for a queue that is empty."""
    return frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) == (threading.__file__, "wait")


def iterator_of(frame: FrameType | None) -> CodeType | None:
    """The user's generator that asks for a batch, if it is one that does: it hands the batch on to the loop."""
    while frame is not None and (is_library(frame.f_code.co_filename) or is_package_file(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame.f_code if frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR else None


def _is_below(frame: FrameType | None, function: CodeType) -> bool:
    """Whether the function of ours that is the innermost on the stack is this one."""
    while frame is not None and not is_package_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_code is function


def cpu_clock(thread: int) -> Callable[[], int]:
    """What tells the CPU nanoseconds of a thread; those of the whole process where threads have no clocks."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time_ns
    return functools.partial(time.clock_gettime_ns, time.pthread_getcpuclockid(thread))


def _stack(frame: FrameType | None) -> list[Place]:
    """Where a thread is, innermost first. A frame tells of the moment at which it is asked, and its thread may go on as
    soon as `SWITCH_S` is over: all that is to be known is read at once, and made sense of later."""
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return stack


def _user_lines(stack: list[Place]) -> list[Place]:
    """The user's lines on the stack, outermost first, each once. What is beyond our own code started us."""
    above = itertools.takewhile(lambda place: not is_package_file(place[0]), stack)
    way = [place for place in above if not is_library(place[0])]
    return list(dict.fromkeys(reversed(way)))


def _stage_name(frame: FrameType) -> str:
    """A generator's name, as the pipeline spells it: the class of a method's object, or the function and what it is
    given to apply, such as `map(Decoder)`."""
    code = frame.f_code
    given = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_varnames[:1] == ("self",):
        return type(given[0]).__name__
    steps = [item_name(item) for item in given[1:2] if callable(item)]  # after the source that it draws from
    return code.co_name.strip("_") + "".join(f"({step})" for step in steps)


def user_line(frame: FrameType | None) -> Place | None:
    """The innermost line that is the user's; None while the loop's thread is in our own code."""
    if frame is not None and is_package_file(frame.f_code.co_filename):
        return None
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_package_file(filename):
            return None
        if not is_library(filename):
            return filename, frame.f_lineno
        frame = frame.f_back
    return None


def _is_in_torch(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH_FOLDER)
