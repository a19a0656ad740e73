"""The Python interface: diagnose a loader with a step, probe one's own loop, watch it passively."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from unstarve import recording as _recording
from unstarve.errors import Finished, MeasurementError, UsageError
from unstarve.judge import judge
from unstarve.report import Report, Verdict

_diagnosed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Loaders that `probe` has reported on, by their id: nothing of the caller's lasts from one epoch to the next but these."""


def load(path: str | Path) -> Report:
    """The report on a recording stored with `--save`. Needs no torch.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not a recording.
    """
    return judge(_recording.load(path))


def diagnose(
    loader: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    budget: float | None = None,
    depth: int = 4,
    full: bool = False,
    quiet: bool = False,
) -> Report:
    """What starves the loop `for batch in loader: step(batch)`.

    The loop is run here, over as many epochs as it takes, on batches that are partly served from cache: what `step`
    trains is worthless afterwards.

    Args:
        loader: a `DataLoader`, or any other iterable (then only the outer rungs can be measured).
        step: what the loop does with a batch; its result is ignored.
        budget: wall time to spend, in seconds; None for 40, and up to 150 where a step takes longer than 0.4 s.
        depth: levels of calls to go into below the dataset and its containers.
        full: measure every rung, whatever the first rounds say.
        quiet: draw no progress on stderr.

    Raises:
        UsageError: `loader` cannot be iterated, or `step` cannot be called.
        MeasurementError: the loader gave too few batches for a verdict.
    """
    if not callable(step):
        raise UsageError(f"step is {step!r:.60}, expected a function of one batch.")
    reports: list[Report] = []
    for batch in _probed(loader, budget=budget, depth=depth, full=full, quiet=quiet, reports=reports):
        step(batch)
    return reports[0]


def probe(
    loader: Iterable[Any],
    *,
    budget: float | None = None,
    depth: int = 4,
    full: bool = False,
    quiet: bool = False,
    on_report: Callable[[Report], Any] | None = None,
) -> Iterator[Any]:
    """The batches of `loader` for one's own loop, which is diagnosed on the way.

    Epochs are strung together until the diagnosis is done; then the loop ends and the report is printed, or given to
    `on_report`. Batches are partly served from cache, so what the loop trains is worthless. A loop that is left before, as
    by `break`, is judged by what was measured until then; where that is too little, stderr says so.

    A loader is diagnosed once: where there is a report on it, as in the later epochs of a loop over epochs, its batches come
    untouched, with a warning. A loader made anew is diagnosed anew.

    Raises:
        UsageError: `loader` cannot be iterated.
        MeasurementError: the loader gave too few batches for a verdict.
    """
    if _diagnosed.get(id(loader)) is loader:
        sentence = "This loader was diagnosed before, and gives its own batches now; one made anew is diagnosed anew."
        warnings.warn(sentence, stacklevel=2)  # shown once, where there may be many epochs
        yield from loader
        return
    reports: list[Report] = []
    batches = _probed(loader, budget=budget, depth=depth, full=full, quiet=quiet, reports=reports)
    steps = 0
    try:
        for batch in batches:
            steps += 1
            yield batch
    except GeneratorExit:  # as after `break`: this generator ends with it
        batches.close()
    if reports:
        with contextlib.suppress(TypeError):  # lists and the like cannot be referred to weakly
            _diagnosed[id(loader)] = loader
    if not reports:
        why = f"the loop was left after {steps} steps, too few to compare rungs. Let it run on: probe ends it by itself"
        sys.stderr.write(f"unstarve: no verdict: {why}.\n")
    elif on_report is not None:
        on_report(reports[0])
    elif reports[0].baseline is not None:
        sys.stdout.write(str(reports[0]))


def _probed(
    loader: Iterable[Any], *, budget: float | None, depth: int, full: bool, quiet: bool, reports: list[Report]
) -> Generator[Any, None, None]:
    """The batches; what they were measured for is added to `reports`, nothing where the loop is left before that."""
    if not hasattr(type(loader), "__iter__"):
        raise UsageError(f"loader is {loader!r:.60}, expected a DataLoader or another iterable.")
    from unstarve.measure.engine import Engine
    from unstarve.measure.program import Options
    from unstarve.render.live import Progress

    progress = None if quiet else Progress()
    engine = Engine(
        Options(budget_s=budget, depth=depth, full=full),
        command="unstarve.diagnose", loader="0", on_progress=progress,
    )  # fmt: skip
    is_left = False
    try:
        yield from _epochs(engine, loader)
    except Finished:
        pass
    except GeneratorExit:
        is_left = True
    finally:
        if progress is not None:
            progress.close()
        engine.close()
    report = judge(engine.recording())
    if engine.is_following:
        reports.append(_followed(report))
        return
    is_known = report.baseline is not None and report.ceiling is not None
    if is_known:
        reports.append(report)
    elif is_left:
        return
    elif engine.is_finished:
        raise MeasurementError(
            f"No verdict: the budget was over after {engine.steps_total} steps, before the rungs could be compared. "
            f"budget={engine.enough_s} should be enough at this speed."
        )
    else:
        raise MeasurementError(
            f"No verdict: the loader gave {engine.most_batches} batches in all, too few to compare rungs. "
            "Give it more data, smaller batches, or repeat the loader."
        )


def _followed(report: Report) -> Report:
    """The report of a rank that did what another did, which has the verdict."""
    sentence = "Another rank was diagnosed; this one did in each step what that did."
    return replace(report, verdict=Verdict(bound="unresolved", sentence=sentence), caveats=())


def _epochs(engine: Any, loader: Iterable[Any]) -> Iterator[Any]:
    original = type(loader).__iter__
    while True:
        count = 0
        engine.thread = threading.get_ident()  # wherever the caller's loop is
        for batch in engine.iterate(loader, original):
            if engine.why_alone:
                raise MeasurementError(f"No verdict: {engine.why_alone}")
            count += 1
            yield batch
        if not count and engine.most_batches:  # an iterable that begins only once: there is what it gave
            return
        if not count:
            raise MeasurementError("No verdict: the loader is empty, it gave no batch at all.")


def watch(loader: Iterable[Any], *, on_report: Callable[[Report], Any] | None = None) -> Iterator[Any]:
    """The batches of `loader`, untouched, with the time of every step clocked; at the end, or where the loop is left
    before, the account is printed, or given to `on_report`.

    Nothing is served from cache, so the account says where time went and not what mending would gain.
    """
    from unstarve.judge import account
    from unstarve.measure.engine import Engine

    engine = Engine(command="unstarve.watch", passive=True)
    try:
        yield from engine.iterate(loader, type(loader).__iter__)
    except GeneratorExit:  # as after `break`: this generator ends with it
        pass
    finally:
        engine.close()
    report = account(engine.recording())
    if on_report is not None:
        on_report(report)
    else:
        sys.stdout.write(str(report))
