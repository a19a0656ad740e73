"""Stages that are to blame: by knock-outs, by a rung of their own, or by the accounting of a sample's time; beside the data
set's own those that every loader has, which are collation, transport and the sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unstarve import estimate
from unstarve.judge.evidence import (
    DOMINANT,
    WORTH,
    Evidence,
    gain_by_share,
    headroom_of,
    mean_ms,
    sampler_line,
    share_of,
)
from unstarve.judge.reading import is_within, part_of_reading, slowest_reader, told_apart, waiting_share
from unstarve.recording import Stage, find_stage, leaves
from unstarve.report import Culprit, Estimate

THIN = 0.1
"""Where no statement of a data set takes this share of its time, there is no one statement to blame."""

LITTLE = 0.25
"""Stages of a data set that take less than this share of its time together do not stand for it."""

ALONE = 0.95
"""Part of all reading from which on a stage's is all of it."""


def knocked_out(evidence: Evidence) -> list[Culprit]:
    """Stages without which the loop was shown to run faster, each served from cache alone."""
    found = []
    for stage in evidence.recording.stages:
        gain = evidence.contrast(f"knockout:{stage.id}", "none")
        if gain is not None and stage.id not in ("collate", "ipc"):
            found.append(_stage_culprit(evidence, stage, _capped(evidence, gain), resource=_saved(evidence, stage)))
    return found


def _saved(evidence: Evidence, stage: Stage) -> str | None:
    """What the workers were spared by the knock-out of a stage that costs much in a few samples only, and so little in
    those that were watched; None where watching tells."""
    saved = evidence.fetch_s("none") - evidence.fetch_s(f"knockout:{stage.id}")
    if share_of(evidence, stage) * evidence.fetch_s("none") > saved / 3:
        return None
    return _spared(evidence, stage.id, least=0.3)


def _spared(evidence: Evidence, stage: str, least: float) -> str | None:
    """What the workers were spared by the knock-out of a stage; None where that is less than the part `least`."""
    without = f"knockout:{stage}"
    saved = evidence.fetch_s("none") - evidence.fetch_s(without)
    if saved <= 0 or saved < least * evidence.fetch_s("none"):
        return None
    saved_cpu = evidence.fetch_cpu_s("none") - evidence.fetch_cpu_s(without)
    saved_delay = max(0.0, evidence.delay_s("none") - evidence.delay_s(without))
    return "cpu" if saved_cpu >= 0.5 * (saved - saved_delay) else "wait"


def by_ladder(evidence: Evidence) -> list[Culprit]:
    """What could not be served from cache alone, by rungs of the ladder: a stage that reads, and the data set or its most
    expensive stage."""
    readers = _read_for_free(evidence)
    return readers + _whole_dataset(evidence, readers)


def _read_for_free(evidence: Evidence) -> list[Culprit]:
    """A stage that reads and could not be served from cache, such as one that gives an open file, by the rung with files'
    bytes in memory: that frees all stages that read, of which this one gains its part."""
    gain = evidence.contrast("bytes", "none")
    stage = slowest_reader(evidence)
    if gain is None or stage is None or gain.value <= 1:
        return []
    saved, waits = 1 - 1 / gain.value, waiting_share(evidence, stage)
    if waits < 0.5 * saved:
        return []
    part = max(part_of_reading(evidence, stage) or 0.0, waits / saved)  # what else waits may not be for files
    gain, faster = estimate.of_part(gain, part if part < ALONE else 1.0), gain.value
    whose = f"; its gain is computed from its part of that, {part:.0%}" if part < ALONE else ""
    sentence = (
        f"With the bytes of files in memory, and all else run, the loop runs {faster:.2f} times as fast; of the stages "
        f"that read, this one waits longest{whose}."
    )
    culprit = _stage_culprit(evidence, stage, _capped(evidence, gain))
    return [replace(culprit, kind="read", resource="wait", evidence=sentence)]


def _whole_dataset(evidence: Evidence, readers: Sequence[Culprit]) -> list[Culprit]:
    """A dataset that could not be taken apart, or whose time is spread thin, is blamed as a whole, by the ladder; so is its
    most expensive stage where that could not be served from cache alone, and is none of the readers."""
    stages = _own_stages(evidence)
    gain = evidence.contrast("samples", "none")
    if gain is None or not stages:
        return []
    parts = leaves(stages)
    tried = [stage for stage in stages if f"knockout:{stage.id}" in evidence.rates]
    if max(_own_shares(stages, parts)) < THIN and sum(_own_shares(stages, tried)) < LITTLE:
        return [_many_steps(evidence, stages)]
    stage = max(parts, key=mean_ms)
    if any(is_within(evidence, stage, other.id) for other in tried):
        return []
    if any(culprit.stage == stage.id and culprit.gain.low > 1 for culprit in readers):
        return []  # shown by a rung of its own
    sentence = (
        f"With finished samples served from cache the loop runs {gain.value:.2f} times as fast; this stage takes "
        f"{share_of(evidence, stage):.0%} of a sample's time, and its own gain is computed from that."
    )
    most = _capped(evidence, _gain_up_to(evidence, stages[stages.index(stage) :], gain))
    return [_stage_culprit(evidence, stage, gain_by_share(evidence, stage, most), sentence)]


def _gain_up_to(evidence: Evidence, behind: Sequence[Stage], whole: Estimate) -> Estimate:
    """What a stage gains at most: what was measured with all up to it served from cache, or up to the next stage behind it
    of which that was measured; else what finished samples gain."""
    found = (evidence.contrast(f"after:{stage.id}", "none") for stage in behind)
    return min((gain for gain in (*found, whole) if gain is not None), key=lambda gain: gain.value)


def _own_stages(evidence: Evidence) -> list[Stage]:
    """Stages of the data set."""
    return [stage for stage in evidence.recording.stages if stage.kind not in ("collate", "ipc")]


def _own_shares(stages: Sequence[Stage], parts: Sequence[Stage]) -> list[float]:
    """Shares of some parts of a data set in its time on a core, or waiting for anything but one: being without a core may
    hit any of them."""
    whole = sum(_own_ms(stage) for stage in stages if stage.parent is None)
    return [_own_ms(stage) / whole if whole else 1.0 for stage in parts]


def _own_ms(stage: Stage) -> float:
    # delays include those of watching itself, so the stage's time on a core is its own whatever they leave
    without = max(estimate.mean(stage.cpu_ns), estimate.mean(stage.wall_ns) - estimate.mean(stage.delay_ns))
    return min(mean_ms(stage), without / 1e6)


def _many_steps(evidence: Evidence, stages: Sequence[Stage]) -> Culprit:
    """The data set itself, where none of its statements takes much of its time."""
    gain = evidence.contrast("samples", "none")
    assert gain is not None
    parts = leaves(stages)
    waits = sum(_own_ms(stage) for stage in parts if _resource(stage) == "wait")
    most = max(_own_shares(stages, parts))
    why = f"of the {len(parts)} statements that make a sample none takes more than {most:.0%} of the time"
    if most >= LITTLE:
        why = "no removal of a single stage was shown to help"
    sentence = f"With finished samples served from cache the loop runs {gain.value:.2f} times as fast; {why}."
    return Culprit(
        stage="dataset",
        kind="code",
        name=evidence.loader.name.partition("(")[2].rstrip(")") or evidence.loader.name,
        source=parts[0].source,
        resource="wait" if waits > sum(map(_own_ms, parts)) / 2 else "cpu",
        gain=_capped(evidence, gain),
        evidence=sentence,
    )


def fixed(evidence: Evidence) -> list[Culprit]:
    """Collation, transport and the sampler, which every loader has."""
    found = []
    for name in ("collate", "ipc"):
        stage = find_stage(evidence.recording.stages, name)
        gain = evidence.contrast(f"knockout:{name}", "none")
        if stage is not None and gain is not None:
            culprit = _stage_culprit(evidence, replace(stage, kind=name), _capped(evidence, gain))
            # few batches are watched while they are collated: all those that were not tell more
            resource = "serialisation" if name == "ipc" else _spared(evidence, name, least=0.1) or "cpu"
            what = "transport" if name == "ipc" else "collation"
            sentence = f"With {what} free the loop runs {gain.value:.2f} times as fast."
            found.append(replace(culprit, resource=resource, evidence=sentence))
    return found + _untried_transport(evidence) + _sampler(evidence)


def _untried_transport(evidence: Evidence) -> list[Culprit]:
    """Transport that there was no time to do without: what batches from the workers' own caches still cost more than those on
    the host, as far as the workers could make as many batches."""
    stage = find_stage(evidence.recording.stages, "ipc")
    behind = evidence.contrast("host", "collated")
    if stage is None or behind is None or behind.value <= 1 + evidence.threshold or "knockout:ipc" in evidence.rates:
        return []
    made = evidence.law.capacity(evidence.loader.num_workers) / evidence.rates["none"].value
    gain = estimate.computed(min(headroom_of(evidence).value, made), down=0.6, up=1.2)
    gain = replace(gain, low=min(gain.low, behind.low))
    sentence = (
        f"With batches cached in the workers the loop runs at {1 / behind.value:.0%} of its pace with batches cached on the "
        "host: what is left between the two is the way to the loop. Computed, not tried."
    )
    culprit = _stage_culprit(evidence, replace(stage, kind="ipc"), gain, sentence)
    return [replace(culprit, resource="serialisation")]


def _sampler(evidence: Evidence) -> list[Culprit]:
    """What ordering batches costs the loop's own process in every step, with nothing made and nothing sent."""
    if not {"control:sampler", "host"} <= evidence.rates.keys():
        return []
    alone = 1 / evidence.rates["control:sampler"].value - 1 / evidence.rates["host"].value
    period = 1 / evidence.rates["none"].value
    if alone < evidence.threshold * period or (evidence.loader.sampler is None and alone < 0.002):
        return []
    # the sampler works beside the workers, so without it the loop is as fast as they and the step allow
    without = replace(evidence.law, busy_step_s=0.0).rate(evidence.loader.num_workers)
    value = min(headroom_of(evidence).value, period / max(period - alone, 0.05 * period), without * period)
    name = evidence.loader.sampler or "sampler"
    line = sampler_line(evidence)
    return [
        Culprit(
            stage="sampler",
            kind="sampler",
            name=name,
            source=line.source if line is not None else evidence.loader.sampler_source or evidence.loader.source,
            text=line.text if line is not None else None,
            path=(name, line.text) if line is not None else (),
            resource="cpu",
            gain=estimate.computed(value, down=0.6, up=1.3),
            evidence=f"Ordering batches, with nothing made and nothing sent, takes {alone * 1e3:.2g} ms of every step.",
        )
    ]


def by_accounting(evidence: Evidence) -> list[Culprit]:
    """When no single removal was shown to gain anything: the most expensive leaf, with a computed gain; or the data set as
    a whole, where that gains and all of its stages are small parts of it, or that leaf was shown to gain nothing."""
    stages = [stage for stage in evidence.recording.stages if stage.wall_ns and stage.id != "ipc"]
    own, gain = _own_stages(evidence), headroom_of(evidence)
    if not stages or gain.value < 1 + 3 * evidence.threshold:
        return []
    stage = max(leaves(stages), key=mean_ms)
    whole = evidence.contrast("samples", "none")
    if stage in own and whole is not None and whole.high < 1 + 3 * evidence.threshold:
        return []  # finished samples gain nothing
    is_acquitted = _is_acquitted(evidence, stage)
    parts = [part for part in own if part.id != "code"]
    is_small = stage in parts and max(_own_shares(own, parts)) < LITTLE
    if stage in own and whole is not None and whole.low > 1 and (is_small or is_acquitted):
        return [_many_steps(evidence, own)]
    if is_acquitted:
        return []
    computed = gain_by_share(evidence, stage, _capped(evidence, _most_of(evidence, stage)))
    if computed.value < WORTH:
        return []
    sentence = (
        f"It takes {share_of(evidence, stage):.0%} of a sample's time, and the gain is computed from that: no removal of "
        "a single stage was shown to help."
    )
    return [_stage_culprit(evidence, stage, computed, sentence)]


def _most_of(evidence: Evidence, stage: Stage) -> Estimate:
    """What a stage can gain at most, as far as that was measured: with all up to it served from cache, or without it."""
    own, gain = _own_stages(evidence), headroom_of(evidence)
    whole = evidence.contrast("samples", "none") or gain
    removed = [replace(removal, value=removal.high) for removal in _removals(evidence, stage)]
    most = _gain_up_to(evidence, own[own.index(stage) :], whole) if stage in own else gain
    return min((most, *removed), key=lambda each: each.value)


def _is_acquitted(evidence: Evidence, stage: Stage) -> bool:
    """Whether the loop without the stage was seen to gain nothing, and surely less than the stage's share says."""
    least = gain_by_share(evidence, stage, headroom_of(evidence)).low
    return any(removal.value < WORTH and removal.high < least for removal in _removals(evidence, stage))


def _removals(evidence: Evidence, stage: Stage) -> list[Estimate]:
    """What was measured to be gained without the stage, and without what contains it."""
    around = [each for each in evidence.recording.stages if is_within(evidence, stage, each.id)]
    gains = [evidence.contrast(f"knockout:{each.id}", "none") for each in around]
    return [gain for gain in gains if gain is not None]


def _stage_culprit(
    evidence: Evidence, stage: Stage, gain: Estimate, sentence: str | None = None, *, resource: str | None = None
) -> Culprit:
    place = _hottest(evidence, stage)
    whole_of = named_part(evidence.recording.stages, stage)
    what = stage if whole_of is None else whole_of if whole_of.kind == "transform" else place
    resource = resource or _resource(place)
    told = told_apart(evidence, replace(stage, kind=what.kind, decodes=what.decodes), resource, gain)
    return Culprit(
        stage=stage.id,
        kind=what.kind if told is None else told.kind,
        name=_full_name(evidence, stage) if whole_of is None else f"{stage.name.rstrip(':')}: {whole_of.name}",
        source=place.source,
        text=place.text,
        resource=resource if told is None else told.resource,
        gain=gain,
        path=_path(evidence, place),
        evidence=(sentence or _alone(evidence, stage, whole_of, gain)) + ("" if told is None else told.sentence),
    )


def _alone(evidence: Evidence, stage: Stage, whole_of: Stage | None, gain: Estimate) -> str:
    """What was seen with the stage served from cache, and how much of it is the part for which all of it was served."""
    what, most = "only this stage", ""
    if whole_of is not None:
        what = f"all of `{stage.name.rstrip(':')}`"
        most = f"; {mean_ms(whole_of) / mean_ms(stage):.0%} of that is `{whole_of.name}`, which cannot be served alone"
    return (
        f"With {what} served from cache the loop runs {gain.value:.2f} times as fast; it takes "
        f"{share_of(evidence, stage):.0%} of a sample's time ({mean_ms(stage):.2f} ms, n={len(stage.wall_ns)}){most}."
    )


def _full_name(evidence: Evidence, stage: Stage) -> str:
    """The stage's name; where that is a bare statement, with the name of the call that it is a part of."""
    around: Stage | None = stage
    while around is not None and around.name == around.text:
        around = find_stage(evidence.recording.stages, around.parent)
    return stage.name if around is None or around is stage else f"{around.name}: {stage.name}"


def _capped(evidence: Evidence, gain: Estimate) -> Estimate:
    """No stage can gain more than the ceiling allows; noise of the knock-out may say otherwise."""
    most = headroom_of(evidence)
    if gain.value <= most.value:
        return gain
    return Estimate(value=most.value, low=min(gain.low, most.value), high=max(gain.high, most.value))


def _hottest(evidence: Evidence, stage: Stage) -> Stage:
    """The statement inside the stage that takes most of its time; the stage itself where none dominates."""
    part = _dominant(evidence.recording.stages, stage)
    return stage if part is None else _hottest(evidence, part)


def named_part(stages: Sequence[Stage], stage: Stage) -> Stage | None:
    """The part for which all of the stage was served, to be named with it: the dearest choice of several, or statement of a
    loop. None where the stage was served for itself, as a transform is for its own statements."""
    part = _dominant(stages, stage)
    if part is None or part.is_servable or (_is_transform(stage) and not _is_transform(part)):
        return None
    return part


def _is_transform(stage: Stage) -> bool:
    return stage.id.startswith("transform:")


def _dominant(stages: Sequence[Stage], stage: Stage) -> Stage | None:
    """The part of the stage, one level down, that takes most of its time; None where none dominates."""
    inner = [other for other in stages if other.parent == stage.id and other.source]
    hottest = max(inner, key=mean_ms, default=None)
    return hottest if hottest is not None and mean_ms(hottest) >= DOMINANT * mean_ms(stage) else None


def _resource(stage: Stage) -> str:
    running = sum(stage.wall_ns) - sum(stage.delay_ns)
    if running > 0 and sum(stage.cpu_ns) < 0.5 * running:
        return "wait"
    return "cpu"


def _path(evidence: Evidence, stage: Stage) -> tuple[str, ...]:
    path = [stage.name]
    parent = stage.parent
    while parent is not None:
        outer = find_stage(evidence.recording.stages, parent)
        if outer is None:
            break
        path.insert(0, outer.name)
        parent = outer.parent
    return tuple(path)
