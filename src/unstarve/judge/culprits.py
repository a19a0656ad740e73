"""Who is to blame: one rule for each kind of cause, in a tuple, and their ranking."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from unstarve import estimate, law
from unstarve.judge.evidence import (
    BUSY,
    Evidence,
    begun_anew,
    counted,
    figure,
    find_stage,
    gain_by_share,
    headroom_of,
    is_quick_beside_workers,
    mean_ms,
    reach_of,
    share_of,
    shared_wait_s,
    waiting_of,
)
from unstarve.judge.memory import collected, collecting_share, copied_pages
from unstarve.judge.reading import is_within, part_of_reading, slowest_reader, told_apart, waiting_share
from unstarve.judge.walltime import (
    begun_in_steps,
    dropping_start,
    epoch_batches,
    gain_of_shorter_body,
    iterator_gain,
    iterator_share,
    loader_gain,
    waiting_loader,
    where_waited,
)
from unstarve.recording import BRIEF, LATE, BodyLine, Loader, Settings, Stage, begun_share, stalls
from unstarve.report import Culprit, Estimate, WallTime, short_place

WORTH = 1.03
"""A stage whose removal gains less than this is not called a culprit."""

TIPPING = 1.6
"""So many times what its share explains, a stage's gain is not the stage's own."""

SHARE_WEIGHT = 0.15
"""Gains that differ by less than this are told apart by the stages' shares of the workers' time."""

THIN = 0.1
"""Where no statement of a data set takes this share of its time, there is no one statement to blame."""

LITTLE = 0.25
"""Stages of a data set that take less than this share of its time together do not stand for it."""

LEADING_SHARE = 0.6
"""A line of the loop body with this share of the host's work, what it calls included, is to blame for it."""

RARE_SHARE = 0.25
"""Part of the workers' time that late batches must take beyond what is usual, to be blamed."""

UNSURE = 0.25
"""Part of the headroom, on a log scale, that a culprit must explain if nothing less sure is to be named."""

DOMINANT = 0.4
"""Share of a stage's time from which on a line in it is named for it."""

HALF = 0.5
"""Share from which on a part stands for the whole."""

ALONE = 0.95
"""Part of all reading from which on a stage's is all of it."""

SAME_WORK = 0.9
"""Part of what workers gain, on a log scale, that a stage must gain to go before them where a loader has none."""

COMPARABLE = 1 / 3
"""A setting goes before a stage only if it gains this part of what the stage gains, on a log scale."""

FAR = 2.0
"""Several workers are too few only if more of them gain so many times what anything else does, on a log scale."""

SETTINGS = ("cpu", "scheduling", "workers", "memory")
"""Kinds of culprits that are no stages."""

SYMPTOM = 1.1
"""Beside a setting to blame a stage is named only if it gains more than this many times as much."""

PROMISING = 1.3
"""A setting that gained so much when it was tried is named even where few rounds leave its interval wide."""

IDLE_BELOW = 0.85
"""A device that computes less than this share of a fed step is held back by the host."""

Rule = Callable[[Evidence, WallTime], list[Culprit]]


def find_culprits(evidence: Evidence, bound: str, time: WallTime) -> tuple[Culprit, ...]:
    if bound == "start":
        return tuple(_dropped(evidence) or copied_pages(evidence, time, at_start=True) or _worker_start(evidence, time))
    if bound == "step":
        found = collected(evidence, time) + _copy(evidence, time) + _own_copy(evidence) + _step_host(evidence, time)
        return tuple(sorted(found, key=lambda culprit: -culprit.gain.low))
    if bound == "unresolved":
        return ()
    rules: tuple[Rule, ...] = (
        _other_loader,
        _second_loader,
        _iterator,
        _knocked_out,
        _read_for_free,
        _whole_dataset,
        _fixed,
        _copy,
        _workers,
        _tried,
        _uneven,
        _stalled,
        _contention,
        collected,
        copied_pages,
    )
    found = [culprit for rule in rules for culprit in rule(evidence, time)]
    worth = [culprit for culprit in found if culprit.gain.value >= WORTH and _is_shown(culprit)]
    ranked = sorted(worth, key=lambda culprit: -_weight(evidence, culprit, worth))
    # what was computed is always sure, and may leave most of it unexplained
    if not ranked or (ranked[0].gain.is_computed and math.log(ranked[0].gain.value) < _least(evidence)):
        unsure = _rare(evidence) or _uncertain(evidence, found) or _by_accounting(evidence)
        ranked = unsure + [culprit for culprit in ranked if culprit.stage not in {other.stage for other in unsure}]
    notable = [culprit for culprit in ranked if _is_notable(evidence, culprit, ranked[0])]
    guilty = [culprit for culprit in notable if not _is_symptom(culprit, ranked[0])]
    return tuple([*_far_too_few(evidence, [*found, *ranked]), *guilty][:5])


def _is_symptom(culprit: Culprit, first: Culprit) -> bool:
    """Whether the stage gains no more than the setting that makes workers fight or idle: any work spared helps then."""
    is_setting = first.kind in ("cpu", "scheduling") and culprit.kind not in SETTINGS
    return is_setting and culprit.gain.value <= SYMPTOM * first.gain.value


def _is_shown(culprit: Culprit) -> bool:
    """Whether the gain is more than chance; a setting that was tried needs less, since trying it costs nothing."""
    is_promising = culprit.kind in ("scheduling", "cpu", "workers") and _is_promising(culprit.gain)
    return culprit.gain.low > 1.0 or is_promising


def _is_promising(gain: Estimate) -> bool:
    return gain.value >= PROMISING and gain.low > 1 / PROMISING


def _least(evidence: Evidence) -> float:
    """What a culprit must gain, on a log scale, if nothing less sure is to be named."""
    return UNSURE * math.log(max(1.0, headroom_of(evidence).value))


def _uncertain(evidence: Evidence, found: Sequence[Culprit]) -> list[Culprit]:
    """What gained most, where too few rounds were measured to be sure of anything."""
    least = _least(evidence)
    tried = [culprit for culprit in found if culprit.gain.value >= WORTH and math.log(culprit.gain.value) >= least]
    weights = [_weight(evidence, culprit, tried, is_certain=False) for culprit in tried]
    return [tried[weights.index(max(weights))]] if tried else []


def _is_notable(evidence: Evidence, culprit: Culprit, first: Culprit) -> bool:
    """Whether mending it is worth a word beside the first culprit: at least a quarter of its gain, on a log scale; half
    of it for what every loader has, and nobody can do without."""
    least = 0.5 if culprit.kind in ("collate", "ipc") else 0.25
    return culprit is first or math.log(_plausible(evidence, culprit)) >= least * math.log(first.gain.value)


def _plausible(evidence: Evidence, culprit: Culprit) -> float:
    """The culprit's gain; less of it, as far as its interval allows, where it is a stage that takes too little of the time
    for that: few blocks may differ by more than what they are to show."""
    stage = find_stage(evidence.recording.stages, culprit.stage)
    if stage is None or not stage.wall_ns or culprit.gain.is_computed:
        return culprit.gain.value
    explained = 1 / max(0.02, 1 - share_of(evidence, stage))
    return min(culprit.gain.value, max(culprit.gain.low, explained))


def _weight(evidence: Evidence, culprit: Culprit, beside: Sequence[Culprit], *, is_certain: bool = True) -> float:
    """What the culprit is ranked by: its gain, and more for a setting unless one of the stages gains far more. Where a loader
    has no workers and one stage alone gains what workers gain, the stage is what they would have to do."""
    stages = [math.log(other.gain.value) for other in beside if other.kind not in SETTINGS]
    least = SAME_WORK if culprit.stage == "workers" and not evidence.loader.num_workers else 1 / COMPARABLE
    if culprit.kind in SETTINGS and least * math.log(culprit.gain.value) < max(stages, default=0.0):
        return culprit.gain.value
    return culprit.gain.value * _precedence(evidence, culprit, is_certain=is_certain)


def _precedence(evidence: Evidence, culprit: Culprit, *, is_certain: bool = True) -> float:
    """Settings cost nothing to change, so they go before a stage of about the same gain; and where workers idle or
    fight, a stage's gain is only a symptom. Of two stages that gain about the same, the one that fills the time goes
    first: the other only tips something."""
    if culprit.gain.low <= 1.0 and is_certain:
        return 1.0  # nothing that is merely promising goes before what was shown
    if culprit.kind == "scheduling":
        return 3.0
    is_crowded = evidence.recording.environment.get("torch_threads", 1) > max(1.0, evidence.cores)
    if culprit.stage in ("trial:affinity", "trial:worker-threads", "trial:one-core") or (
        culprit.stage == "trial:threads" and is_crowded
    ):
        return 2.0  # tried and proven: no stage is to blame for what a wrong setting makes of it
    if culprit.kind in ("workers", "cpu", "memory"):
        return 1.2
    if culprit.kind in ("collate", "ipc"):
        return 1 + SHARE_WEIGHT / 2
    stage = find_stage(evidence.recording.stages, culprit.stage)
    if stage is None or not stage.wall_ns:
        return 1.0
    share = share_of(evidence, stage)
    tips = culprit.gain.value * (1 - share) > TIPPING  # it gains far more than its own time: it makes others dear
    return (1 + SHARE_WEIGHT * share) * (1 - SHARE_WEIGHT if tips else 1.0)


def _knocked_out(evidence: Evidence, time: WallTime) -> list[Culprit]:
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


def _read_for_free(evidence: Evidence, time: WallTime) -> list[Culprit]:
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
    gain, faster = _of_part(gain, part if part < ALONE else 1.0), gain.value
    whose = f"; its gain is computed from its part of that, {part:.0%}" if part < ALONE else ""
    sentence = (
        f"With the bytes of files in memory, and all else run, the loop runs {faster:.2f} times as fast; of the stages "
        f"that read, this one waits longest{whose}."
    )
    culprit = _stage_culprit(evidence, stage, _capped(evidence, gain))
    return [replace(culprit, kind="read", resource="wait", evidence=sentence)]


def _stage_culprit(
    evidence: Evidence, stage: Stage, gain: Estimate, sentence: str | None = None, *, resource: str | None = None
) -> Culprit:
    share = share_of(evidence, stage)
    knocked_out = (
        f"With only this stage served from cache the loop runs {gain.value:.2f} times as fast; it takes "
        f"{share:.0%} of a sample's time ({mean_ms(stage):.2f} ms, n={len(stage.wall_ns)})."
    )
    place = _hottest(evidence, stage)
    resource = resource or _resource(place)
    told = told_apart(evidence, stage, resource, gain)
    return Culprit(
        stage=stage.id,
        kind=stage.kind if told is None else told.kind,
        name=_full_name(evidence, stage),
        source=place.source,
        text=place.text,
        resource=resource if told is None else told.resource,
        gain=gain,
        path=_path(evidence, place),
        evidence=(sentence or knocked_out) + ("" if told is None else told.sentence),
    )


def _full_name(evidence: Evidence, stage: Stage) -> str:
    """The stage's name; where that is a bare statement, with the name of the call that it is a part of."""
    around: Stage | None = stage
    while around is not None and around.name == around.text:
        around = find_stage(evidence.recording.stages, around.parent or "")
    return stage.name if around is None or around is stage else f"{around.name}: {stage.name}"


def _whole_dataset(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """A dataset that could not be taken apart, or whose time is spread thin, is blamed as a whole, by the ladder; so is its
    most expensive stage where that could not be served from cache alone."""
    stages = _own_stages(evidence)
    gain = evidence.contrast("samples", "none")
    if gain is None or not stages:
        return []
    leaves = _leaves(stages)
    tried = [stage for stage in stages if f"knockout:{stage.id}" in evidence.rates]
    if max(_own_shares(stages, leaves)) < THIN and sum(_own_shares(stages, tried)) < LITTLE:
        return [_many_steps(evidence, stages, leaves)]
    stage = max(leaves, key=mean_ms)
    if any(is_within(evidence, stage, other.id) for other in tried):
        return []
    if any(culprit.stage == stage.id and culprit.gain.low > 1 for culprit in _read_for_free(evidence, time)):
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


def _leaves(stages: Sequence[Stage]) -> list[Stage]:
    return [stage for stage in stages if not any(other.parent == stage.id for other in stages)]


def _own_shares(stages: Sequence[Stage], parts: Sequence[Stage]) -> list[float]:
    """Shares of some parts of a data set in its time on a core, or waiting for anything but one: being without a core may
    hit any of them."""
    whole = sum(_own_ms(stage) for stage in stages if stage.parent is None)
    return [_own_ms(stage) / whole if whole else 1.0 for stage in parts]


def _own_ms(stage: Stage) -> float:
    # delays include those of watching itself, so the stage's time on a core is its own whatever they leave
    without = max(estimate.mean(stage.cpu_ns), estimate.mean(stage.wall_ns) - estimate.mean(stage.delay_ns))
    return min(mean_ms(stage), without / 1e6)


def _many_steps(evidence: Evidence, stages: Sequence[Stage], leaves: Sequence[Stage]) -> Culprit:
    """The data set itself, where none of its statements takes much of its time."""
    gain = evidence.contrast("samples", "none")
    assert gain is not None
    waits = sum(_own_ms(stage) for stage in leaves if _resource(stage) == "wait")
    sentence = (
        f"With finished samples served from cache the loop runs {gain.value:.2f} times as fast; of the {len(leaves)} "
        f"statements that make a sample none takes more than {max(_own_shares(stages, leaves)):.0%} of the time."
    )
    return Culprit(
        stage="dataset",
        kind="code",
        name=evidence.loader.name.partition("(")[2].rstrip(")") or evidence.loader.name,
        source=leaves[0].source,
        resource="wait" if waits > sum(map(_own_ms, leaves)) / 2 else "cpu",
        gain=_capped(evidence, gain),
        evidence=sentence,
    )


def _second_loader(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Another loader for which the script waits, such as that of the validation data between epochs."""
    found = waiting_loader(evidence, time)
    if found is None or found[1] < evidence.threshold:
        return []
    loader, share = found
    saved = begun_in_steps(evidence).get(loader.number)
    if saved is not None:
        return [_begun_anew(evidence, loader, share, saved)]
    value = loader_gain(evidence, loader, share)
    has_workers = loader.num_workers > 0
    where = where_waited(evidence, loader)
    starts = [start for start in evidence.recording.starts if start.loader == loader.number]
    return [
        Culprit(
            stage=f"loader:{loader.number}",
            kind="loader" if has_workers else "workers",
            name=f"{loader.name}, {f'waited for {where}' if has_workers else 'which has no workers'}",
            source=loader.source,
            resource="wait" if has_workers else "cpu",
            gain=estimate.computed(value, down=0.6, up=1.2),
            evidence=(
                f"Waiting for this other loader {where} takes {share:.0%} of an epoch's wall time, {begun_share(starts):.0%} "
                f"of that until the first batches of its {len(starts)} iterators (clocked, not tried)."
            ),
        )
    ]


def _iterator(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """A generator between the loader and the loop, which works in the loop's own process and in series with the step."""
    share = iterator_share(evidence)
    lines = [line for line in evidence.recording.body if line.in_iterator]
    if share < evidence.threshold or not lines:
        return []
    line = max(lines, key=lambda line: line.in_iterator)
    busy = line.busy_inclusive / max(1e-9, line.wall_inclusive)
    return [
        Culprit(
            stage="iterator",
            kind="loader",
            name=f"iterator around the loader: {line.text}",
            source=line.source,
            text=line.text,
            resource="cpu" if busy > HALF else "wait",
            gain=estimate.computed(iterator_gain(evidence), down=0.7, up=1.2),
            evidence=(
                f"This generator of the script takes {share:.0%} of the loop's time on batches that it hands on, in the loop's "
                "own process, while the step waits (sampled, not tried)."
            ),
        )
    ]


def _begun_anew(evidence: Evidence, loader: Loader, share: float, saved: float) -> Culprit:
    """Another loader of which every step makes an iterator; `saved` of its `share` is what one for all steps would spare."""
    starts = [start for start in evidence.recording.starts if start.loader == loader.number]
    sampler = sum(start.sampler_ns for start in starts)
    cost = sum(start.construct_ns + start.first_wait_ns for start in starts)
    kind = "sampler" if sampler > HALF * cost else "worker-start" if saved > HALF else "workers"
    spared = share * saved if saved > HALF else share  # its batches are what costs, and workers need one iterator too
    name, cause = begun_anew(loader, starts)
    value = loader_gain(evidence, loader, spared)
    made_s = 0.0 if loader.imports_anew else estimate.mean([shared_wait_s(loader, start) for start in starts])
    if made_s:
        value = min(value, 1 / evidence.rates["none"].value / made_s)
    return Culprit(
        stage=f"loader:{loader.number}",
        kind=kind,
        name=f"{loader.name}, {name}",
        cause=cause,
        source=loader.source,
        resource="cpu" if loader.num_workers == 0 else "wait",
        gain=estimate.computed(value, down=0.6, up=1.2),
        evidence=(
            f"{len(starts)} iterators of this other loader gave a batch or two each; starting one takes "
            f"{figure(cost / len(starts) / 1e6)} ms, {figure(sampler / len(starts) / 1e6)} ms of it in the sampler (clocked, not tried)."
        ),
    )


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
            gain=headroom_of(evidence),
            evidence=f"The loop waits {evidence.wait_fraction('none'):.0%} of its time for this iterable.",
        )
    ]


def _fixed(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Collation and transport."""
    found = []
    for name in ("collate", "ipc"):
        stage = find_stage(evidence.recording.stages, name)
        gain = evidence.contrast(f"knockout:{name}", "none")
        if stage is not None and gain is not None:
            culprit = _stage_culprit(evidence, replace(stage, kind=name), _capped(evidence, gain))
            # few batches are watched while they are collated: all those that were not tell more
            resource = "serialisation" if name == "ipc" else _spared(evidence, name, least=0.1) or "cpu"
            sentence = f"With {name} free the loop runs {gain.value:.2f} times as fast."
            found.append(replace(culprit, resource=resource, evidence=sentence))
    return found + _sampler(evidence)


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
    line = next((line for line in evidence.recording.sampler if line.wall_fraction >= DOMINANT), None)
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


def _copy(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """The copy to the device, where cached batches on the host are slower than on the device."""
    fed = evidence.contrast("device", "host")
    is_fed = evidence.contrast("host", "none")
    if fed is None or is_fed is None or fed.low <= 1 + evidence.threshold / 2 or is_fed.value > fed.value:
        return []
    # a loop that waits for its workers goes on to wait for them, however soon the batch is on the device
    reach = 1 - min(0.9, waiting_of(evidence)) if is_fed.low > 1 + evidence.threshold else 1.0
    gain = _of_part(fed, reach)
    most = gain_of_shorter_body(evidence, 1 / evidence.rates["host"].value - 1 / evidence.rates["device"].value)
    if most < gain.value:
        gain = estimate.computed(most, down=0.7, up=1.2)
    if gain.value < WORTH:
        return []
    return [
        Culprit(
            stage="copy", kind="copy", name="copy to the device", source=evidence.loader.source, resource="bandwidth",
            gain=gain, evidence=f"With batches already on the device the loop runs {fed.value:.2f} times as fast as from the host.",
        )
    ]  # fmt: skip


def _of_part(gain: Estimate, part: float) -> Estimate:
    """The gain of the whole where only this part of its time gains so much."""
    value, low, high = (1 / (1 - part + part / max(1e-6, each)) for each in (gain.value, gain.low, gain.high))
    return replace(gain, value=value, low=low, high=high, is_computed=gain.is_computed or part < 1)


_MOVES = re.compile(
    r"(^|[._])((copy|upload|transfer)(_\w+)?|to|cuda|cpu|to_device|device_put|put_batch|h2d|d2h)$", re.IGNORECASE
)
"""Names of calls that move batches between the host and a device."""

ELSEWHERE = 0.3
"""Share of the body that must be spent on waiting elsewhere for a copy's own waiting to be its own."""

WAITING_SHARE = 0.15
"""Share of a fed step from which on a line that only waits is worth mending."""


def _own_copy(evidence: Evidence) -> list[Culprit]:
    """A call of the loop body that moves data, by its name, and waits: for devices that torch does not know, such as a
    library's own or a simulated one. While it waits, the step could go on if the copy overlapped with it.

    A copy may also wait for work that was launched on the device before. So it is blamed only where the body waits
    elsewhere too, which is where such work shows.
    """
    if evidence.recording.has_device:
        return []
    lines = [line for line in evidence.recording.body if line.wall_inclusive >= WAITING_SHARE and _moves_data(line)]
    waiting = [line for line in lines if line.busy_inclusive < 0.2 * line.wall_inclusive]
    if not waiting:
        return []
    line = min(waiting, key=lambda line: (line.depth, -line.wall_inclusive))
    share = line.wall_inclusive
    if 1 - share - evidence.main_cpu_fraction(evidence.ceiling_id) < ELSEWHERE:
        return []
    gain = estimate.computed(_of_body(evidence, min(share, 1 - share)), down=0.5, up=1.2)
    if gain.value < WORTH:
        return []
    return [
        Culprit(
            stage="copy",
            kind="copy",
            name="copy that the loop body waits for",
            source=line.source,
            text=line.text,
            resource="bandwidth",
            gain=gain,
            evidence=(
                f"With batches from cache the loop body waits in this call for {share:.0%} of its time, without "
                "computing. Computed, not tried: as fast as if copy and rest of the step overlapped."
            ),
        )
    ]


def _moves_data(line: BodyLine) -> bool:
    return any(_MOVES.search(name) for name in _called(line.text))


def _called(text: str) -> list[str]:
    """Names that a line calls, dots included."""
    return re.findall(r"[\w.]+(?=\()", text)


def _workers(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Far too few worker processes, or far too many: by a trial of another number, else by the throughput law."""
    own = evidence.loader.num_workers
    if evidence.loader.kind == "other":
        return []
    shown = []
    for settings, gain in evidence.trials():
        is_few = own <= 1 and settings.num_workers > own
        is_shown = gain.low > 1.0 or _is_promising(gain)
        if is_shown and (is_few or (settings.num_workers < own and gain.value > 1 + evidence.threshold)):
            shown.append((settings, gain))
    if shown:
        settings, gain = max(shown, key=lambda item: item[1].value)
        return [_workers_culprit(evidence, gain, _told_workers(own, settings, gain))]
    is_tried = any(settings.num_workers != own for settings, _ in evidence.trials())
    most = evidence.loader.most_workers
    return [] if own > (1 if most is None else 0) or is_tried else _too_few_workers(evidence, own)


def _far_too_few(evidence: Evidence, others: Sequence[Culprit]) -> list[Culprit]:
    """Several workers, where twice as many or more were tried and gain far more than mending anything else would."""
    own = evidence.loader.num_workers
    most = max((math.log(max(1.0, other.gain.value)) for other in others), default=0.0)
    tried = [(gain, settings) for settings, gain in evidence.trials() if settings.num_workers >= 2 * own]
    least = max(math.log(1 + evidence.threshold), FAR * most)
    far = [(gain, settings) for gain, settings in tried if gain.low > 1 and math.log(gain.value) >= least]
    if own < 2 or not far:
        return []
    gain, settings = max(far, key=lambda item: item[0].value)
    return [_workers_culprit(evidence, gain, _told_workers(own, settings, gain))]


def _told_workers(own: int, settings: Settings, gain: Estimate) -> str:
    return f"Tried in the loop: with {settings} it runs {gain.value:.2f} times as fast as with {own}."


def _too_few_workers(evidence: Evidence, own: int) -> list[Culprit]:
    """What the law expects of as many workers as are of use, where none were tried."""
    loop = evidence.law
    most = evidence.loader.most_workers or loop.enough_workers()
    period = 1 / evidence.rates["none"].value
    # without workers, what making a batch does not explain is nothing that they would do, such as ordering batches
    unexplained = 0.0 if own else max(0.0, period - 1 / loop.rate(own))
    value = period / (1 / loop.rate(max(1, min(most, loop.enough_workers()))) + unexplained)
    if value <= 1:
        return []
    gain = estimate.computed(value, down=0.7, up=1.15)
    number = "no worker processes: loading and stepping take turns" if own == 0 else "a single worker process"
    sentence = (
        f"The loader has {number}; a batch takes {figure(loop.fetch_s * 1e3)} ms, and {counted(loop.cores, 'core')} could share the "
        "work. Computed, not tried."
    )
    return [_workers_culprit(evidence, gain, sentence)]


def _workers_culprit(evidence: Evidence, gain: Estimate, sentence: str) -> Culprit:
    return Culprit(
        stage="workers",
        kind="workers",
        name=f"num_workers={evidence.loader.num_workers}",
        source=evidence.loader.source,
        resource="cpu",
        gain=gain,
        evidence=sentence,
    )


_TRIALS = (
    ("trial:threads", "torch's threads in the loop's process beside the workers"),
    ("trial:worker-threads", "libraries that use several threads in every worker"),
    ("trial:one-core", "threads that a library starts in every worker"),
    ("trial:affinity", "workers bound to fewer cores than the machine has"),
)


def _tried(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Settings of threads and cores that were tried in the loop and made it faster."""
    found = []
    for rung, name in _TRIALS:
        gain = evidence.contrast(rung, "none")
        if gain is not None and (gain.low > 1 + evidence.threshold or _is_promising(gain)):
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
    """Batches of a stream come from fewer workers than there are: shards are uneven or missing."""
    workers = evidence.loader.num_workers
    made = [worker for block in evidence.of("none") for worker in block.workers]
    if evidence.loader.kind != "iterable" or workers < 2 or len(made) < 4 * workers:
        return []  # indices of a map-style data set go to whichever worker is free
    most = max(made.count(worker) for worker in set(made)) / len(made)
    if most < 1.6 / workers and len(set(made)) == workers:
        return []
    value = min(most * workers, reach_of(evidence).value)
    return [
        Culprit(
            stage="scheduling",
            kind="scheduling",
            name="uneven shards: some workers have no data",
            cause="uneven-shards",
            source=evidence.loader.source,
            resource="wait",
            gain=estimate.computed(value, down=0.7, up=1.1),
            evidence=f"{len(set(made))} of {workers} workers made batches; the busiest made {most:.0%} of them.",
        )
    ]


def _stalled(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Workers idle while the loop waits, and batches cost very different times: ready ones wait for a slow one, or a
    single worker makes many at once and then none."""
    workers = evidence.loader.num_workers
    fetches = sorted(fetch for block in evidence.of("none") for fetch in block.fetches_ns)
    span = sum(block.end_ns - block.start_ns for block in evidence.of("none"))
    if workers < 1 or len(fetches) < 8:
        return []
    busy = sum(fetches) / workers / span
    tried = next((gain for s, gain in evidence.trials() if evidence.loader.in_order and not s.in_order), None)
    is_shown = tried is not None and (tried.low > 1 + evidence.threshold or _is_promising(tried))
    if not is_shown and tried is not None and tried.value < PROMISING:
        return []  # letting ready batches overtake was tried, and did not help
    if not is_shown and not _is_stalled(evidence, fetches, busy):
        return []
    tried = tried if is_shown else None  # what it gained tells nothing where batches are too few for their scatter
    value = min(reach_of(evidence).value, 1 / max(0.1, busy))
    gain = tried or estimate.computed(value, down=0.5, up=1.2)
    how = f" Tried in the loop: in any order it runs {gain.value:.2f} times as fast." if tried is not None else ""
    return [
        Culprit(
            stage="scheduling",
            kind="scheduling",
            name="batches delivered in order behind a slow one" if workers > 1 else "batches made in bursts",
            source=evidence.loader.source,
            resource="wait",
            gain=gain,
            evidence=(
                f"Workers are busy only {busy:.0%} of the time while the loop waits; a usual batch takes "
                f"{figure(fetches[len(fetches) // 2] / 1e6)} ms, the slowest {figure(fetches[-1] / 1e6)} ms "
                f"(n={len(fetches)}).{_how_often(evidence)}{_where_late(evidence)}{how}"
            ),
        )
    ]


def _how_often(evidence: Evidence) -> str:
    """Every how many steps the loop stalls, if it did so more than once in the longest look at it."""
    block = max(evidence.of("none"), key=lambda block: block.steps)
    places = stalls([block])
    if len(places) < 2:
        return ""
    return f" The loop stalls about once in {figure((places[-1] - places[0]) / (len(places) - 1))} steps."


def _where_late(evidence: Evidence) -> str:
    late = evidence.recording.late
    if not late:
        return ""
    share = late[0].wall_ns / sum(line.wall_ns for line in late)
    return f" Slow ones were seen in {short_place(late[0].source)} (`{late[0].text}`) {share:.0%} of the time."


def _rare(evidence: Evidence) -> list[Culprit]:
    """A line that takes long once in many batches, so that watching a few samples does not meet it."""
    late, workers = evidence.recording.late, evidence.loader.num_workers
    fetches = sorted(fetch for block in evidence.of("none") for fetch in block.fetches_ns)
    if not late or len(fetches) < 16 or late[0].wall_ns < HALF * sum(line.wall_ns for line in late):
        return []
    usual = fetches[len(fetches) // 2]
    lost = _late_ns(fetches) / sum(fetches)
    if lost < RARE_SHARE:
        return []
    loop = evidence.law
    without = replace(loop, fetch_s=loop.fetch_s * (1 - lost), cpu_s=min(loop.cpu_s, loop.fetch_s * (1 - lost)))
    value = min(headroom_of(evidence).value, without.rate(workers) / evidence.rates["none"].value)
    is_waiting = late[0].cpu_ns < HALF * late[0].wall_ns
    return [
        Culprit(
            stage="late",
            kind="read" if is_waiting else "code",
            name=late[0].text,
            source=late[0].source,
            text=late[0].text,
            resource="wait" if is_waiting else "cpu",
            gain=estimate.computed(value, down=0.5, up=1.3),
            evidence=(
                f"A usual batch takes {figure(usual / 1e6)} ms, the slowest {figure(fetches[-1] / 1e6)} ms (n={len(fetches)}), and "
                f"{lost:.0%} of the workers' time goes into what slow ones take more.{_where_late(evidence)} The loop runs out "
                "of ready batches meanwhile: more batches ahead (prefetch_factor) bridge it, if workers are quick enough otherwise."
            ),
        )
    ]


def _late_ns(fetches: Sequence[int]) -> int:
    """What late batches take more than a usual one; of times in ascending order."""
    usual = fetches[len(fetches) // 2]
    return sum(fetch - usual for fetch in fetches if fetch > LATE * usual)


def _is_stalled(evidence: Evidence, fetches: Sequence[int], busy: float) -> bool:
    """Whether a few slow batches take most of the time, though the workers would be quick enough in another order."""
    workers = evidence.loader.num_workers
    if len(fetches) < max(16, 4 * workers) or evidence.wait_fraction("none") < 0.15:
        return False
    tail = sum(fetches[-max(1, len(fetches) // 10) :]) / max(1, sum(fetches))
    step_ns = 1e9 / evidence.rates[evidence.ceiling_id].value
    is_uneven = fetches[-1] >= 4 * fetches[len(fetches) // 2] and tail >= 0.4
    waits = sum(sum(block.waits_ns) for block in evidence.of("none"))
    explains = _late_ns(fetches) >= HALF * waits  # a late batch is waited for no longer than it is late
    return is_uneven and explains and busy <= 0.85 and estimate.mean(fetches) / workers <= 1.15 * step_ns


def _contention(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """The loop hardly waits, yet runs faster when the workers rest: they take the cores that the step needs."""
    gain, busy = evidence.contrast("host", "none"), evidence.contrast("host", BUSY)
    if (
        gain is None
        or gain.low < 1 + evidence.threshold
        or evidence.wait_fraction("none") > 0.3 * (1 - 1 / gain.value)
        or evidence.loader.num_workers == 0
        or (busy.high < 1 + evidence.threshold if busy is not None else is_quick_beside_workers(evidence))
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
    if loader.keeps_workers:
        starts = law.recurring_starts(evidence.recording)
    count = max(1, len(starts))
    construct = sum(item.construct_ns for item in starts) / 1e9 / count
    first = sum(item.first_wait_ns for item in starts) / 1e9 / count
    sampler = sum(item.sampler_ns for item in starts) / 1e9 / count
    fetch = evidence.fetch_s("none")
    costs = law.start_costs(evidence.recording, batches=epoch_batches(evidence))
    is_filling = loader.kind == "iterable" and first - fetch > HALF * (construct + first)
    kind, name, source, resource, cause = "worker-start", "starting the workers", loader.source, "wait", None
    every = [item for item in evidence.recording.starts if item.loader == loader.number]  # a few of them are natural
    if len(every) > 2 and all(item.batches <= BRIEF for item in every):
        name, cause = begun_anew(loader, every)
    elif sampler > 0.4 * (construct + first):
        kind, name, resource = "sampler", loader.sampler or "sampler", "cpu"
        source = loader.sampler_source or loader.source
    elif is_filling and not loader.imports_anew:
        name, cause = "what is done before the first batch (opening shards, filling a buffer)", "before-first-batch"
    elif not loader.num_workers or loader.keeps_workers or law.spared_share(costs) < HALF:
        name, cause = "the way to the first batch", "first-batch"
    return [
        Culprit(
            stage=kind,
            kind=kind,
            name=name,
            cause=cause,
            source=source,
            resource=resource,
            gain=Estimate(value=value, low=max(1.0, value / spread), high=value * spread, is_computed=True),
            evidence=(
                f"{len(starts)} natural starts: {construct:.2f} s to make the iterator, {first:.2f} s until the first "
                f"batch, {sampler:.2f} s of it in the sampler; a usual batch takes {fetch:.2f} s to make, and an epoch has "
                f"{loader.length or (starts[0].batches if starts else 0)} batches."
            ),
        )
    ]


def _dropped(evidence: Evidence) -> list[Culprit]:
    """Batches that were made only to be dropped: by how much an epoch would be shorter without."""
    start = dropping_start(evidence)
    if start is None:
        return []
    period = 1 / evidence.rates["none"].value
    epoch = max(1, (evidence.loader.length or start.batches) - start.dropped) * period
    value = 1 + start.dropped_ns / 1e9 / epoch
    return [
        Culprit(
            stage="worker-start:dropped",
            kind="worker-start",
            name="batches made only to be dropped",
            cause="dropped-batches",
            source=evidence.loader.source,
            resource="cpu",
            gain=estimate.computed(value, down=0.75, up=1.25),
            evidence=(
                f"The loop dropped the first {start.dropped} batches unused, which took {start.dropped_ns / 1e9:.1f} s: "
                f"as long as {start.dropped_ns / 1e9 / period:.0f} steps."
            ),
        )
    ]


def _step_host(evidence: Evidence, time: WallTime) -> list[Culprit]:
    """Work of the host in the loop body, where the body also waits for a device: the two take turns. Where there is one that
    does not tell how much it computes, they may also go on side by side, unless the host hardly rests."""
    if evidence.recording.device_busy is not None:
        return _idle_device(evidence, evidence.recording.device_busy)
    busy = evidence.main_cpu_fraction(evidence.ceiling_id)
    # a thread that waits for a device spins, which looks like work
    lines = [x for x in evidence.recording.body if x.cpu_fraction >= 0.05 and not x.is_torch and not x.waits_often]
    # collections happen in whatever line makes an object, and are a cause of their own
    host = sum(line.cpu_fraction for line in lines) - collecting_share(evidence, evidence.ceiling_id)
    working = busy - sum(line.cpu_fraction for line in evidence.recording.body if line.waits_often)
    if not lines or working < (IDLE_BELOW if evidence.recording.has_device else 0.2) or host < 0.15:
        return []
    hottest = _to_blame(evidence, host)
    share = max(hottest.cpu_fraction, hottest.cpu_inclusive)
    value = _of_body(evidence, host + _of_its_loop(evidence, hottest))
    if value < WORTH:
        return []
    sentence = (
        f"With batches from cache the loop's own thread is on a core {busy:.0%} of the time; this line, with what it "
        f"calls, takes {share:.0%} of the body, and computes on the host."
    )
    return [_host_culprit("host work in the loop body", hottest, "cpu", value, sentence)]


_HANDS_OUT = {
    "zip", "enumerate", "range", "reversed", "flatten", "ravel", "view", "reshape", "squeeze", "unbind", "split", "detach",
    "cpu", "to", "float", "long", "int",
}  # fmt: skip
"""Names of the calls in the head of a loop that gives items of tensors and computes nothing."""


def _of_its_loop(evidence: Evidence, line: BodyLine) -> float:
    """What torch does for the loop around a line where that hands out the items of tensors: it goes with the line. A loop
    that runs over what a model computes does not."""
    source = f"{line.source.rpartition(':')[0]}:{line.loop}"
    heads = [x for x in evidence.recording.body if x.is_torch and line.loop and x.source == source]
    return sum(head.cpu_fraction for head in heads if _HANDS_OUT.issuperset(map(_last_name, _called(head.text))))


def _last_name(called: str) -> str:
    return called.rpartition(".")[2]


def _to_blame(evidence: Evidence, host: float) -> BodyLine:
    """The innermost line that, with what it calls, takes most of the host's work in the body."""
    lines = [line for line in evidence.recording.body if not line.is_torch]
    leading = [line for line in lines if line.cpu_inclusive >= LEADING_SHARE * host]
    if leading:
        return max(leading, key=lambda line: (line.depth, line.cpu_inclusive))
    return max(lines, key=lambda line: line.cpu_fraction)


def _idle_device(evidence: Evidence, busy: float) -> list[Culprit]:
    """The device itself told how much of a fed step it computes: the rest is the host's, or spent on waiting for it.

    The host does nothing else while it waits, so without its waits a step takes what is left of it, or what the device
    computes. Where that is most of the step still, the host's own work is to blame.
    """
    lines = [line for line in evidence.recording.body if line.wall_fraction or line.waits_often]
    if busy > IDLE_BELOW or not lines:
        return []
    waiting = [line for line in lines if line.waits_often]
    working = [line for line in lines if not line.waits_often]
    waited = min(1 - busy, sum(line.wall_fraction for line in waiting))
    sentence = f"Even with batches already on it the device computes only {busy:.0%} of the time."
    if waiting and (waited >= HALF * (1 - busy) or not working):
        line = max(waiting, key=lambda line: (round(line.wall_fraction, 1), line.syncs))
        name, resource, value = "waits for the device in the loop body", "device", _of_body(evidence, waited)
        total = sum(other.syncs for other in waiting)
        sentence += f" The loop body waits for it {total:.3g} times a step, {line.syncs:.3g} of them here."
    else:
        line = max(working, key=lambda line: line.cpu_fraction)
        name, resource, value = "host work in the loop body", "cpu", _of_body(evidence, 1 - busy)
        sentence += f" This line takes most of the rest ({line.cpu_fraction:.0%} of the body)."
    return [_host_culprit(name, line, resource, value, sentence)] if value >= WORTH else []


def _of_body(evidence: Evidence, part: float) -> float:
    """What the loop would gain without a part of its body fed from cache: no more than its workers leave."""
    less_s = part / evidence.rates[evidence.ceiling_id].value
    return min(1 / max(0.02, 1 - part), gain_of_shorter_body(evidence, less_s))


def _host_culprit(name: str, line: BodyLine, resource: str, value: float, evidence: str) -> Culprit:
    return Culprit(
        stage="step",
        kind="step-host",
        name=name,
        source=line.source,
        text=line.text,
        resource=resource,
        gain=estimate.computed(value, down=0.6, up=1.3),
        evidence=evidence,
    )


def _by_accounting(evidence: Evidence) -> list[Culprit]:
    """When no single removal was shown to gain anything: the most expensive leaf, with a computed gain; or the data set as
    a whole, where that gains and all of its stages are small parts of it."""
    stages = [stage for stage in evidence.recording.stages if stage.wall_ns and stage.id != "ipc"]
    leaves, own = _leaves(stages), _own_stages(evidence)
    gain = evidence.contrast(evidence.ceiling_id, "none")
    if not leaves or gain is None or gain.value < 1 + 3 * evidence.threshold:
        return []
    stage = max(leaves, key=mean_ms)
    whole = evidence.contrast("samples", "none")
    if stage in own and whole is not None and whole.high < 1 + 3 * evidence.threshold:
        return []  # finished samples gain nothing
    parts = [part for part in own if part.id != "code"]
    if stage in parts and whole is not None and whole.low > 1 and max(_own_shares(own, parts)) < LITTLE:
        return [_many_steps(evidence, own, _leaves(own))]
    sentence = (
        f"It takes {share_of(evidence, stage):.0%} of a sample's time, and the gain is computed from that: no removal of "
        "a single stage was shown to help."
    )
    return [_stage_culprit(evidence, stage, gain_by_share(evidence, stage, gain), sentence)]


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
    hottest = max(inner, key=mean_ms)
    if mean_ms(hottest) < DOMINANT * mean_ms(stage):
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
        outer = find_stage(evidence.recording.stages, parent)
        if outer is None:
            break
        path.insert(0, outer.name)
        parent = outer.parent
    return tuple(path)
