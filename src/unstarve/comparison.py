"""Two recordings beside each other: what changed, by how much, and is it real. Pure; no torch, no clock.

The two runs are independent, so nothing is paired: block log-rates of one run are set against those of the other with
Welch's t (B. L. Welch, "The generalization of 'Student's' problem when several different population variances are
involved", Biometrika 34, 1947). Assumption: blocks scatter independently and about normally around their run's rate.

A rung's variance is its own here, and not moderated by that of the other rungs as in `estimate`: the untouched loop
scatters more than rungs served from cache, and in simulations of equal runs moderation then saw differences in 9 to
22 % of pairs, Welch's t alone in 2 to 7 %.

What moves a whole run (another tenant, another clock speed) is in no interval; the ceiling shows some of it, and a
doubt says so.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unstarve import estimate
from unstarve.judge import judge
from unstarve.judge.evidence import THRESHOLD, at_length, without_copies
from unstarve.recording import Block, Loader, Recording, Stage
from unstarve.report import Caveat, Culprit, Estimate, Report, RungResult, Verdict, figure

SCHEMA = "unstarve.comparison/1"

OUTCOMES = ("faster", "slower", "same", "unresolved")
ARRIVALS = ("within", "compatible", "less", "more")

SMALL = 1.10
"""A real difference up to this ratio may still be one between two runs of the same script."""

START_SPREAD = 0.25
"""Relative uncertainty of what iterator starts and other loaders cost, as in `judge`: too few are seen for an interval of
their own."""

LEAST_TIMED = 4
"""Timed samples of a stage below which no ratio is told: the interval of two or three says nothing."""

MACHINE = ("platform", "cpu_count", "cores_available", "memory_gib", "device")
VERSIONS = ("python", "torch", "unstarve", "torch_threads", "sharing_strategy")
SETTINGS = (
    "kind", "length", "batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory",
    "start_method", "in_order", "sampler",
)  # fmt: skip
CARRIED = ("few-rounds", "drift", "baseline-differs")
"""Doubts of a single report that weaken a comparison with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs."""

    command: str
    """What was run."""
    created: str
    """ISO 8601 time of the start of the run."""
    baseline: Estimate | None
    """Steps per second with nothing cached."""
    ceiling: Estimate | None
    """Steps per second when input costs nothing."""
    epoch_steps_per_s: float | None
    """Steps per second over a whole epoch, with its starts and other loaders."""
    headroom: Estimate | None
    """Ceiling over baseline."""
    verdict: Verdict
    """What the run was found to be bound by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungChange:
    """One rung in both runs."""

    id: str
    """`Rung.id` in the later run, or in the earlier where only that has it."""
    label: str
    """How a person reads it."""
    kind: str
    """`Rung.kind`."""
    before: Estimate | None
    """Steps per second before; None where the rung was not measured."""
    after: Estimate | None
    """Steps per second after; None where the rung was not measured."""
    ratio: Estimate | None
    """After over before, in the comparison's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """One stage in both runs."""

    id: str
    """`Stage.id` in the later run, or in the earlier where only that has it."""
    kind: str
    """`Stage.kind`."""
    name: str
    """`Stage.name`."""
    source: str | None
    """`file:line` of the user's code."""
    status: str
    """`cheaper`, `dearer`, `same` (no difference shown), `new`, `vanished` or `unmeasured`."""
    before_s: float | None
    """Mean wall time of a sample before, in seconds."""
    after_s: float | None
    """Mean wall time of a sample after, in seconds."""
    before_samples: int
    """Timed samples behind `before_s`."""
    after_samples: int
    """Timed samples behind `after_s`."""
    ratio: Estimate | None
    """Wall time after over before: below 1 is cheaper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What mending the first culprit was said to bring, and what arrived."""

    culprit: Culprit
    """The first culprit of the earlier run, with the gain if it cost nothing."""
    arrived: Estimate
    """The ratio that was measured."""
    arrival: str
    """`within` the predicted interval; outside it but `compatible`, given the noise of both; `less`; or `more`."""
    left: StageChange | None
    """What the culprit costs now, where it is a stage that was timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Before and after."""

    outcome: str
    """One of `OUTCOMES`; `same` means that no difference was shown."""
    sentence: str
    """The answer in one sentence."""
    before: Side
    """The earlier run."""
    after: Side
    """The later run."""
    unit: str
    """What ratios are of: `steps/s`, or `samples/s` where the batch size changed."""
    basis: str
    """What the answer rests on: `steady` steps, or the `epoch` with its iterator starts and other loaders, where one of
    those was the limit."""
    ratio: Estimate | None
    """After over before, by `unit` and `basis`; None where a run has no baseline."""
    is_real: bool
    """Whether the interval of `ratio` excludes 1."""
    steady_ratio: Estimate | None
    """Ratio of the baselines."""
    epoch_ratio: Estimate | None
    """The same with iterator starts and other loaders counted in."""
    ceiling_ratio: Estimate | None
    """Ratio of the ceilings; None where the runs have no ceiling in common."""
    prediction: Prediction | None
    """What was predicted, where the earlier run named a culprit."""
    rungs: tuple[RungChange, ...] = ()
    """Rungs of both runs."""
    stages: tuple[StageChange, ...] = ()
    """Stages of both runs in the later one's order, vanished ones last."""
    doubts: tuple[Caveat, ...] = ()
    """What weakens the answer."""

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON types, by the schema `unstarve.comparison/1`."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}

    def to_json(self, path: str | Path | None = None) -> str:
        """The comparison as a JSON text; also written to `path` where one is given.

        Raises:
            OSError: `path` cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A recording with what was derived from it."""

    recording: Recording
    report: Report
    blocks: tuple[Block, ...]

    @property
    def batch_size(self) -> int | None:
        return self.recording.loader.batch_size if self.recording.loader is not None else None

    @property
    def epoch_share(self) -> float:
        """Share of an epoch that goes at the pace of the baseline, whose steps wait for loaders that are drawn from beside the
        loop as well: all of it where that was taken from whole steps, the start of an iterator for each of them included."""
        whole, baseline = self.report.epoch_steps_per_s, self.report.baseline
        return whole / baseline.value if whole is not None and baseline is not None else 1.0

    @property
    def other_loader(self) -> Culprit | None:
        """The first culprit, where it is another loader than the one diagnosed."""
        first = next(iter(self.report.verdict.culprits), None)
        return first if first is not None and first.stage.startswith("loader:") else None

    @property
    def has_other_loaders(self) -> bool:
        """Whether another loader than the one diagnosed was iterated before the diagnosis ended."""
        ours = self.recording.loader
        return ours is not None and bool(self.recording.starts_beside(ours))

    @property
    def ceiling(self) -> str | None:
        measured = {rung.id for rung in self.report.rungs}
        return next((rung for rung in ("device", "host") if rung in measured), None)


def compare(before: Recording, after: Recording) -> Comparison:
    """What changed from `before` to `after`."""
    old, new = _run(before), _run(after)
    factor, unit = _unit(old, new)
    steady = _ratio(old, new, "none", "none", factor) or _baseline_ratio(old, new, factor)
    epoch = _epoch_ratio(old, new, steady)
    basis = "epoch" if epoch is not None and _is_of_epoch(old, new) else "steady"
    ratio = epoch if basis == "epoch" else steady
    ceiling = _ceiling_ratio(old, new, factor)
    pairs = _pairs(before.stages, after.stages)
    stages = _stages(before, after, pairs)
    outcome = _outcome(ratio)
    return Comparison(
        outcome=outcome,
        sentence=_sentence(old, new, outcome, ratio, unit, basis),
        before=_side(old),
        after=_side(new),
        unit=unit,
        basis=basis,
        ratio=ratio,
        is_real=outcome in ("faster", "slower"),
        steady_ratio=steady,
        epoch_ratio=epoch,
        ceiling_ratio=ceiling,
        prediction=_prediction(old, ratio, pairs, stages),
        rungs=_rungs(old, new, pairs, factor),
        stages=stages,
        doubts=_doubts(old, new, ratio, ceiling),
    )


def _run(recording: Recording) -> _Run:
    recording = replace(recording, blocks=at_length(recording.blocks, THRESHOLD))
    blocks = tuple(without_copies(block, recording) for block in recording.blocks)
    return _Run(recording=recording, report=judge(recording), blocks=blocks)


def _side(run: _Run) -> Side:
    recording, report = run.recording, run.report
    return Side(
        command=recording.command,
        created=recording.created,
        baseline=report.baseline,
        ceiling=report.ceiling,
        epoch_steps_per_s=report.epoch_steps_per_s,
        headroom=report.headroom,
        verdict=report.verdict,
    )


def _unit(old: _Run, new: _Run) -> tuple[float, str]:
    """What turns a ratio of steps into one of work done, and the unit of that work."""
    if not old.batch_size or not new.batch_size or old.batch_size == new.batch_size:
        return 1.0, "steps/s"
    return new.batch_size / old.batch_size, "samples/s"


def _is_of_epoch(*runs: _Run) -> bool:
    """Whether what held a run back lies outside the steady steps: iterator starts, or another loader that both iterated."""
    if any(run.report.verdict.bound == "start" for run in runs):
        return True
    return any(run.other_loader is not None for run in runs) and all(run.has_other_loaders for run in runs)


# --- Ratios of two runs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moments:
    """A mean on the logarithmic scale, the variance of that mean, and the degrees of freedom behind the variance."""

    centre: float
    variance: float
    freedom: float


def _rung_moments(blocks: Sequence[Block], rung: str) -> _Moments | None:
    """Log-rate of one rung over its blocks; of a single one the steps' scatter stands in for that of blocks."""
    members = [block for block in blocks if block.rung == rung and block.steps]
    if not members:
        return None
    logs = [math.log(estimate.rate(block)) for block in members]
    if len(logs) == 1:
        return _Moments(logs[0], estimate._within(members), 4.0)
    return _Moments(estimate.mean(logs), _variance(logs) / len(logs), len(logs) - 1)


def _variance(figures: Sequence[float]) -> float:
    centre = estimate.mean(figures)
    return sum((item - centre) ** 2 for item in figures) / (len(figures) - 1)


def _time_moments(times_ns: Sequence[int]) -> _Moments | None:
    """Logarithm of the mean of `times_ns`, its variance by the delta method; None of too few, or of nothing."""
    centre = estimate.mean(times_ns)
    if len(times_ns) < LEAST_TIMED or centre <= 0:
        return None
    return _Moments(math.log(centre), _variance(times_ns) / len(times_ns) / centre**2, len(times_ns) - 1)


def _welch(old: _Moments, new: _Moments, factor: float = 1.0) -> Estimate:
    """`new` over `old`, times `factor`, with Welch's 95 % interval."""
    variance = old.variance + new.variance
    shares = old.variance**2 / old.freedom + new.variance**2 / new.freedom
    half = estimate.student(variance**2 / shares) * math.sqrt(variance) if shares > 0 else 0.0
    return _around(new.centre - old.centre + math.log(factor), half)


def _around(centre: float, half: float) -> Estimate:
    return Estimate(value=math.exp(centre), low=math.exp(centre - half), high=math.exp(centre + half))


def _ratio(old: _Run, new: _Run, old_rung: str, new_rung: str, factor: float) -> Estimate | None:
    left, right = _rung_moments(old.blocks, old_rung), _rung_moments(new.blocks, new_rung)
    return None if left is None or right is None else _welch(left, right, factor)


def _baseline_ratio(old: _Run, new: _Run, factor: float) -> Estimate | None:
    """Ratio of the baselines where one was not measured in blocks; their intervals add up in quadrature."""
    left, right = old.report.baseline, new.report.baseline
    if left is None or right is None:
        return None
    return _around(math.log(right.value / left.value * factor), math.hypot(_half(left), _half(right)))


def _ceiling_ratio(old: _Run, new: _Run, factor: float) -> Estimate | None:
    if old.ceiling is None or old.ceiling != new.ceiling:
        return None
    return _ratio(old, new, old.ceiling, new.ceiling, factor)


def _epoch_ratio(old: _Run, new: _Run, steady: Estimate | None) -> Estimate | None:
    """Ratio of the speeds of a whole epoch: what starts and other loaders take slows it in proportion.

    The spread of the starts, and of the waits for another loader that is to blame, is added to the steady ratio's in quadrature (recovered from the intervals: G. Y. Zou and
    A. Donner, "Construction of confidence limits about effect measures", Stat. Med. 27, 2008).
    """
    shares = [run.epoch_share for run in (old, new)]
    outside = [run.report.time.other for run in (old, new)]
    if min(outside) == 0:  # one ended before it came to the end of an epoch
        shares = [share / (1 - other) for share, other in zip(shares, outside, strict=True)]
    if steady is None or min(shares) <= 0:
        return None
    halves = [half for run in (old, new) for half in _halves(run)]
    return _around(math.log(steady.value * shares[1] / shares[0]), math.hypot(_half(steady), *halves))


def _halves(run: _Run) -> Iterable[float]:
    """What the cost of its starts, where they are not in the baseline's own interval, and of another loader add to it."""
    start = min(run.report.time.start, 1 - run.epoch_share)
    yield _half_of_share(start)
    if run.other_loader is not None:
        yield _half_of_share(1 - 1 / run.other_loader.gain.value)


def _half_of_share(share: float) -> float:
    """Half the interval of the log-speed of an epoch of which a share is as uncertain as starts are."""
    return -math.log(1 - START_SPREAD * share)


def _half(found: Estimate) -> float:
    return math.log(found.high / found.low) / 2


def _outcome(ratio: Estimate | None) -> str:
    if ratio is None:
        return "unresolved"
    return "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "same"


# --- What was predicted -----------------------------------------------------------------------------------------------


def _prediction(
    old: _Run, ratio: Estimate | None, pairs: Sequence[tuple[Stage, Stage]], stages: Sequence[StageChange]
) -> Prediction | None:
    culprits = old.report.verdict.culprits
    if ratio is None or not culprits:
        return None
    now = {left.id: right.id for left, right in pairs}.get(culprits[0].stage)
    left = next((stage for stage in stages if stage.id == now and stage.ratio is not None), None)
    return Prediction(culprit=culprits[0], arrived=ratio, arrival=_arrival(culprits[0].gain, ratio), left=left)


def _arrival(predicted: Estimate, arrived: Estimate) -> str:
    """Where `arrived` lies beside `predicted`; the noise of their ratio is recovered from both intervals."""
    if predicted.low <= arrived.value <= predicted.high:
        return "within"
    is_more = arrived.value > predicted.value
    if is_more:
        noise = math.hypot(math.log(arrived.value / arrived.low), math.log(predicted.high / predicted.value))
    else:
        noise = math.hypot(math.log(arrived.high / arrived.value), math.log(predicted.value / predicted.low))
    if abs(math.log(arrived.value / predicted.value)) <= noise:
        return "compatible"
    return "more" if is_more else "less"


# --- Stages and rungs -------------------------------------------------------------------------------------------------

_Key = Callable[[Stage, "dict[str, Stage]"], "tuple[str, ...] | None"]


def _by_path(stage: Stage, known: dict[str, Stage]) -> tuple[str, ...] | None:
    """Kind, name and the names of the stages around it."""
    path, seen = [stage.kind, stage.name], {stage.id}
    parent = stage.parent
    while parent in known and parent not in seen:
        seen.add(parent)
        path.append(known[parent].name)
        parent = known[parent].parent
    return tuple(path)


def _by_name(stage: Stage, known: dict[str, Stage]) -> tuple[str, ...] | None:
    return (stage.kind, stage.name)


def _by_text(stage: Stage, known: dict[str, Stage]) -> tuple[str, ...] | None:
    return (stage.text,) if stage.text else None


_KEYS: tuple[_Key, ...] = (_by_path, _by_name, _by_text)


def _pairs(before: Sequence[Stage], after: Sequence[Stage]) -> list[tuple[Stage, Stage]]:
    """Stages that are the same in both runs: by name, kind and place, then by name and kind, then by source text.

    Those that share a key are paired in pipeline order. Ids and line numbers are of no use: an edit shifts both.
    """
    found: list[tuple[Stage, Stage]] = []
    for key in _KEYS:
        left, right = (_grouped(stages, key, taken) for stages, taken in _remaining(before, after, found))
        for name, members in left.items():
            found += zip(members, right.get(name, ()), strict=False)
    return found


def _remaining(
    before: Sequence[Stage], after: Sequence[Stage], found: Sequence[tuple[Stage, Stage]]
) -> Iterable[tuple[Sequence[Stage], set[str]]]:
    yield before, {left.id for left, _ in found}
    yield after, {right.id for _, right in found}


def _grouped(stages: Sequence[Stage], key: _Key, taken: set[str]) -> dict[tuple[str, ...], list[Stage]]:
    known = {stage.id: stage for stage in stages}
    groups: dict[tuple[str, ...], list[Stage]] = {}
    for stage in stages:
        name = key(stage, known)
        if stage.id not in taken and name is not None:
            groups.setdefault(name, []).append(stage)
    return groups


def _stages(before: Recording, after: Recording, pairs: Sequence[tuple[Stage, Stage]]) -> tuple[StageChange, ...]:
    earlier = {right.id: left for left, right in pairs}
    kept = {left.id for left, _ in pairs}
    found = [_stage_change(earlier.get(stage.id), stage) for stage in after.stages]
    found += [_stage_change(stage, None) for stage in before.stages if stage.id not in kept]
    return tuple(found)


def _stage_change(old: Stage | None, new: Stage | None) -> StageChange:
    shown = new or old
    assert shown is not None
    left, right = (_time_moments(stage.wall_ns) if stage else None for stage in (old, new))
    ratio = _welch(left, right) if left is not None and right is not None else None
    return StageChange(
        id=shown.id,
        kind=shown.kind,
        name=shown.name,
        source=shown.source,
        status=_status(old, new, ratio),
        before_s=_wall_s(old),
        after_s=_wall_s(new),
        before_samples=len(old.wall_ns) if old else 0,
        after_samples=len(new.wall_ns) if new else 0,
        ratio=ratio,
    )


def _wall_s(stage: Stage | None) -> float | None:
    return estimate.mean(stage.wall_ns) / 1e9 if stage is not None and stage.wall_ns else None


def _status(old: Stage | None, new: Stage | None, ratio: Estimate | None) -> str:
    if old is None:
        return "new"
    if new is None:
        return "vanished"
    if ratio is None:
        return "unmeasured"
    return {"faster": "dearer", "slower": "cheaper", "same": "same"}[_outcome(ratio)]


def _rungs(old: _Run, new: _Run, pairs: Sequence[tuple[Stage, Stage]], factor: float) -> tuple[RungChange, ...]:
    """Rungs in the later run's order, then those that only the earlier has; stages' rungs follow their stages."""
    later = {left.id: right.id for left, right in pairs}
    before = {_rung_in_the_later_run(rung.id, old, later): rung for rung in old.report.rungs}
    found = []
    for rung in new.report.rungs:
        past = before.pop(rung.id, None)
        ratio = None if past is None else _ratio(old, new, past.id, rung.id, factor)
        past_rate = None if past is None else past.steps_per_s
        found.append(_rung_change(rung, past_rate, rung.steps_per_s, ratio))
    found += [_rung_change(rung, rung.steps_per_s, None, None) for rung in before.values()]
    return tuple(found)


def _rung_change(
    rung: RungResult, before: Estimate | None, after: Estimate | None, ratio: Estimate | None
) -> RungChange:
    return RungChange(id=rung.id, label=rung.label, kind=rung.kind, before=before, after=after, ratio=ratio)


def _rung_in_the_later_run(rung: str, old: _Run, later: dict[str, str]) -> str:
    """The id that the rung has after, where its stage got another; an id that no rung has where the stage vanished."""
    prefix, colon, stage = rung.partition(":")
    if prefix not in ("after", "knockout") or stage not in {item.id for item in old.recording.stages}:
        return rung
    return f"{prefix}{colon}{later[stage]}" if stage in later else f"vanished {rung}"


# --- In words ---------------------------------------------------------------------------------------------------------


def _sentence(old: _Run, new: _Run, outcome: str, ratio: Estimate | None, unit: str, basis: str) -> str:
    if ratio is None:
        lacking = " and ".join(
            name for name, run in (("the first run", old), ("the second run", new)) if run.report.baseline is None
        )
        return f"Unresolved: {lacking} measured no untouched steps, so there is nothing to compare."
    first, second = (figure(_speed(run, unit, basis)) for run in (old, new))
    where = "" if basis == "steady" else " over an epoch with its iterator starts and other loaders"
    change = f"{unit}{where}, ×{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
    if outcome == "same":
        return f"No difference shown: {first}, then {second} {change}."
    return f"{outcome.capitalize()}: from {first} to {second} {change}."


def _speed(run: _Run, unit: str, basis: str) -> float:
    assert run.report.baseline is not None
    speed = run.report.baseline.value * (run.epoch_share if basis == "epoch" else 1.0)
    return speed * (run.batch_size or 1) if unit == "samples/s" else speed


# --- Doubts -----------------------------------------------------------------------------------------------------------


def _doubts(old: _Run, new: _Run, ratio: Estimate | None, ceiling: Estimate | None) -> tuple[Caveat, ...]:
    return tuple(
        _doubt_order(old, new)
        + _doubt_command(old, new)
        + _doubt_machine(old, new)
        + _doubt_loader(old, new)
        + _doubt_epoch(old, new)
        + _doubt_ceiling(old, new, ceiling)
        + _doubt_small(ratio)
        + _carried("first", old)
        + _carried("second", new)
    )


def _doubt_order(old: _Run, new: _Run) -> list[Caveat]:
    if old.recording == new.recording:
        return [Caveat(id="same-recording", sentence="Both are the same recording.")]
    first, second = old.recording.created, new.recording.created
    # Times that were written with different offsets from UTC do not sort as texts.
    if first[19:] != second[19:] or first <= second:
        return []
    return [
        Caveat(id="order", sentence=f"The first run ({first}) is the later one: swap them if it is the mended one.")
    ]


def _doubt_command(old: _Run, new: _Run) -> list[Caveat]:
    first, second = old.recording.command, new.recording.command
    if first == second:
        return []
    return [Caveat(id="command-differs", sentence=f"The commands differ: `{first}`, then `{second}`.")]


def _doubt_machine(old: _Run, new: _Run) -> list[Caveat]:
    first, second = old.recording.environment, new.recording.environment
    found = []
    for ident, what, keys in (
        ("machine-differs", "The machine differs", MACHINE),
        ("versions-differ", "Versions or threads differ", VERSIONS),
    ):
        changes = _changes(keys, first.get, second.get)
        if changes:
            found.append(Caveat(id=ident, sentence=f"{what}: {changes}."))
    return found


def _doubt_loader(old: _Run, new: _Run) -> list[Caveat]:
    first, second = old.recording.loader, new.recording.loader
    if first is None or second is None:
        return []
    found = []
    if first.name != second.name:
        sentence = f"Another loader was diagnosed: {first.name}, then {second.name}."
        found.append(Caveat(id="loader-differs", sentence=sentence))
    changes = _changes(SETTINGS, _getter(first), _getter(second))
    if changes:
        sentence = f"The loader's settings differ: {changes}. The change may be theirs."
        found.append(Caveat(id="settings-differ", sentence=sentence))
    if first.batch_size != second.batch_size:
        sentence = "The batch size differs, so ratios are of samples per second; the step itself differs too."
        if not first.batch_size or not second.batch_size:
            sentence = "The batch size of a run is unknown, so a step may not be the same amount of work in both."
        found.append(Caveat(id="batch-size-differs", sentence=sentence))
    return found


def _getter(loader: Loader) -> Callable[[str], Any]:
    return lambda name: getattr(loader, name)


def _changes(names: Iterable[str], old: Callable[[str], Any], new: Callable[[str], Any]) -> str:
    """Such as `num_workers 2, then 8; pin_memory False, then True`; empty where all are equal."""
    return "; ".join(f"{name} {old(name)}, then {new(name)}" for name in names if old(name) != new(name))


def _doubt_epoch(old: _Run, new: _Run) -> list[Caveat]:
    """Another loader that was to blame in one run says nothing where the other run ended before it came to one."""
    unseen = [which for which, run in (("first", old), ("second", new)) if not run.has_other_loaders]
    if not unseen or (old.other_loader or new.other_loader) is None:
        return []
    sentence = (
        f"The {unseen[0]} run ended without another loader such as that of validation data, which holds the other back: "
        "only the steps are compared, not what a whole epoch takes."
    )
    return [Caveat(id="other-loader-unseen", sentence=sentence)]


def _doubt_ceiling(old: _Run, new: _Run, ratio: Estimate | None) -> list[Caveat]:
    """The ceiling is the loop without input: if it moved, the step or the machine changed, not the input."""
    if ratio is None:
        if old.ceiling is None or new.ceiling is None:
            return []
        sentence = (
            f"The ceilings cannot be compared: batches were cached on the {old.ceiling}, then on the {new.ceiling}."
        )
        return [Caveat(id="ceiling-incomparable", about="ceiling", sentence=sentence)]
    if ratio.low <= 1 <= ratio.high:
        return []
    sentence = (
        f"The ceiling changed too, ×{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f}): the step itself or the "
        "machine's speed is not the same in both runs, so not all of the change is the input's."
    )
    return [Caveat(id="ceiling-changed", about="ceiling", sentence=sentence)]


def _doubt_small(ratio: Estimate | None) -> list[Caveat]:
    if ratio is None or ratio.low <= 1 <= ratio.high or not 1 / SMALL < ratio.value < SMALL:
        return []
    sentence = (
        "The interval knows how blocks scatter within a run, not how runs differ from each other: run both again "
        "before believing a difference this small."
    )
    return [Caveat(id="between-runs", sentence=sentence)]


def _carried(which: str, run: _Run) -> list[Caveat]:
    return [
        Caveat(id=f"{caveat.id}-{which}", sentence=f"In the {which} run: {caveat.sentence}")
        for caveat in run.report.caveats
        if caveat.id in CARRIED
    ]
