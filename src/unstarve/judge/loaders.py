"""What lies around the steady loop and its workers: other loaders, a generator around this one, starts of iterators."""

from __future__ import annotations

from collections.abc import Sequence

from unstarve import estimate, law
from unstarve.judge.evidence import Evidence, begun_anew, headroom_of, sampler_line, shared_wait_s
from unstarve.judge.walltime import (
    begun_in_steps,
    dropping_start,
    epoch_batches,
    iterator_gain,
    iterator_share,
    loader_gain,
    waiting_loader,
    where_waited,
)
from unstarve.recording import BRIEF, HALF, BodyLine, Loader, Start, begun_share
from unstarve.report import Culprit, counted, figure


def other_loader(evidence: Evidence) -> list[Culprit]:
    """An iterable that is no DataLoader: its inside is not measured, so it is blamed as a whole."""
    if evidence.loader.kind != "other":
        return []
    return [
        Culprit(
            stage="loader",
            kind="loader",
            name=evidence.loader.name,
            source=evidence.loader.source,
            resource="cpu" if evidence.main_cpu_fraction("none") > 0.5 else "wait",
            gain=headroom_of(evidence),
            evidence=f"The loop waits {evidence.wait_fraction('none'):.0%} of its time for this iterable.",
        )
    ]


def second_loader(evidence: Evidence) -> list[Culprit]:
    """Another loader for which the script waits, such as that of the validation data between epochs."""
    found = waiting_loader(evidence)
    if found is None or found[1] < evidence.threshold:
        return []
    loader, share = found
    saved = begun_in_steps(evidence).get(loader.number)
    if saved is not None:
        return [_begun_anew(evidence, loader, share, saved)]
    value = loader_gain(evidence, loader, share)
    has_workers = loader.num_workers > 0
    where = where_waited(evidence, loader)
    starts = evidence.recording.starts_of(loader)
    return [
        Culprit(
            stage=f"loader:{loader.number}",
            kind="loader" if has_workers else "workers",
            name=f"{loader.name}, {f'waited for {where}' if has_workers else 'which has no workers'}",
            source=loader.source,
            resource=_resource(loader, starts),
            gain=estimate.computed(value, down=0.6, up=1.2),
            evidence=(
                f"Waiting for this other loader {where} takes {share:.0%} of an epoch's wall time, {begun_share(starts):.0%} "
                f"of that until the first batches of its {len(starts)} iterators (clocked, not tried)."
            ),
        )
    ]


def _resource(loader: Loader, starts: Sequence[Start]) -> str:
    """What a loader needs for its batches: the script waits for workers, or for storage where it hardly computes."""
    cpu = [start.wait_cpu_ns for start in starts if start.wait_cpu_ns is not None]
    waits = sum(cpu) < HALF * sum(start.wait_ns for start in starts)
    return "wait" if loader.num_workers or (cpu and waits) else "cpu"


def _begun_anew(evidence: Evidence, loader: Loader, share: float, saved: float) -> Culprit:
    """Another loader of which every step makes an iterator; `saved` of its `share` is what one for all steps would spare."""
    starts = evidence.recording.starts_of(loader)
    sampler = sum(start.sampler_ns for start in starts)
    ended = sum(start.closed_ns for start in starts)
    cost = sum(start.construct_ns + start.first_wait_ns for start in starts) + ended
    kind = "sampler" if sampler > HALF * cost else "worker-start" if saved > HALF else "workers"
    spared = share * saved if saved > HALF else share  # its batches are what costs, and workers need one iterator too
    name, cause = begun_anew(loader, starts)
    value = loader_gain(evidence, loader, spared)
    made_s = 0.0 if loader.imports_anew else estimate.mean([shared_wait_s(loader, start) for start in starts])
    if made_s:
        value = min(value, 1 / evidence.rates["none"].value / made_s)
    return Culprit(
        stage=f"loader:{loader.number}",
        kind=kind,
        name=f"{loader.name}, {name}",
        cause=cause,
        source=loader.source,
        resource=_resource(loader, starts),
        gain=estimate.computed(value, down=0.6, up=1.2),
        evidence=(
            f"{len(starts)} iterators of this other loader gave a batch or two each; one takes "
            f"{figure(cost / len(starts) / 1e6)} ms, {figure(sampler / len(starts) / 1e6)} ms of it in the sampler and "
            f"{figure(ended / len(starts) / 1e6)} ms for its end (clocked, not tried)."
        ),
    )


def iterator(evidence: Evidence) -> list[Culprit]:
    """A generator between the loader and the loop, which works in the loop's own process and in series with the step."""
    share = iterator_share(evidence)
    lines = [line for line in evidence.recording.body if line.in_iterator]
    if share < evidence.threshold or not lines:
        return []
    line = max(lines, key=lambda line: line.in_iterator)
    return [
        Culprit(
            stage="iterator",
            kind="loader",
            name=f"iterator around the loader: {line.text}",
            source=line.source,
            text=line.text,
            resource="wait" if line.rests >= HALF * line.wall_inclusive else "cpu",
            gain=estimate.computed(iterator_gain(evidence), down=0.7, up=1.2),
            evidence=(
                f"This generator of the script takes {share:.0%} of the loop's time on batches that it hands on, in the loop's "
                "own process, while the step waits (sampled, not tried)."
            ),
        )
    ]


def worker_start(evidence: Evidence) -> list[Culprit]:
    """What an iterator's start spends its time on: the sampler, making the workers, or the way to the first batch."""
    value = 1 / max(0.01, 1 - evidence.time.start)
    loader = evidence.loader
    every = evidence.recording.starts_of(loader)
    starts = [item for item in every if item.natural]
    if loader.keeps_workers:
        starts = law.recurring_starts(evidence.recording)
    count = max(1, len(starts))
    construct = sum(item.construct_ns for item in starts) / 1e9 / count
    first = sum(item.first_wait_ns for item in starts) / 1e9 / count
    sampler = sum(item.sampler_ns for item in starts) / 1e9 / count
    fetch = evidence.fetch_s("none")
    costs = law.start_costs(evidence.recording, batches=epoch_batches(evidence))
    is_filling = loader.kind == "iterable" and first - fetch > HALF * (construct + first)
    kind, name, source, resource, cause = "worker-start", "starting the workers", loader.source, "wait", None
    line: BodyLine | None = None
    if len(every) > 2 and all(item.batches <= BRIEF for item in every):  # few of them are natural
        name, cause = begun_anew(loader, every)
    elif sampler > 0.4 * (construct + first):
        kind, name, resource = "sampler", loader.sampler or "sampler", "cpu"
        line = sampler_line(evidence)
        source = line.source if line is not None else loader.sampler_source or loader.source
    elif is_filling and not loader.imports_anew:
        name, cause = "what is done before the first batch (opening shards, filling a buffer)", "before-first-batch"
    elif not loader.num_workers or loader.keeps_workers or law.spared_share(costs) < HALF:
        name, cause = "the way to the first batch", "first-batch"
    return [
        Culprit(
            stage=kind,
            kind=kind,
            name=name,
            cause=cause,
            source=source,
            text=line.text if line is not None else None,
            path=(name, line.text) if line is not None else (),
            resource=resource,
            gain=estimate.computed(value, down=0.75, up=1.25),
            evidence=(
                f"{counted(len(starts), 'natural start')}: {figure(construct)} s to make the iterator, {figure(first)} s until "
                f"the first batch, {figure(sampler)} s of it in the sampler; a usual batch takes {figure(fetch * 1e3)} ms to "
                f"make, and an epoch has {counted(loader.length or (starts[0].batches if starts else 0), 'batch', 'batches')}."
            ),
        )
    ]


def dropped(evidence: Evidence) -> list[Culprit]:
    """Batches that were made only to be dropped: by how much an epoch would be shorter without."""
    start = dropping_start(evidence)
    if start is None:
        return []
    period = 1 / evidence.rates["none"].value
    epoch = max(1, (evidence.loader.length or start.batches) - start.dropped) * period
    value = 1 + start.dropped_ns / 1e9 / epoch
    return [
        Culprit(
            stage="worker-start:dropped",
            kind="worker-start",
            name="batches made only to be dropped",
            cause="dropped-batches",
            source=evidence.loader.source,
            resource="cpu",
            gain=estimate.computed(value, down=0.75, up=1.25),
            evidence=(
                f"The loop dropped the first {start.dropped} batches unused, which took {start.dropped_ns / 1e9:.1f} s: "
                f"as long as {start.dropped_ns / 1e9 / period:.0f} steps."
            ),
        )
    ]
