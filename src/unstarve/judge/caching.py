"""The page cache: which bytes came from it in this run, and whether other epochs will find theirs there.

A diagnosis reads few samples, often the same as the one before it, so it may find in memory what an epoch has to fetch
from storage; and the first epoch fetches what later ones may find in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from unstarve.judge.evidence import Evidence
from unstarve.judge.needs import fed_rate, read_mb, sources
from unstarve.judge.reading import PAGE_BYTES, is_within, waiting_share
from unstarve.recording import Stage
from unstarve.report import Caveat, Culprit

WARM = 0.9
"""Share of the bytes from the page cache from which on the run says nothing of storage."""

COLD = 0.5
"""Share of the bytes from the page cache below which the run speaks of storage."""

ROOM = 0.5
"""Share of the memory that a data set may take and still be said to fit, beside the loop and its workers."""

WAITING = 0.1
"""Share of its time that a stage may wait and be taken to read from memory."""

NS_A_BYTE = 1.0
"""So much waiting, that of a gigabyte per second, is as little as storage across a network needs."""

MAPPED = 8
"""More bytes from storage, for each byte that system calls read, are those of mapped files, and not read ahead."""


def cached_share(stage: Stage) -> float | None:
    """Share of the bytes read that came from the page cache; None where no data was read or it cannot be told.

    What the kernel did not count as coming from storage came from the page cache, or from a file system that counts
    nothing. So where it counted next to nothing, the stage's own clocks must agree: reading memory does not wait.
    """
    if stage.storage_bytes is None or stage.read_bytes < PAGE_BYTES:
        return None
    share = max(0.0, 1 - stage.storage_bytes / stage.read_bytes)
    return None if share >= WARM and not _hardly_waits(stage) else share


def _hardly_waits(stage: Stage) -> bool:
    """Whether the stage was on a core, or ready for one, nearly all the time; false where its threads together were on
    more than one, since these hide what it waits."""
    samples = zip(stage.wall_ns, stage.cpu_ns, stage.delay_ns or (0,) * len(stage.wall_ns), strict=True)
    waited = sum(max(0, wall - cpu - delay) for wall, cpu, delay in samples)  # no sample's delay makes up for another's
    wall = sum(stage.wall_ns)
    is_alone = sum(stage.cpu_ns) <= (1 + WAITING) * wall
    return is_alone and waited <= min(WAITING * wall, NS_A_BYTE * stage.read_bytes)


def doubt_cache(evidence: Evidence, bound: str, culprits: Sequence[Culprit]) -> list[Caveat]:
    """Is what was read in this run in memory when it is read in other epochs?"""
    readers = [stage for stage in sources(evidence) if stage.storage_bytes is not None]
    memory, samples = _memory_gb(evidence), evidence.loader.samples
    read = sum(stage.read_bytes / len(stage.wall_ns) for stage in readers)
    stored = sum((stage.storage_bytes or 0) / len(stage.wall_ns) for stage in readers)
    if not read or not memory or not samples:
        return []
    share, size = max(0.0, 1 - stored / read), max(read, stored) * samples / 1e9
    main = max(readers, key=lambda stage: stage.read_bytes / len(stage.wall_ns))
    about = next((culprit.stage for culprit in culprits if is_within(evidence, main, culprit.stage)), "verdict")
    data_set = f"the whole data set, {size:.3g} GB if no two samples share bytes"
    if share >= WARM and size > memory and _is_known(readers):
        base, top = (read_mb(evidence) * rate for rate in (evidence.rates["none"].value, fed_rate(evidence)))
        sentence = (
            f"{share:.0%} of the bytes read in this run came from the page cache, but {data_set}, does not fit into "
            f"{memory:.3g} GB of memory: in production storage must deliver up to {base:.3g} MB/s to the loop as it is and "
            f"{top:.3g} MB/s at the ceiling, and reading may cost more than was measured."
        )
        return [Caveat(id="page-cache", about=about, sentence=sentence)]
    matters = bound in ("input", "unresolved") and sum(waiting_share(evidence, s) for s in readers) > evidence.threshold
    if share < COLD and size < ROOM * memory and stored < MAPPED * read and matters:
        sentence = (
            f"Only {share:.0%} of the bytes read in this run came from the page cache, but {data_set}, fits into "
            f"{memory:.3g} GB of memory: later epochs may read it from there and be faster than was measured."
        )
        return [Caveat(id="cold-cache", about=about, sentence=sentence)]
    return []


def _is_known(readers: Sequence[Stage]) -> bool:
    """Whether it can be told of nearly all bytes where they came from."""
    known = sum(stage.read_bytes for stage in readers if cached_share(stage) is not None)
    return known >= WARM * sum(stage.read_bytes for stage in readers)


def _memory_gb(evidence: Evidence) -> float:
    """Memory that a page cache could take at most; 0 where it is not known."""
    facts = evidence.recording.environment
    return float(facts.get("memory_limit_gib") or facts.get("memory_gib") or 0) * 2**30 / 1e9
