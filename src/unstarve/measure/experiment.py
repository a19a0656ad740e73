"""What to try in the loop, in which order, and when to stop: a program that asks for one batch at a time.

`program` is a generator. It yields `Give` (what the next batch shall be) and is sent the `Step` that the loop made of
it. It knows no loader and no thread; the bench it works on (`Bench`) carries orders to the workers, the clock and the
device. So it can be tested with a scripted bench.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

from unstarve import estimate, law
from unstarve.measure import lean, plan
from unstarve.measure.blocks import DEFAULT_BUDGET_S
from unstarve.measure.looking import Looking, threads_of
from unstarve.measure.program import Bench, Give, Options, Program, Step
from unstarve.measure.rungs import (
    AFFINITY,
    AHEAD,
    BUSY,
    BYTES,
    COLLATED,
    COLLECTOR_OFF,
    DEVICE,
    HOST,
    LEAN,
    NO_COLLATE,
    NO_LOADING,
    NO_TRANSPORT,
    NONE,
    ONE_CORE,
    ONE_THREAD,
    RAW,
    SAMPLES,
    WORKER_THREADS,
    trial,
)
from unstarve.recording import LONG, Note, collecting, stalls
from unstarve.remedies.storing import STORABLE
from unstarve.report import Estimate

AUDITED_STEPS = 2
"""Steps that are watched for the fields of the batch that they read."""

LONGEST_START = 0.05
"""Share of the budget that starting the workers may take for other settings to be tried."""

COLLECT = 0.02
"""Share of the budget after which no more batches are kept than are needed."""

STARVED = 0.3
"""Share of the time that a loop waits from which on its workers have nothing ready."""

EPOCH_ENDS = 3
"""Ends of epochs at which batches are tried to be kept."""

LONGEST_CLEARING = 0.04
"""Share of the budget that waiting for workers to end what they do, before and after they are kept busy, may take."""

LONG_LOOK = 0.25
"""Share of the budget for a long look at a loop that seems fed."""

MOST_LONG_STEPS = 250
"""Steps of it at most."""

MAYBE_FED = 1.3
"""A headroom above this is none of a loop that is fed, however unsure."""

MANY = 60
"""Steps of the loop as it is, in blocks that each begin with few batches ready, after which a small headroom is believed."""

LONGEST_BUDGET_S = 150.0
"""Wall time at most where the user sets none."""

ORDERS_PATIENCE = 0.2
"""Share of the budget after which a worker that still looks for other orders of its transforms is not waited for."""

HEADS_PATIENCE = 0.15
"""Share of the budget after which a worker that still makes samples again is not waited for."""

MOST_ORDERS = 2
"""Chains of transforms that are tried in another order at most."""

STEPS_NEEDED = 100
"""Untouched steps in whose time an experiment can be expected to reach a verdict."""

NEARLY = 0.9
"""Share of the best gain that another must reach to go on being measured in every round."""

COLLECTING = 0.03
"""Share of a fetch or of the loop's time that garbage collections must take for the collector to be tried off."""

FEW_STEPS = 4
"""Steps of the warm-up at least."""

LONG_WARM_UP = 0.1
"""Share of the budget after which the warm-up ends, once it has seen enough."""

LOOK_TURNS = 2
"""Turns of the workers that looks into them take at least."""

ENOUGH_TURNS = 6
"""Turns of the workers in whose time an experiment can be expected to know something of them."""

FAR_TOO_MANY = 4
"""Workers to a core above which it is tried with one to each."""

SUSPECT_MOVING = 1.05
"""What finished batches must gain by not coming from workers for their way to be suspect."""

_FIRST = (HOST.id, NONE.id, DEVICE.id)
"""Rungs that a verdict cannot do without; a loop that cannot take device batches fails only when there is one."""

_HEAVY = ("knockout:", "trial:")
"""Rungs that convict, or remedies that are tried."""

_PLACES = (AFFINITY.id, WORKER_THREADS.id, ONE_CORE.id)
"""Trials of where workers run; while that is wrong, what stages gain is its symptom."""

_OF_EVERY_LOADER = (NO_COLLATE.id, NO_TRANSPORT.id)
"""Knock-outs of what is no stage of the user's."""

_REMEDIES = ("trial:lean-batch", "trial:reorder")
"""Trials that convict nobody."""


def program(bench: Bench, options: Options) -> Program:
    """The whole experiment on one loop."""
    return Experiment(bench, options).run()


def suitable_s(period_ns: float) -> float:
    """Wall time for an experiment, where the user sets none, on a loop that takes so long for a step."""
    return min(max(DEFAULT_BUDGET_S, STEPS_NEEDED * period_ns / 1e9), LONGEST_BUDGET_S)


def enough_s(period_ns: float, turn: int) -> int:
    """Wall time, in tens of seconds, in which an experiment on a loop that takes so long for a step should reach a verdict.

    Args:
        period_ns: what a step takes.
        turn: steps of which a block has a multiple.
    """
    return 10 * math.ceil(max(STEPS_NEEDED, ENOUGH_TURNS * turn) * period_ns / 1e10)


class Experiment(Looking):
    """What to try in the loop, in which order, and when to stop."""

    def __init__(self, bench: Bench, options: Options) -> None:
        super().__init__(bench, options)
        self._storable: set[str] = set()
        self._instead: list[str] = []
        """Rungs that have just taken the place of one that failed."""

    def run(self) -> Program:
        yield from self.warm_up()
        if self._options.only_baseline:
            while True:
                yield from self._give("loader")
        yield from self._collect()
        if self._is_pressed:
            self._make_outer_rungs()
            yield from self._blocks_of(0)
        if self._bench.has_fleet and self._has_time_to_look():
            self._bench.progress("looking into the workers")
            yield from self._look()
            self._choose_cuts()
            yield from self._fill()
            self._make_coarse_rungs()
        else:
            self._make_outer_rungs()
        yield from self._rounds()

    def warm_up(self) -> Program:
        """Some untouched steps, for the loop's speed; everything else follows from it."""
        self._bench.progress("warming up")
        turn = self._turn("loader")
        count = 2 * turn * math.ceil(2 / turn)
        periods_ns, waits_ns = list[int](), list[int]()  # without what we do between steps, such as looking at batches
        longest_s = LONG_WARM_UP * self.budget_s
        while len(waits_ns) < count:
            step = yield from self._give("loader")
            waits_ns.append(step.wait_ns)
            periods_ns.append(step.wait_ns + step.body_ns)
            first = count // 2 if len(waits_ns) > count // 2 else 1 if len(waits_ns) > 1 else 0
            self._period_ns = sum(periods_ns[first:]) / (len(periods_ns) - first)
            self.budget_s = self._options.budget_s or suitable_s(self._period_ns)
            if len(waits_ns) > turn:
                self._bench.natural(step)
            is_enough = len(waits_ns) > turn + 1 or (len(waits_ns) >= FEW_STEPS and self._is_pressed)
            if is_enough and self.elapsed_s() > longest_s:
                break
        self._is_starved = sum(waits_ns[first:]) > STARVED * sum(periods_ns[first:])

    def _has_time_to_look(self) -> bool:
        """Whether the budget has room for looks into the workers, which take a turn or two of them; else that is noted."""
        turn = self._turn("loader")
        turn_s = turn * self._period_ns / 1e9
        if not self._is_pressed or self.elapsed_s() + LOOK_TURNS * turn_s < self.budget_s:
            return True
        sentence = (
            f"The budget of {self.budget_s:.0f} s left no time to look into the workers ({turn} batches take the loop "
            f"{turn_s:.1f} s), so only input as a whole was measured. --budget {enough_s(self._period_ns, turn)} has room for it."
        )
        self._bench.note(Note(id="no-looks", sentence=sentence))
        return False

    def _collect(self) -> Program:
        """Keep some batches, and see which of their fields the step reads and moves to the device."""
        for _ in range(EPOCH_ENDS):
            self._bench.collect_batches(fewest=self._is_slow, more_s=COLLECT * self.budget_s)
            if self._bench.has_batches:
                break
            yield from self._give("loader")  # an epoch ended; the next begins with this
        else:
            return
        self._bench.watch_use(AUDITED_STEPS)
        for _ in range(AUDITED_STEPS + 1):
            yield from self._give("host")
        self._bench.fill_device()

    # Which rungs ---------------------------------------------------------------------------------

    def _make_outer_rungs(self) -> None:
        """Those for which nothing need be known of the workers."""
        self.add(NONE, "loader", {"mode": "run"})
        if self._bench.has_batches:
            self.add(HOST, "host", {})
            if self._bench.has_device:
                self.add(DEVICE, "device", {})

    def _make_coarse_rungs(self) -> None:
        self.add(NONE, "loader", {"mode": "run"})
        if "raw" in self._addresses:
            self.add(RAW, "loader", {"mode": "cut", "address": self._addresses["raw"]})
        self.add(SAMPLES, "loader", {"mode": "samples"})
        if self._bench.workers:
            self.add(COLLATED, "loader", {"mode": "collated"})
        self._make_outer_rungs()
        self._add_far_fewer_workers()
        if self._options.full:
            self._add_bytes()
            self._add_fine_rungs(all_cuts=True)

    def _add_fine_rungs(self, *, all_cuts: bool) -> None:
        """Knock-outs of the suspects, and the rungs on both sides of each."""
        chain = self._chain()
        top = [node for node in plan.suspects(self._nodes, 3) if node.stage.id in self._addresses]
        for node in top:
            self._add_knockout(node)
        near = {position for position, node in enumerate(chain) for suspect in top if _is_near(node, suspect)}
        near |= {position - 1 for position in near}
        for position, node in enumerate(chain[:-1] if chain and chain[-1].is_item else chain):
            if all_cuts or position in near:
                self._add_cut(node, position)

    def _add_knockout(self, node: plan.Node) -> None:
        order = {"mode": "knockout", "address": self._addresses[node.stage.id]}
        self.add(plan.knockout_rung(node.stage), "loader", order)

    def _add_cut(self, node: plan.Node, position: int) -> None:
        """The rung after a stage of the chain, unless it is the one before the first transform."""
        address = self._addresses[node.stage.id]
        if address != self._addresses.get("raw"):
            self.add(plan.cut_rung(node, 79 - position), "loader", {"mode": "cut", "address": address})

    # Rounds --------------------------------------------------------------------------------------

    def _rounds(self) -> Program:
        yield from self._usual_rounds()
        yield from self._look_at_sampler()
        number = 1 + max((block.round for block in self._blocks), default=0)
        is_stalling = yield from self._long_look(number)
        if is_stalling:
            yield from self._long_look(number + 1)

    def _long_look(self, number: int) -> Generator[Give, Step | None, bool]:
        """A long block of a loop that seems fed, or that stalls: where it stalls once in many batches, short ones lie between
        the stalls or happen to meet one. Returns whether it is another rate than theirs."""
        steps = self._long_steps()
        if not self._may_stall() or steps < LONG * self._block_steps(NONE, "loader"):
            return False
        before = len(self._blocks)
        yield from self.block(NONE.id, number, steps)
        yield from self.block(HOST.id, number)
        found = [estimate.rate(block) for block in self._blocks[before:] if block.rung == NONE.id]
        usual = [estimate.rate(block) for block in self._blocks[:before] if block.rung == NONE.id]
        return bool(found) and estimate.differ(found, usual, self._options.threshold)

    def _is_time_to_look(self, number: int) -> bool:
        """Whether what is left of the budget is to go into a long look."""
        return number > 0 and self.elapsed_s() > (1 - LONG_LOOK) * self.budget_s and self._may_stall()

    def _may_stall(self) -> bool:
        return self._seems_fed() or self._stalls()

    def _seems_fed(self) -> bool:
        """Whether it is not shown in many steps that input costs the loop anything, nor likely that it costs much."""
        headroom = estimate.contrast(self._blocks, self._ceiling_id(), NONE.id)
        seen = sum(block.steps for block in self._blocks if block.rung == NONE.id)
        is_shown = headroom is not None and headroom.low > 1 + self._options.threshold and seen >= MANY
        return headroom is not None and headroom.value < MAYBE_FED and not is_shown

    def _stalls(self) -> bool:
        """Whether a batch was waited for many times as long as a step takes."""
        return bool(stalls([block for block in self._blocks if block.rung == NONE.id]))

    def _long_steps(self) -> int:
        """Steps for which there is time, in whole turns of the workers and short of an epoch."""
        turn = self._turn("loader")
        left_s = min(LONG_LOOK * self.budget_s, self.budget_s - self.elapsed_s())
        steps = min(left_s * 1e9 / self._expected_period_ns(NONE), MOST_LONG_STEPS)
        if self._bench.epoch_length is not None:
            steps = min(steps, self._bench.epoch_length - 1 - 2 * turn)
        return turn * int(max(0.0, steps) // turn)

    def _usual_rounds(self) -> Program:
        for number in range(self._options.max_rounds):
            is_whole = yield from self._blocks_of(number)
            if not is_whole:
                return
            if number == 0:
                yield from self._sample_body()
            self._refine(number)
            yield from self._look_at_sampler()
            if number == 1:
                yield from self._add_orders()
                yield from self._look_at_heads()
            if self._is_decided(number):
                return

    def _blocks_of(self, number: int) -> Generator[Give, Step | None, bool]:
        """A block of each rung of a round that has none in it yet; whether there was time for all."""
        measured = {block.rung for block in self._blocks if block.round == number}
        names = [name for name in self._loaded_here_last(self._names_of_round(number)) if name not in measured]
        while names:
            if self._is_out_of_time(number) or self._is_time_to_look(number):
                return False
            yield from self.block(names.pop(0), number)
            names = self._instead + names
            self._instead = []
        return True

    def _drop(self, name: str) -> None:
        """Give up a rung; where a stage cannot be served alone, since what comes from it belongs to one sample, as an index
        does to its file, serve the outermost call around it of which it is most."""
        super()._drop(name)
        stage = next((node for node in self._nodes if plan.knockout_rung(node.stage).id == name), None)
        around = plan.around(stage, self._nodes) if stage is not None else None
        if around is None:
            return
        rung = plan.knockout_rung(around.stage).id
        if rung in self._rungs or rung in self._failed:
            return
        self._addresses[around.stage.id] = around.address
        self._wanted.append(around.address)
        self._filled_fleet = -1  # of that no values are kept yet
        self._add_knockout(around)
        self._instead.append(rung)

    def _names_of_round(self, number: int) -> list[str]:
        """The rungs of a round, in random order within what matters more and what matters less.

        The budget may end in any round. What a verdict cannot do without comes first in the first round; in later ones
        what convicts (knock-outs, trials, and both ends of the ladder) comes before what only illustrates, and in the
        second round the first suspect, and where the workers may run, before all else of that. After two
        rounds the time goes to what may still be the best: the rest is measured in every third round.
        """
        names = list(self._rungs)
        self._random.shuffle(names)
        if number == 0:
            return sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
        always = (*_FIRST, BYTES.id, AHEAD.id, *self._storable)
        urgent = (*_FIRST, *_PLACES, *self._first_suspects()) if number == 1 else ()
        weighty = [name for name in names if name in (*always, *urgent) or name.startswith(_HEAVY)]
        weighty = [name for name in weighty if not (name.startswith(_REMEDIES) and number == 1)]
        weighty.sort(key=lambda name: name not in urgent)
        others = [name for name in names if name not in weighty]
        if number % 3 == 1 or self._options.full:
            return weighty + others
        best = max((gain.low for gain in map(self._gain, weighty) if gain is not None), default=1.0)
        return [name for name in weighty if name in _FIRST or self._may_be(name, best)]

    def _loaded_here_last(self, names: list[str]) -> list[str]:
        """The rungs with that without workers behind all others: the data set may open its files here then, which is nothing
        to fork workers of other trials from."""
        here = {rung.id for rung in self.planned if rung.settings is not None and not rung.settings.num_workers}
        return sorted(names, key=lambda name: name in here)

    def _first_suspects(self) -> list[str]:
        """The knock-out of the stage that takes most of the workers' time; what is behind all stages where more is to be gained
        there than by finished samples."""
        behind = self._ratio(HOST.id, SAMPLES.id)
        if HOST.id in self._rungs and behind > max(1.03, self._ratio(SAMPLES.id, NONE.id)):
            return [*_OF_EVERY_LOADER, NO_LOADING.id]
        found = (name for name in self._rungs if name.startswith("knockout:") and name not in _OF_EVERY_LOADER)
        return list(found)[:1]

    def _gain(self, name: str) -> Estimate | None:
        """What the loop gains under a knock-out or in a trial, as far as that is known."""
        return estimate.contrast(self._blocks, name, NONE.id) if name.startswith(_HEAVY) else None

    def _may_be(self, name: str, best: float) -> bool:
        """Whether the rung may still gain nearly as much as is sure of the `best`, or was hardly measured."""
        gain = self._gain(name)
        return gain is None or gain.high >= NEARLY * best or sum(block.rung == name for block in self._blocks) < 2

    def _is_out_of_time(self, number: int) -> bool:
        is_open = not {HOST.id, NONE.id} <= {block.rung for block in self._blocks}
        grace = 4.0 if is_open else 1.5 if number == 0 else 1.0
        return self.elapsed_s() > grace * self.budget_s

    # What the first rounds call for --------------------------------------------------------------

    def _refine(self, number: int) -> None:
        """After the first two rounds: add the rungs that the contrasts call for."""
        if number > 1 or not self._bench.has_fleet:
            return
        self._add_collector_trial()
        ratio = self._ratio
        input_costs = ratio(self._ceiling_id(), NONE.id) > 1 + self._options.threshold / 2
        if not input_costs:
            return
        if ratio(DEVICE.id, HOST.id) > 1 + self._options.threshold / 2 and self._bench.can_copy_ahead:
            self.add(AHEAD, "ahead", {})
        self._add_worker_trials()
        self._add_loader_trials()
        self._add_busy_control()
        computes = any(line.is_torch and line.cpu_fraction > 0.1 for line in self._body_lines)
        is_crowded = self._bench.threads > max(1, self._bench.cores)
        if self._bench.threads > 1 and (computes or is_crowded) and self._bench.workers:
            self.add(ONE_THREAD, "loader", {"mode": "run", "threads": 1})
        self._add_lean_batch()
        if ratio(SAMPLES.id, NONE.id) > 1.03:
            self._add_bytes()
            self._add_fine_rungs(all_cuts=False)
        if not self._bench.workers:
            if ratio(HOST.id, SAMPLES.id) > 1.03:
                self.add(NO_COLLATE, "loader", {"mode": "uncollated"})
                self.add(NO_LOADING, "loader", {"mode": "idle"})
            return
        if ratio(COLLATED.id, SAMPLES.id) > 1.03 or self._collate_share() > 0.1:
            self.add(NO_COLLATE, "loader", {"mode": "uncollated"})
        if ratio(HOST.id, COLLATED.id) > SUSPECT_MOVING or self._body_ns(NONE.id) > 1.1 * self._body_ns(HOST.id):
            self.add(NO_TRANSPORT, "loader", {"mode": "token"})
            self.add(NO_LOADING, "loader", {"mode": "idle"})

    def _add_bytes(self) -> None:
        """Tell reading from what is done to the bytes, where files may be read."""
        if any(node.is_source for node in self._nodes):
            return  # a stream's samples cannot be made over and over
        if any(node.is_leaf and node.share >= plan.SUSPECT_SHARE and plan.may_read(node.stage) for node in self._nodes):
            limit_bytes = self._bench.pool_bytes // (len(self._wanted) + 3)
            self.add(BYTES, "loader", {"mode": "reads", "limit_bytes": limit_bytes})

    def _add_worker_trials(self) -> None:
        """Try what the workers reported of themselves: threads that fight for cores, a narrowed affinity mask."""
        facts = [findings.environment for findings in self._findings]
        if not facts or not self._bench.workers:
            return
        threads = max(threads_of(found) for found in facts)
        working = max(found.get("working_threads", 0) for found in facts)
        affinity = min(found.get("affinity") or len(self._bench.affinity) for found in facts)
        self._bench.worker_environment(
            {
                "threads": threads, "working_threads": working, "affinity": affinity,
                "main_affinity": len(self._bench.affinity),
            }
        )  # fmt: skip
        if threads > 1:
            self.add(WORKER_THREADS, "loader", {"mode": "run", "worker_threads": 1})
        elif working > 1:  # of a library that has no such setting, or none that we know
            self.add(ONE_CORE, "loader", {"mode": "run", "is_on_one_core": True})
        if affinity < len(self._bench.machine_cores):
            self.add(AFFINITY, "loader", {"mode": "run", "affinity": self._bench.machine_cores})

    def _add_busy_control(self) -> None:
        """Feed the loop from cache while the workers work on, where they can: they must have indices to work on, which
        are not missed afterwards, and get them in turns."""
        if 2 * self._fetch_ns() > LONGEST_CLEARING * self.budget_s * 1e9:
            return
        can_be_busy = self._bench.workers and self._bench.epoch_length is not None and self._bench.settings.in_order
        if can_be_busy and self._ceiling_id() in self._rungs:
            self.add(BUSY, self._rungs[self._ceiling_id()][1], {"mode": "busy"})

    def _add_collector_trial(self) -> None:
        """Try it without garbage collections, where they take a good part of a batch or of the loop's own time."""
        if max(collecting([block for block in self._blocks if block.rung == NONE.id])) > COLLECTING:
            self.add(COLLECTOR_OFF, "loader", {"mode": "run", "collector": "off"})

    def _add_loader_trials(self) -> None:
        """Try another number of workers where the throughput law expects something of it, and delivery in any order
        where some batches take much longer than others."""
        own = self._bench.settings
        most = self._bench.most_workers if self._bench.start_s <= LONGEST_START * self.budget_s else 0
        if not most:
            return
        loop = law.of_blocks(self._blocks, own.num_workers, self._bench.cores)
        cores = max(1, int(self._bench.cores))
        wanted = min(loop.enough_workers(), most)
        if own.num_workers > 2 * max(cores, wanted):
            self.add(trial(replace(own, num_workers=max(cores, wanted))), "loader", {"mode": "run"})
        elif loop.rate(wanted) > 1.1 * loop.rate(own.num_workers):
            self.add(trial(replace(own, num_workers=wanted)), "loader", {"mode": "run"})
        if self._may_do_without_workers(loop):
            self.add(trial(replace(own, num_workers=0)), "loader", {"mode": "run"})
        if self._bench.can_reorder and own.in_order and own.num_workers > 1 and self._has_slow_batches():
            self.add(trial(replace(own, in_order=False)), "loader", {"mode": "run"})

    def _add_far_fewer_workers(self) -> None:
        """Try one worker for each core at once where there are many times as many, and the loop waits for them all the same:
        one round may be all that there is time for."""
        own, cores = self._bench.settings, max(1, int(self._bench.cores))
        if self._is_starved and own.num_workers > FAR_TOO_MANY * cores and self._bench.most_workers:
            self.add(trial(replace(own, num_workers=cores)), "loader", {"mode": "run"})

    def _may_do_without_workers(self, loop: law.Loop) -> bool:
        """Whether receiving batches costs the loop something, and the main process alone may be as fast as with workers."""
        is_moving = self._bench.settings.num_workers > 0 and self._ratio(HOST.id, COLLATED.id) > SUSPECT_MOVING
        if not is_moving or not self._options.may_load_here:
            return False
        return loop.rate(0) >= law.AS_FAST * estimate.rates(self._blocks)[NONE.id].value

    def _add_lean_batch(self) -> None:
        """Try to send less where moving batches, to the loop or to the device, costs something."""
        moving = max(self._ratio(HOST.id, COLLATED.id), self._ratio(DEVICE.id, HOST.id))
        planned = self._bench.lean_changes() if self._bench.workers and moving > 1.05 else ()
        is_pinned = self._bench.settings.pin_memory  # one value for all is a view that cannot be pinned
        found = tuple([change for change in planned if not (is_pinned and change.how in lean.ALIKE)])
        if found:
            rung = replace(LEAN, changes=found)
            self.add(rung, "loader", lean.as_order(found))

    def _add_orders(self) -> Program:
        """Try other orders of the transforms that give the same on real samples, where input costs the loop something."""
        transforms = [node for node in self._nodes if node.is_item]
        costs_input = self._ratio(self._ceiling_id(), NONE.id) > 1 + self._options.threshold / 2
        if not self._bench.workers or len(transforms) < 2 or not costs_input:
            return
        self._issue({"mode": "commute", "limit_bytes": self._one_workers_bytes})
        began = self._bench.clock_ns()
        while self._orders is None and self._bench.clock_ns() - began < ORDERS_PATIENCE * self.budget_s * 1e9:
            yield from self._give("loader")
        worth = [
            found
            for found in (self._orders.found if self._orders is not None else ())
            if found.before_ns - found.after_ns >= plan.SUSPECT_SHARE * self._sample_ns()
        ]
        for number, found in enumerate(worth[:MOST_ORDERS]):
            rung = plan.reorder_rung(found, self._costs(), number)
            self.add(rung, "loader", {"mode": "reorder", "path": found.path, "order": found.order})

    def _look_at_heads(self) -> Program:
        """See how much of the pipeline gives the same every time, where storing what it gives could gain something, and
        have the rung of the longest such part on the plan."""
        is_stream = any(node.is_source for node in self._nodes)
        if not self._nodes or is_stream or self._ratio(SAMPLES.id, NONE.id) < STORABLE or not self._bench.use(None):
            return
        yield from self._fill()  # the workers on trial, if it was their turn, know nothing of the code
        self._issue(
            {"mode": "heads", "opened": self._opened, "wanted": self._wanted, "limit_bytes": self._one_workers_bytes}
        )
        began = self._bench.clock_ns()
        while self._repeats is None and self._bench.clock_ns() - began < HEADS_PATIENCE * self.budget_s * 1e9:
            yield from self._give("loader")
        heads = self._heads()
        self._bench.heads(heads)
        repeatable = [head for head in heads if head.is_repeatable]
        self._storable = {head.rung for head in repeatable[-1:]}
        for position, node in enumerate(self._chain()):
            if plan.cut_id(node) in self._storable:
                self._add_cut(node, position)

    def _has_slow_batches(self) -> bool:
        fetches = sorted(fetch for block in self._blocks if block.rung == NONE.id for fetch in block.fetches_ns)
        return len(fetches) >= 4 and fetches[-1] > 3 * fetches[len(fetches) // 4]

    def _body_ns(self, rung: str) -> float:
        return estimate.mean([body for block in self._blocks if block.rung == rung for body in block.bodies_ns])

    def _is_decided(self, number: int) -> bool:
        """Three rounds at least; then stop when the interval of the headroom is narrow and its verdict clear."""
        if number < 2:
            return False
        pairs = estimate.contrast(self._blocks, self._ceiling_id(), NONE.id)
        if pairs is None:
            return False
        edge = 1 + self._options.threshold
        is_clear = pairs.low > edge or pairs.high < edge
        is_narrow = (pairs.high - pairs.low) / pairs.value < 0.08
        gains = [self._gain(name) for name in self._rungs if name.startswith("knockout:")]
        known = [gain for gain in gains if gain is not None]
        best = max((gain.low for gain in known), default=1.0)
        is_ranked = all((gain.high - gain.low) / gain.value < 0.12 for gain in known if gain.high >= NEARLY * best)
        return (is_clear and is_narrow and is_ranked) or (number >= 5 and is_clear and (is_narrow or is_ranked))


def _is_near(node: plan.Node, suspect: plan.Node) -> bool:
    shorter = min(len(node.address), len(suspect.address))
    return node.address[:shorter] == suspect.address[:shorter]
