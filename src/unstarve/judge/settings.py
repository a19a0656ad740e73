"""Settings that are to blame: the number of workers, threads, and the cores that all of them share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from unstarve import estimate
from unstarve.judge.evidence import Evidence, is_quick_beside_workers
from unstarve.recording import BUSY, Settings
from unstarve.report import Culprit, Estimate, counted, figure

FAR = 2.0
"""Several workers are too few only if more of them gain so many times what anything else does, on a log scale."""

SENDING = 0.75
"""Part of what no workers at all gain, on a log scale, that transport for free must gain to be why."""

PROMISING = 1.3
"""A setting that gained so much when it was tried is named even where few rounds leave its interval wide."""

_TRIALS = (
    ("trial:threads", "torch's threads in the loop's process beside the workers"),
    ("trial:worker-threads", "libraries that use several threads in every worker"),
    ("trial:one-core", "threads that a library starts in every worker"),
    ("trial:affinity", "workers bound to fewer cores than the machine has"),
)


def is_promising(gain: Estimate) -> bool:
    """Whether a setting that was tried gained enough to be named despite a wide interval."""
    return gain.value >= PROMISING and gain.low > 1 / PROMISING


def workers(evidence: Evidence) -> list[Culprit]:
    """Far too few worker processes, or far too many: by a trial of another number, else by the throughput law."""
    own = evidence.loader.num_workers
    if evidence.loader.kind == "other":
        return []
    shown = []
    for settings, gain in evidence.trials():
        if settings.num_workers == 0 and _is_of_transport(evidence, gain):
            continue
        is_few = own <= 1 and settings.num_workers > own
        is_shown = gain.low > 1.0 or is_promising(gain)
        if is_shown and (is_few or (settings.num_workers < own and gain.value > 1 + evidence.threshold)):
            shown.append((settings, gain))
    if shown:
        settings, gain = max(shown, key=lambda item: item[1].value)
        return [_workers_culprit(evidence, gain, _told_workers(own, settings, gain))]
    is_tried = any(settings.num_workers > own for settings, _ in evidence.trials())
    most = evidence.loader.most_workers
    return [] if own > (1 if most is None else 0) or is_tried else _too_few_workers(evidence, own)


def _is_of_transport(evidence: Evidence, gain: Estimate) -> bool:
    """Whether a loader gains by having no workers what it gains by sending nothing: it is not their number then."""
    free = evidence.contrast("knockout:ipc", "none")
    return free is not None and free.low > 1 and math.log(free.value) >= SENDING * math.log(max(1.0, gain.value))


def far_too_few(evidence: Evidence, others: Sequence[Culprit]) -> list[Culprit]:
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
    more = max(1, min(most, loop.enough_workers()))
    if own and loop.rate(more) < (1 + evidence.threshold) * loop.rate(own):
        return []  # what the law leaves unexplained is nothing that more workers are known to mend
    # without workers, what making a batch does not explain is nothing that they would do, such as ordering batches
    unexplained = 0.0 if own else max(0.0, period - 1 / loop.rate(own))
    value = period / (1 / loop.rate(more) + unexplained)
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
        resource="wait" if evidence.do_workers_wait else "cpu",
        gain=gain,
        evidence=sentence,
    )


def tried_threads(evidence: Evidence) -> list[Culprit]:
    """Settings of threads and cores that were tried in the loop and made it faster."""
    found = []
    for rung, name in _TRIALS:
        gain = evidence.contrast(rung, "none")
        if gain is not None and (gain.low > 1 + evidence.threshold or is_promising(gain)):
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


def contention(evidence: Evidence) -> list[Culprit]:
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
