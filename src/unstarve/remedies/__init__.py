"""Remedies: functions from evidence to a finding, in a tuple. Pure; trials are made by the experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from unstarve.recording import Recording
from unstarve.remedies import body, decoding, delivery, memory, payload, reading, settings, stages, storing, workers
from unstarve.report import Culprit, Remedy, Report

Rule = Callable[[Recording, Report, Culprit], "Remedy | None"]

_RULES: tuple[Rule, ...] = (
    workers.more_workers,
    workers.workers_elsewhere,
    workers.quicker_elsewhere,
    storing.cached_head,
    reading.concurrent_reads,
    reading.larger_files,
    reading.compressed,
    decoding.decode_less,
    reading.lighter_codec,
    stages.cheaper_stage,
    stages.leaner_collation,
    stages.batched_fetch,
    stages.quicker_sampler,
    payload.lighter_transport,
    body.overlapped_copy,
    delivery.bridge_late,
    workers.work_in_workers,
    workers.keep_workers,
    workers.epochs_that_run_on,
    settings.setting,
    memory.fewer_collections,
    memory.collections_on_call,
    memory.packed_objects,
    delivery.scheduling,
    settings.fewer_workers,
    body.leaner_body,
)


def remedies(recording: Recording, report: Report) -> tuple[Remedy, ...]:
    """What to change, in the order of the culprits."""
    found: dict[str, Remedy] = {}
    tried = settings.tried_settings(recording)
    for culprit in report.verdict.culprits:
        for rule in _RULES:
            remedy = rule(recording, report, culprit)
            if remedy is not None:  # what was tried goes before what is computed
                remedy = replace(tried.get(remedy.id, remedy), about=remedy.about)
                found.setdefault(remedy.id, remedy)
    head = storing.cached_head(recording, report)
    needs_none = any("num_workers=0" in (remedy.patch or "") for remedy in (*found.values(), *tried.values()))
    is_told = report.verdict.bound == "start" or any(culprit.cause for culprit in report.verdict.culprits)
    kept = None if needs_none or is_told else workers.kept_over_epochs(recording, report)
    for remedy in (
        *tried.values(),
        *([head] if head is not None else ()),
        *([kept] if kept is not None else ()),
        *stages.reordered(recording),
        *payload.lean_batch(recording),
        *payload.leaner_payload(recording, report),
    ):
        found.setdefault(remedy.id, remedy)
    return tuple(found.values())
