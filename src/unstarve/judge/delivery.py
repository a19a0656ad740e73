"""How batches come that workers make quickly enough on the whole: from a few workers only, in bursts, behind a slow one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unstarve import estimate
from unstarve.judge.evidence import Evidence, headroom_of, reach_of
from unstarve.judge.settings import PROMISING, is_promising
from unstarve.recording import HALF, LATE, stalls
from unstarve.report import Culprit, figure, short_place

RARE_SHARE = 0.25
"""Part of the workers' time that late batches must take beyond what is usual, to be blamed."""


def uneven(evidence: Evidence) -> list[Culprit]:
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


def stalled(evidence: Evidence) -> list[Culprit]:
    """Workers idle while the loop waits, and batches cost very different times: ready ones wait for a slow one, or a
    single worker makes many at once and then none."""
    workers = evidence.loader.num_workers
    fetches = sorted(fetch for block in evidence.of("none") for fetch in block.fetches_ns)
    span = sum(block.end_ns - block.start_ns for block in evidence.of("none"))
    if workers < 1 or len(fetches) < 8:
        return []
    busy = sum(fetches) / workers / span
    tried = next((gain for s, gain in evidence.trials() if evidence.loader.in_order and not s.in_order), None)
    is_shown = tried is not None and (tried.low > 1 + evidence.threshold or is_promising(tried))
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


def _how_often(evidence: Evidence) -> str:
    """Every how many steps the loop stalls, if it did so more than once in the longest look at it."""
    block = max(evidence.of("none"), key=lambda block: block.steps)
    places = stalls([block])
    if len(places) < 2:
        return ""
    return f" The loop stalls about once in {figure((places[-1] - places[0]) / (len(places) - 1))} steps."


def rare(evidence: Evidence) -> list[Culprit]:
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


def _where_late(evidence: Evidence) -> str:
    late = evidence.recording.late
    if not late:
        return ""
    share = late[0].wall_ns / sum(line.wall_ns for line in late)
    return f" Slow ones were seen in {short_place(late[0].source)} (`{late[0].text}`) {share:.0%} of the time."
