"""The account of an epoch's wall time: steady steps, iterator starts, other loaders, and what lies between epochs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from unstarve import estimate, law
from unstarve.judge.evidence import Evidence
from unstarve.recording import BRIEF, FEWEST_ANEW, Loader, Start
from unstarve.report import WallTime

MANY_DROPPED = 10
"""Batches dropped at an iterator's beginning from which on that is no accident."""

LEFT_EARLY = 2
"""Epochs that a loop must have left long before their end for that to be its way."""

MOSTLY_ITERATOR = 0.8
"""A generator that takes more of the loop's body than this is the loop, and yields what that makes of its batches."""

LONG_DROP_NS = 1_000_000_000
"""Time that they must have taken to be worth a word."""


def wall_time(evidence: Evidence) -> tuple[WallTime, float]:
    """Account of the wall time of one epoch as the script would run it without us, and the steps per second over all of it.

    Steady time is the epoch's steps at the baseline rate; starts are those of natural iterators, as far as they come
    again with every epoch; other loaders count once an epoch, and so does what the script does between two epochs outside
    of any loader. Of an epoch that has no length, and of which no end was seen, nothing is claimed: then all is steady.
    """
    period = 1 / evidence.rates["none"].value
    ours = _ours(evidence)
    length = epoch_batches(evidence)
    start = estimate.mean([cost.total_s for cost in law.start_costs(evidence.recording, batches=length)])
    apart = [item for item in _others(evidence) if not _is_beside(item)]
    inside = sum(span_s(item) for item in apart if _is_inside(item, ours)) / max(1, sum(item.batches for item in ours))
    beside = _beside_s(evidence)
    if math.isinf(length):
        whole = period + inside
        steady, other = (period - beside) / whole, (beside + inside) / whole
        return WallTime(steady=steady, start=0.0, other_loaders=other), 1 / whole
    batches = max(1.0, length)
    steady = batches * (period - beside)
    between = sum(span_s(item) for item in apart if not _is_inside(item, ours))
    anew = begun_in_steps(evidence)
    between += sum(_start_s(item) for item in _others(evidence) if _is_beside(item) and item.loader not in anew)
    other = between / _epochs(evidence) + (beside + inside) * batches
    outside = estimate.mean([max(0.0, gap - evidence.body_s("none")) for gap in outside_s(ours, _others(evidence))])
    total = steady + start + other + outside
    shares = WallTime(steady=steady / total, start=start / total, other_loaders=other / total, other=outside / total)
    return shares, batches / total


def outside_s(ours: Sequence[Start], others: Sequence[Start]) -> list[float]:
    """Time outside of any loader between each epoch and the next iterator of the same loader, such as for a checkpoint, and
    in it the last step of an epoch that was left without asking for more; looks at some batches are no epochs."""
    most = max((item.batches for item in ours), default=0)
    return [
        _uncovered_ns(before.ended_ns, after.created_ns, others) / 1e9
        for before, after in itertools.pairwise(ours)
        if 2 * before.batches >= most
    ]


def _uncovered_ns(begin: int, end: int, others: Sequence[Start]) -> int:
    """Time from `begin` to `end` in which none of the iterators took the script's time."""
    spans = [
        (item.created_ns, item.created_ns + item.construct_ns if _is_beside(item) else item.ended_ns + item.closed_ns)
        for item in others
    ]
    free = 0
    for start, stop in sorted(spans):
        free += max(0, min(start, end) - begin)
        begin = max(begin, stop)
    return free + max(0, end - begin)


def epoch_batches(evidence: Evidence) -> float:
    """Batches of an epoch: as the loader says, unless the loop was seen to leave it sooner, time and again; without a
    length as far as epochs were seen to end, and endless where none was."""
    ended, length = _ended(evidence), evidence.loader.length
    if length is None:
        return estimate.mean(ended) if ended else math.inf
    if len(ended) >= LEFT_EARLY and max(ended) < length / 2:
        return estimate.mean(ended)
    return float(length)


def _ours(evidence: Evidence) -> list[Start]:
    return evidence.recording.starts_of(evidence.loader)


def _others(evidence: Evidence) -> list[Start]:
    return evidence.recording.starts_beside(evidence.loader)


def _is_inside(other: Start, ours: Sequence[Start]) -> bool:
    """Whether it was begun in the middle of an epoch: such as for a validation every so many steps."""
    return any(item.created_ns < other.created_ns < item.ended_ns for item in ours)


def is_within(other: Start, ours: Sequence[Start]) -> bool:
    """Whether what it took of the script's time lies within that of the epochs `ours`."""
    return _is_beside(other) or _is_inside(other, ours)


def _is_beside(other: Start) -> bool:
    """Whether the loop went on beside it, as over the other loader of a `zip`."""
    return other.beside > other.batches / 4


def span_s(other: Start) -> float:
    """What an iterator of another loader took of the script's time: waiting, where the loop went on beside it."""
    return (_waited_ns(other) if _is_beside(other) else other.ended_ns - other.created_ns + other.closed_ns) / 1e9


def _waited_ns(other: Start) -> int:
    """What the script waited for an iterator, from asking for it until it had ended."""
    return other.construct_ns + other.wait_ns + other.closed_ns


def _start_s(other: Start) -> float:
    return (other.construct_ns + other.first_wait_ns + other.closed_ns) / 1e9


def _beside_s(evidence: Evidence) -> float:
    """How long each step waits for loaders that are drawn from beside the loop: a part of its body. Starts are left out
    unless there is one in every step."""
    anew = begun_in_steps(evidence)
    beside = [item for item in _others(evidence) if _is_beside(item)]
    waits = sum(span_s(item) - (0 if item.loader in anew else _start_s(item)) for item in beside)
    body = (1 - evidence.wait_fraction("none")) / evidence.rates["none"].value
    return max(0.0, min(body, waits / max(1, sum(item.batches for item in _ours(evidence)))))


def _ended(evidence: Evidence) -> list[int]:
    """Batches of each epoch that was seen to end, without mere looks at some batches."""
    ours = _ours(evidence)
    most = max((item.batches for item in ours), default=0)
    last = max((other.created_ns for other in _others(evidence)), default=-1)  # a validation, say, follows an epoch
    ended = [item.batches for item in ours if item is not ours[-1] or item.ended_ns <= last]
    return [batches for batches in ended if 2 * batches >= most]


def _epochs(evidence: Evidence) -> int:
    """Epochs of the loader that was diagnosed which were seen to end."""
    return max(1, len(_ended(evidence)))


def waiting_loader(evidence: Evidence) -> tuple[Loader, float] | None:
    """The other loader that the script waits for longest, and the share of an epoch's wall time that this takes."""
    waits: dict[int, int] = {}
    spans = 0
    for start in _others(evidence):
        waits[start.loader] = waits.get(start.loader, 0) + _waited_ns(start)
        spans += int(1e9 * span_s(start))
    if not waits or spans <= 0:
        return None
    number = max(waits, key=lambda each: waits[each])
    loader = next(each for each in evidence.recording.loaders if each.number == number)
    return loader, evidence.time.other_loaders * min(1.0, waits[number] / spans)


def where_waited(evidence: Evidence, loader: Loader) -> str:
    """Where in the loop most of the waiting for another loader is done."""
    ours, waits = _ours(evidence), dict.fromkeys(("between epochs", "in the middle of epochs", "beside the loop"), 0)
    for item in _others(evidence):
        if item.loader == loader.number:
            within = "in the middle of epochs" if _is_inside(item, ours) else "between epochs"
            waits["beside the loop" if _is_beside(item) else within] += _waited_ns(item)
    return max(waits, key=lambda where: waits[where])


def loader_gain(evidence: Evidence, loader: Loader, share: float) -> float:
    """What the loop would gain if it did not wait for another loader, which takes this share of an epoch."""
    gain = 1 / max(0.02, 1 - share)
    is_beside = any(item.loader == loader.number and _is_beside(item) for item in _others(evidence))
    return min(gain, gain_of_shorter_body(evidence, _beside_s(evidence))) if is_beside else gain


def gain_of_shorter_body(evidence: Evidence, less_s: float) -> float:
    """What the loop gains at most by a body that is shorter by so many seconds: its workers need what they need."""
    return max(1.0, evidence.law.shorter(less_s).rate(evidence.loader.num_workers) / evidence.rates["none"].value)


def iterator_share(evidence: Evidence) -> float:
    """Share of the untouched loop's time that goes into a generator of the script's between the loader and the loop, which
    works while the loop waits; 0 where nearly all of the body is in one, which then is the loop itself."""
    share = sum(line.in_iterator for line in evidence.recording.body)
    if share > MOSTLY_ITERATOR:
        return 0.0
    fed = estimate.mean([sum(block.bodies_ns) / block.steps for block in evidence.of(evidence.ceiling_id)]) / 1e9
    return min(1.0, share * fed * evidence.rates["none"].value)


def iterator_gain(evidence: Evidence) -> float:
    """What the loop would gain if that generator cost nothing: workers and a device go on beside it."""
    share = iterator_share(evidence)
    gain = min(1 / max(0.02, 1 - share), gain_of_shorter_body(evidence, share / evidence.rates["none"].value))
    busy = evidence.recording.device_busy
    return min(gain, 1 / max(0.02, busy)) if busy is not None else gain


def begun_in_steps(evidence: Evidence) -> dict[int, float]:
    """Other loaders that the loop begins anew in every step for a batch or two, by number, with the share of what they take
    that one iterator for all steps would save: without workers its batches would still have to be made."""
    ours = sum(item.batches for item in _ours(evidence))
    found = {}
    for number in {item.loader for item in _others(evidence)}:
        starts = [item for item in _others(evidence) if item.loader == number and _is_beside(item)]
        is_anew = sum(item.batches for item in starts) <= BRIEF * len(starts)
        if len(starts) < FEWEST_ANEW or not is_anew or len(starts) < ours / 2:
            continue
        loader = next(each for each in evidence.recording.loaders if each.number == number)
        first = [item.first_wait_ns if loader.num_workers else item.sampler_ns for item in starts]
        saved = sum(item.construct_ns + item.closed_ns for item in starts) + sum(first)
        found[number] = min(1.0, saved / 1e9 / max(1e-9, sum(map(span_s, starts))))
    return found


def dropping_start(evidence: Evidence) -> Start | None:
    """The iterator at whose beginning the loop dropped batches unused for long, if there is one."""
    worst = max(_ours(evidence), key=lambda start: start.dropped_ns, default=None)
    is_long = worst is not None and worst.dropped >= MANY_DROPPED and worst.dropped_ns > LONG_DROP_NS
    return worst if is_long else None
