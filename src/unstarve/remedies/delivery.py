"""Batches that wait for a slow one: more of them ahead, as far as shared memory has room, or in any order."""

from __future__ import annotations

import math
import re

from unstarve import estimate
from unstarve.recording import Recording
from unstarve.remedies.facts import FULL, law_of, loader_of, mib, shared_bytes
from unstarve.report import Culprit, Remedy, Report

WORTH_BRIDGING = 1.05
"""What more batches ahead must gain to be advised: they take up memory."""


def bridge_late(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """Enough batches ahead for the loop to go on while all workers are at a slow one."""
    if culprit.stage != "late" or report.baseline is None or report.ceiling is None:
        return None
    loader = loader_of(recording)
    batch = shared_bytes(recording)
    ahead = _with_room(recording, _to_bridge(recording, report.ceiling.value))
    loop = law_of(recording)
    gain = min(loop.rate(loader.num_workers), report.ceiling.value) / report.baseline.value
    if ahead <= loader.prefetch_factor or gain < WORTH_BRIDGING:
        return None
    return Remedy(
        id="prefetch",
        advice=(
            f"Have {ahead} batches ordered ahead for each worker, to bridge {_slowest_s(recording):.2g} s without a new one. They take up "
            f"to {mib(loader.num_workers * (ahead - loader.prefetch_factor) * batch)} more of shared memory."
        ),
        patch=f"DataLoader(..., prefetch_factor={ahead})",
        predicted_gain=estimate.computed(gain, down=0.5, up=1.2),
        about=culprit.stage,
    )


def _slowest_s(recording: Recording) -> float:
    """What the slowest batch of the loop as it is took to make."""
    made = (fetch for block in recording.blocks if block.rung == "none" for fetch in block.fetches_ns)
    return max(made, default=0) / 1e9


def _to_bridge(recording: Recording, steps_per_s: float) -> int:
    """So many batches ahead for each worker would feed the loop while the slowest batch is made."""
    return math.ceil(_slowest_s(recording) * steps_per_s / max(1, loader_of(recording).num_workers)) + 1


def _with_room(recording: Recording, ahead: int) -> int:
    """So many batches ahead for each worker, as far as shared memory has room for them beside one that is in the making."""
    batches = max(1, loader_of(recording).num_workers) * shared_bytes(recording)
    free = recording.shared_memory_bytes  # 0 where it is not known
    return min(ahead, int(FULL * free / batches) - 1) if free and batches else ahead


def scheduling(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For ready batches that wait for a slow one, or that come from some of the workers only."""
    if culprit.kind != "scheduling":
        return None
    if culprit.cause == "uneven-shards":
        advice = "Give every worker at least one shard: split by get_worker_info(), into as many shards as workers."
        return Remedy(id="even-shards", advice=advice, predicted_gain=culprit.gain, about=culprit.stage)
    own = loader_of(recording).prefetch_factor
    wanted = max(4, 2 * own)
    if report.ceiling is not None:
        wanted = max(wanted, _to_bridge(recording, report.ceiling.value))
    ahead = _with_room(recording, wanted)
    arguments = [f"prefetch_factor={ahead}"] if ahead > own else []
    room = ""
    if ahead < wanted:
        room = f" The {mib(recording.shared_memory_bytes)} of shared memory that were free have no room for more (docker: --shm-size)."
    if not _has_in_order(recording):
        advice = (
            "Order more batches ahead, so that a slow one is started earlier; torch 2.6 and later can also hand out ready "
            "batches before it (in_order=False)."
        )
    elif loader_of(recording).num_workers < 2 or not loader_of(recording).in_order:
        advice = "Order more batches ahead, so that some are ready when none is made."
    else:
        arguments.insert(0, "in_order=False")
        advice = (
            "Let ready batches overtake a slow one (the order then differs from run to run), or order more batches ahead so "
            "that it is started earlier."
        )
    return Remedy(
        id="out-of-order" if "in_order=False" in arguments else "order-ahead",
        advice=advice + room,
        patch=f"DataLoader(..., {', '.join(arguments)})" if arguments else None,
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )


def _has_in_order(recording: Recording) -> bool:
    """Whether the torch that ran knows the argument `in_order`; it is taken to be recent where its version is unknown."""
    version = re.match(r"(\d+)\.(\d+)", str(recording.environment.get("torch", "")))
    return version is None or (int(version[1]), int(version[2])) >= (2, 6)
