"""Blocks of steps under rungs: how a switch takes effect, what counts, and when a block is over."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from unstarve import estimate
from unstarve.measure.heads import Repeats
from unstarve.measure.program import Bench, Give, Options, Program, Spent, Step
from unstarve.measure.reads import NothingRead
from unstarve.measure.reorder import Orders
from unstarve.measure.rungs import BUSY, BYTES, DEVICE, HOST, NONE
from unstarve.measure.worker import Findings
from unstarve.recording import USED_NS, Block, Note, Rung

FIRST_STEPS = 6
"""Steps of a block in the first round, which only decides what else to measure."""

LONG_TURN = 0.1
"""Share of the budget that a turn of the workers may take, or a verdict comes before looks into the workers."""

LONGEST_REST = 0.015
"""Share of the budget that waiting for workers to end what they do, before a block from cache, may take; there are two
in every round."""

WARM_S = 0.1
"""Seconds at the end of that wait in which the loop goes on, so that neither it nor its device is cold afterwards. Before
that it takes no step: an epoch may have few."""

CLEARING_S = 0.02
"""Seconds that workers get for sending word of batches which they need not make."""

LONGEST_BLOCK = 20.0
"""Seconds after which a block that epoch ends keep interrupting is given up."""

MOST_STEPS = 120
"""Steps of a block at most: a fast loop must not run out of data before the rungs are compared."""

SLOW_S = 0.5
"""Workers that need longer than this for a batch are looked into beside the loop, which gets cached batches meanwhile."""

DEFAULT_BUDGET_S = 40.0
"""Wall time for the experiment where the user sets none and steps are quick."""


class Blocks:
    """Rungs on the plan, and blocks of steps under them; which, and when, is up to a programme."""

    def __init__(self, bench: Bench, options: Options) -> None:
        self._bench = bench
        self._options = options
        self._began_ns = bench.clock_ns()
        self._random = random.Random(options.seed)
        self._generation = 0
        self._do_workers_rest = False
        self._period_ns = 0.0
        self._is_starved = False
        self.budget_s = options.budget_s or DEFAULT_BUDGET_S
        self._blocks: list[Block] = []
        self._rungs: dict[str, tuple[Rung, str, dict[str, Any]]] = {}
        self._filled_fleet = -1
        self._failed: set[str] = set()

    @property
    def planned(self) -> list[Rung]:
        """Rungs on the plan."""
        return [rung for rung, _, _ in self._rungs.values()]

    @property
    def blocks(self) -> list[Block]:
        """Blocks measured so far."""
        return self._blocks

    def elapsed_s(self) -> float:
        """Time since the experiment began."""
        return (self._bench.clock_ns() - self._began_ns) / 1e9

    def add(self, rung: Rung, source: str, order: dict[str, Any]) -> None:
        """Plan a rung: where its batches come from, and what the workers are told."""
        if rung.id not in self._failed and rung.id not in self._rungs:
            self._rungs[rung.id] = (rung, source, order)
            self._bench.rungs(self.planned)

    def block(self, name: str, number: int, count: int | None = None) -> Program:
        """One block of a planned rung, of so many steps or as many as is usual."""
        rung, source, order = self._rungs[name]
        began = self._bench.clock_ns()
        for _ in range(3):
            if not self._bench.use(rung.settings):  # from the start, or since workers on trial have failed
                self._drop(name)
                return
            self._bench.progress(f"round {number + 1}: {rung.label}")
            if source == "loader":
                if self._bench.has_fleet and order.get("mode") != "run":
                    yield from self._fill()
                self._issue(order)
            fleet, is_busy = self._bench.fleet, order.get("mode") == "busy"
            if is_busy:
                yield from self._occupy(rung)
            elif source != "loader":
                yield from self._rest(source)
            self._bench.limit_threads(order.get("threads"))
            self._bench.allow_collector(order.get("collector") != "off")
            try:
                block = yield from self._measure(rung, source, number, count)
            finally:
                self._bench.limit_threads(None)
                self._bench.allow_collector(True)
            if is_busy:
                yield from self._release()
                block = block if fleet == self._bench.fleet else None  # other workers, which had no such order
            if name in self._failed:
                self._drop(name)
                return
            if block is not None:
                self._blocks.append(block)
                self._bench.block(block)
                return
            if self._bench.clock_ns() - began > LONGEST_BLOCK * 1e9:
                return

    def _rest(self, source: str) -> Program:
        """Have the workers make nothing more, and wait until they have made what they are at: what a loop does that is fed
        from cache is to be seen on a machine with nothing else to do, whatever was measured before."""
        if self._do_workers_rest or not self._bench.workers or self._bench.epoch_length is None:
            return
        self._issue({"mode": "idle"})
        wait_ns = min(self._fetch_ns() or self._period_ns * self._bench.workers, LONGEST_REST * self.budget_s * 1e9)
        self._bench.wait(max(0.0, wait_ns / 1e9 - WARM_S))
        yield from self._go_on_from_cache(source, min(wait_ns, WARM_S * 1e9))
        self._do_workers_rest = True

    def _go_on_from_cache(self, source: str, wait_ns: float) -> Program:
        """Have the loop go on, fed from cache, for so long."""
        began = self._bench.clock_ns()
        while self._bench.clock_ns() - began < wait_ns:
            yield from self._give(source)
            self._bench.synchronize()  # or it would run ahead of its device, which had to catch up afterwards

    def _occupy(self, rung: Rung) -> Program:
        """Get every worker to work on one batch until `_release`.

        A worker works on what it is ordered to make, and after a block from cache everything that was ordered is made.
        So the workers first clear away what they have without making it; then each batch that is taken from the loader
        is one that is ready, and orders one more, from the workers in turns.
        """
        self._issue({"mode": "idle"})
        cleared: set[int] = set()
        for _ in range(4 * self._bench.workers):
            step = yield from self._give("loader")
            if step.telemetry is not None and step.telemetry.generation == self._generation:
                cleared.add(step.telemetry.worker)
            if len(cleared) == self._bench.workers:
                break
        yield from self._go_on_from_cache("host", CLEARING_S * 1e9)  # time for the last of them
        steps = 2 * self._bench.workers + self._block_steps(rung, "host")
        limit_ns = 2 * steps * self._expected_period_ns(rung) + 2e9
        self._issue({"mode": "busy", "limit_ns": int(limit_ns)})
        for _ in range(self._bench.workers):
            yield Give("loader")  # whatever the order it was made under

    def _release(self) -> Program:
        """Let the workers rest again, and wait until all of them do."""
        self._issue({"mode": "idle"})
        yield from self._give("loader")  # the first after all that they were busy with

    def _drop(self, name: str) -> None:
        del self._rungs[name]
        self._bench.rungs(self.planned)

    def _measure(
        self, rung: Rung, source: str, number: int, wanted: int | None
    ) -> Generator[Give, Step | None, Block | None]:
        workers = max(1, self._bench.workers)
        settle = self._settle_steps(source)
        if rung.id == BYTES.id and not any(block.rung == BYTES.id for block in self._blocks):
            settle = workers  # each worker's first batch under it finds out which files to keep
        for position in range(4 * settle + self._most_ready(source) + self._bench.cycle):
            step = yield from self._give(source)
            if self._has_failed(step, rung):
                return None
            is_settled = position + 1 >= settle and not _is_copying(step) and not self._is_stale(step)
            if is_settled and self._ends_cycle(step):
                break
        if not self._bench.use(rung.settings):  # workers on trial failed at once, and the script's own stepped in
            return None
        count = wanted or self._block_steps(rung, source)
        turn = self._turn(source)
        if number == 0:  # a first look at all rungs, soon
            count = min(count, turn * math.ceil(FIRST_STEPS / turn))
        fleet = self._bench.fleet
        self._bench.synchronize()
        start = end = cycle_end = turn_end = self._spent()
        gap, unsettled = Spent(0, 0, 0), 0
        steps: list[Step] = []
        while len(steps) < count:
            step = yield from self._give(source)
            if self._has_failed(step, rung) or (source == "loader" and fleet != self._bench.fleet):
                return None
            if not step.is_whole or self._is_stale(step):  # an epoch ended: what came between is left out, and the
                if not unsettled:  # turn of the workers, or the loop's cycle, that it cut short
                    has_turn = len(steps) >= turn
                    del steps[len(steps) - len(steps) % (turn if has_turn else self._bench.cycle) :]
                    end = turn_end if has_turn else cycle_end
                unsettled = self._resettle(source, rung, step, is_first=not unsettled) or settle
            if unsettled:
                unsettled -= step.is_whole and not self._is_stale(step) and (unsettled > 1 or self._ends_cycle(step))
                if self._bench.clock_ns() - start.wall_ns > LONGEST_BLOCK * 1e9:
                    return None
                if not unsettled:
                    self._bench.synchronize()
                    resumed = self._spent()
                    gap = gap.plus(resumed.minus(end))
                    end = cycle_end = turn_end = resumed
                continue
            steps.append(step)
            left = self._bench.batches_left
            if left is not None and left <= turn and len(steps) % turn == 0:
                self._bench.synchronize()  # the epoch ends within the next turn: what was launched so far ends here
            end = self._spent()
            if len(steps) % self._bench.cycle == 0:
                cycle_end = end
            if len(steps) % turn == 0:
                turn_end = end
                if len(steps) >= 2 * turn and wanted is None and self._is_long(start.wall_ns + gap.wall_ns):
                    break
        self._bench.synchronize()
        end = self._spent().minus(gap)
        block = _make_block(rung.id, number, start.wall_ns, end.wall_ns, end.cpu_ns - start.cpu_ns, steps)
        return replace(block, main_collected_ns=end.collected_ns - start.collected_ns)

    def _spent(self) -> Spent:
        return Spent(self._bench.clock_ns(), self._bench.cpu_ns(), self._bench.collected_ns())

    def _resettle(self, source: str, rung: Rung, step: Step, *, is_first: bool) -> int:
        """After a pause, in which batches were made ready: have the engine drop these, where it can; the first new one
        will do then. Returns the steps that it takes, 0 where the batches are not dropped."""
        can_drop = self._bench.epoch_length is not None and self._bench.workers
        if source != "loader" or not can_drop:
            return 0
        if not step.is_whole and is_first:  # the last step before the pause; the first after it drops nothing more
            self._issue(self._rungs[rung.id][2])
        return 1

    def _most_ready(self, source: str) -> int:
        """Batches of an older order that the workers may have ready; the engine drops them where an epoch has a length."""
        if source != "loader" or self._bench.epoch_length is not None:
            return 0
        return (self._bench.settings.prefetch_factor + 2) * self._bench.workers

    def _is_stale(self, step: Step) -> bool:
        """Whether the batch was made under an older order, and so was ready before the loop asked for it."""
        made = step.telemetry
        return made is not None and made.generation != self._generation

    def _has_failed(self, step: Step, rung: Rung) -> bool:
        made = step.telemetry
        if made is None or made.failure is None or made.generation != self._generation:
            return False
        if self._filled_fleet != self._bench.fleet:  # new workers, whose pools are empty: the block is repeated
            return True
        self._failed.add(rung.id)
        if not made.failure.startswith(NothingRead.__name__):
            self._bench.note(Note(id="rung-failed", sentence=f"The rung “{rung.label}” was given up: {made.failure}."))
        return True

    def _settle_steps(self, source: str) -> int:
        ahead = self._bench.ahead + 1 if self._bench.ahead else 0  # what has room ahead of the loop is filled first
        if source != "loader" or self._is_pressed or (self._is_slow and self._is_starved):
            return 1 + ahead  # starved workers have nothing ready: the first new batch will do
        return max(1, self._bench.workers) + ahead

    def _block_steps(self, rung: Rung, source: str) -> int:
        """Some turns, about half a second long, and short of an epoch."""
        turn = self._turn(source)
        period = self._expected_period_ns(rung)
        wanted = max(4, 0.5e9 / max(period, 1e4))
        count = turn * math.ceil(wanted / turn)
        if self._bench.epoch_length is not None:
            room = max(turn, (self._bench.epoch_length - 1 - 2 * turn) // 2)
            count = min(count, turn * max(1, room // turn))
        return min(count, turn * math.ceil(MOST_STEPS / turn))

    def _turn(self, source: str) -> int:
        """Steps of which a block has a multiple: one batch of each worker that makes them, and whole cycles of the loop."""
        workers, cycle = max(1, self._bench.workers) if source == "loader" else 1, self._bench.cycle
        both = math.lcm(workers, cycle)
        return both if both <= MOST_STEPS or cycle == 1 else cycle * math.ceil(workers / cycle)

    def _ends_cycle(self, step: Step) -> bool:
        """Whether the loop was through with the batches that it had taken."""
        return self._bench.cycle == 1 or step.body_ns >= USED_NS

    def _expected_period_ns(self, rung: Rung) -> float:
        alike = (rung.id, self._ceiling_id()) if rung.id == BUSY.id else (rung.id,)
        times = [(b.end_ns - b.start_ns) / b.steps for b in self._blocks if b.rung in alike]
        if times:
            return times[-1]
        return self._period_ns if rung.kind == "none" else self._period_ns / 2

    def _is_long(self, start: int) -> bool:
        return self._bench.clock_ns() - start > 0.08e9 * self.budget_s

    def _issue(self, order: dict[str, Any]) -> None:
        self._do_workers_rest = False
        self._generation = self._bench.issue(order)

    def _give(self, source: str) -> Generator[Give, Step | None, Step]:
        step = yield Give(source, self._generation)
        assert step is not None
        if step.telemetry is not None and step.telemetry.findings is not None:
            self._take(step.telemetry.findings)
        return step

    def _take(self, findings: Findings | Orders | Repeats) -> None:
        """Keep what a worker found out; without looks into workers there is nothing."""

    def _fill(self) -> Program:
        """Have the present workers keep the values that rungs serve; without looks into workers there are none."""
        yield from ()

    @property
    def _is_slow(self) -> bool:
        """Whether a worker needs so long for a batch that whole batches are not to be wasted."""
        return self._period_ns * max(1, self._bench.workers) > SLOW_S * 1e9

    @property
    def _is_pressed(self) -> bool:
        """Whether a turn of the workers takes so much of the budget that a verdict must come first."""
        return self._turn("loader") * self._period_ns > LONG_TURN * self.budget_s * 1e9

    def _fetch_ns(self) -> float:
        """Mean time that making a batch takes; 0 while that is not known."""
        return estimate.mean([ns for block in self._blocks if block.rung == NONE.id for ns in block.fetches_ns])

    def _ceiling_id(self) -> str:
        return DEVICE.id if DEVICE.id in self._rungs and DEVICE.id not in self._failed else HOST.id

    def _ratio(self, upper: str, lower: str) -> float:
        rates: dict[str, list[float]] = {}
        for block in self._blocks:
            rates.setdefault(block.rung, []).append(block.steps / (block.end_ns - block.start_ns))
        if upper not in rates or lower not in rates:
            return 1.0
        return estimate.mean(rates[upper]) / estimate.mean(rates[lower])


def _is_copying(step: Step) -> bool:
    """Whether serving from cache still spends a good part of its time on watched copies, which will end."""
    made = step.telemetry
    return made is not None and made.copied_ns > 0.2 * made.wall_ns


def _make_block(rung: str, number: int, start: int, end: int, cpu: int, steps: Sequence[Step]) -> Block:
    made = [step.telemetry for step in steps if step.telemetry is not None]
    return Block(
        rung=rung,
        round=number,
        start_ns=start,
        end_ns=end,
        main_cpu_ns=cpu,
        waits_ns=tuple(step.wait_ns for step in steps),
        bodies_ns=tuple(step.body_ns for step in steps),
        fetches_ns=tuple(item.wall_ns for item in made),
        fetches_cpu_ns=tuple(item.cpu_ns for item in made),
        copies_ns=tuple(item.copied_ns for item in made),
        delays_ns=tuple(item.delay_ns for item in made),
        collections_ns=tuple(item.collected_ns for item in made),
        workers=tuple(item.worker for item in made),
    )
