"""From a recording to a report: estimates, verdict, culprits, limit, remedies and doubts. Pure; no torch, no clock.

Three kinds of evidence are weighed: contrasts of the ladder, knock-outs (the loop's speed with one stage served from
cache) and the accounting of the workers' clocks. Where they disagree the report says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from unstarve import estimate
from unstarve.recording import Block, Loader, Recording, Stage, Start
from unstarve.remedies import remedies
from unstarve.report import Caveat, Culprit, Estimate, Limit, Report, RungResult, StageResult, Verdict, WallTime

THRESHOLD = 0.05
"""Share of the loop's time that input may cost before the loop is called input-bound."""

NEAR = 2.0
"""Up to so many times the threshold, a headroom that is not shown to exceed it counts as none: nothing is proven that
would be worth mending, and a caveat says what input may cost."""

WORTH = 1.03
"""A stage whose removal gains less than this is not called a culprit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the rules look at."""

    recording: Recording
    """The facts."""
    blocks: tuple[Block, ...]
    """Blocks with the cost of copying taken off."""
    rates: dict[str, Estimate]
    """Steps per second by rung."""
    ceiling_id: str
    """The rung taken for the ceiling."""
    threshold: float
    """See `THRESHOLD`."""

    @property
    def loader(self) -> Loader:
        """The loader that was diagnosed."""
        assert self.recording.loader is not None
        return self.recording.loader

    def contrast(self, upper: str, lower: str) -> Estimate | None:
        """Ratio of two rungs' rates, paired by round."""
        return estimate.contrast(self.blocks, upper, lower)

    def of(self, rung: str) -> list[Block]:
        """Blocks of one rung."""
        return [block for block in self.blocks if block.rung == rung]

    def wait_fraction(self, rung: str) -> float:
        """Share of the rung's time that the loop spent waiting for batches."""
        waits = sum(sum(block.waits_ns) for block in self.of(rung))
        total = sum(block.end_ns - block.start_ns for block in self.of(rung))
        return waits / total if total else 0.0

    def fetch_s(self, rung: str) -> float:
        """Mean wall time of making a batch in a worker."""
        return estimate.mean([fetch for block in self.of(rung) for fetch in block.fetches_ns]) / 1e9

    def fetch_cpu_s(self, rung: str) -> float:
        """Mean CPU time of making a batch in a worker."""
        return estimate.mean([fetch for block in self.of(rung) for fetch in block.fetches_cpu_ns]) / 1e9

    def delay_s(self, rung: str) -> float:
        """Mean time that a worker was ready to run but had no core, for each batch."""
        return estimate.mean([delay for block in self.of(rung) for delay in block.delays_ns]) / 1e9

    def main_cpu_fraction(self, rung: str) -> float:
        """Share of the rung's time that the loop's own thread was on a core."""
        total = sum(block.end_ns - block.start_ns for block in self.of(rung))
        return sum(block.main_cpu_ns for block in self.of(rung)) / total if total else 0.0


def judge(recording: Recording, *, threshold: float = THRESHOLD) -> Report:
    """The report on a recording.

    Args:
        recording: facts from a live loop.
        threshold: share of the loop's time that waiting for input may cost.
    """
    blocks = tuple(_without_copies(block, recording) for block in recording.blocks)
    rates = estimate.rates(blocks)
    ceiling = "device" if "device" in rates else "host"
    evidence = Evidence(recording=recording, blocks=blocks, rates=rates, ceiling_id=ceiling, threshold=threshold)
    if recording.loader is not None and "none" not in rates and _is_always_anew(recording):
        return _anew(recording)
    if recording.loader is None or "none" not in rates or ceiling not in rates:
        return _unresolved(recording, rates)
    headroom = evidence.contrast(ceiling, "none")
    if headroom is None:
        return _unresolved(recording, rates)
    return _judged(evidence, headroom)


def _judged(evidence: Evidence, headroom: Estimate) -> Report:
    recording = evidence.recording
    time = wall_time(evidence)
    bound = _bound(evidence, headroom, time)
    culprits = _culprits(evidence, bound, time)
    caveats = _caveats(evidence, headroom, bound, culprits)
    limit = _limit(evidence, bound)
    stages = _stages(evidence)
    report = Report(
        verdict=Verdict(bound=bound, sentence=_sentence(evidence, bound, culprits, headroom, time), culprits=culprits),
        baseline=evidence.rates["none"],
        ceiling=evidence.rates[evidence.ceiling_id],
        time=time,
        rungs=_rungs(evidence),
        stages=stages,
        limit=limit,
        caveats=caveats,
        headroom=headroom,
        environment=_environment(recording),
        command=recording.command,
    )
    return replace(report, remedies=remedies(recording, report))


def _without_copies(block: Block, recording: Recording) -> Block:
    """The block as if serving from the cache had copied nothing.

    Copying happens in the workers, so it costs the loop time only as far as the loop waits for them: the correction is
    the copying time of a batch over the number of workers, and at most the waiting that there was.
    """
    if not block.copies_ns or not sum(block.copies_ns):
        return block
    workers = max(1, recording.loader.num_workers if recording.loader else 1)
    saved = min(sum(block.copies_ns) / workers, 0.9 * sum(block.waits_ns))
    return replace(block, end_ns=max(block.start_ns + 1, block.end_ns - int(saved)))


def account(recording: Recording) -> Report:
    """The report on a loop that was only watched: where its time went, with no claim about what mending would gain."""
    starts = [start for start in recording.starts if start.batches]
    if not starts:
        return _unresolved(recording, {})
    main = max(starts, key=lambda start: start.batches)
    ours = [start for start in starts if start.loader == main.loader]
    total = sum(start.ended_ns - start.created_ns for start in ours)
    first = sum(start.construct_ns + start.first_wait_ns for start in ours)
    waits = sum(start.wait_ns - start.first_wait_ns for start in ours)
    others = sum(start.ended_ns - start.created_ns for start in starts if start.loader != main.loader)
    whole = max(1, total + others)
    waiting = waits / max(1, total - first)
    steps = sum(start.batches for start in ours)
    bound = "start" if first > 0.5 * total else "input" if waiting > THRESHOLD else "step"
    sentence = (
        f"Watched, not tried: of {total / 1e9:.1f} s in the loop, {waits / max(1, total):.0%} went into waiting for "
        f"batches and {first / max(1, total):.0%} into starting iterators ({steps} steps)."
    )
    return Report(
        verdict=Verdict(bound=bound, sentence=sentence),
        baseline=None,
        ceiling=None,
        time=WallTime(steady=(total - first) / whole, start=first / whole, other_loaders=others / whole),
        caveats=(
            Caveat(id="passive", sentence="Nothing was served from cache: `unstarve run` tells what mending gains."),
        ),
        environment=_environment(recording),
        command=recording.command,
    )


# --- Time -------------------------------------------------------------------------------------------------------------


def wall_time(evidence: Evidence) -> WallTime:
    """Account of the wall time of one epoch as the script would run it without us.

    Steady time is the epoch's steps at the baseline rate; starts are those of natural iterators, the recurring ones
    where there are any; other loaders count once an epoch.
    """
    recording, loader = evidence.recording, evidence.loader
    period = 1 / evidence.rates["none"].value
    natural = [start for start in recording.starts if start.loader == loader.number and start.natural]
    recurring = natural[1:] or natural
    start = estimate.mean([start_cost_s(item, period) for item in recurring])
    ours = [item for item in recording.starts if item.loader == loader.number]
    length = loader.length or estimate.mean([item.batches for item in ours]) or 1
    if natural and max(item.batches for item in ours) <= 2:
        length = estimate.mean([item.batches for item in ours])
    steady = max(1.0, length) * period
    others = [item for item in recording.starts if item.loader != loader.number]
    epochs = max(1, len([item for item in ours if loader.length and item.batches >= loader.length]))
    other = sum((item.ended_ns - item.created_ns) / 1e9 for item in others) / epochs
    total = steady + start + other
    return WallTime(steady=steady / total, start=start / total, other_loaders=other / total)


def start_cost_s(start: Start, period_s: float) -> float:
    """What an iterator cost before its first batch, beyond the wait that every step has."""
    return max(0.0, (start.construct_ns + start.first_wait_ns) / 1e9 - period_s)


# --- Bound ------------------------------------------------------------------------------------------------------------


def _bound(evidence: Evidence, headroom: Estimate, time: WallTime) -> str:
    edge = 1 + evidence.threshold
    if _step_varies(evidence):
        return "step"
    start_gain = 1 / max(0.01, 1 - time.start)
    if start_gain > edge and start_gain > headroom.value and time.start > 0.08:
        return "start"
    if headroom.low > edge:
        return "input"
    if headroom.high < edge or headroom.value < 1 + NEAR * evidence.threshold:
        return "step"
    waits = evidence.wait_fraction("none")
    if waits > 3 * evidence.threshold and waits > 3 * evidence.wait_fraction(evidence.ceiling_id):
        return "input"  # the ratio is uncertain, but the loop was seen to wait
    return "unresolved"


def _step_varies(evidence: Evidence) -> bool:
    """Whether the body, and not waiting, makes the untouched loop slower, on batches that cached ones do not stand for:
    the step depends on the data (new shapes, for instance).

    Busy workers could slow the body too. So either the usual step is as fast as from cache and only some are long, or
    the body is fast while the workers are busy but the batch comes from cache (the rung without transport).
    """
    bodies = sorted(body for block in evidence.of("none") for body in block.bodies_ns)
    if len(bodies) < 8 or evidence.wait_fraction("none") > 2 * evidence.threshold:
        return False
    cached = _bodies(evidence, evidence.ceiling_id)
    usual, mean = bodies[len(bodies) // 2], estimate.mean(bodies)
    if cached and usual < 1.15 * cached[len(cached) // 2] and mean > 1.3 * usual:
        return True
    busy = _bodies(evidence, "knockout:ipc")
    return bool(cached and busy) and estimate.mean(busy) < 1.15 * estimate.mean(cached) < mean / 1.15


def _bodies(evidence: Evidence, rung: str) -> list[int]:
    return sorted(body for block in evidence.of(rung) for body in block.bodies_ns)


# --- Culprits ---------------------------------------------------------------------------------------------------------

Rule = Callable[[Evidence, WallTime], list[Culprit]]


def _culprits(evidence: Evidence, bound: str, time: WallTime) -> tuple[Culprit, ...]:
    if bound == "start":
        return tuple(_worker_start(evidence, time))
    if bound == "step":
        return tuple(_copy(evidence, time) + _step_host(evidence, time))
    if bound == "unresolved":
        return ()
    rules: tuple[Rule, ...] = (
        _other_loader,
        _knocked_out,
        _whole_dataset,
        _fixed,
        _copy,
        _too_few_workers,
        _tried,
        _uneven,
        _stalled,
        _contention,
    )
    found = [culprit for rule in rules for culprit in rule(evidence, time)]
    worth = [culprit for culprit in found if culprit.gain.value >= WORTH and culprit.gain.low > 1.0]
    ranked = sorted(worth, key=lambda culprit: -culprit.gain.value * _precedence(culprit))
    if not ranked:
        ranked = _by_accounting(evidence)
    return tuple(culprit for culprit in ranked[:5] if _is_notable(culprit, ranked[0]))


def _is_notable(culprit: Culprit, first: Culprit) -> bool:
    """Whether mending it is worth a word beside the first culprit: at least a quarter of its gain, on a log scale."""
    return math.log(culprit.gain.value) >= 0.25 * math.log(first.gain.value)


def _precedence(culprit: Culprit) -> float:
    """Settings cost nothing to change, so they go before a stage of about the same gain; and where workers idle or
    fight, a stage's gain is only a symptom."""
    if culprit.kind == "scheduling":
        return 3.0
    return 1.12 if culprit.kind in ("workers", "cpu") else 1.0


def _knocked_out(evidence: Evidence, time: WallTime) -> list[Culprit]:
    found = []
    for stage in evidence.recording.stages:
        gain = evidence.contrast(f"knockout:{stage.id}", "none")
        if gain is not None and stage.id not in ("collate", "ipc"):
            found.append(_stage_culprit(evidence, stage, _capped(evidence, gain)))
    return found


def _stage_culprit(evidence: Evidence, stage: Stage, gain: Estimate) -> Culprit:
    share = _share(evidence, stage)
    place = _hottest(evidence, stage)
    return Culprit(
        stage=stage.id,
        kind=stage.kind,
        name=stage.name,
        source=place.source,
        text=place.text,
        resource=_resource(place),
        gain=gain,
        path=_path(evidence, place),
        evidence=(
            f"With only this stage served from cache the loop runs {gain.value:.2f} times as fast; it takes "
            f"{share:.0%} of a sample's time ({_ms(stage):.2f} ms, n={len(stage.wall_ns)})."
        ),
    )


def _whole_dataset(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """A dataset that could not be taken apart is blamed as a whole, by the ladder."""
    stages = [stage for stage in evidence.recording.stages if stage.kind not in ("collate", "ipc")]
    if any(f"knockout:{stage.id}" in evidence.rates for stage in stages):
        return []
    gain = evidence.contrast("samples", "none")
    if gain is None or not stages:
        return []
    leaves = [stage for stage in stages if not any(other.parent == stage.id for other in stages)]
    stage = max(leaves, key=_ms)
    if _share(evidence, stage) < 0.5 and len(leaves) > 1:
        stage = replace(stage, kind="code")
    culprit = _stage_culprit(evidence, stage, _capped(evidence, gain))
    sentence = f"With finished samples served from cache the loop runs {gain.value:.2f} times as fast."
    return [replace(culprit, evidence=sentence)]


def _other_loader(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """An iterable that is no DataLoader: its inside is not measured, so it is blamed as a whole."""
    if evidence.loader.kind != "other":
        return []
    return [
        Culprit(
            stage="loader",
            kind="loader",
            name=evidence.loader.name,
            source=evidence.loader.source,
            resource="cpu" if evidence.main_cpu_fraction("none") > 0.5 else "wait",
            gain=_most(evidence),
            evidence=f"The loop waits {evidence.wait_fraction('none'):.0%} of its time for this iterable.",
        )
    ]


def _fixed(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Collation and transport."""
    found = []
    for name, resource in (("collate", "cpu"), ("ipc", "serialisation")):
        stage = _find(evidence.recording.stages, name)
        gain = evidence.contrast(f"knockout:{name}", "none")
        if stage is not None and gain is not None:
            culprit = _stage_culprit(evidence, replace(stage, kind=name), _capped(evidence, gain))
            sentence = f"With {name} free the loop runs {gain.value:.2f} times as fast."
            found.append(replace(culprit, resource=resource, evidence=sentence))
    return found + _sampler(evidence)


def _sampler(evidence: Evidence) -> list[Culprit]:
    """What ordering batches costs the loop's own process in every step, with nothing made and nothing sent."""
    if "control:sampler" not in evidence.rates:
        return []
    alone = 1 / evidence.rates["control:sampler"].value - 1 / evidence.rates["host"].value
    period = 1 / evidence.rates["none"].value
    if alone < evidence.threshold * period or (evidence.loader.sampler is None and alone < 0.002):
        return []
    value = min(_most(evidence).value, period / max(period - alone, 0.05 * period))
    return [
        Culprit(
            stage="sampler",
            kind="sampler",
            name=evidence.loader.sampler or "sampler",
            source=evidence.loader.sampler_source or evidence.loader.source,
            resource="cpu",
            gain=Estimate(value=value, low=1 + (value - 1) * 0.6, high=1 + (value - 1) * 1.3),
            evidence=f"Ordering batches, with nothing made and nothing sent, takes {alone * 1e3:.2g} ms of every step.",
        )
    ]


def _copy(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """The copy to the device, where cached batches on the host are slower than on the device."""
    gain = evidence.contrast("device", "host")
    is_fed = evidence.contrast("host", "none")
    if gain is None or is_fed is None or gain.low <= 1 + evidence.threshold / 2 or is_fed.value > gain.value:
        return []
    return [
        Culprit(
            stage="copy", kind="copy", name="copy to the device", source=evidence.loader.source, resource="bandwidth",
            gain=gain, evidence=f"With batches already on the device the loop runs {gain.value:.2f} times as fast as from the host.",
        )
    ]  # fmt: skip


def _too_few_workers(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Predicted gain of more workers, by the throughput law: the slower of the step and the workers sets the pace."""
    workers = evidence.loader.num_workers
    if workers > 1 or evidence.loader.kind == "other":
        return []
    cores = float(evidence.recording.environment.get("cores_available", 1))
    step = 1 / evidence.rates[evidence.ceiling_id].value
    fetch, cpu = evidence.fetch_s("none"), evidence.fetch_cpu_s("none")
    if fetch <= 0 or (workers == 1 and cores < 2):
        return []
    waits = max(0.0, fetch - cpu - evidence.delay_s("none"))
    best = max(1.0, cores)
    per_batch = cpu / best + waits / max(2.0, 2 * best)
    period = 1 / evidence.rates["none"].value
    value = period / max(step, per_batch)
    gain = Estimate(value=value, low=min(value, 1 + (value - 1) * 0.7), high=max(value, 1 + (value - 1) * 1.15))
    number = "no worker processes: loading and stepping take turns" if workers == 0 else "a single worker process"
    return [
        Culprit(
            stage="workers", kind="workers", name=f"num_workers={workers}", source=evidence.loader.source,
            resource="cpu", gain=gain,
            evidence=f"The loader has {number}; a batch takes {fetch * 1e3:.0f} ms, {cores:.0f} cores could share it.",
        )
    ]  # fmt: skip


_TRIALS = (
    ("trial:threads", "torch's threads in the loop's process beside the workers"),
    ("trial:worker-threads", "libraries that use several threads in every worker"),
    ("trial:affinity", "workers bound to fewer cores than the process may use"),
)


def _tried(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Settings of threads and cores that were tried in the loop and made it faster."""
    found = []
    for rung, name in _TRIALS:
        gain = evidence.contrast(rung, "none")
        if gain is not None and gain.low > 1 + evidence.threshold:
            found.append(
                Culprit(
                    stage=rung,
                    kind="cpu",
                    name=name,
                    source=evidence.loader.source,
                    resource="cpu",
                    gain=gain,
                    evidence=f"Tried in the loop: without it the loop runs {gain.value:.2f} times as fast.",
                )
            )
    return found


def _uneven(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Batches come from fewer workers than there are: shards are uneven or missing."""
    workers = evidence.loader.num_workers
    made = [worker for block in evidence.of("none") for worker in block.workers]
    if workers < 2 or len(made) < 4 * workers:
        return []
    most = max(made.count(worker) for worker in set(made)) / len(made)
    if most < 1.6 / workers and len(set(made)) == workers:
        return []
    value = min(most * workers, _most(evidence).value)
    return [
        Culprit(
            stage="scheduling",
            kind="scheduling",
            name="uneven shards: some workers have no data",
            source=evidence.loader.source,
            resource="wait",
            gain=Estimate(value=value, low=1 + (value - 1) * 0.7, high=1 + (value - 1) * 1.1),
            evidence=f"{len(set(made))} of {workers} workers made batches; the busiest made {most:.0%} of them.",
        )
    ]


def _stalled(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Workers idle while the loop waits, and batches cost very different times: ready ones wait for a slow one."""
    workers = evidence.loader.num_workers
    fetches = sorted(fetch for block in evidence.of("none") for fetch in block.fetches_ns)
    if workers < 2 or len(fetches) < 4 * workers or evidence.wait_fraction("none") < 0.15:
        return []
    middle, slowest = fetches[len(fetches) // 2], fetches[-max(1, len(fetches) // 10)]
    span = sum(block.end_ns - block.start_ns for block in evidence.of("none"))
    busy = sum(fetches) / workers / span
    step_ns = 1e9 / evidence.rates[evidence.ceiling_id].value
    if slowest < 4 * middle or busy > 0.85 or estimate.mean(fetches) / workers > 1.15 * step_ns:
        return []  # in the last case the workers are too slow in any order
    value = min(_most(evidence).value, 1 / max(0.1, busy))
    return [
        Culprit(
            stage="scheduling",
            kind="scheduling",
            name="batches delivered in order behind a slow one",
            source=evidence.loader.source,
            resource="wait",
            gain=Estimate(value=value, low=1 + (value - 1) * 0.5, high=1 + (value - 1) * 1.2),
            evidence=(
                f"Workers are busy only {busy:.0%} of the time while the loop waits; a usual batch takes "
                f"{middle / 1e6:.0f} ms, one in ten {slowest / 1e6:.0f} ms or more (n={len(fetches)})."
            ),
        )
    ]


def _most(evidence: Evidence) -> Estimate:
    """The headroom: no mend of the input can gain more."""
    found = evidence.contrast(evidence.ceiling_id, "none")
    assert found is not None
    return found


def _contention(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """The loop hardly waits, yet runs faster when the workers rest: they take the cores that the step needs."""
    gain = evidence.contrast("host", "none")
    if (
        gain is None
        or gain.low < 1 + evidence.threshold
        or evidence.wait_fraction("none") > 0.3 * (1 - 1 / gain.value)
        or evidence.loader.num_workers == 0
    ):
        return []
    return [
        Culprit(
            stage="cpu", kind="cpu", name="cores shared by the workers and the loop body", source=evidence.loader.source,
            resource="cpu", gain=gain,
            evidence=(
                f"The loop waits only {evidence.wait_fraction('none'):.0%} of the time, but its body runs faster when "
                "the workers rest."
            ),
        )
    ]  # fmt: skip


def _worker_start(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """What an iterator's start spends its time on: the sampler, making the workers, or the way to the first batch."""
    value = 1 / max(0.01, 1 - time.start)
    spread = 1 + (value - 1) * 0.25
    loader = evidence.loader
    starts = [item for item in evidence.recording.starts if item.loader == loader.number and item.natural]
    count = max(1, len(starts))
    construct = sum(item.construct_ns for item in starts) / 1e9 / count
    first = sum(item.first_wait_ns for item in starts) / 1e9 / count
    sampler = sum(item.sampler_ns for item in starts) / 1e9 / count
    kind, name, source, resource = "worker-start", "starting the workers", loader.source, "wait"
    if len(starts) > 2 and all(item.batches <= 2 for item in starts):
        name = "a new iterator for every step"
    elif sampler > 0.5 * (construct + first):
        kind, name, resource = "sampler", loader.sampler or "sampler", "cpu"
        source = loader.sampler_source or loader.source
    elif first > 2 * construct and loader.kind == "iterable":
        name = "filling up before the first batch"
    return [
        Culprit(
            stage=kind,
            kind=kind,
            name=name,
            source=source,
            resource=resource,
            gain=Estimate(value=value, low=max(1.0, value / spread), high=value * spread),
            evidence=(
                f"{len(starts)} natural starts: {construct:.2f} s to make the iterator, {first:.2f} s until the first "
                f"batch, {sampler:.2f} s of it in the sampler, against "
                f"{loader.length or (starts[0].batches if starts else 0)} batches an epoch."
            ),
        )
    ]


def _step_host(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Work of the host in the loop body, where the body also waits for a device: the two take turns."""
    busy = evidence.main_cpu_fraction(evidence.ceiling_id)
    lines = [line for line in evidence.recording.body if line.cpu_fraction >= 0.05 and not line.is_torch]
    host = sum(line.cpu_fraction for line in lines)
    if not lines or busy < 0.2 or host < 0.15:
        return []
    hottest = max(lines, key=lambda line: line.cpu_fraction)
    value = 1 / max(0.02, 1 - host)
    return [
        Culprit(
            stage="step",
            kind="step-host",
            name="host work in the loop body",
            source=hottest.source,
            text=hottest.text,
            resource="cpu",
            gain=Estimate(value=value, low=1 + (value - 1) * 0.6, high=1 + (value - 1) * 1.3),
            evidence=(
                f"With batches from cache the loop's own thread is on a core {busy:.0%} of the time; this line alone "
                f"takes {hottest.cpu_fraction:.0%} of the body, and computes on the host."
            ),
        )
    ]


def _by_accounting(evidence: Evidence) -> list[Culprit]:
    """When no single removal gains anything: the most expensive leaf, with the ladder's contrast as what is at stake."""
    stages = [stage for stage in evidence.recording.stages if stage.wall_ns and stage.id != "ipc"]
    leaves = [stage for stage in stages if not any(other.parent == stage.id for other in stages)]
    gain = evidence.contrast(evidence.ceiling_id, "none")
    if not leaves or gain is None or gain.value < 1 + 3 * evidence.threshold:
        return []
    stage = max(leaves, key=_ms)
    culprit = _stage_culprit(evidence, stage, gain)
    return [
        replace(
            culprit,
            evidence=f"It takes most of a sample's time ({_share(evidence, stage):.0%}); removing it alone was not shown to help.",
        )
    ]


def _capped(evidence: Evidence, gain: Estimate) -> Estimate:
    """No stage can gain more than the ceiling allows; noise of the knock-out may say otherwise."""
    most = evidence.contrast(evidence.ceiling_id, "none")
    if most is None or gain.value <= most.value:
        return gain
    return Estimate(value=most.value, low=min(gain.low, most.value), high=max(gain.high, most.value))


def _hottest(evidence: Evidence, stage: Stage) -> Stage:
    """The statement inside the stage that takes most of its time; the stage itself where none dominates."""
    inner = [other for other in evidence.recording.stages if other.parent == stage.id and other.source]
    if not inner:
        return stage
    hottest = max(inner, key=_ms)
    if _ms(hottest) < 0.4 * _ms(stage):
        return stage
    return _hottest(evidence, hottest)


def _resource(stage: Stage) -> str:
    running = sum(stage.wall_ns) - sum(stage.delay_ns)
    if running > 0 and sum(stage.cpu_ns) < 0.5 * running:
        return "wait"
    return "cpu"


def _path(evidence: Evidence, stage: Stage) -> tuple[str, ...]:
    path = [stage.name]
    parent = stage.parent
    while parent is not None:
        outer = _find(evidence.recording.stages, parent)
        if outer is None:
            break
        path.insert(0, outer.name)
        parent = outer.parent
    return tuple(path)


def _find(stages: Sequence[Stage], ident: str) -> Stage | None:
    return next((stage for stage in stages if stage.id == ident), None)


def _ms(stage: Stage) -> float:
    return estimate.mean(stage.wall_ns) / 1e6


def _sample_ms(evidence: Evidence) -> float:
    tops = [stage for stage in evidence.recording.stages if stage.parent is None and stage.id != "ipc"]
    return sum(_ms(stage) for stage in tops)


def _share(evidence: Evidence, stage: Stage) -> float:
    whole = _sample_ms(evidence)
    return _ms(stage) / whole if whole else 0.0


# --- The rest of the report -------------------------------------------------------------------------------------------


def _rungs(evidence: Evidence) -> tuple[RungResult, ...]:
    return _rung_results(evidence.recording, evidence.rates)


def _rung_results(recording: Recording, rates: dict[str, Estimate]) -> tuple[RungResult, ...]:
    return tuple(
        RungResult(id=rung.id, label=rung.label, after=rung.after, kind=rung.kind, steps_per_s=rates[rung.id])
        for rung in sorted(recording.rungs, key=lambda rung: rung.rank)
        if rung.id in rates
    )


def _stages(evidence: Evidence) -> tuple[StageResult, ...]:
    found = []
    for stage in evidence.recording.stages:
        gain = evidence.contrast(f"knockout:{stage.id}", "none")
        if gain is None and stage.id == "ipc":
            continue
        found.append(_stage_result(evidence, stage, gain))
    return tuple(found)


def _stage_result(evidence: Evidence, stage: Stage, gain: Estimate | None) -> StageResult:
    count = len(stage.wall_ns)
    return StageResult(
        id=stage.id,
        kind=stage.kind,
        name=stage.name,
        source=stage.source,
        text=stage.text,
        parent=stage.parent,
        wall_s_per_sample=estimate.mean(stage.wall_ns) / 1e9 if count else None,
        cpu_s_per_sample=estimate.mean(stage.cpu_ns) / 1e9 if count else None,
        samples=count or None,
        share=_share(evidence, stage) if count else None,
        read_bytes_per_sample=stage.read_bytes / count if count and stage.read_bytes else None,
        gain_if_free=gain,
        gain_source="knockout" if gain is not None else None,
    )


def _limit(evidence: Evidence, bound: str) -> Limit:
    loader = evidence.loader
    fetch, cpu = evidence.fetch_s("none"), evidence.fetch_cpu_s("none")
    period = 1 / evidence.rates["none"].value
    cores = float(evidence.recording.environment.get("cores_available", 1))
    workers = max(1, loader.num_workers)
    if bound == "start":
        return Limit(binding="start", explanation="Most of what can be won lies in starting iterators.")
    if bound == "step":
        capacity = _capacity(evidence)
        text = f"The loop body sets the pace at {evidence.rates['none'].value:.3g} steps/s"
        spare = f"; the workers could make {capacity:.3g} batches/s" if capacity else ""
        return Limit(binding="device" if evidence.recording.has_device else "main", explanation=f"{text}{spare}.")
    if not fetch:
        return Limit(binding="unknown", explanation="The loader is not a DataLoader; its inside was not measured.")
    used = cpu / period + evidence.main_cpu_fraction("none")
    busy = fetch / workers / period
    figures = f"a batch takes {fetch * 1e3:.0f} ms of a worker ({cpu * 1e3:.0f} ms CPU), {loader.num_workers} workers, {cores:.0f} cores"
    if loader.num_workers == 0:
        return Limit(binding="main", explanation=f"The main process loads and steps in turn: {figures}.")
    if used > 0.85 * cores:
        return Limit(binding="cores", explanation=f"The cores are used up ({used:.1f} of {cores:.0f}): {figures}.")
    if cpu < 0.5 * (fetch - evidence.delay_s("none")) and busy > 0.8:
        return Limit(binding="storage", explanation=f"The workers wait rather than compute: {figures}.")
    if busy > 0.8:
        return Limit(binding="workers", explanation=f"The workers are busy all the time, cores are left: {figures}.")
    return Limit(
        binding="unknown", explanation=f"Neither workers nor cores are used up, yet the loop waits: {figures}."
    )


def _capacity(evidence: Evidence) -> float:
    """Batches per second that the workers could make if the loop took them at once, as their clocks say."""
    fetch, cpu = evidence.fetch_s("none"), evidence.fetch_cpu_s("none")
    if not fetch:
        return 0.0
    cores = float(evidence.recording.environment.get("cores_available", 1))
    return min(max(1, evidence.loader.num_workers) / fetch, cores / cpu if cpu else math.inf)


def _sentence(evidence: Evidence, bound: str, culprits: Sequence[Culprit], headroom: Estimate, time: WallTime) -> str:
    base, top = evidence.rates["none"], evidence.rates[evidence.ceiling_id]
    reach = f"the loop reaches {base.value:.3g} of a possible {max(base.value, top.value):.3g} steps/s"
    if bound == "input":
        return f"Input-bound: {reach}.{_first_culprit(culprits)}"
    if bound == "start":
        return f"Start-bound: {time.start:.0%} of an epoch goes into starting iterators, before the first batch.{_first_culprit(culprits)}"
    if bound == "step":
        spare = _capacity(evidence)
        room = f" The workers could make {spare / base.value:.1f} times as many batches." if spare > base.value else ""
        is_sure = headroom.high < 1 + evidence.threshold
        hope = "feeding it faster would gain nothing" if is_sure else "feeding it faster was not shown to gain anything"
        return f"Step-bound: {reach}; {hope}.{room}{_first_culprit(culprits)}"
    return (
        f"Unresolved: {reach}, a ratio of {headroom.value:.2f} that may be {headroom.low:.2f} or {headroom.high:.2f}. "
        "A larger --budget narrows it."
    )


def _first_culprit(culprits: Sequence[Culprit]) -> str:
    if not culprits:
        return ""
    first = culprits[0]
    place = f" ({_short(first.source)})" if first.source else ""
    return (
        f" {first.name}{place} holds it back most: without it the loop would run {first.gain.value:.2f} times as fast."
    )


def _short(source: str) -> str:
    return source.replace("\\", "/").rpartition("/")[2]


def _environment(recording: Recording) -> dict[str, object]:
    found: dict[str, object] = dict(recording.environment)
    loader = recording.loader
    if loader is not None:
        found["loader"] = (
            f"{loader.name} batch_size={loader.batch_size} num_workers={loader.num_workers} "
            f"prefetch_factor={loader.prefetch_factor} pin_memory={loader.pin_memory} start_method={loader.start_method}"
        )
    found["steps"] = recording.steps_total
    found["seconds"] = round(recording.span_ns / 1e9, 1)
    return found


# --- Doubts -----------------------------------------------------------------------------------------------------------


def _caveats(evidence: Evidence, headroom: Estimate, bound: str, culprits: Sequence[Culprit]) -> tuple[Caveat, ...]:
    found = [Caveat(id=note.id, sentence=note.sentence, about="ladder") for note in evidence.recording.notes]
    found += (
        (_doubt_step(evidence) or _doubt_threshold(evidence, headroom, bound))
        + _doubt_baseline(evidence)
        + _doubt_rounds(evidence)
        + _doubt_drift(evidence)
        + _doubt_accounting(evidence, culprits)
    )
    found += [
        Caveat(id="kept-whole", about=stage.id, sentence=f"{stage.name} was not taken apart: {stage.why_whole}.")
        for stage in evidence.recording.stages
        if stage.why_whole
    ]
    if not evidence.recording.has_device:
        found.append(
            Caveat(
                id="no-accelerator", about="ladder",
                sentence="No accelerator was in use: the ceiling is the loop fed from host memory, and the step is what the CPU does.",
            )
        )  # fmt: skip
    if evidence.loader.kind != "map":
        found.append(
            Caveat(
                id="outer-rungs-only", about="ladder",
                sentence="The data set is not indexed, so only the outer rungs were measured.",
            )
        )  # fmt: skip
    return tuple(found)


def _doubt_step(evidence: Evidence) -> list[Caveat]:
    if not _step_varies(evidence):
        return []
    sentence = (
        "Some steps on fresh batches take much longer than on cached ones, though the usual step does not: the step "
        "depends on the data (on new shapes, for instance), and the ceiling, measured on few batches, is too high."
    )
    return [Caveat(id="step-varies", sentence=sentence)]


def _doubt_threshold(evidence: Evidence, headroom: Estimate, bound: str) -> list[Caveat]:
    if bound != "step" or headroom.high < 1 + evidence.threshold:
        return []
    least, most = max(0.0, 1 - 1 / headroom.low), 1 - 1 / headroom.high
    sentence = (
        f"Input may cost between {least:.0%} and {most:.0%} of the loop's time; no single stage was shown to matter."
    )
    return [Caveat(id="near-threshold", sentence=sentence)]


def _doubt_baseline(evidence: Evidence) -> list[Caveat]:
    """Does the baseline agree with the untouched steps before the experiment?"""
    natural = evidence.recording.natural_period_ns / 1e9
    measured = 1 / evidence.rates["none"].value
    if not natural or 0.5 < natural / measured < 2.0:
        return []
    sentence = (
        f"Before anything was cached a step took {natural * 1e3:.3g} ms, under the baseline {measured * 1e3:.3g} ms: "
        "the loop's speed changes a lot, and the intervals may be too narrow."
    )
    return [Caveat(id="baseline-differs", sentence=sentence)]


def _doubt_rounds(evidence: Evidence) -> list[Caveat]:
    rounds = len(evidence.of("none"))
    if rounds >= 3:
        return []
    return [
        Caveat(
            id="few-rounds",
            sentence=f"Only {rounds} round{'s' if rounds != 1 else ''} fitted into the budget; intervals rest on little.",
        )
    ]


def _doubt_drift(evidence: Evidence) -> list[Caveat]:
    rates = [estimate.rate(block) for block in evidence.of("none")]
    half = len(rates) // 2
    if half < 2:
        return []
    early, late = estimate.mean(rates[:half]), estimate.mean(rates[-half:])
    if 0.8 < late / early < 1.25:
        return []
    word = "slower" if late < early else "faster"
    return [
        Caveat(
            id="drift", sentence=f"The untouched loop became {word} during the run ({early:.3g} to {late:.3g} steps/s)."
        )
    ]


def _doubt_accounting(evidence: Evidence, culprits: Sequence[Culprit]) -> list[Caveat]:
    """Does the first culprit's measured gain fit its share of the workers' time?"""
    if not culprits:
        return []
    stage = _find(evidence.recording.stages, culprits[0].stage)
    most = evidence.contrast(evidence.ceiling_id, "none")
    if stage is None or not stage.wall_ns or most is None or evidence.wait_fraction("none") < 0.2:
        return []
    expected = min(most.value, 1 / max(0.02, 1 - _share(evidence, stage)))
    gain = culprits[0].gain
    if gain.low / 1.3 <= expected <= gain.high * 1.3:
        return []
    return [
        Caveat(
            id="evidence-disagrees", about=stage.id,
            sentence=(
                f"By its share of a sample's time {stage.name} should gain {expected:.2f}, but removing it gained "
                f"{gain.value:.2f}: something beside it binds."
            ),
        )
    ]  # fmt: skip


def _is_always_anew(recording: Recording) -> bool:
    starts = [start for start in recording.starts if recording.loader and start.loader == recording.loader.number]
    return len(starts) > 3 and all(start.batches <= 1 for start in starts)


def _anew(recording: Recording) -> Report:
    """The report on a loop that makes a new iterator for every step; its starts tell all."""
    loader = recording.loader
    assert loader is not None
    starts = [start for start in recording.starts if start.loader == loader.number]
    wholes = [(after.created_ns - start.created_ns) / 1e9 for start, after in itertools.pairwise(starts)]
    losses = [(start.construct_ns + start.first_wait_ns) / 1e9 for start in starts[:-1]]
    pairs = [(whole, max(1e-6, whole - loss)) for whole, loss in zip(wholes, losses, strict=True)]
    baseline = estimate.from_periods([whole for whole, _ in pairs])
    ceiling = estimate.from_periods([rest for _, rest in pairs])
    gain = estimate.from_ratios([whole / rest for whole, rest in pairs])
    start_fraction = min(1.0, sum(losses) / max(1e-9, sum(wholes)))
    culprit = Culprit(
        stage="worker-start",
        kind="worker-start",
        name="a new iterator for every step",
        source=loader.source,
        resource="wait",
        gain=gain,
        evidence=f"{len(starts)} iterators gave one batch each; starting them took {start_fraction:.0%} of the time.",
    )
    report = Report(
        verdict=Verdict(
            bound="start",
            sentence=f"Start-bound: {start_fraction:.0%} of the time goes into making a new iterator for every step.",
            culprits=(culprit,),
        ),
        baseline=baseline,
        ceiling=ceiling,
        time=WallTime(steady=1 - start_fraction, start=start_fraction, other_loaders=0.0),
        limit=Limit(binding="start", explanation="Every step makes a new iterator, so nothing is loaded ahead."),
        headroom=gain,
        environment=_environment(recording),
        command=recording.command,
    )
    return replace(report, remedies=remedies(recording, report))


def _unresolved(recording: Recording, rates: dict[str, Estimate]) -> Report:
    reason = "no loader was iterated" if recording.loader is None else "too few steps were seen to compare rungs"
    return Report(
        verdict=Verdict(bound="unresolved", sentence=f"Unresolved: {reason}."),
        baseline=rates.get("none"),
        ceiling=rates.get("device") or rates.get("host"),
        time=WallTime(steady=1.0, start=0.0, other_loaders=0.0),
        rungs=_rung_results(recording, rates),
        caveats=(Caveat(id="too-few-steps", sentence=f"{reason[0].upper()}{reason[1:]}."),),
        environment=_environment(recording),
        command=recording.command,
    )
