"""What feeding the loop at its ceiling would take, and which steps this pipeline could feed: the throughput law's answers
for another machine, computed and not tried."""

from __future__ import annotations

import math

from unstarve.judge.evidence import Evidence
from unstarve.judge.walltime import epoch_batches
from unstarve.recording import BUSY, Stage, leaves
from unstarve.report import Feed, Needs

MOST_WORKERS = 16
"""Workers at most in the table of what they could feed."""


def find_needs(evidence: Evidence, epoch_rate: float, price: float | None) -> Needs | None:
    """The needs of the loop that was diagnosed; None where its batches are not made by a `DataLoader`.

    Args:
        evidence: figures of the loop.
        epoch_rate: steps per second over a whole epoch.
        price: what an hour of the machine costs, in any currency.
    """
    loader = evidence.loader
    if loader.kind == "other" or not evidence.fetch_s("none"):
        return None
    loop = evidence.law
    base, rate = evidence.rates["none"].value, fed_rate(evidence)
    hours = _epoch_hours(evidence, epoch_rate)
    return Needs(
        cores=loop.cpu_s * rate + evidence.main_cpu_fraction(evidence.ceiling_id),
        workers=max(1, math.ceil(loop.fetch_s * rate)),
        steps_per_s=rate,
        read_mb_per_s=read_mb(evidence) * rate or None,
        read_mb_per_s_now=read_mb(evidence) * base or None,
        batch_mb=evidence.recording.batch_bytes / 1e6 or None,
        feeds=tuple(
            Feed(workers=count, step_ms=1e3 / loop.capacity(count)) for count in _counts(loader.num_workers, loop.cores)
        ),
        epoch_price=None if price is None or hours is None else price * hours[0],
        epoch_price_at_ceiling=None if price is None or hours is None else price * hours[1],
    )


def _epoch_hours(evidence: Evidence, epoch_rate: float) -> tuple[float, float] | None:
    """How long an epoch takes as it is, and with steps at the ceiling: starts, other loaders and what lies between epochs
    stay. None where its end is not known."""
    batches = epoch_batches(evidence)
    if math.isinf(batches):
        return None
    base = evidence.rates["none"].value
    ceiling = max(base, evidence.rates[evidence.ceiling_id].value)
    whole_s = batches / epoch_rate
    return whole_s / 3600, (whole_s - batches * (1 / base - 1 / ceiling)) / 3600


def fed_rate(evidence: Evidence) -> float:
    """Steps per second at the ceiling; at that with busy workers, where these were seen to slow the loop body."""
    base, top = evidence.rates["none"].value, evidence.rates[evidence.ceiling_id].value
    return max(base, min(top, evidence.rates[BUSY].value)) if BUSY in evidence.rates else max(base, top)


def sources(evidence: Evidence) -> list[Stage]:
    """Reading and decoding stages with nothing inside: what others read are modules that they import."""
    found = leaves(evidence.recording.stages)
    return [stage for stage in found if stage.wall_ns and stage.kind in ("read", "decode")]


def read_mb(evidence: Evidence) -> float:
    """Megabytes that system calls read for a batch, page cache included."""
    a_sample = sum(stage.read_bytes / len(stage.wall_ns) for stage in sources(evidence))
    return a_sample * evidence.loader.samples_per_batch / 1e6


def _counts(own: int, cores: float) -> list[int]:
    """Numbers of workers for the table: powers of two up to twice the cores, and the loader's own."""
    most = min(MOST_WORKERS, max(2 * int(cores), own, 2))
    return sorted({1 << power for power in range(5) if 1 << power <= most} | ({own} if own else set()))
