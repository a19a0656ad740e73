"""Where a step fed from cache spends its time, line by line."""

from __future__ import annotations

from collections.abc import Sequence

from unstarve.recording import BodyLine
from unstarve.report import BodyTime

LEAST = 0.05
"""Share of a step from which on a line is told."""

MOST = 6
"""Lines that are told."""

ALL = 0.995
"""A line with this share of a step, and no time of its own, only leads to others."""


def body_times(lines: Sequence[BodyLine]) -> tuple[BodyTime, ...]:
    """The lines of the loop body that take most of a step, from the loop's own to what they call.

    Args:
        lines: of the loop body, as it was sampled; those of a generator that hands out the batches are none of it.
    """
    told = [line for line in lines if line.wall_inclusive >= LEAST and not line.in_iterator]
    deepest = max((line.depth for line in told), default=0)
    told = [line for line in told if line.depth == deepest or not _only_leads(line)]
    told = sorted(told, key=lambda line: -line.wall_inclusive)[:MOST]
    outermost = min((line.depth for line in told), default=0)
    return tuple(
        BodyTime(
            source=line.source,
            text=line.text,
            share=line.wall_inclusive,
            depth=line.depth - outermost,
            spent=_spent(line),
        )
        for line in sorted(told, key=lambda line: (line.depth, -line.wall_inclusive))
    )


def _only_leads(line: BodyLine) -> bool:
    return line.wall_inclusive >= ALL and line.wall_fraction < 1 - ALL


def _spent(line: BodyLine) -> str:
    """What most of the line's time is spent on."""
    if line.waits_often:
        return "waiting for the device"
    parts = {
        "computing": line.cpu_inclusive,
        "in torch": line.busy_inclusive - line.cpu_inclusive,
        "waiting": line.rests,
        "without a core": line.delay_inclusive,
    }
    return max(parts, key=lambda name: parts[name])
