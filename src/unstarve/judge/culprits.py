"""Who is to blame: the rules, one for each kind of cause, in a tuple, and the ranking of what they accuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from unstarve.judge import body, delivery, loaders, settings, stages
from unstarve.judge.evidence import WORTH, Evidence, headroom_of, share_of
from unstarve.judge.memory import collected, copied_pages
from unstarve.recording import find_stage
from unstarve.report import Culprit

SHARE_WEIGHT = 0.15
"""Gains that differ by less than this are told apart by the stages' shares of the workers' time."""

TIPPING = 1.6
"""So many times what its share explains, a stage's gain is not the stage's own."""

UNSURE = 0.25
"""Part of the headroom, on a log scale, that a culprit must explain if nothing less sure is to be named."""

SAME_WORK = 0.95
"""Part of what workers gain, on a log scale, that a stage must gain to go before them where a loader has at most one."""

CROWD = 2.0
"""Workers to a core above which their number, where fewer gain, is what makes stages dear."""

COMPARABLE = 1 / 3
"""A setting goes before a stage only if it gains this part of what the stage gains, on a log scale."""

SETTINGS = ("cpu", "scheduling", "workers", "memory")
"""Kinds of culprits that are no stages."""

SYMPTOM = 1.1
"""Beside a setting to blame a stage is named only if it gains more than this many times as much."""

Rule = Callable[[Evidence], list[Culprit]]


def find_culprits(evidence: Evidence, bound: str) -> tuple[Culprit, ...]:
    """Who is to blame for what binds the loop, the guiltiest first; nobody where that was not resolved."""
    if bound == "start":
        return tuple(
            loaders.dropped(evidence) or copied_pages(evidence, at_start=True) or loaders.worker_start(evidence)
        )
    if bound == "step":
        found = collected(evidence) + body.copy(evidence) + body.own_copy(evidence) + body.step_host(evidence)
        return tuple(sorted(found, key=lambda culprit: -culprit.gain.low))
    if bound == "unresolved":
        return ()
    rules: tuple[Rule, ...] = (
        loaders.other_loader,
        loaders.second_loader,
        loaders.iterator,
        stages.knocked_out,
        stages.by_ladder,
        stages.fixed,
        body.copy,
        settings.workers,
        settings.tried_threads,
        delivery.uneven,
        delivery.stalled,
        settings.contention,
        collected,
        copied_pages,
    )
    found = [culprit for rule in rules for culprit in rule(evidence)]
    worth = [culprit for culprit in found if culprit.gain.value >= WORTH and _is_shown(culprit)]
    ranked = sorted(worth, key=lambda culprit: -_weight(evidence, culprit, worth))
    # what was computed is always sure, and may leave most of it unexplained
    if not ranked or (ranked[0].gain.is_computed and math.log(ranked[0].gain.value) < _least(evidence)):
        unsure = delivery.rare(evidence) or _uncertain(evidence, found) or stages.by_accounting(evidence)
        ranked = unsure + [culprit for culprit in ranked if culprit.stage not in {other.stage for other in unsure}]
    notable = [culprit for culprit in ranked if _is_notable(evidence, culprit, ranked[0])]
    guilty = [culprit for culprit in notable if not _is_symptom(culprit, ranked[0])]
    return tuple([*settings.far_too_few(evidence, [*found, *ranked]), *guilty][:5])


def _is_symptom(culprit: Culprit, first: Culprit) -> bool:
    """Whether the stage gains no more than the setting that makes workers fight or idle: any work spared helps then."""
    is_setting = first.kind in ("cpu", "scheduling") and culprit.kind not in SETTINGS
    return is_setting and culprit.gain.value <= SYMPTOM * first.gain.value


def _is_shown(culprit: Culprit) -> bool:
    """Whether the gain is more than chance; a setting that was tried needs less, since trying it costs nothing."""
    is_promising = culprit.kind in ("scheduling", "cpu", "workers") and settings.is_promising(culprit.gain)
    return culprit.gain.low > 1.0 or is_promising


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
    has no workers, or one, and one stage alone gains what more gain, the stage is what they would have to do."""
    of_stages = [math.log(other.gain.value) for other in beside if other.kind not in SETTINGS]
    least = SAME_WORK if culprit.stage == "workers" and evidence.loader.num_workers < 2 else 1 / COMPARABLE
    if culprit.kind in SETTINGS and least * math.log(culprit.gain.value) < max(of_stages, default=0.0):
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
    if _is_proven_wrong(evidence, culprit):
        return 2.0  # no stage is to blame for what a wrong setting makes of it
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


def _is_proven_wrong(evidence: Evidence, culprit: Culprit) -> bool:
    """Whether it is a setting that was tried otherwise, and by which more compete for the cores than there is room for."""
    cores = max(1.0, evidence.cores)
    if culprit.stage == "trial:threads":
        return bool(evidence.recording.environment.get("torch_threads", 1) > cores)
    if culprit.stage == "workers":
        return evidence.loader.num_workers > CROWD * cores and not culprit.gain.is_computed
    return culprit.stage in ("trial:affinity", "trial:worker-threads", "trial:one-core")
