"""What the rules look at: the facts of a recording with their estimates, and the questions that several rules ask."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unstarve import estimate, law
from unstarve.recording import (
    BUSY,
    HALF,
    LONG,
    USED_NS,
    Block,
    BodyLine,
    Loader,
    Recording,
    Settings,
    Stage,
    Start,
    stalls,
)
from unstarve.report import Estimate, WallTime

DOMINANT = 0.4
"""Share of a stage's time from which on a line in it is named for it."""

NEARLY_ALL = 0.8
"""Share from which on what runs below a line is the line's."""

THRESHOLD = 0.05
"""Share of the loop's time that input may cost before the loop is called input-bound."""

ALL_STEADY = WallTime(steady=1.0, start=0.0, other_loaders=0.0)
"""The account of wall time as long as nothing but the steady state is known."""

WORTH = 1.03
"""A stage whose removal gains less than this is not called a culprit."""

USED_UP = 0.85
"""Share of the cores that the loop keeps busy from which on they are used up."""

WITHOUT_CORE = 0.1
"""Share of the workers' work that may be waiting for a core before it is said: they start and end at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the rules look at."""

    recording: Recording
    """The facts."""
    blocks: tuple[Block, ...]
    """Blocks with the cost of copying taken off."""
    rates: dict[str, Estimate]
    """Steps per second by rung."""
    ceiling_id: str
    """The rung taken for the ceiling."""
    threshold: float
    """See `THRESHOLD`."""
    time: WallTime = ALL_STEADY
    """The account of an epoch's wall time, which is made from the rest."""

    @property
    def loader(self) -> Loader:
        """The loader that was diagnosed."""
        assert self.recording.loader is not None
        return self.recording.loader

    @property
    def cores(self) -> float:
        """Cores that the run could use."""
        return self.recording.cores

    @property
    def law(self) -> law.Loop:
        """The throughput law of the loop."""
        return law.of_blocks(self.blocks, self.loader.num_workers, self.cores)

    def contrast(self, upper: str, lower: str) -> Estimate | None:
        """Ratio of two rungs' rates, paired by round."""
        return estimate.contrast(self.blocks, upper, lower)

    def of(self, rung: str) -> list[Block]:
        """Blocks of one rung."""
        return [block for block in self.blocks if block.rung == rung]

    def trials(self) -> list[tuple[Settings, Estimate]]:
        """Loader settings that were tried in the loop, with what they gained."""
        found = []
        for rung in self.recording.rungs:
            gain = self.contrast(rung.id, "none") if rung.settings is not None else None
            if gain is not None and rung.settings is not None:
                found.append((rung.settings, gain))
        return found

    def wait_fraction(self, rung: str) -> float:
        """Share of the rung's time that the loop spent waiting for batches."""
        waits = sum(sum(block.waits_ns) for block in self.of(rung))
        total = sum(block.end_ns - block.start_ns for block in self.of(rung))
        return waits / total if total else 0.0

    def body_s(self, rung: str) -> float:
        """Mean wall time of the loop's body."""
        return estimate.mean(_bodies(self, rung)) / 1e9

    def fetch_s(self, rung: str) -> float:
        """Mean wall time of making a batch in a worker."""
        return estimate.mean([fetch for block in self.of(rung) for fetch in block.fetches_ns]) / 1e9

    def fetch_cpu_s(self, rung: str) -> float:
        """Mean CPU time of making a batch in a worker."""
        return estimate.mean([fetch for block in self.of(rung) for fetch in block.fetches_cpu_ns]) / 1e9

    def delay_s(self, rung: str) -> float:
        """Mean time that a worker was ready to run but had no core, for each batch."""
        return estimate.mean([delay for block in self.of(rung) for delay in block.delays_ns]) / 1e9

    @property
    def do_workers_wait(self) -> bool:
        """Whether making a batch takes a core for less than half of the time in which there is one."""
        return self.fetch_cpu_s("none") < HALF * (self.fetch_s("none") - self.delay_s("none"))

    def main_cpu_fraction(self, rung: str) -> float:
        """Share of the rung's time that the loop's own thread was on a core."""
        total = sum(block.end_ns - block.start_ns for block in self.of(rung))
        return sum(block.main_cpu_ns for block in self.of(rung)) / total if total else 0.0


def without_copies(block: Block, recording: Recording) -> Block:
    """The block as if serving from the cache had copied nothing.

    Copying happens in the workers, so it costs the loop time only as far as the loop waits for them: the correction is
    the copying time of a batch over the number of workers, and at most the waiting that there was.
    """
    if not block.copies_ns or not sum(block.copies_ns):
        return block
    workers = max(1, recording.loader.num_workers if recording.loader else 1)
    saved = min(sum(block.copies_ns) / workers, 0.9 * sum(block.waits_ns))
    return replace(block, end_ns=max(block.start_ns + 1, block.end_ns - int(saved)))


def at_length(blocks: Sequence[Block], threshold: float) -> tuple[Block, ...]:
    """The blocks, without the short ones of the loop as it is where a long look at it gave another rate: one that stalls once
    in many batches is as fast as any in between, and far slower while it stalls. A rate that short blocks scatter as far
    from, though nothing stalls, is no other."""
    own = [block for block in blocks if block.rung == "none" and block.steps]
    usual = statistics.median([block.steps for block in own]) if own else 0
    long = [estimate.rate(block) for block in own if block.steps >= LONG * usual]
    short = [estimate.rate(block) for block in own if block.steps < LONG * usual]
    if not long or not short or not estimate.differ(long, short, threshold):
        return tuple(blocks)
    if not stalls(own) and not estimate.is_beyond_scatter(long, short):
        return tuple(blocks)
    return tuple(block for block in blocks if block.rung != "none" or block.steps >= LONG * usual)


def headroom_of(evidence: Evidence) -> Estimate:
    """The headroom: no mend of the input can gain more."""
    found = evidence.contrast(evidence.ceiling_id, "none")
    assert found is not None
    return found


def contention_of(evidence: Evidence) -> Estimate | None:
    """How many times as long a step from cache takes while the workers are busy; None where that was not measured."""
    return evidence.contrast(evidence.ceiling_id, BUSY)


def reach_of(evidence: Evidence) -> Estimate:
    """What other settings can gain at most, since under them the workers stay as busy: the headroom, less what the loop
    body itself loses to busy workers."""
    headroom = headroom_of(evidence)
    busy = evidence.contrast(BUSY, "none")
    if busy is None or busy.value >= headroom.value:
        return headroom
    return busy


def waiting_of(evidence: Evidence) -> float:
    """Share of the untouched loop's time that goes into waiting for batches, less what waiting for cached ones takes."""
    return max(0.0, evidence.wait_fraction("none") - evidence.wait_fraction(evidence.ceiling_id))


def sampler_line(evidence: Evidence) -> BodyLine | None:
    """The line that takes most of what the sampler takes, if one does; else the innermost that nearly all of it is for."""
    lines = evidence.recording.sampler
    found = next((line for line in lines if line.wall_fraction >= DOMINANT), None)
    around = [line for line in lines if line.wall_inclusive >= NEARLY_ALL]
    return found or max(around, key=lambda line: line.depth, default=None)


def is_contention(evidence: Evidence) -> bool:
    """Whether the loop, fed from cache, is as slow as it is anyway while the workers are busy: nothing comes from waiting."""
    busy = evidence.rates.get(BUSY)
    return busy is not None and busy.value <= (1 + evidence.threshold) * evidence.rates["none"].value


def was_seen_to_wait(evidence: Evidence) -> bool:
    """Whether the untouched loop waits for batches for a good part of its time, and hardly for cached ones."""
    waits = evidence.wait_fraction("none")
    return waits > 3 * evidence.threshold and waits > 3 * evidence.wait_fraction(evidence.ceiling_id)


def cores_used(evidence: Evidence) -> float:
    """Cores that the untouched loop keeps busy, its workers and its own thread."""
    return evidence.fetch_cpu_s("none") * evidence.rates["none"].value + evidence.main_cpu_fraction("none")


def without_core(evidence: Evidence) -> float:
    """Share of their work on a batch that the workers wait for a core, though the untouched loop leaves some to others; 0
    where it hardly matters, or the loop itself uses them up."""
    fetch = evidence.fetch_s("none")
    if not fetch or not evidence.loader.num_workers or cores_used(evidence) > USED_UP * evidence.cores:
        return 0.0
    share = min(1.0, evidence.delay_s("none") / fetch)  # more where a worker has threads
    return share if share > WITHOUT_CORE else 0.0


def gain_by_share(evidence: Evidence, stage: Stage, most: Estimate) -> Estimate:
    """What the loop would gain without the stage, by its share of the workers' time, and `most` at best: computed, not
    tried, hence the wide interval."""
    left = max(0.02, 1 - share_of(evidence, stage))
    gain = estimate.computed(min(most.value, 1 / left), down=0.7, up=1.3)
    return replace(gain, high=max(gain.value, min(gain.high, most.high)))


def step_varies(evidence: Evidence) -> bool:
    """Whether the body, and not waiting, makes the untouched loop slower, on batches that cached ones do not stand for:
    the step depends on the data (new shapes, for instance).

    Busy workers could slow the body too. So either the usual step is as fast as from cache and only some are long, or
    the body is fast while the workers are busy but the batch comes from cache (the rung without transport). Batches that
    are sent anew from a worker's cache must then be fast too: else memory that the body is the first to touch is to blame.
    """
    bodies = _bodies(evidence, "none")
    if len(bodies) < 8 or evidence.wait_fraction("none") > 2 * evidence.threshold:
        return False
    cached = _bodies(evidence, evidence.ceiling_id)
    usual, mean = bodies[len(bodies) // 2], estimate.mean(bodies)
    is_slower = bool(cached) and mean > 1.15 * estimate.mean(cached)  # else cached batches have the same long steps
    is_in_groups = usual < USED_NS  # most batches are only taken, and worked on together
    if is_slower and usual < 1.15 * cached[len(cached) // 2] and mean > 1.3 * usual and not is_in_groups:
        return True
    sent = _bodies(evidence, "collated")
    if sent and estimate.mean(sent) ** 2 > mean * estimate.mean(cached):
        return False  # nearer to fresh batches than to cached ones
    return is_quick_beside_workers(evidence) and 1.15 * estimate.mean(cached) < mean / 1.15


def is_quick_beside_workers(evidence: Evidence) -> bool:
    """Whether the body on a cached batch was seen to be about as fast while the workers make theirs as while they rest."""
    cached, busy = _bodies(evidence, evidence.ceiling_id), _bodies(evidence, "knockout:ipc")
    return bool(cached and busy) and estimate.mean(busy) < 1.15 * estimate.mean(cached)


def _bodies(evidence: Evidence, rung: str) -> list[int]:
    return sorted(body for block in evidence.of(rung) for body in block.bodies_ns)


def begun_anew(loader: Loader, starts: Sequence[Start]) -> tuple[str, str]:
    """What iterators that give a batch or two each are called, and the cause that they are: epochs, where the loader has no
    more to give."""
    if loader.length is None or loader.length > max(start.batches for start in starts):
        return "a new iterator for every step", "new-iterators"
    return "epochs of a single batch" if loader.length == 1 else f"epochs of {loader.length} batches", "short-epochs"


def shared_wait_s(loader: Loader, start: Start) -> float:
    """What a step takes at least if all have their batches from one iterator: its workers make one each in the time that was
    waited for a first one, unless that went into their start. 0 without workers."""
    return start.first_wait_ns / 1e9 / loader.num_workers if loader.num_workers else 0.0


def mean_ms(stage: Stage) -> float:
    return estimate.mean(stage.wall_ns) / 1e6


def share_of(evidence: Evidence, stage: Stage) -> float:
    whole = _sample_ms(evidence)
    return mean_ms(stage) / whole if whole else 0.0


def _sample_ms(evidence: Evidence) -> float:
    tops = [stage for stage in evidence.recording.stages if stage.parent is None and stage.id != "ipc"]
    return sum(mean_ms(stage) for stage in tops)
