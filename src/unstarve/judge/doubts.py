"""What weakens the verdict, as caveats."""

from __future__ import annotations

from collections.abc import Sequence

from unstarve import estimate
from unstarve.judge.caching import doubt_cache
from unstarve.judge.evidence import (
    Evidence,
    contention_of,
    headroom_of,
    is_contention,
    reach_of,
    share_of,
    step_varies,
    waiting_of,
    was_seen_to_wait,
    without_core,
)
from unstarve.judge.memory import doubt_memory
from unstarve.judge.residuals import doubt_law
from unstarve.recording import BUSY, find_stage
from unstarve.report import Caveat, Culprit, Estimate, figure

OTHERS_SHARE = 0.1
"""Share of the cores that other processes may use before it is said."""

CONTENTION = 0.03
"""Busy workers that slow the loop body by less are not worth a word."""


def find_doubts(evidence: Evidence, headroom: Estimate, bound: str, culprits: Sequence[Culprit]) -> tuple[Caveat, ...]:
    found = [Caveat(id=note.id, sentence=note.sentence, about="ladder") for note in evidence.recording.notes]
    found += (
        (_doubt_step(evidence) or _doubt_threshold(evidence, headroom, bound))
        + _doubt_waiting(evidence, bound)
        + _doubt_baseline(evidence)
        + _doubt_rounds(evidence)
        + _doubt_drift(evidence)
        + _doubt_machine(evidence)
        + _doubt_cores(evidence, bound)
        + _doubt_accounting(evidence, culprits)
        + _doubt_contention(evidence, headroom)
        + doubt_law(evidence, bound, culprits)
        + doubt_memory(evidence)
        + _doubt_ranks(evidence)
        + doubt_cache(evidence, bound, culprits)
    )
    found += [
        Caveat(id="kept-whole", about=stage.id, sentence=f"{stage.name} was not taken apart: {stage.why_whole}.")
        for stage in evidence.recording.stages
        if stage.why_whole
    ]
    stages = evidence.recording.stages
    if not evidence.recording.has_device:
        found.append(
            Caveat(
                id="no-accelerator", about="ladder",
                sentence="No accelerator was in use: the ceiling is the loop fed from host memory, and the step is what the CPU does.",
            )
        )  # fmt: skip
    if evidence.loader.kind != "map" and not any(s.id.startswith(("code:", "transform")) for s in stages):
        found.append(
            Caveat(
                id="outer-rungs-only", about="ladder",
                sentence="The data set is not indexed, so only the outer rungs were measured.",
            )
        )  # fmt: skip
    return tuple(found)


def _doubt_step(evidence: Evidence) -> list[Caveat]:
    if not step_varies(evidence):
        return []
    sentence = (
        "Some steps on fresh batches take much longer than on cached ones, though the usual step does not: the step "
        "depends on the data (on new shapes, for instance), and the ceiling, measured on few batches, is too high."
    )
    return [Caveat(id="step-varies", sentence=sentence)]


def _doubt_threshold(evidence: Evidence, headroom: Estimate, bound: str) -> list[Caveat]:
    if bound != "step" or headroom.high < 1 + evidence.threshold:
        return []
    if headroom.low > 1 + evidence.threshold and waiting_of(evidence) < evidence.threshold:
        sentence = (
            f"Fed from cache the loop runs {headroom.value:.2f} times as fast, yet it waits only {waiting_of(evidence):.0%} "
            "of its time: the few cached batches are lighter for the loop body than most, or busy workers slow the body."
        )
        return [Caveat(id="step-varies", sentence=sentence)]
    least, most = max(0.0, 1 - 1 / headroom.low), 1 - 1 / headroom.high
    sentence = (
        f"Input may cost between {least:.0%} and {most:.0%} of the loop's time; no single stage was shown to matter."
    )
    return [Caveat(id="near-threshold", sentence=sentence)]


def _doubt_waiting(evidence: Evidence, bound: str) -> list[Caveat]:
    """Do the loop's waits and the control with busy workers disagree on whether input costs anything?"""
    if bound != "unresolved" or not (was_seen_to_wait(evidence) and is_contention(evidence)):
        return []
    sentence = (
        f"The loop waits {evidence.wait_fraction('none'):.0%} of its time for batches, yet from cache it runs no faster while "
        "the workers are busy: the one says that input costs something, the other that it does not."
    )
    return [Caveat(id="waiting-disagrees", sentence=sentence)]


def _doubt_baseline(evidence: Evidence) -> list[Caveat]:
    """Does the baseline agree with the untouched steps before the experiment?"""
    natural = evidence.recording.natural_period_ns / 1e9
    measured = 1 / evidence.rates["none"].value
    if not natural or 0.5 < natural / measured < 2.0:
        return []
    sentence = (
        f"Before anything was cached a step took {figure(natural * 1e3)} ms, under the baseline {figure(measured * 1e3)} ms: "
        "the loop's speed changes a lot, and the intervals may be too narrow."
    )
    return [Caveat(id="baseline-differs", sentence=sentence)]


def _doubt_rounds(evidence: Evidence) -> list[Caveat]:
    rounds = len(evidence.of(evidence.ceiling_id))  # which a long look at the loop as it is leaves as they are
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
            id="drift",
            sentence=f"The untouched loop became {word} during the run ({figure(early)} to {figure(late)} steps/s).",
        )
    ]


def _doubt_machine(evidence: Evidence) -> list[Caveat]:
    """Were the cores ours alone?"""
    used, cores = evidence.recording.other_cores, evidence.cores
    if used < OTHERS_SHARE * cores:
        return []
    sentence = f"Other processes used {used:.2g} of the {cores:.3g} cores meanwhile: all figures hold for a machine as busy as that."
    return [Caveat(id="busy-machine", sentence=sentence)]


def _doubt_cores(evidence: Evidence, bound: str) -> list[Caveat]:
    """Would the workers make more batches if the cores that the loop leaves were free?"""
    crowded = without_core(evidence)
    if not crowded or bound != "input":
        return []
    sentence = (
        f"The workers wait for a core {crowded:.0%} of the time: what they could feed, and what the ceiling needs, is computed "
        "for cores that are free."
    )
    return [Caveat(id="cores-taken", about="ladder", sentence=sentence)]


def _doubt_contention(evidence: Evidence, headroom: Estimate) -> list[Caveat]:
    """Is the ceiling, measured beside resting workers, beyond what the loop reaches beside busy ones?"""
    slower = contention_of(evidence)
    if slower is None or slower.low <= 1 + CONTENTION:
        return []
    reach, base = reach_of(evidence), evidence.rates["none"].value
    left = f"at most ×{reach.value:.2f}" if reach.value > 1 else "nothing"
    sentence = (
        f"With the workers busy the loop body itself takes {slower.value - 1:.0%} longer ({slower.low - 1:.0%} to "
        f"{slower.high - 1:.0%}): so of the headroom ×{headroom.value:.2f} {left} comes from waiting, and more workers "
        f"alone cannot reach beyond {figure(max(base, evidence.rates[BUSY].value))} steps/s."
    )
    return [Caveat(id="contention", about="ladder", sentence=sentence)]


def _doubt_ranks(evidence: Evidence) -> list[Caveat]:
    """Does another rank wait for its batches more than this one? All wait for the slowest in every step."""
    own = evidence.wait_fraction("none")
    others = [(rank.wait_ns / rank.span_ns, rank.rank) for rank in evidence.recording.ranks if rank.span_ns]
    worst, number = max(others, default=(0.0, 0))
    if worst <= own + evidence.threshold:
        return []
    sentence = (
        f"Rank {number} waits {worst:.0%} of its time for batches, this one {own:.0%}, and every step is as long as that of "
        f"the slowest rank: diagnose that one too (--rank {number})."
    )
    return [Caveat(id="other-rank", sentence=sentence)]


def _doubt_accounting(evidence: Evidence, culprits: Sequence[Culprit]) -> list[Caveat]:
    """Does the first culprit's measured gain fit its share of the workers' time?"""
    if not culprits:
        return []
    stage = find_stage(evidence.recording.stages, culprits[0].stage)
    if stage is None or not stage.wall_ns or evidence.wait_fraction("none") < 0.2:
        return []
    expected = min(headroom_of(evidence).value, 1 / max(0.02, 1 - share_of(evidence, stage)))
    gain = culprits[0].gain
    is_more = gain.value > expected
    why = (
        "it slows what runs beside it, or the watched samples do not stand for all"
        if is_more
        else "something beside it binds"
    )
    if gain.is_computed or f"knockout:{stage.id}" not in evidence.rates:
        return []  # nothing was removed
    if gain.low / 1.3 <= expected <= gain.high * 1.3:
        return []
    return [
        Caveat(
            id="evidence-disagrees", about=stage.id,
            sentence=(
                f"By its share of a sample's time {stage.name} should gain {expected:.2f}, but removing it gained "
                f"{gain.value:.2f}: {why}."
            ),
        )
    ]  # fmt: skip
