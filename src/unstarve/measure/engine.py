"""The consumer's side: hands batches to the loop, clocks what it does with them, and runs the experiment on one loader.

All loaders of a script are clocked. The first that looks like the training loader becomes the *target*; the experiment
(`experiment.program`) then decides what each of its batches shall be.
"""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
import os
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader

from unstarve import errors, simulate
from unstarve.measure import device, drained, environment, experiment, ranks
from unstarve.measure.bench import LeadingBench, LoopBench
from unstarve.measure.blocks import DEFAULT_BUDGET_S
from unstarve.measure.cached import CachedBatches
from unstarve.measure.counters import RunDelay
from unstarve.measure.cuts import values
from unstarve.measure.describe import calling_place, describe_loader, told_length
from unstarve.measure.fleet import Fleet, end_workers, epoch_length, has_workers_of_ours, promised_length
from unstarve.measure.iterators import Beside, Watched
from unstarve.measure.memory import COLLECTOR, MachineMemory
from unstarve.measure.others import OtherProcesses
from unstarve.measure.program import Bench, Give, Options, Program, Step
from unstarve.measure.rungs import HOST
from unstarve.measure.session import Pending, Session, is_grad_enabled, likeness
from unstarve.measure.slow import Late, gathered
from unstarve.measure.switchboard import Switchboard
from unstarve.measure.use import UseAudit
from unstarve.measure.worker import Telemetry, Token
from unstarve.payload import Field
from unstarve.recording import (
    BRIEF,
    DATA_CHANGED,
    EXPERIMENT_FAILED,
    USED_NS,
    Block,
    BodyLine,
    Head,
    Loader,
    MemoryLook,
    Note,
    RankWait,
    Recording,
    Rung,
    Settings,
    Stage,
    Start,
)

TARGET_AFTER = 2
"""Batches with gradients enabled after which a loader is taken for the training loader."""

TARGET_AFTER_DROPS = 8
"""The same where batches were dropped before."""

TARGET_AFTER_WITHOUT_GRADIENTS = 100
"""Batches without gradients after which it is taken all the same: the script may never train."""

ABREAST = 10
"""Batches of loaders that give one in every step after which it is known for which of them the loop waits longest."""

MUCH_LONGER = 1.2
"""A loader that is waited for so many times as long as the one before it in the step is diagnosed in its place."""

FIRST_BATCHES = 2
"""Batches of an iterator until which the script may begin to train with other ranks."""

WORKED_NS = 3_000_000
"""A loop that takes longer has worked, and not just freed a batch that it drops."""

ASK_RANKS_NS = 2_000_000_000
"""Between two questions for ranks that were not there."""

LEAST_NATURAL_NS = 100_000_000
"""Steps that take less than this together say nothing of how fast a loop is that, say, works on every fourth batch."""

SEAM_NS = 1_000_000
"""An epoch that follows the last within this time, from workers that go on, is the same steady state; so is one whose
sampler takes no longer to begin."""

DRY_SHARE = 0.1
"""A step that waits for more than this share of its time found no batch ready."""

MOSTLY = 10
"""A loop that uses at most one batch in so many drops them: freeing one may take as long as a step now and then."""

MANIFOLD = 2
"""A step takes batches of other loaders as usual if it takes no more than so many times the mean of the steps so far."""

ANEW_STARTS = 12
"""Iterators with one batch each after which a loop is known to make a new one for every step."""

LENT_BATCHES = 24
"""First batches of the target that are looked at again after their step: does the loop write into them?"""


TRIAL_PATIENCE_S = 60.0
"""Longest wait for a batch of workers that are only tried."""


class Engine:
    """Everything that runs in the process of the loop.

    Args:
        options: how far the experiment goes.
        command: what is being run, for the report.
        loader: number or class name of the loader to diagnose; None to choose.
        stop: whether the loop is ended when the experiment is done.
        patience_s: longest wait for one batch, as long as the loop is diagnosed.
        passive: clock only, serve nothing from cache.
        simulate_step_ms: pull the loader against a simulated accelerator with this step, instead of the script's loop.
        lead: in distributed training, the rank that is diagnosed.
        on_progress: told what is happening and what was measured so far.
        clock_ns: nanoseconds from any origin.
        program: what to try on the loader that is diagnosed.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        command: str = "",
        loader: str | None = None,
        stop: bool = True,
        patience_s: float = 180.0,
        passive: bool = False,
        simulate_step_ms: float | None = None,
        lead: int = 0,
        on_progress: Callable[[Engine, str], None] | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        program: Callable[[Bench, Options], Program] = experiment.program,
    ) -> None:
        self.options = options or Options()
        self._command = command
        self.wanted_loader = loader
        self._stop = stop
        self._patience_s = math.inf if passive else patience_s  # nothing of ours can be why a batch takes long
        self._passive = passive
        self._simulate_step_ms = simulate_step_ms
        self._simulated: Session | None = None
        """The loader that is pulled by our own loop."""
        self._lead = lead
        self._on_progress = on_progress
        self.clock_ns = clock_ns
        self._pid = os.getpid()
        self.thread = threading.get_ident()
        """The thread whose loops are clocked."""
        self.drain: drained.Drain | None = None
        """What that thread does where it is not the loop's, and takes batches ahead of it."""
        self.is_closed = False
        """Whether no workers are left."""
        self._began_ns = clock_ns()
        self._created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._loop_began_ns = 0
        self._sessions: dict[int, Session] = {}
        self.target: Session | None = None
        self._make_program = program
        self._program: Program | None = None
        self._bench: LoopBench | None = None
        self._ranks: ranks.Ranks | None = None
        self._rank_waits: tuple[RankWait, ...] = ()
        self.absent_ranks: tuple[int, ...] = ()
        """Other ranks that would not follow this one."""
        self._ended_ns = 0
        self.is_finished = False
        self.was_interrupted = False
        """Whether the loop was interrupted while it waited for a batch; the script may have caught that."""
        self.was_in_thread = False
        """Whether a loader was iterated in another thread, where its loop cannot be clocked."""
        self.serving = "loader"
        self.has_interfered = False
        """Whether the loop may have got other batches than it would without us."""
        self._raised = 0
        self._parting: list[Any] = []
        """A batch to end a loop with that only waits for one."""
        self._delay: RunDelay | None = None
        self._blocks: list[Block] = []
        self._rungs: tuple[Rung, ...] = ()
        self._stages: tuple[Stage, ...] = ()
        self._heads: tuple[Head, ...] = ()
        self._notes: dict[str, Note] = {}
        self._use = UseAudit()
        self.cached = CachedBatches(self._use, self.note)
        self._last_generation = 0
        self._given: Give | None = None
        self._made: dict[int, str] = {}
        self._body: tuple[BodyLine, ...] = ()
        self._sampler: tuple[BodyLine, ...] = ()
        self._sampler_start: tuple[BodyLine, ...] = ()
        self._device_busy: float | None = None
        self._payload: tuple[Field, ...] = ()
        self._worker_environment: dict[str, Any] = {}
        self._natural_steps: list[Step] = []
        self._looks: list[MemoryLook] = []
        self._late: list[Late] = []
        self._machine_memory = MachineMemory()
        self._others = OtherProcesses()
        self._is_disturbed = False
        self._asked_ns = 0
        self._ask_ranks_ns = 0
        self._is_making = False
        """Whether a batch of a loader of torch's is waited for: without workers, its data set runs."""
        self._loader_error: BaseException | None = None
        """Error of the loader's, as long as the program, which may have asked for the batch, can meet it."""
        self._deferred: Exception | None = None
        """Error of a batch that was taken beside the loop, which meets it in place of its next batch."""

    def remember(self, loader: Any) -> None:
        """Note where the script makes this loader."""
        place = calling_place()
        if place is not None and os.getpid() == self._pid:
            self._made[id(loader)] = place

    # The hook ------------------------------------------------------------------------------------

    def iterate(self, loader: Any, make_iterator: Callable[[Any], Any]) -> Any:
        """The iterator over `loader` that the loop gets; the loader's own where we have no business."""
        if os.getpid() != self._pid:
            return make_iterator(loader)
        if self._is_through():
            self._hand_back(loader)
            return make_iterator(loader)
        if self._is_making and threading.get_ident() == self.thread and not getattr(loader, "num_workers", 0):
            return make_iterator(loader)  # part of what the data set of another loader does for a batch
        if threading.get_ident() != self.thread and not self._may_be_drained(loader):
            self.was_in_thread = self.target is None
            return make_iterator(loader)
        self.pause(self._known(loader))
        session = self._session(loader)
        if self._simulate_step_ms is not None and self._is_wanted(session):
            self._simulate(session, loader, make_iterator, self._simulate_step_ms)
            return make_iterator(loader)
        if session.is_under_way and not session.is_taken_over:
            return Beside(
                session, make_iterator(loader), functools.partial(self._take_over, session, loader, make_iterator)
            )
        now = self.clock_ns()
        self._close_iterator(session, now)
        if self._is_always_anew(session):
            self.target = self.target or session
            self._finish()
            if self._stop:
                raise errors.Finished("every step makes a new iterator")
            return make_iterator(loader)
        if session is self.target and self.has_interfered:
            self._limit_epoch(session)
        session.created_ns, session.closing_ns = now, 0
        session.others_before = self._others_total(session)
        self._start_fleet(session, make_iterator)
        session.is_seamless = session.is_seamless and not session.has_started
        if session.pending is not None:  # the last step of the epoch before ends with the first request of this one
            session.pending.is_whole = session.pending.is_whole and session.is_seamless
        session.construct_ns = self.clock_ns() - now - session.closing_ns
        iterator = Watched(self, session, loader)
        session.hand_out(iterator)
        return iterator

    def _may_be_drained(self, loader: Any) -> bool:
        """Whether an iterator that another thread than the one that is clocked asks for may be drained by a thread: the main
        thread may make it for another, where it has seen that one does so."""
        if threading.current_thread() is threading.main_thread():
            return self._known(loader) is not None or self._made_again(loader) is not None
        return self._may_follow(drained.find(sys._getframe(3)))

    def _may_follow(self, found: drained.Drain | None) -> bool:
        """Whether what the present thread was found to do may stand for the loop. In one that is only watched it may not: how
        long the thread waits says something of the loop only where that was fed once."""
        is_free = self.target is None and self._simulate_step_ms is None and not self._passive
        return found is not None and self._ranks is None and (is_free or self.drain is not None)

    def follow_thread(self, session: Session) -> None:
        """Take the present thread, which asks for its first batch of an iterator, for the loop if it is one that takes batches
        ahead of the loop: a script may start one every epoch."""
        found = drained.find(sys._getframe(2))
        others = (other for other in self._sessions.values() if other is not session)
        if found is None or not self._may_follow(found) or any(other.is_under_way for other in others):
            return
        if self.drain is None:
            self.cached.copy()  # what is written into a batch, is written when the thread asks for another
            sentence = (
                f"A thread of the script takes the batches ahead of the loop ({found.place}), and has room for "
                f"{found.depth}; the figures are of that thread, which goes at the pace of the loop."
            )
            self.note(Note(id="drained", sentence=sentence))
        self.thread, self.drain = threading.get_ident(), found

    def _take_over(self, session: Session, loader: Any, make_iterator: Callable[[Any], Any], iterator: Any) -> Any:
        """What gives the batches of an iterator beside another that the loop has dropped meanwhile: the iterator itself,
        clocked from now on; workers that obey orders in its place where the loader is diagnosed, or may be."""
        is_ours = os.getpid() == self._pid and threading.get_ident() == self.thread and not self._is_through()
        may_be_target = not self._passive and self.target in (None, session)
        if not (is_ours and may_be_target and has_workers_of_ours(loader, make_iterator)):
            return self.iterate(loader, lambda loader: iterator)
        end_workers(loader, iterator)
        return self.iterate(loader, make_iterator)

    def _others_total(self, session: Session) -> int:
        if len(self._sessions) == 1:  # asked for every batch
            return 0
        return sum({id(other): other.total for other in self._sessions.values() if other is not session}.values())

    def dropped(self, session: Session) -> None:
        """The loop has let go of its iterator: workers that nobody will ask again end, as they would without us."""
        fleet = session.fleet
        if not session.is_iterated:
            session.iterator = None
        is_ours = session is self.target and not self.is_finished
        if is_ours and not session.is_iterated and threading.get_ident() == self.thread:
            self.pause()
        if session.is_iterated or fleet is None or is_ours or fleet.outlives_epoch(session.loader):
            return
        began = self.clock_ns()
        fleet.close()
        session.closed_ns = self.clock_ns() - began

    def _hand_back(self, loader: Any) -> None:
        """The loader makes its own iterator from now on: workers of ours that were kept for it are not needed any more."""
        session = self._sessions.get(id(loader))
        if session is not None and session.loader is loader and not session.is_iterated:
            self._end_fleets(session)

    def _orphaned(self, session: Session, _: Any) -> None:
        """A loader is gone: its workers end, as they would without us, unless others have taken their place."""
        fleet = session.fleet
        if os.getpid() == self._pid and fleet is not None and fleet.is_orphaned:
            with contextlib.suppress(Exception):  # the interpreter may be on its way out
                self.dropped(session)

    def _simulate(self, session: Session, loader: Any, make_iterator: Callable[[Any], Any], step_ms: float) -> None:
        """Run our own loop over the loader, for as many epochs as it takes or until one has no batches; the script has the
        loader to itself afterwards.

        Raises:
            Finished: the script is to end now.
        """
        self._simulate_step_ms, self._simulated = None, session
        accelerator = simulate.SimulatedAccelerator()
        is_more = True
        with simulate.use(accelerator):
            while is_more and not self._is_through():
                is_more = False
                for batch in self.iterate(loader, make_iterator):
                    if self._is_through():
                        break
                    is_more = True
                    accelerator.to_device(batch, non_blocking=getattr(loader, "pin_memory", False))
                    accelerator.launch(step_ms / 1e3)
        self._simulated = None
        self._end_fleets(session)
        if not session.total:
            self._simulate_step_ms = step_ms  # the script may have another loader
            return
        if self._stop:
            raise errors.Finished("the loader gives no more batches")
        if not self.is_finished:
            self._finish()

    def _note_simulated(self, session: Session) -> None:
        """Say which loader is pulled where the script has made others, of which its own loop would have shown the right one."""
        if self.wanted_loader is None and len(self._made) > 1:
            place = f" ({os.path.basename(session.facts.source)})" if session.facts.source else ""
            sentence = (
                f"Of the script's {len(self._made)} loaders the simulated step took the one that is iterated first, "
                f"{session.facts.name}{place}; --loader chooses another."
            )
            self.note(Note(id="first-loader", sentence=sentence))

    def pause(self, session: Session | None = None) -> None:
        """Leave this process as the script has it until the loop asks for its next batch.

        Args:
            session: the loader for which the loop turns aside; one that it begins in its steps is a part of them.
        """
        self._use.cut()
        is_of_steps = session is not None and self.target is not None and session.is_begun_in_steps_of(self.target)
        if self._bench is not None and not is_of_steps:
            self._bench.pause()

    def _is_wanted(self, session: Session) -> bool:
        if self.wanted_loader is None:
            return True
        names = (str(session.facts.number), session.facts.name, type(session.loader).__name__)
        return self.wanted_loader in names or self.wanted_loader in session.facts.name

    def _is_through(self) -> bool:
        return self.is_finished and not self._stop

    def _session(self, loader: Any) -> Session:
        found = self._known(loader) or self._made_again(loader)
        if found is None:
            length = epoch_length(loader) if isinstance(loader, DataLoader) else None
            facts = describe_loader(loader, len(self.loaders), length, self._made.get(id(loader)))
            found = Session(loader, facts, length)
            self._keep(loader, found)
        return found

    def _known(self, loader: Any) -> Session | None:
        found = self._sessions.get(id(loader))
        return found if found is not None and found.loader is loader else None

    def _made_again(self, loader: Any) -> Session | None:
        """The session of an earlier loader made by the same line of the script: a loop may make one every epoch.

        That is a matter of the account. Whose data the workers have is asked for each iterator, in `_start_fleet`.
        """
        place = self._made.get(id(loader))
        if place is None or not isinstance(loader, DataLoader):
            return None
        found = [session for session in self._sessions.values() if self._is_replaced(session, loader, place)]
        if not found:
            return None
        samples = told_length(loader.dataset)
        session = next((session for session in found if session.samples == samples), found[0])
        session.attach(loader, epoch_length(loader))
        facts = session.facts
        known = facts.dataset_length is not None
        session.facts = replace(
            facts, made=facts.made + 1, length=session.length, dataset_length=session.samples if known else None
        )
        self._keep(loader, session)
        return session

    def _is_replaced(self, session: Session, loader: Any, place: str) -> bool:
        """Whether the loader, made at this place, takes the place of the session's. One that is still there is not replaced,
        unless both are for the same data; one for more or less data is, if the loop trains with both or with neither."""
        if session.facts.source != place or session.likeness != likeness(loader):
            return False
        former = session.loader
        if former is not None:
            return former.dataset is loader.dataset and not session.is_under_way
        return session.samples == told_length(loader.dataset) or session.with_grad == is_grad_enabled()

    def _keep(self, loader: Any, session: Session) -> None:
        """Let the session be found by its loader; that of a loader which is gone, and had the same number, stays known."""
        former = self._sessions.get(id(loader), session)
        self._sessions[id(loader)] = session
        if former is not session:
            self._sessions[-len(self._sessions)] = former

    def _start_fleet(self, session: Session, make_iterator: Callable[[Any], Any]) -> None:
        if not has_workers_of_ours(session.loader, make_iterator):
            self._part_with_fleet(session)
            session.iterator = make_iterator(session.loader)
            return
        session.make_iterator = make_iterator
        fleet = session.fleet
        session.has_started = True
        goes_on = fleet is not None and fleet.outlives_epoch(session.loader)
        session.has_new_data = fleet is not None and not goes_on and not fleet.has_data_of(session.loader)
        if fleet is not None and fleet.is_endless and not session.has_new_data:
            session.is_natural = session.is_natural and not self._is_costly(session)
            # Persistent workers go on where without us they would begin anew, with nothing made ready.
            if not session.is_natural or fleet.settings is not None or goes_on:
                session.has_started = False
                return
        if fleet is not None and not goes_on:
            began = self.clock_ns()
            if session.has_new_data:
                self._end_fleets(session)  # those that rest as well
            fleet.close()
            session.fleet = None
            session.closing_ns = self.clock_ns() - began  # without us they would have ended with their last batch
        self._hold_orders(session)
        if session.fleet is None:
            settings = fleet.settings if fleet is not None and not session.has_new_data else None
            session.fleet = self._new_fleet(session, settings)
        elif not session.fleet.is_endless:
            session.fleet.start()
        # One fleet serves all later epochs once two natural starts have been clocked.
        if session.fleet.is_endless and len(session.starts) >= 1:
            session.is_natural = False

    def _part_with_fleet(self, session: Session) -> None:
        """End the workers of an iterator that the loader kept, and let go of for one that it made past us."""
        if session.fleet is None:
            return
        if session is self.target and not self.is_finished:  # its batches obey no order
            sentence = "The loader started new workers by itself in the middle of the diagnosis, which ended there."
            self.note(Note(id=EXPERIMENT_FAILED, sentence=sentence))
            self._finish()
        self._end_fleets(session)

    def _hold_orders(self, session: Session) -> None:
        """Let the first batch after a start that is clocked be made as without us."""
        board = session.boards.get(None)
        is_ours = self._program is not None and session is self.target
        if board is not None and is_ours and session.begins_as_without_us:  # or nobody would release them
            board.hold()

    def _new_fleet(self, session: Session, settings: Settings | None) -> Fleet:
        session.fleets_made += 1
        # How far a stateful loader is may be known to its sampler's iterator alone, and a checkpoint is for later runs.
        is_saved = self._passive and hasattr(session.loader, "state_dict")
        fleet = Fleet(
            session.loader, session.make_iterator, board=session.boards.setdefault(settings, Switchboard()),
            patience_s=self._patience_s if settings is None else min(self._patience_s, TRIAL_PATIENCE_S),
            can_repeat=session.length is not None and not is_saved, number=session.fleets_made, settings=settings,
            when_orphaned=functools.partial(self._orphaned, session),
        )  # fmt: skip
        if session is self.target and not self.options.only_baseline:
            fleet.repeat()
        with warnings.catch_warnings():
            if settings is not None:  # torch warns of more workers than cores; here that is the question
                warnings.filterwarnings("ignore", message="This DataLoader will create")
            fleet.start(must_obey=not self._passive)
        return fleet

    def use(self, session: Session, settings: Settings | None) -> bool:
        """Let batches come from workers with these settings, which start if need be; the others rest meanwhile.

        Returns whether they do: settings under which workers could not start or make a batch are not tried again.
        """
        current = session.fleet
        if settings in session.refused:
            return False
        if current is None:  # no loader, no settings
            return settings is None
        if current.settings == settings:
            return True
        current.issue({"mode": "idle"})
        session.resting[current.settings] = current
        try:
            session.fleet = session.resting.pop(settings, None) or self._new_fleet(session, settings)
        except Exception as error:  # no memory, no process, a data set that cannot be pickled
            session.fleet = session.resting.pop(None)
            self._refuse(session, settings, error)
            return False
        return True

    def _refuse(self, session: Session, settings: Settings | None, error: BaseException) -> None:
        session.refused.add(settings)
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        is_used_here = not session.facts.num_workers and session.facts.start_method == "fork"
        why = (
            " (the loop's own process had used the data set before these workers were forked from it: what that keeps "
            "open, such as a file or a connection, may be to blame)"
        )
        sentence = f"The trial of {settings} was given up: {reason[0]}{why if is_used_here else ''}"
        self.note(Note(id="trial-failed", sentence=sentence))

    def dismiss(self, session: Session, settings: Settings | None) -> None:
        """End workers that rest and are not needed any more."""
        fleet = session.resting.pop(settings, None)
        if fleet is not None:
            fleet.close()

    def _is_always_anew(self, session: Session) -> bool:
        """Whether the loop makes a new iterator for every batch: then there is no steady state to measure.

        A loader that gives one batch now and then beside another, such as for a look at some pictures, is not the loop's.
        """
        starts = session.starts
        if self._passive or len(starts) < ANEW_STARTS or any(start.batches > 1 for start in starts):
            return False
        is_busiest = all(other.total <= session.total for other in self._sessions.values())
        return is_busiest and self.target in (None, session)

    def _is_costly(self, session: Session) -> bool:
        """Whether starting the workers once more would eat up the budget; then one natural start must do."""
        first = session.starts[0] if session.starts else None
        return first is not None and first.construct_ns + first.first_wait_ns > 0.1e9 * (
            self.options.budget_s or DEFAULT_BUDGET_S
        )

    def _close_iterator(self, session: Session, now: int) -> None:
        if session.created_ns == 0:
            return
        session.is_seamless = 0 < session.ended_ns > now - SEAM_NS
        if session.delivered:
            session.starts.append(self._start_of(session, now))
        if session.current is not None:
            session.current.is_over = True
        session.first_wait_ns, session.wait_ns, session.wait_cpu_ns = -1, 0, 0
        session.delivered = session.closed_ns = 0
        session.dropped = session.dropped_ns = session.ended_ns = 0

    def _start_of(self, session: Session, now: int) -> Start:
        last = session.ended_ns or (session.pending.delivered_ns if session.pending is not None else now)
        return Start(
            loader=session.facts.number,
            created_ns=session.created_ns,
            construct_ns=session.construct_ns,
            first_wait_ns=max(0, session.first_wait_ns),
            batches=session.delivered,
            wait_ns=session.wait_ns,
            wait_cpu_ns=session.wait_cpu_ns,
            ended_ns=max(last, session.created_ns),
            closed_ns=session.closed_ns,
            sampler_ns=session.sampler_ns(),
            dropped=session.dropped if session.used else 0,
            dropped_ns=session.dropped_ns if session.used else 0,
            natural=session.has_started and len(session.starts) < 2,
            # what a loop goes on to take after a validation is not beside it; after a look at a batch nobody can tell
            beside=(session.others_last if session.delivered > 2 else self._others_total(session))
            - session.others_before,
        )

    # Batches -------------------------------------------------------------------------------------

    def next_batch(self, session: Session, iterator: Watched) -> Any:
        """The next batch for the loop.

        Raises:
            StopIteration: the epoch has ended.
            Finished: the experiment is done and the loop is to end.
        """
        if session is self.target:
            self._use.end()
        if not self._loop_began_ns:
            self._machine_memory.begin()
            self._others.begin()
            self._loop_began_ns = self.clock_ns()
        now = self.clock_ns()
        if self.is_finished:
            batch = self._after_the_end(session)
            session.delivered += 1
            return batch
        if session.current is not iterator:
            raise StopIteration
        if self._is_epoch_over(session):
            raise StopIteration
        step = self._end_step(session, now)
        if self.target is None and not self._passive and self._consider(session):
            step = None
        self._asked_ns = self.clock_ns()  # what we did since the loop asked is no wait for a batch
        self._is_making = session.fleet is not None
        cpu = time.thread_time_ns()
        try:
            batch, telemetry = self._batch(session, step)
            session.wait_cpu_ns += time.thread_time_ns() - cpu
        finally:
            self._is_making = False
            self._loader_error = None  # its traceback keeps the loop's own frames, with all that is in them
        lent, marked_ns = None, 0
        delivered = self.clock_ns()
        if session.has_new_data:
            self._meet_data(session, batch)
        if self._may_lend(session):
            lent = self.cached.lend(batch)
            marked_ns = self.clock_ns() - delivered
        self._account(session, self._asked_ns + marked_ns, delivered + marked_ns, telemetry, lent)
        if session is self.target and self.drain is None:
            self._use.begin(batch, is_from_host=self.serving == "host")
        return batch

    def _meet_data(self, session: Session, batch: Any) -> None:
        """See whether the batches that are kept can stand for those of the data that the script has gone on to, by the first
        of these; end the diagnosis where they cannot."""
        session.has_new_data = False
        if session is self.target and not self.is_finished and not self.cached.is_like(batch):
            sentence = (
                "The script went on to data whose batches have another form than those before, of which the figures are; "
                "the diagnosis ended there."
            )
            self.note(Note(id=DATA_CHANGED, sentence=sentence))
            self._finish()

    def next_elsewhere(self, session: Session) -> Any:
        """The next batch for another thread, such as one that fetches ahead: it is not the loop, and is left alone."""
        self.was_in_thread = True
        return self._pull_plain(session)

    def _is_epoch_over(self, session: Session) -> bool:
        """Whether the loop has had as many batches as the loader promised; a fleet that repeats would give more, and so would
        a stream with the batches from cache on top of its own."""
        is_endless = session.fleet is not None and session.fleet.is_endless
        length = session.length if is_endless else session.promised
        return length is not None and session.delivered >= length

    def _batch(self, session: Session, step: Step | None) -> tuple[Any, Telemetry | None]:
        if session is not self.target or self._program is None:
            return self._pull(session)
        if self._bench is not None:
            self._bench.go_on()
        self._is_disturbed = self._given is not None  # the epoch ended before the batch that was asked for
        if self._given is not None and self._ranks is not None and self._ranks.is_leader:
            self._ranks.repeat(session.total)
        if self._given is None:
            try:
                self._given = next(self._program) if step is None else self._program.send(step)
            except StopIteration:
                return self._end(session)
            except Exception as error:
                if error is self._loader_error:
                    self._loader_error = None
                    raise
                sentence = f"The experiment ended early, by a fault of ours: {type(error).__name__}: {error}"
                self.note(Note(id=EXPERIMENT_FAILED, sentence=sentence))
                return self._end(session)
            self._asked_ns = self.clock_ns()  # it may have waited for the device
        if self._deferred is not None:
            deferred, self._deferred = self._deferred, None
            raise deferred
        if self._is_starting(session):
            assert session.fleet is not None
            session.fleet.hold()  # the program may have given another order since the start
            if self._given.source != "loader" or session.fleet.is_held:
                return self._pull_started(session)
        found = self._provide(session, self._given)
        self._given = None
        return found

    def _is_starting(self, session: Session) -> bool:
        """Whether this is the first batch of an iterator, and made as without us."""
        return session.delivered == 0 and session.fleet is not None and session.begins_as_without_us

    def _pull_started(self, session: Session) -> tuple[Any, Telemetry | None]:
        """The first batch of a start of the script's own; what a start costs shows only if that is waited for, and made as
        without us."""
        assert session.fleet is not None
        try:
            while True:
                batch, telemetry = self._pull(session)
                if not isinstance(batch, Token):
                    return batch, telemetry
                session.fleet.hold()  # the order has come between the start and now
        finally:
            session.fleet.release()

    def _end(self, session: Session) -> tuple[Any, Telemetry | None]:
        self._finish()
        return self._after_the_end(session), None

    def _provide(self, session: Session, give: Give) -> tuple[Any, Telemetry | None]:
        self.serving = give.source
        if give.source != "loader" and self.cached.host:  # a rank that follows may have none of its own
            return self._serve_cached(give)
        self.cached.end_copying()
        while True:
            batch, telemetry = self._pull(session)
            is_stale = telemetry is not None and give.generation and telemetry.generation != give.generation
            fleet = session.fleet
            if not is_stale or fleet is None or fleet is not session.ordered or not fleet.is_endless:
                break
        if isinstance(batch, Token):
            batch = self.cached.serve("host") if self.cached.host else self._pull_resumed(session)[0]
        return batch, telemetry

    def _pull(self, session: Session) -> tuple[Any, Telemetry | None]:
        try:
            return self._pull_next(session)
        except StopIteration:
            raise
        except Exception as error:
            if session is self.target and not self.is_finished:
                self._loader_error = error
            session.delivered += 1  # a batch that failed is one of the epoch's
            raise

    def _pull_next(self, session: Session) -> tuple[Any, Telemetry | None]:
        if session.fleet is not None and session.fleet.settings is not None:
            return self._pull_on_trial(session, session.fleet)
        if session.fleet is not None:
            batch, telemetry = session.fleet.pull()
            if telemetry is not None and telemetry.looks:
                self._note_looks(session, session.fleet, telemetry)
            if telemetry is not None and telemetry.late and session is self.target:
                self._late += telemetry.late
            return batch, telemetry
        assert session.iterator is not None
        return next(session.iterator), None

    def _pull_on_trial(self, session: Session, fleet: Fleet) -> tuple[Any, Telemetry | None]:
        """A batch from workers that are only tried; where they fail, the script's own step in."""
        try:
            return fleet.pull()
        except StopIteration:
            raise
        except (Exception, errors.Stalled) as error:
            self.use(session, None)
            self._refuse(session, fleet.settings, error)
            session.resting.pop(fleet.settings).close()
            return self._pull_resumed(session)

    def _pull_resumed(self, session: Session) -> tuple[Any, Telemetry | None]:
        """A batch from the script's own workers, which have rested and know of nothing to do."""
        assert session.fleet is not None
        session.fleet.issue({"mode": "run"})
        session.ordered = None  # no batch will be of the order that the program knows
        while True:
            batch, telemetry = session.fleet.pull()
            if not isinstance(batch, Token):
                return batch, telemetry

    def _account(
        self, session: Session, asked: int, delivered: int, telemetry: Telemetry | None, lent: tuple[Any, Any] | None
    ) -> None:
        wait = delivered - asked
        if session.first_wait_ns < 0:
            session.first_wait_ns = wait
        session.wait_ns += wait
        session.delivered += 1
        session.total += 1
        session.others_last = self._others_total(session)
        has_begun = session.has_begun_epoch() and session.sampler_ns() > SEAM_NS
        if has_begun and session is self.target:
            self._sampler_start = session.sampler_lines() or self._sampler_start
        is_whole = (session.delivered > 1 or session.is_seamless) and not self._is_disturbed and not has_begun
        delayed = self._delayed_ns() if self.target is None else 0
        session.pending = Pending(delivered, wait, telemetry, is_whole, is_grad_enabled(), lent, delayed)

    def _delayed_ns(self) -> int:
        """Time for which the loop was ready to run so far, but had no core."""
        if self._delay is None:
            self._delay = RunDelay(threading.get_native_id())
        return self._delay.read_ns()

    def _end_step(self, session: Session, now: int) -> Step | None:
        pending, session.pending = session.pending, None
        if pending is None:
            return None
        body = now - pending.delivered_ns
        if session is self.target:
            self.cached.check(pending.lent)
        # where others take the core in between, the loop has not worked
        delayed = self._delayed_ns() - pending.delayed_ns if self.target is None else 0
        self._note_use(session, pending, body - delayed, now)
        return Step(
            pending.wait_ns, body, pending.is_whole and self._is_undisturbed(session, pending), pending.telemetry
        )

    def _note_use(self, session: Session, pending: Pending, body_ns: int, now: int) -> None:
        if self.drain is not None:  # it does nothing with a batch, but for a loop that does
            session.used, session.with_gradients = session.used + 1, session.with_gradients + 1
            return
        if body_ns >= WORKED_NS:
            session.note_work()
        if body_ns >= USED_NS:
            session.used += 1
            session.with_gradients += pending.has_gradients
            return
        if session.cycle > 1:
            return
        session.with_gradients = 0
        if self.target is None and session is not self._simulated and MOSTLY * session.used <= session.dropped:
            session.dropped += 1
            session.dropped_ns = now - session.created_ns

    def _is_undisturbed(self, session: Session, pending: Pending) -> bool:
        """Whether no other loader was begun, or gone through to its end, since the batch was handed out; one that gives a
        batch in every step, beside this one or from an iterator made for that, belongs to the step."""
        return len(self._sessions) == 1 or all(
            other is session
            or (other.pending is None and other.ended_ns <= pending.delivered_ns)
            or (other.pending is not None and other.pending.delivered_ns < pending.delivered_ns)
            or (other.created_ns < pending.delivered_ns and other.is_iterated and self._belongs(other, session))
            or other.is_begun_in_steps_of(session)
            for other in self._sessions.values()
        )

    def _belongs(self, other: Session, session: Session) -> bool:
        """Whether what a step took of an iterator that is kept is its own: batches to train on, or about as many of all
        loaders as other steps take; a validation may go through an iterator that is kept for all."""
        if other.pending is not None and other.pending.has_gradients:
            return True
        total = self._others_total(session)
        taken = total - session.others_last
        is_frequent = taken * session.delivered <= MANIFOLD * (total - session.others_before)
        return is_frequent or taken <= BRIEF * (len(self.loaders) - 1)

    def _after_the_end(self, session: Session) -> Any:
        if not self._stop:
            if self._is_epoch_over(session):
                self._end_fleets(session)  # the next epoch is not ours
                raise StopIteration
            return self._pull_plain(session)
        self._raised += 1
        if self._raised > 20:  # somebody swallows it; do not hold the script for ever
            raise StopIteration
        if self.drain is not None:
            return self.drain.end_loop(self._parting)
        raise errors.Finished("the diagnosis is done")

    def _pull_plain(self, session: Session) -> Any:
        while True:
            batch, telemetry = self._pull(session)
            is_stale = telemetry is not None and telemetry.generation != self._last_generation
            if isinstance(batch, Token) or (is_stale and session is self.target):
                continue
            return batch

    # The target ----------------------------------------------------------------------------------

    def _consider(self, session: Session) -> bool:
        """Make the session the target if it looks like the training loader; whether it has just become that."""
        if self._ranks is None and session.delivered <= FIRST_BATCHES:  # asking takes as long as all else here
            self._ranks = self._meet_ranks()
        if self.is_following:
            assert self._ranks is not None
            begun = self._ranks.begun()
            wanted = begun is not None and begun[0] == session.facts.number and begun[1] <= session.total
        elif self._simulated is not None:  # its steps may only launch work, as if they dropped their batches
            wanted = session is self._simulated and session.total >= TARGET_AFTER
        elif self.wanted_loader is not None:
            wanted = self._is_wanted(session)
        else:
            enough = TARGET_AFTER_DROPS if session.dropped else TARGET_AFTER
            wanted = session.with_gradients >= enough or session.used >= TARGET_AFTER_WITHOUT_GRADIENTS
            wanted = wanted or (session.total >= TARGET_AFTER and session.only_drops())
            wanted = wanted and self._is_slowest(session)
        if wanted and not self._is_alone():
            self.target = session
            if self._simulated is not None:
                self._note_simulated(session)
            if session.fleet is not None and not self.options.only_baseline:
                session.fleet.repeat()
            COLLECTOR.start()
            self._begin(session)
        return self.target is not None

    def _meet_ranks(self) -> ranks.Ranks | None:
        """The ranks that do as this one does; None where it trains alone, or feeds the others with its own batches."""
        found = ranks.of_this_process(self._lead)
        place = ranks.hands_on(sys._getframe()) if found is not None else None
        if place is None:
            return found
        sentence = f"This rank hands its batches on to the others ({place}): what it is fed with feeds all of them."
        self.note(Note(id="handed-on", sentence=sentence))
        return None

    def _is_slowest(self, session: Session) -> bool:
        """Whether the loop waits for none of its loaders much longer, where it takes a batch of several in every step; known
        once it has done so for a while."""
        abreast = [other for other in self._sessions.values() if other is not session and other.is_abreast_of(session)]
        if not abreast:
            return True
        is_known = session.total >= ABREAST
        most = max(other.usual_wait_ns for other in abreast)
        return is_known and (most < USED_NS or most < MUCH_LONGER * session.usual_wait_ns)

    def _is_alone(self) -> bool:
        """Whether other ranks, for which this one waits in every step, would not do as it does."""
        if self._ranks is None or self.is_following:
            return False
        was_alone = bool(self.absent_ranks)
        if was_alone and self.clock_ns() < self._ask_ranks_ns:
            return True
        self._ask_ranks_ns = self.clock_ns() + ASK_RANKS_NS
        self.absent_ranks = self._ranks.absent(0 if was_alone else ranks.ARRIVE_S)
        if self.absent_ranks and not was_alone:
            self.progress(self.why_alone)
        return bool(self.absent_ranks)

    @property
    def why_alone(self) -> str:
        """Why this rank is not diagnosed though its loop would be; empty where it is."""
        return ranks.why_alone(self.absent_ranks, self._ranks.count) if self._ranks and self.absent_ranks else ""

    def _begin(self, session: Session) -> None:
        """Start the experiment on the loop; in distributed training, have the other ranks follow, or follow."""
        if self._ranks is None:
            self._bench = LoopBench(self, session)
            self._program = self._make_program(self._bench, self.options)
        elif self._ranks.is_leader:
            self._bench = bench = LeadingBench(self, session)
            self._ranks.begin(session.facts.number, session.total)
            self._program = ranks.lead(
                self._make_program(bench, self.options), bench, self._ranks, lambda: session.total
            )
        else:
            self._bench = LoopBench(self, session)
            begun = self._ranks.begun()
            first = begun[1] if begun is not None else session.total
            self._program = ranks.follow(self._bench, self._ranks, first, lambda: session.total, self._patience_s)

    @property
    def is_following(self) -> bool:
        """Whether another rank of the training is diagnosed, and this one does what that does."""
        return self._ranks is not None and not self._ranks.is_leader

    def pull(self, session: Session) -> Telemetry | None:
        """Take a batch beside the loop; how it was made."""
        is_endless = session.fleet is not None and session.fleet.is_endless
        return self._pull(session)[1] if is_endless else None

    def set_ranks(self, waits: Sequence[RankWait]) -> None:
        """Take note of how the other ranks fared."""
        self._rank_waits = tuple(waits)

    def _finish(self) -> None:
        if self.drain is not None:
            self._parting = self.cached.host[:1]
        self.is_finished = True
        self._ended_ns = self.clock_ns()
        self._machine_memory.end()
        self._others.end()
        self._end_program()
        self.serving = "loader"
        if self.target is not None and self.target.fleet is not None:
            self.use(self.target, None)
            for settings in list(self.target.resting):
                self.dismiss(self.target, settings)
            self._last_generation = self.target.fleet.issue({"mode": "run"})
        if self._stop:
            self.close()
        for session in self._sessions.values():
            if session.fleet is not None:
                session.fleet.wait_as_without_us()

    # Cached batches ------------------------------------------------------------------------------

    def collect_batches(self, session: Session, is_enough: Callable[[int, int], bool]) -> None:
        """Keep a few real batches, taken beside the loop, on the host; none where the epoch ends first.

        Args:
            session: the loader.
            is_enough: told how many there are and how many bytes they take.
        """
        limit = environment.memory_bytes() // 16
        total = 0
        self.has_interfered = True
        self._limit_epoch(session)
        generation = session.fleet.issue({"mode": "run"}) if session.fleet is not None else 0
        while not is_enough(len(self.cached.host), total):
            try:
                batch = self._pull_fresh(session, generation)
            except StopIteration:  # the loop will meet it when it asks
                break
            except Exception as error:
                if error is not self._loader_error:
                    raise
                self._deferred = error
                break
            self.cached.host.append(batch)
            # without workers, what a batch is a view of is the script's anyway
            total += values.size_bytes(batch) if session.facts.num_workers else values.content_bytes(batch)
            if total > limit:
                self.note(Note(id="pool-small", sentence=f"Only {len(self.cached.host)} batches fit into the cache."))
                break
            if session.fleet is None or not session.fleet.is_endless:
                break
        self.cached.device = device.current()

    def _limit_epoch(self, session: Session) -> None:
        """Have the present epoch of a stream end when the loop has had as many batches as were promised."""
        session.promised = promised_length(session.loader) if session.length is None else None

    def _pull_fresh(self, session: Session, generation: int) -> Any:
        """A batch made under the last order, where that can be had."""
        is_endless = session.fleet is not None and session.fleet.is_endless
        while True:
            batch, telemetry = self._pull(session)
            if not is_endless or telemetry is None or telemetry.generation == generation:
                return batch

    def _serve_cached(self, give: Give) -> tuple[Any, Telemetry | None]:
        try:
            return self.cached.serve(give.source), None
        except Exception as error:
            if give.source != "ahead":
                raise
            failure = f"{type(error).__name__}: {error}"
            return self.cached.serve("host"), Telemetry(give.generation, -1, 0, 0, failure=failure)

    def _may_lend(self, session: Session) -> bool:
        """Whether to see if the loop writes into what it gets: a real batch of the warm-up."""
        is_early = session.total < LENT_BATCHES and session is self.target
        return is_early and self.serving == "loader" and not self._rungs

    def watch_use(self, steps: int) -> None:
        """Watch which fields the next steps fed from host memory read."""
        self._use.want(steps)

    def audit(self) -> None:
        """Take note of what the kept batches carry, and of which fields the watched steps read."""
        try:
            self._payload = self._use.audit(self.cached.host, self.cached.paths_on_host())
        except Exception as error:  # an audit that fails must not cost the diagnosis
            self.note(Note(id="audit-failed", sentence=f"What batches carry was not audited: {error}."))

    @property
    def payload(self) -> tuple[Field, ...]:
        """Leaves of the batch, as far as they were looked at."""
        return self._payload

    # Facts ---------------------------------------------------------------------------------------

    def note(self, note: Note) -> None:
        """Keep an observation, once."""
        self._notes.setdefault(f"{note.id}:{note.sentence}", note)

    def add_block(self, block: Block) -> None:
        """Keep a measured block."""
        self._blocks.append(block)
        self.progress("")

    def progress(self, text: str) -> None:
        """Tell the onlooker."""
        if self._on_progress is None:
            return
        try:
            self._on_progress(self, text)
        except Exception as error:  # a picture is not worth a diagnosis
            self._on_progress = None
            self.note(Note(id="no-progress", sentence=f"Progress was not shown: {type(error).__name__}: {error}."))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks measured so far."""
        return tuple(self._blocks)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Rungs on the plan so far."""
        return self._rungs

    @property
    def loaders(self) -> tuple[Loader, ...]:
        """Loaders iterated so far."""
        found = {session.facts.number: session.facts for session in self._sessions.values()}
        return tuple(found[number] for number in sorted(found))

    @property
    def steps_total(self) -> int:
        """Batches handed out to the target's loop, those before it was chosen included."""
        return self.target.total if self.target is not None else 0

    @property
    def enough_s(self) -> int:
        """Wall time in which a diagnosis of the target's loop should reach a verdict, by what its steps took so far."""
        loop_ns = (self._ended_ns or self.clock_ns()) - self._loop_began_ns
        turn = self.target.facts.num_workers if self.target is not None else 0
        return experiment.enough_s(loop_ns / max(1, self.steps_total), turn)

    @property
    def most_batches(self) -> int:
        """Batches that the busiest loader gave."""
        return self.busiest.total if self.busiest is not None else 0

    @property
    def busiest(self) -> Session | None:
        """The loader that gave most batches."""
        return max(self._sessions.values(), key=lambda session: session.total, default=None)

    def recording(self) -> Recording:
        """All facts so far."""
        now = self._ended_ns or self.clock_ns()
        sessions = {id(session): session for session in self._sessions.values()}.values()
        starts = [start for session in sessions for start in self._all_starts(session, now)]
        measured = {block.rung for block in self._blocks}
        return Recording(
            command=self._command,
            created=self._created,
            loader=self.target.facts if self.target is not None else None,
            loaders=self.loaders,
            rungs=tuple(sorted((rung for rung in self._rungs if rung.id in measured), key=lambda rung: rung.rank)),
            blocks=self._blocks_of_loop(),
            stages=self._stages,
            heads=self._heads,
            starts=tuple(sorted(starts, key=lambda start: start.created_ns)),
            body=self._body,
            sampler=self._sampler or self._sampler_start,
            device_busy=self._device_busy,
            payload=self._payload,
            worker_environment=self._worker_environment,
            memory=tuple(self._looks),
            late=gathered(self._late),
            page_bytes=mmap.PAGESIZE,
            memory_stall_ns=self._machine_memory.stalled_ns,
            swapped_bytes=self._machine_memory.swapped_bytes,
            other_cores=self._others.cores,
            shared_memory_bytes=self._machine_memory.shared_bytes,
            free_memory_bytes=environment.memory_bytes(),
            natural_period_ns=self._natural_period_ns(),
            steps_total=self.steps_total,
            span_ns=now - self._began_ns,
            loop_ns=now - self._loop_began_ns if self._loop_began_ns else 0,
            has_device=self.cached.device is not None,
            ranks=self._rank_waits,
            notes=tuple(self._notes.values()),
            environment=environment.describe(self.cached.device.name if self.cached.device is not None else None)
            | ({"rank": self._ranks.number, "world_size": self._ranks.count} if self._ranks is not None else {}),
        )

    def _blocks_of_loop(self) -> tuple[Block, ...]:
        return tuple(self._blocks) if self.drain is None else drained.as_the_loop_sees(self._blocks, HOST.id)

    def _natural_period_ns(self) -> int:
        if self.target is None:
            return 0
        return natural_period_ns(self._natural_steps, self.target.facts.num_workers, self.target.facts.prefetch_factor)

    def _all_starts(self, session: Session, now: int) -> list[Start]:
        return session.starts + ([self._start_of(session, now)] if session.delivered else [])

    def note_natural(self, step: Step) -> None:
        """Count a step of the warm-up as one of the untouched loop."""
        if step.is_whole:
            self._natural_steps.append(step)

    def _note_looks(self, session: Session, fleet: Fleet, telemetry: Telemetry) -> None:
        place = {"loader": session.facts.number, "fleet": fleet.number, "worker": telemetry.worker}
        self._looks += [MemoryLook(**place, **look._asdict()) for look in telemetry.looks]

    def set_body(self, lines: Sequence[BodyLine]) -> None:
        """Take note of the expensive lines of the loop body."""
        self._body = tuple(lines)

    def set_sampler(self, lines: Sequence[BodyLine]) -> None:
        """Take note of the expensive lines of the sampler."""
        self._sampler = tuple(lines)

    def set_device_busy(self, fraction: float) -> None:
        """Take note of how much of a fed step the device computes."""
        self._device_busy = fraction

    def set_worker_environment(self, facts: dict[str, Any]) -> None:
        """Take note of what the workers reported of themselves."""
        self._worker_environment = dict(facts)

    def set_rungs(self, rungs: Sequence[Rung]) -> None:
        """Take note of the rungs on the plan."""
        self._rungs = tuple(rungs)

    def set_stages(self, stages: Sequence[Stage]) -> None:
        """Take note of the stages found."""
        self._stages = tuple(stages)

    def set_heads(self, heads: Sequence[Head]) -> None:
        """Take note of how much of the pipeline gives the same every time."""
        self._heads = tuple(heads)

    def close(self) -> None:
        """End all workers, and whatever the experiment was at; nothing is left running, or set."""
        self.is_closed = True
        self._end_program()
        for session in self._sessions.values():
            self._end_fleets(session)

    def _end_program(self) -> None:
        """End whatever the experiment was at, and let go of the batches that were kept for it."""
        self._use.cut()
        if self._program is not None:
            with contextlib.suppress(Exception):  # it may be what is ending us
                self._program.close()
        self.pause()
        COLLECTOR.stop()
        self.cached.clear()

    def _end_fleets(self, session: Session) -> None:
        for fleet in (session.fleet, *session.resting.values()):
            if fleet is not None:
                fleet.close()
        session.fleet = None
        session.resting.clear()


def natural_period_ns(steps: Sequence[Step], num_workers: int, prefetch_factor: int) -> int:
    """Mean time of the untouched `steps` in ns, 0 where none says anything; over whole turns of the workers, whose batches
    may arrive all at once.

    A step that did not wait says how fast the loop is only once the batches that may have lain ready are gone.
    """
    ready = num_workers * prefetch_factor
    waited = (at for at, step in enumerate(steps) if step.wait_ns > DRY_SHARE * (step.wait_ns + step.body_ns))
    steps = steps[next(waited, ready) :]
    turns = steps[len(steps) % max(1, num_workers) :] if len(steps) >= num_workers else []
    spans = [step.wait_ns + step.body_ns for step in turns]
    return int(statistics.mean(spans)) if sum(spans) >= LEAST_NATURAL_NS else 0
