"""Several ranks of one training: one is diagnosed, and the others do in each step what it does.

Ranks wait for each other in every step, as gradients are averaged over all. So the loop of one is fed from cache only if
the loops of all are, and it can be stopped only where all stop. The rank that is diagnosed, the *leader*, writes for each
batch what it did (`Turn`) into the key-value store by which the ranks found each other; the others read it before their
batch of the same number, and do the same with workers and caches of their own.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from unstarve.errors import NoSuchRank
from unstarve.measure.bench import LeadingBench, LoopBench
from unstarve.measure.program import Give, Program, Step
from unstarve.measure.worker import Telemetry
from unstarve.recording import RankWait
from unstarve.script import is_package_file

PAUSE_S = 0.0002
"""Between two looks at what the leader has written."""

GATHER_S = 5.0
"""Longest wait for what the others have to say at the end."""

ARRIVE_S = 20.0
"""Longest wait of the leader for others that are still to ask for their first batch."""

COMPLETE_S = 5.0
"""Workers that have not reported after so long are not waited for."""

HANDING_ON = frozenset({"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"})
"""Functions by which one rank gives to all others what they work on."""

END = "end"
"""In place of a batch's source: the diagnosis is over."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the leader did for one batch."""

    deeds: tuple[tuple[str, Any], ...] = ()
    """Methods of the bench that were called since the batch before, each with its argument."""
    source: str = "loader"
    """Where the batch came from: `Give.source`; `END` where the diagnosis was over instead."""
    is_dated: bool = False
    """Whether it had to be made under the last order."""


class Ranks:
    """What the ranks tell each other.

    Args:
        store: a `torch.distributed.Store` that all ranks share.
        number: this process's rank.
        count: how many there are.
        leader: the rank that is diagnosed.
    """

    def __init__(self, store: Any, number: int, count: int, leader: int) -> None:
        self._store = store
        self.number = number
        self.count = count
        self.leader = leader
        self._last = (-1, Turn())

    @property
    def is_leader(self) -> bool:
        """Whether this rank is the one that is diagnosed."""
        return self.number == self.leader

    def arrive(self) -> None:
        """Say that this rank takes batches from a loader, and will do as the leader does."""
        self._store.set(f"here/{self.number}", "")

    def absent(self, patience_s: float) -> tuple[int, ...]:
        """Ranks that have not said so within this time: they run without us, or are handed their batches by another."""
        until = time.monotonic() + patience_s
        while not self._store.check([f"here/{number}" for number in range(self.count)]):
            if time.monotonic() >= until:
                return tuple(number for number in range(self.count) if not self._store.check([f"here/{number}"]))
            time.sleep(PAUSE_S)
        return ()

    def begin(self, loader: int, batch: int) -> None:
        """Say that turns are told from this batch of this loader on."""
        self._store.set("begin", json.dumps([loader, batch]))

    def begun(self) -> tuple[int, int] | None:
        """Loader and batch from which on turns are told; None while the leader has not begun."""
        if not self._store.check(["begin"]):
            return None
        loader, batch = json.loads(self._store.get("begin"))
        return loader, batch

    def tell(self, batch: int, turn: Turn) -> None:
        """Say what this rank, the leader, did for its batch of this number."""
        self._store.set(f"turn/{batch}", pickle.dumps(turn))
        self._last = batch, turn

    def tell_end(self, batch: int, deeds: tuple[tuple[str, Any], ...]) -> None:
        """Say that it is over with the batch of this number, or with the next where the others may have heard of that."""
        self.tell(max(batch, self._last[0] + 1), Turn(deeds, END))

    def repeat(self, batch: int) -> None:
        """Say for a batch of which nothing was said yet that the last turn goes on: what it asked for is still to come."""
        last, turn = self._last
        if batch > last:
            self.tell(batch, replace(turn, deeds=()))

    def hear(self, batch: int, patience_s: float) -> Turn:
        """What the leader did for this batch; an end where nothing is heard of it any more."""
        until = time.monotonic() + patience_s
        key = f"turn/{batch}"
        try:
            while not self._store.check([key]):
                if time.monotonic() > until:
                    return Turn(source=END)
                time.sleep(PAUSE_S)
            turn = pickle.loads(self._store.get(key))
        except Exception:  # the store went with the leader's process
            return Turn(source=END)
        assert isinstance(turn, Turn)
        return turn

    def report(self, wait: RankWait) -> None:
        """Say how long this rank's untouched loop waited."""
        with contextlib.suppress(Exception):  # the store went with the leader's process
            self._store.set(f"wait/{self.number}", json.dumps([wait.steps, wait.wait_ns, wait.span_ns]))

    def gather(self) -> tuple[RankWait, ...]:
        """What the others reported, as far as it comes in time."""
        until = time.monotonic() + GATHER_S
        missing = set(range(self.count)) - {self.number}
        found = []
        while missing and time.monotonic() < until:
            for number in sorted(missing):
                if self._store.check([f"wait/{number}"]):
                    steps, wait_ns, span_ns = json.loads(self._store.get(f"wait/{number}"))
                    found.append(RankWait(rank=number, steps=steps, wait_ns=wait_ns, span_ns=span_ns))
                    missing.discard(number)
            time.sleep(PAUSE_S)
        return tuple(sorted(found, key=lambda wait: wait.rank))


def of_this_process(leader: int) -> Ranks | None:
    """The ranks that this process trains with; None where it trains alone, or they cannot talk.

    Raises:
        NoSuchRank: the leader is not one of them.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    count = distributed.get_world_size()
    if not 0 <= leader < count:
        raise NoSuchRank(f"--rank {leader}: there are {count} ranks, of which the last is {count - 1}.")
    if count < 2:
        return None
    try:
        number = distributed.get_rank()
        store = distributed.PrefixStore("unstarve", distributed.distributed_c10d._get_default_store())
        diagnosis = store.add(f"diagnoses/{number}", 1)  # what was told in an earlier one is not to be heard again
        found = Ranks(distributed.PrefixStore(str(diagnosis), store), number, count, leader)
        found.arrive()
    except Exception:  # not part of torch's interface
        return None
    return found


def hands_on(frame: FrameType | None) -> str | None:
    """Where the loop's process hands its batches on to the other ranks, which then have none of their own: the function that
    asks for a batch, or a generator around it, which broadcasts or scatters, as accelerate's dispatching loader does. None
    where nothing of that kind is on the stack.

    Args:
        frame: where a batch is asked for; frames of ours are passed over.
    """
    while frame is not None and is_package_file(frame.f_code.co_filename):
        frame = frame.f_back
    asking = frame
    while frame is not None:
        code = frame.f_code
        if (frame is asking or code.co_flags & inspect.CO_GENERATOR) and HANDING_ON & {*code.co_names}:
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def why_alone(absent: Sequence[int], count: int) -> str:
    """Why a rank is not diagnosed where these of so many do not follow, and what to do about it."""
    is_one = len(absent) == 1
    ranks = f"rank{'' if is_one else 's'} {', '.join(map(str, absent))} of {count}"
    reason = (
        "takes no batches under unstarve, since it was" if is_one else "take no batches under unstarve, since they were"
    )
    return (
        f"{ranks} {reason} started without it or handed batches by another rank. All ranks wait for each other in every step, "
        "so feeding one alone from cache would say nothing. Let torchrun start all ranks (`torchrun --nproc-per-node N -m "
        "unstarve run SCRIPT`), and let each take batches from a loader of its own (with accelerate, `dispatch_batches=False`)."
    )


def lead(program: Program, bench: LeadingBench, ranks: Ranks, number: Callable[[], int]) -> Program:
    """The program, told to the other ranks as it goes.

    Args:
        program: what this rank does.
        bench: the bench it works on.
        ranks: how ranks talk.
        number: the number of the batch that is asked for.
    """
    step: Step | None = None
    try:
        while True:
            try:
                give = program.send(step)
            except StopIteration:
                break
            ranks.tell(number(), Turn(bench.deeds(), give.source, bool(give.generation)))
            step = yield give
    except BaseException:  # the program has failed or is closed, and the others are not to wait for what comes next
        program.close()
        with contextlib.suppress(Exception):  # what is raised matters more than a store that has gone
            ranks.tell_end(number(), bench.deeds())
        raise
    ranks.tell_end(number(), bench.deeds())
    bench.other_ranks(ranks.gather())


def follow(bench: LoopBench, ranks: Ranks, first: int, number: Callable[[], int], patience_s: float) -> Program:
    """What the leader does, from its batch `first` on, on a bench of this rank's own."""
    follower = _Follower(bench)
    while True:
        turn = Turn()
        while first <= number() and turn.source != END:
            turn = ranks.hear(first, patience_s)
            for name, argument in turn.deeds:
                follower.do(name, argument)
            first += 1
        if turn.source == END:
            ranks.report(replace(follower.wait, rank=ranks.number))
            return
        step = yield Give(turn.source, follower.generation if turn.is_dated else 0)
        if step is not None:
            follower.note(step, turn)


class _Follower:
    """A rank that does what the leader does, with workers that may be slower or faster."""

    def __init__(self, bench: LoopBench) -> None:
        self._bench = bench
        self.generation = 0
        """The last order of this rank's own."""
        self.wait = RankWait(rank=0, steps=0, wait_ns=0, span_ns=0)
        """How its loop fared while it was as the script has it."""
        self._order: dict[str, Any] = {"mode": "run"}
        self._settings: Any = None
        self._reported: set[int] = set()

    def do(self, name: str, argument: Any) -> None:
        if name == "collect_batches":
            self._bench.collect_batches(**argument)
        elif name == "fill_device":
            self._bench.fill_device()
        elif name == "issue":
            self._complete()
            self._order, self._reported = argument, set()
            self.generation = self._bench.issue(argument)
        else:
            if name == "use":
                self._settings = argument
            getattr(self._bench, name)(argument)

    def _complete(self) -> None:
        """Let this rank's workers end what they were to watch: the leader went on as soon as its own had."""
        until = time.monotonic() + COMPLETE_S
        while self._order["mode"] == "watch" and len(self._reported) < self._bench.workers:
            if time.monotonic() > until:
                break
            telemetry = self._bench.pull()
            if telemetry is None:  # nothing can be taken beside this loop
                break
            self._note_findings(telemetry)

    def _note_findings(self, telemetry: Telemetry | None) -> None:
        if telemetry is not None and telemetry.findings is not None:
            self._reported.add(telemetry.worker)

    def note(self, step: Step, turn: Turn) -> None:
        """Count a step, if it was as the script has it."""
        self._note_findings(step.telemetry)
        if turn.source == "loader" and self._order == {"mode": "run"} and self._settings is None and step.is_whole:
            was = self.wait
            self.wait = replace(
                was, steps=was.steps + 1, wait_ns=was.wait_ns + step.wait_ns,
                span_ns=was.span_ns + step.wait_ns + step.body_ns,
            )  # fmt: skip
