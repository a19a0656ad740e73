"""The report on a recording: the bound, and all the rest put together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from unstarve import estimate
from unstarve.judge.body import IDLE_BELOW
from unstarve.judge.caching import cached_share
from unstarve.judge.culprits import find_culprits
from unstarve.judge.doubts import find_doubts
from unstarve.judge.evidence import (
    ALL_STEADY,
    THRESHOLD,
    USED_UP,
    Evidence,
    at_length,
    begun_anew,
    cores_used,
    is_contention,
    share_of,
    shared_wait_s,
    step_varies,
    waiting_of,
    was_seen_to_wait,
    without_copies,
    without_core,
)
from unstarve.judge.needs import find_needs
from unstarve.judge.stepping import body_times
from unstarve.judge.walltime import (
    dropping_start,
    is_within,
    iterator_gain,
    loader_gain,
    outside_s,
    span_s,
    waiting_loader,
    wall_time,
)
from unstarve.recording import BUSY, Recording, Stage
from unstarve.remedies import remedies
from unstarve.report import (
    Caveat,
    Culprit,
    Estimate,
    Limit,
    Report,
    RungResult,
    StageResult,
    Verdict,
    WallTime,
    counted,
    figure,
    short_place,
)

NEAR_WAITING = 3
"""Up to so many times the threshold a headroom that the loop does not wait for is no matter of input: it comes from
sharing cores, or from cached batches that happen to be light."""

NEAR = 2.0
"""Up to so many times the threshold, a headroom that is not shown to exceed it counts as none: nothing is proven that
would be worth mending, and a caveat says what input may cost."""


def judge(recording: Recording, *, threshold: float = THRESHOLD, price: float | None = None) -> Report:
    """The report on a recording.

    Args:
        recording: facts from a live loop.
        threshold: share of the loop's time that waiting for input may cost.
        price: what an hour of the machine costs, in any currency, to say what an epoch costs.
    """
    recording = replace(recording, blocks=at_length(recording.blocks, threshold))
    blocks = tuple(without_copies(block, recording) for block in recording.blocks)
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
    return _judged(evidence, headroom, price)


def _judged(evidence: Evidence, headroom: Estimate, price: float | None) -> Report:
    recording = evidence.recording
    time, epoch_rate = wall_time(evidence)
    evidence = replace(evidence, time=time)
    bound = _bound(evidence, headroom)
    culprits = find_culprits(evidence, bound)
    caveats = find_doubts(evidence, headroom, bound, culprits)
    limit = _limit(evidence, bound, culprits)
    stages = _stages(evidence)
    report = Report(
        verdict=Verdict(
            bound=bound, sentence=_sentence(evidence, bound, culprits, headroom, epoch_rate), culprits=culprits
        ),
        baseline=evidence.rates["none"],
        ceiling=evidence.rates[evidence.ceiling_id],
        time=time,
        epoch_steps_per_s=epoch_rate,
        rungs=_rungs(recording, evidence.rates),
        stages=stages,
        body=body_times(recording.body),
        limit=limit,
        needs=find_needs(evidence, epoch_rate, price),
        caveats=caveats,
        waiting=evidence.wait_fraction("none"),
        headroom=headroom,
        busy_ceiling=evidence.rates.get(BUSY),
        environment=_environment(recording),
        command=recording.command,
    )
    return replace(report, remedies=remedies(recording, report))


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
    apart = [start for start in starts if start.loader != main.loader]
    others = int(1e9 * sum(span_s(start) for start in apart))
    within = int(1e9 * sum(span_s(start) for start in apart if is_within(start, ours)))
    outside = int(1e9 * sum(outside_s(ours, apart)))
    whole = max(1, total + others - within + outside)
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
        time=WallTime(
            steady=max(0, total - first - within) / whole,
            start=first / whole,
            other_loaders=others / whole,
            other=outside / whole,
        ),
        waiting=waiting,
        caveats=(
            Caveat(id="passive", sentence="Nothing was served from cache: `unstarve run` tells what mending gains."),
        ),
        environment=_environment(recording),
        command=recording.command,
    )


def _is_of_workers(evidence: Evidence, headroom: Estimate) -> bool:
    """Whether a small headroom lies behind finished batches in the workers: every loader that has workers costs as much."""
    ready = evidence.contrast("collated", "none")
    is_small = headroom.value < 1 + NEAR * evidence.threshold
    return is_small and ready is not None and ready.value < 1 + evidence.threshold / 2


def _bound(evidence: Evidence, headroom: Estimate) -> str:
    edge, time = 1 + evidence.threshold, evidence.time
    if step_varies(evidence):
        return "step"
    start_gain = 1 / max(0.01, 1 - time.start)
    if start_gain > edge and start_gain > headroom.value and time.start > 0.08:
        return "start"
    is_near = headroom.value < 1 + NEAR_WAITING * evidence.threshold
    is_of_body = is_near and (is_contention(evidence) or waiting_of(evidence) < evidence.threshold)
    is_of_no_stage = is_of_body or _is_of_workers(evidence, headroom)
    if headroom.low > edge and not is_of_no_stage:
        return "input"
    other = waiting_loader(evidence)
    if other is not None and loader_gain(evidence, *other) > max(edge, headroom.value):
        return "input"
    if iterator_gain(evidence) > max(edge, headroom.value):
        return "input"
    if dropping_start(evidence) is not None:
        return "start"
    if is_of_no_stage or headroom.high < edge or headroom.value < 1 + NEAR * evidence.threshold:
        return "step"
    if was_seen_to_wait(evidence) == is_contention(evidence):
        return "unresolved"  # nothing tells, or what tells disagrees
    return "input" if was_seen_to_wait(evidence) else "step"


def _rungs(recording: Recording, rates: dict[str, Estimate]) -> tuple[RungResult, ...]:
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
        share=share_of(evidence, stage) if count else None,
        read_bytes_per_sample=stage.read_bytes / count if count and stage.read_bytes else None,
        cached_share=cached_share(stage),
        gain_if_free=gain,
        gain_source="knockout" if gain is not None else None,
    )


def _limit(evidence: Evidence, bound: str, culprits: Sequence[Culprit]) -> Limit:
    loader = evidence.loader
    fetch, cpu = evidence.fetch_s("none"), evidence.fetch_cpu_s("none")
    period = 1 / evidence.rates["none"].value
    cores = evidence.cores
    workers = max(1, loader.num_workers)
    if bound == "start":
        return Limit(binding="start", explanation="Most of what can be won lies in starting iterators.")
    if bound == "step":
        text = f"The loop body sets the pace at {figure(evidence.rates['none'].value)} steps/s"
        spare = ""
        if fetch and loader.num_workers:
            spare = f"; the workers could make {figure(_capacity(evidence))} batches/s"
        elif fetch:
            spare = f"; making a batch takes {figure(fetch * 1e3)} ms of a step in the same process"
        busy = evidence.recording.device_busy
        if busy is not None:
            spare += f"; fed from the device, it computes {busy:.0%} of the time"
        is_hosts = any(culprit.kind == "step-host" for culprit in culprits) if busy is None else busy <= IDLE_BELOW
        is_device = evidence.recording.has_device and not is_hosts
        return Limit(binding="device" if is_device else "main", explanation=f"{text}{spare}.")
    if culprits and culprits[0].kind == "copy":
        copy_s = 1 / evidence.rates["host"].value - 1 / evidence.rates["device"].value
        return Limit(
            binding="copy", explanation=f"Copying a batch to the device takes {figure(copy_s * 1e3)} ms of every step."
        )
    if not fetch:
        return Limit(binding="unknown", explanation="The loader is not a DataLoader; its inside was not measured.")
    used, crowded = cores_used(evidence), without_core(evidence)
    busy = fetch / workers / period
    whose = "of a worker " if loader.num_workers else ""
    there = f"{counted(loader.num_workers, 'worker')}, " if loader.num_workers else ""
    figures = (
        f"a batch takes {figure(fetch * 1e3)} ms {whose}({figure(cpu * 1e3)} ms CPU), {there}{counted(cores, 'core')}"
    )
    if loader.num_workers == 0:
        return Limit(binding="main", explanation=f"The main process loads and steps in turn: {figures}.")
    if used > USED_UP * cores:
        return Limit(
            binding="cores", explanation=f"The cores are used up ({figure(used)} of {figure(cores)}): {figures}."
        )
    if evidence.do_workers_wait and busy > 0.8:
        return Limit(binding="storage", explanation=f"The workers wait rather than compute: {figures}.")
    if crowded and busy > 0.8 >= busy * (1 - crowded):
        taken = f"though the loop uses {figure(used)} of {figure(cores)} (others take the rest, or CPU time is limited)"
        text = f"The workers wait for a core {crowded:.0%} of the time, {taken}: {figures}."
        return Limit(binding="cores", explanation=text)
    yet = ", yet the loop waits" if waiting_of(evidence) > evidence.threshold else ""
    if busy > 0.8:
        left = f"though for a core {crowded:.0%} of it" if crowded else "cores are left"
        return Limit(binding="workers", explanation=f"The workers are busy all the time, {left}: {figures}.")
    return Limit(binding="unknown", explanation=f"Neither workers nor cores are used up{yet}: {figures}.")


def _capacity(evidence: Evidence) -> float:
    """Batches per second that the workers could make if the loop took them at once, as their clocks say."""
    return evidence.law.capacity(evidence.loader.num_workers) if evidence.fetch_s("none") else 0.0


def _sentence(
    evidence: Evidence,
    bound: str,
    culprits: Sequence[Culprit],
    headroom: Estimate,
    epoch_rate: float,
) -> str:
    base, top = evidence.rates["none"], evidence.rates[evidence.ceiling_id]
    reach = f"the loop reaches {figure(base.value)} of a possible {figure(max(base.value, top.value))} steps/s"
    if bound == "input" and culprits and culprits[0].stage.startswith(("iterator", "loader:")):
        is_less = epoch_rate < base.value * (1 - evidence.threshold)
        over_all = f", {figure(epoch_rate)} over whole epochs with all loaders" if is_less else ""
        return f"Input-bound: {figure(base.value)} steps/s{over_all}.{_first_culprit(culprits)}"
    if bound == "input":
        whose = _first_culprit(culprits) or " No single stage was shown to hold it back."
        return f"Input-bound: {reach}.{whose}"
    if bound == "start" and (drop := dropping_start(evidence)) is not None:
        return f"Start-bound: {drop.dropped_ns / 1e9:.1f} s went into {drop.dropped} batches that the loop dropped unused.{_first_culprit(culprits)}"
    if bound == "start":
        return f"Start-bound: {evidence.time.start:.0%} of an epoch goes into starting iterators, before the first batch.{_first_culprit(culprits)}"
    if bound == "step":
        spare = _capacity(evidence)
        room = f" The workers could make {spare / base.value:.1f} times as many batches." if spare > base.value else ""
        is_copy = bool(culprits) and culprits[0].kind == "copy"
        fed = (evidence.contrast("host", "none") if is_copy else None) or headroom
        what = "making its batches sooner" if is_copy else "feeding it faster"
        hope = _hope(evidence, fed)
        if culprits:  # what feeding it makes possible is not the most
            reach = (
                f"{figure(base.value)} steps/s, {figure(top.value)} with batches cached on the {evidence.ceiling_id}"
            )
        return f"Step-bound: {reach}; {what} {hope}.{room}{_first_culprit(culprits)}"
    return (
        f"Unresolved: {reach}, a ratio of {headroom.value:.2f} that may be {headroom.low:.2f} or {headroom.high:.2f}. "
        "A larger --budget narrows it."
    )


def _hope(evidence: Evidence, fed: Estimate) -> str:
    if fed.high < 1 + evidence.threshold:
        return "would gain nothing"
    if fed.low > 1 + evidence.threshold and _is_of_workers(evidence, fed):
        return f"would gain {fed.value - 1:.0%}, which is what having batches from workers costs"
    return "was not shown to gain anything"


def _first_culprit(culprits: Sequence[Culprit]) -> str:
    if not culprits:
        return ""
    first = culprits[0]
    place = f" ({short_place(first.source)})" if first.source else ""
    if first.gain.low <= 1:
        return (
            f" {first.name}{place} seems to hold it back most, which is not shown: without it the loop would run "
            f"{first.gain.low:.2f} to {first.gain.high:.2f} times as fast."
        )
    return (
        f" {first.name}{place} holds it back most: without it the loop would run {first.gain.value:.2f} times as fast"
        f"{', as computed' if first.gain.is_computed else ''}."
    )


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


def _is_always_anew(recording: Recording) -> bool:
    starts = recording.starts_of(recording.loader) if recording.loader is not None else []
    return len(starts) > 3 and all(start.batches <= 1 for start in starts)


def _anew(recording: Recording) -> Report:
    """The report on a loop that makes a new iterator for every step; its starts tell all."""
    loader = recording.loader
    assert loader is not None
    starts = recording.starts_of(loader)
    wholes = [(after.created_ns - start.created_ns) / 1e9 for start, after in itertools.pairwise(starts)]
    # without workers the wait for the first batch is the making of it, which a single iterator would have as well
    has_workers = loader.num_workers > 0
    losses = [(s.construct_ns + (s.first_wait_ns if has_workers else s.sampler_ns)) / 1e9 for s in starts[:-1]]
    rests = [max(1e-6, whole - loss) for whole, loss in zip(wholes, losses, strict=True)]
    # with workers it is, too, but for their imports; and those of a single iterator share it
    longest = [max(rest, shared_wait_s(loader, start)) for rest, start in zip(rests, starts, strict=False)]
    likely = rests if loader.imports_anew else longest
    baseline, ceiling = estimate.from_periods(wholes), estimate.from_periods(likely)
    gain = _faster(wholes, likely)
    if has_workers:
        low, high = _faster(wholes, longest).low, _faster(wholes, rests).high
        gain = replace(gain, low=low, high=high, is_computed=True)
    start_fraction = min(1.0, sum(losses) / max(1e-9, sum(wholes)))
    name, cause = begun_anew(loader, starts)
    into = "starting iterators and making their first batches" if has_workers else "starting iterators"
    culprit = Culprit(
        stage="worker-start",
        kind="worker-start",
        name=name,
        cause=cause,
        source=loader.source,
        resource="wait",
        gain=gain,
        evidence=f"{len(starts)} iterators gave one batch each; {start_fraction:.0%} of the time went into {into}.",
    )
    report = Report(
        verdict=Verdict(
            bound="start",
            sentence=f"Start-bound: {start_fraction:.0%} of the time goes into {into} ({name}).",
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


def _faster(periods: Sequence[float], without: Sequence[float]) -> Estimate:
    return estimate.from_ratios([period / rest for period, rest in zip(periods, without, strict=True)])


def _unresolved(recording: Recording, rates: dict[str, Estimate]) -> Report:
    reason = "no loader was iterated" if recording.loader is None else "too few steps were seen to compare rungs"
    return Report(
        verdict=Verdict(bound="unresolved", sentence=f"Unresolved: {reason}."),
        baseline=rates.get("none"),
        ceiling=rates.get("device") or rates.get("host"),
        time=ALL_STEADY,
        rungs=_rungs(recording, rates),
        caveats=(Caveat(id="too-few-steps", sentence=f"{reason[0].upper()}{reason[1:]}."),),
        environment=_environment(recording),
        command=recording.command,
    )
