"""Judgements drawn from a recording, in the shape of the schema `unstarve.report/1`. No torch, no clock.

`judge.judge` makes them; `render` draws them; nothing here decides anything.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "unstarve.report/1"

BOUNDS = ("input", "step", "start", "unresolved")
KINDS = (
    "read", "decode", "transform", "code", "collate", "ipc", "pin", "copy", "sampler", "worker-start", "scheduling",
    "workers", "cpu", "memory", "step-host", "step-device", "loader",
)  # fmt: skip
RESOURCES = ("cpu", "wait", "bandwidth", "memory", "serialisation", "gil", "device")
CAUSES = ("new-iterators", "short-epochs", "dropped-batches", "before-first-batch", "first-batch", "uneven-shards")


def _member(value: str, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(allowed)}")


def short_place(source: str) -> str:
    """`file:line` without the folders."""
    return source.replace("\\", "/").rpartition("/")[2]


def figure(value: float) -> str:
    """A figure in three digits or more, never with an exponent for a large one."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def counted(number: float, noun: str, plural: str = "") -> str:
    """So many of a thing, such as `1 worker` or `0.5 cores`."""
    return f"{figure(number)} {noun if number == 1 else plural or noun + 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    """The estimate itself."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    steps: int | None = None
    """Measured steps behind it, where it is a rate."""
    is_computed: bool = False
    """Whether it was computed from other figures, with an interval by convention, and not measured."""

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"estimate {self.value} lies outside its interval {self.low} to {self.high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A stage, or a cause that is no stage, that is worth mending."""

    stage: str
    """`StageResult.id`, or the kind where the cause is no stage of the pipeline."""
    kind: str
    """One of `KINDS`."""
    name: str
    """What to call it: a transform's class, a statement, a setting."""
    source: str | None
    """`file:line` of the user's code, where one exists."""
    resource: str
    """One of `RESOURCES`: what it uses up."""
    gain: Estimate
    """Speed-up of the whole loop if it cost nothing, as a ratio."""
    cause: str | None = None
    """One of `CAUSES`, where what is to be done follows from more than the kind."""
    text: str | None = None
    """The statement at `source`."""
    path: tuple[str, ...] = ()
    """From the outermost stage down to this one."""
    evidence: str = ""
    """One sentence: the measurements that convict it."""

    def __post_init__(self) -> None:
        _member(self.kind, KINDS, "kind")
        _member(self.resource, RESOURCES, "resource")
        if self.cause is not None:
            _member(self.cause, CAUSES, "cause")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer."""

    bound: str
    """One of `BOUNDS`."""
    sentence: str
    """The answer in one or two sentences."""
    culprits: tuple[Culprit, ...] = ()
    """Most guilty first; empty when nothing is worth mending."""

    def __post_init__(self) -> None:
        _member(self.bound, BOUNDS, "bound")


@dataclass(frozen=True, slots=True, kw_only=True)
class RungResult:
    """One rung of the ladder, with its rate."""

    id: str
    """Such as `device`, `host`, `samples`, `raw` or `none`."""
    label: str
    """How a person reads it, such as: batch cached on the device."""
    after: str | None
    """Stage whose output is served from cache; None where the whole pipeline runs or none of it does."""
    steps_per_s: Estimate
    """Steps of the loop per second under this rung."""
    kind: str = "cut"
    """`device`, `host`, `collated`, `samples`, `cut`, `none`, `knockout`, `control` or `trial`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One stage with its cost and, where it was measured, what it holds back."""

    id: str
    """Address in the pipeline."""
    kind: str
    """One of `KINDS`."""
    name: str
    """A transform's class, a function's name, or the statement."""
    source: str | None
    """`file:line` of the user's code."""
    parent: str | None
    """The stage that contains it."""
    wall_s_per_sample: float | None
    """Mean wall time on the timed samples."""
    cpu_s_per_sample: float | None
    """Mean CPU time on the timed samples: of the process, all threads, and of programs that it ran to their end."""
    gain_if_free: Estimate | None = None
    """Speed-up of the whole loop if this stage cost nothing; None where it was not measured."""
    text: str | None = None
    """The statement at `source`."""
    share: float | None = None
    """Fraction of a sample's wall time."""
    samples: int | None = None
    """Timed samples behind the mean times."""
    read_bytes_per_sample: float | None = None
    """Bytes read by system calls, page cache included."""
    cached_share: float | None = None
    """Share of these bytes that came from the page cache; None where no data was read or it cannot be told."""
    gain_source: str | None = None
    """How `gain_if_free` came about: `knockout` (measured in the loop) or `ladder` (contrast of two rungs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What binds the loop."""

    binding: str
    """`device`, `copy`, `main`, `workers`, `cores`, `storage`, `start` or `unknown`."""
    explanation: str
    """The same in a sentence with the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyTime:
    """A line of the loop body, as it was sampled in steps fed from cache."""

    source: str
    """`file:line` of the user's code."""
    text: str
    """The line."""
    share: float
    """Share of a step that is spent there or in what the line calls."""
    depth: int
    """Calls between the loop's own lines, at 0, and this one."""
    spent: str
    """What most of that is spent on: `waiting`, `waiting for the device`, `in torch`, `computing` elsewhere, or
    `without a core`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What a number of workers could feed on this machine."""

    workers: int
    """Worker processes."""
    step_ms: float
    """Shortest step, in milliseconds, that they would keep busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What feeding the loop at its ceiling would take: computed by the throughput law, not tried. Where busy workers were
    seen to slow the loop body, the ceiling is that with busy workers."""

    cores: float
    """Cores that workers and loop would keep busy at the ceiling."""
    workers: int
    """Workers that would do, with a core each."""
    steps_per_s: float | None = None
    """Steps per second that all of this is for: the ceiling, or that with busy workers."""
    read_mb_per_s: float | None = None
    """Megabytes per second that would be read at the ceiling; None where the stages read nothing."""
    read_mb_per_s_now: float | None = None
    """Megabytes per second that are read now, page cache included."""
    batch_mb: float | None = None
    """Megabytes of a batch."""
    feeds: tuple[Feed, ...] = ()
    """Which step a number of workers could feed on this machine's cores."""
    epoch_price: float | None = None
    """What an epoch costs now, with its start, other loaders and what follows it, in the currency of the hourly price that
    was given; None where the end of an epoch is not known."""
    epoch_price_at_ceiling: float | None = None
    """What it would cost with steps at the ceiling, and all else as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something to change."""

    id: str
    """Stable name."""
    advice: str
    """What to do, in a sentence."""
    patch: str | None = None
    """The changed lines, where they can be written down."""
    predicted_gain: Estimate | None = None
    """Speed-up of the whole loop that the evidence predicts."""
    measured_gain: Estimate | None = None
    """Speed-up measured in the loop, where it was tried."""
    about: str | None = None
    """`StageResult.id` or `Culprit.stage` of what it mends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """A doubt, printed beside the claim it weakens."""

    id: str
    """Stable name."""
    sentence: str
    """The doubt in words."""
    about: str = "verdict"
    """What it weakens: `verdict`, `ladder`, `stages`, or the id of a rung or stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTime:
    """Fractions of the wall time of an epoch as the script would run it without us, from natural iterators."""

    steady: float
    """Steps after the first of each iterator."""
    start: float
    """Making iterators and waiting for their first batches."""
    other_loaders: float
    """Inside loops over other loaders, such as validation."""
    other: float = 0.0
    """Outside any loader, between epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything there is to say about one run."""

    verdict: Verdict
    """The answer."""
    baseline: Estimate | None
    """Steps per second with nothing cached."""
    ceiling: Estimate | None
    """Steps per second when input costs nothing."""
    time: WallTime
    """Account of the wall time."""
    epoch_steps_per_s: float | None = None
    """Steps per second over a whole epoch, with all of that; None where it is not known."""
    rungs: tuple[RungResult, ...] = ()
    """The ladder, fastest source first, then knock-outs and controls."""
    stages: tuple[StageResult, ...] = ()
    """Stages in pipeline order."""
    body: tuple[BodyTime, ...] = ()
    """The lines of the loop body that take most of a step fed from cache, from the loop's own to what they call."""
    limit: Limit | None = None
    """What binds the loop."""
    needs: Needs | None = None
    """What feeding the loop at its ceiling would take."""
    remedies: tuple[Remedy, ...] = ()
    """What to change, best first."""
    caveats: tuple[Caveat, ...] = ()
    """Doubts."""
    waiting: float | None = None
    """Share of the untouched loop's time that it waits for batches."""
    headroom: Estimate | None = None
    """Ceiling over baseline."""
    busy_ceiling: Estimate | None = None
    """Steps per second fed from cache while the workers stay busy; None where that was not measured."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Machine, versions and settings."""
    command: str = ""
    """What was run."""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON types, by the schema `unstarve.report/1`."""
        data = dataclasses.asdict(self)
        for key in ("baseline", "ceiling"):
            data[key] = None if data[key] is None else {"steps_per_s": data[key]}
        busy = data.pop("busy_ceiling")
        if data["ceiling"] is not None and busy is not None:
            data["ceiling"]["with_busy_workers"] = busy
        return {"schema": SCHEMA, **data}

    def to_json(self, path: str | Path | None = None) -> str:
        """The report as a JSON text; also written to `path` where one is given.

        Raises:
            OSError: `path` cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as a self-contained page; also written to `path` where one is given."""
        from unstarve.render.page import render

        text = render(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self) -> Any:
        """The ladder as a matplotlib figure (needs the extra `unstarve[plot]`)."""
        from unstarve.render.plot import plot

        return plot(self)

    def __str__(self) -> str:
        from unstarve.render.terminal import render

        return render(self)

    def _repr_html_(self) -> str:
        from unstarve.render.page import render_fragment

        return render_fragment(self)
