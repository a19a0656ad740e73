"""Causes that lie in memory: garbage collections, pages copied in forked workers, swap, shared memory.

None is named because it might matter: collections were tried off, copied pages are counted and their kernel time is
known, and waiting for memory was clocked by the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unstarve import estimate
from unstarve.judge.evidence import Evidence, headroom_of
from unstarve.recording import COLLECTOR_OFF, MemoryLook, collecting
from unstarve.remedies.facts import FULL
from unstarve.report import Caveat, Culprit

WARM = 8
"""Batches after which a worker's copying is no longer that of its start."""

MOST_NS_A_PAGE = 6_000
"""What copying a page is taken to cost at most (3 to 5 us where it was measured): where faults are few, other system
calls took the kernel's time."""

USUAL_BYTES = 64 * 2**20
"""What a forked worker copies of an interpreter with libraries, whatever the data set holds."""

OF_START = 0.4
"""Share of what starts cost that copied pages must explain to be blamed for it."""


def collecting_share(evidence: Evidence, rung: str) -> float:
    """Share of the rung's time in which the loop's own process collected garbage unasked: a script that calls the collector
    does so with it off as well."""
    called = collecting(evidence.of(COLLECTOR_OFF))[1]
    return max(0.0, collecting(evidence.of(rung))[1] - called)


def collected(evidence: Evidence) -> list[Culprit]:
    """Garbage collections, where the loop was faster without."""
    gain = evidence.contrast(COLLECTOR_OFF, "none")
    if gain is None or gain.low <= 1.0 or gain.value <= 1 + evidence.threshold:
        return []
    made, own = collecting(evidence.of("none"))
    if max(made, own) < evidence.threshold:  # they cannot have gained that
        return []
    return [
        Culprit(
            stage=COLLECTOR_OFF,
            kind="memory",
            name="garbage collections of Python",
            source=evidence.loader.source,
            resource="memory",
            gain=gain,
            evidence=(
                f"Collections take {made:.0%} of making a batch and {own:.0%} of the loop's own time; tried in the loop: "
                f"with the collector off it runs {gain.value:.2f} times as fast."
            ),
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied:
    """What a worker copied between two looks at its memory."""

    first: int
    """Batches that it had made before."""
    last: int
    """Batches that it had made after."""
    size: float
    """Bytes of pages copied."""
    spent_s: float
    """Kernel time that this took, with its share of waiting for a core."""
    wall_s: float
    """Time of making the batches."""


def _copies(looks: Sequence[MemoryLook], page_bytes: int) -> Iterator[_Copied]:
    """Between each two looks at one worker: pages that were shared before and are private now, each by a page fault.

    A page that a worker newly takes is private but was never shared; one that it gives back was shared but is not
    private. What the kernel spent is spread evenly over the faults, as if it had done nothing else.
    """
    for before, after in itertools.pairwise(looks):
        most = (after.minor_faults - before.minor_faults) * page_bytes
        rise, fall = after.private_bytes - before.private_bytes, before.shared_bytes - after.shared_bytes
        size = max(0, min(rise, fall, most))
        spent = min((after.system_ns - before.system_ns) * size / max(1, most), size / page_bytes * MOST_NS_A_PAGE)
        # kernel time is waited for like all CPU time, where there are too few cores
        spent *= 1 + (after.delay_ns - before.delay_ns) / max(1, after.cpu_ns - before.cpu_ns)
        spent = min(spent, after.wall_ns - before.wall_ns)
        yield _Copied(
            first=before.fetches, last=after.fetches, size=size, spent_s=spent / 1e9,
            wall_s=(after.wall_ns - before.wall_ns) / 1e9,
        )  # fmt: skip


def _by_worker(evidence: Evidence) -> list[list[_Copied]]:
    workers: dict[tuple[int, int], list[MemoryLook]] = {}
    for look in evidence.recording.memory:
        if look.loader == evidence.loader.number:
            workers.setdefault((look.fleet, look.worker), []).append(look)
    return [list(_copies(looks, evidence.recording.page_bytes)) for looks in workers.values()]


def copied_pages(evidence: Evidence, *, at_start: bool = False) -> list[Culprit]:
    """Pages of the script's own process that forked workers copy because they write into them; reading a Python object
    does, since its count of references changes."""
    workers = [copies for copies in _by_worker(evidence) if copies]
    if not workers or evidence.loader.start_method == "spawn":
        return []
    found = _copied_at_start(evidence, workers)
    if found is None and not at_start:
        found = _copied_all_along(evidence, workers)
    if found is None:
        return []
    gain, sentence = found
    return [
        Culprit(
            stage="worker-memory",
            kind="memory",
            name="Python objects of the parent, copied page by page in every worker",
            source=evidence.loader.source,
            resource="memory",
            gain=estimate.computed(gain, down=0.6, up=1.3),
            evidence=sentence,
        )
    ]


def _copied_at_start(evidence: Evidence, workers: Sequence[Sequence[_Copied]]) -> tuple[float, str] | None:
    """What an epoch would gain if its new workers had nothing to copy, and the reason; None where that is little."""
    loader, time = evidence.loader, evidence.time
    if loader.keeps_workers or not loader.length or time.steady <= 0:
        return None
    batches = max(1, loader.length // max(1, loader.num_workers))
    lives = [[item for item in copies if item.first < batches] for copies in workers]
    lost = estimate.mean([sum(item.spent_s for item in life) for life in lives])
    at_first = estimate.mean([sum(item.spent_s for item in life if item.last <= 1) for life in lives])
    period = 1 / evidence.rates["none"].value
    steady = loader.length * period
    whole = steady / time.steady + lost - at_first  # the figures of the steady state are those of warm workers
    gain = whole / max(0.02 * whole, whole - lost)
    size = estimate.mean([sum(item.size for item in life) for life in lives])
    is_usual = size < USUAL_BYTES
    if is_usual or gain < 1 + evidence.threshold or lost < OF_START * time.start * steady / time.steady:
        return None
    return gain, (
        f"In every epoch each new worker copies {size / 2**20:.0f} MiB of pages that it shared with the script's own "
        f"process, which takes {lost:.2g} s of an epoch of {whole:.2g} s (counted, not tried)."
    )


def _copied_all_along(evidence: Evidence, workers: Sequence[Sequence[_Copied]]) -> tuple[float, str] | None:
    """What the loop would gain if its workers did not go on copying, long after their start; None where that is
    little."""
    late = [copies[-1] for copies in workers if copies[-1].first >= WARM]
    wall = sum(item.wall_s for item in late)
    if not late or wall <= 0:
        return None
    share = min(0.9, sum(item.spent_s for item in late) / wall)
    gain = min(headroom_of(evidence).value, 1 / (1 - share))
    if gain < 1 + evidence.threshold:
        return None
    size = sum(item.size for item in late) / sum(item.last - item.first for item in late)
    return gain, (
        f"For each batch a worker copies {size / 2**20:.2g} MiB of pages that it shared with the script's own process, "
        f"{late[0].first} batches after its start and later: {share:.0%} of its time (counted, not tried)."
    )


def doubt_memory(evidence: Evidence) -> list[Caveat]:
    """Memory that ran short: time lost to waiting for it, and shared memory that batches nearly fill."""
    recording = evidence.recording
    found = []
    stalled = recording.memory_stall_ns / max(1, recording.loop_ns)
    if recording.loop_ns and stalled > evidence.threshold:
        swapped = recording.swapped_bytes / 2**20
        why = f" {swapped:.0f} MiB were read back from swap." if swapped >= 1 else ""
        sentence = (
            f"For {stalled:.0%} of the run some process of this machine waited for memory.{why} With less in memory "
            "(fewer workers, fewer batches ahead, smaller caches) the loop may be faster; figures may be too slow."
        )
        found.append(Caveat(id="memory-pressure", sentence=sentence))
    ahead = recording.batch_bytes * evidence.loader.num_workers * evidence.loader.prefetch_factor
    if recording.shared_memory_bytes and ahead > FULL * recording.shared_memory_bytes:
        sentence = (
            f"Batches ahead of the loop may take {ahead / 2**20:.0f} MiB of the {recording.shared_memory_bytes / 2**20:.0f} "
            "MiB of shared memory that were free: a somewhat larger batch, or one more worker, ends in a bus error."
        )
        found.append(Caveat(id="shared-memory", sentence=sentence))
    return found


__all__ = ["collected", "copied_pages", "doubt_memory"]
