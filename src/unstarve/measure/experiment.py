"""What to try in the loop, in which order, and when to stop: a program that asks for one batch at a time.

`program` is a generator. It yields `Give` (what the next batch shall be) and is sent the `Step` that the loop made of
it. It knows no loader and no thread; the bench it works on (`Bench`) carries orders to the workers, the clock and the
device. So it can be tested with a scripted bench.
"""

from __future__ import annotations

import linecache
import math
import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from unstarve import estimate, law
from unstarve.measure import lean, plan
from unstarve.measure.body import BodySampler
from unstarve.measure.cuda import DeviceProfile, SyncWatch
from unstarve.measure.heads import WHOLE, Repeats
from unstarve.measure.reads import NothingRead
from unstarve.measure.reorder import Orders
from unstarve.measure.split import Address
from unstarve.measure.worker import COLLATE, Findings, Telemetry
from unstarve.payload import Change
from unstarve.recording import LONG, USED_NS, Block, BodyLine, Head, Note, Rung, Settings, Stage, collecting, stalls
from unstarve.report import Estimate
from unstarve.storage import STORABLE

NONE = Rung(id="none", label="nothing cached", kind="none", order=90)
RAW = Rung(id="raw", label="raw sample cached", kind="cut", order=80)
BYTES = Rung(id="bytes", label="bytes cached, decode runs", kind="cut", order=85)
SAMPLES = Rung(id="samples", label="processed sample cached", kind="samples", order=30)
COLLATED = Rung(id="collated", label="collated batch cached in the worker", kind="collated", order=20)
HOST = Rung(id="host", label="batch cached on the host", kind="host", order=10)
DEVICE = Rung(id="device", label="batch cached on the device", kind="device", order=0)
NO_COLLATE = Rung(id="knockout:collate", label="collate for free", kind="knockout", after="collate", order=-1)
NO_TRANSPORT = Rung(id="knockout:ipc", label="transport for free", kind="knockout", after="ipc", order=-1)
ONE_THREAD = Rung(id="trial:threads", label="torch on one thread in the loop", kind="trial", order=-1)
WORKER_THREADS = Rung(id="trial:worker-threads", label="libraries on one thread in the workers", kind="trial", order=-1)
ONE_CORE = Rung(id="trial:one-core", label="each worker's threads on one core", kind="trial", order=-1)
AFFINITY = Rung(id="trial:affinity", label="workers on all cores", kind="trial", order=-1)
COLLECTOR_OFF = Rung(id="trial:collector", label="garbage collector off", kind="trial", order=-1)
LEAN = Rung(id="trial:lean-batch", label="a leaner batch", kind="trial", order=-1)
NO_LOADING = Rung(id="control:sampler", label="sampler alone", kind="control", after="sampler", order=-1)
AHEAD = Rung(id="control:side-stream", label="batch on the host, copied on a side stream", kind="control", order=-1)
BUSY = Rung(id="control:busy", label="batch cached, workers busy", kind="control", order=-1)

FIRST_STEPS = 6
"""Steps of a block in the first round, which only decides what else to measure."""

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

LONGEST_REST = 0.015
"""The same before a block from cache, of which there are two in every round."""

CLEARING_S = 0.02
"""Seconds that workers get for sending word of batches which they need not make."""

LONGEST_BLOCK = 20.0
"""Seconds after which a block that epoch ends keep interrupting is given up."""

SAMPLED_S = 0.5
"""Seconds for which lines of the loop or of its sampler are sampled."""

LONG_LOOK = 0.25
"""Share of the budget for a long look at a loop that seems fed."""

MOST_LONG_STEPS = 250
"""Steps of it at most."""

MAYBE_FED = 1.3
"""A headroom above this is none of a loop that is fed, however unsure."""

MANY = 60
"""Steps of the loop as it is, in blocks that each begin with few batches ready, after which a small headroom is believed."""

MOST_STEPS = 120
"""Steps of a block at most: a fast loop must not run out of data before the rungs are compared."""

SLOW_S = 0.5
"""Workers that need longer than this for a batch are looked into beside the loop, which gets cached batches meanwhile."""

DEFAULT_BUDGET_S = 40.0
"""Wall time for the experiment where the user sets none and steps are quick."""

LONGEST_BUDGET_S = 150.0
"""Wall time at most where the user sets none."""

WATCH_PATIENCE_S = 5.0
"""Workers that have not reported what they saw after so long, and after several batches each, are not waited for."""

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

Probe = TypeVar("Probe", SyncWatch, DeviceProfile)

Program = Generator["Give", "Step | None", None]


@dataclass(frozen=True, slots=True)
class Options:
    """How far to go."""

    budget_s: float | None = None
    """Wall time for the whole experiment, from its first step; None for one that suits the loop's speed."""
    depth: int = 4
    """Levels of calls to go into, below the dataset and its containers."""
    full: bool = False
    """Measure every rung, whatever the first rounds say."""
    threshold: float = 0.05
    """Share of the loop's time that input may cost before it is called a limit."""
    max_rounds: int = 12
    """Rounds at most."""
    seed: int = 0
    """Seed of the order of rungs within rounds."""
    only_baseline: bool = False
    """Instrument the workers but cache nothing (for the cost of the instruments)."""


class Give(NamedTuple):
    """What the next batch shall be."""

    source: str
    """`loader`, `host`, `device`, or `ahead` for a batch on the host whose copy to the device has begun a step before."""
    generation: int = 0
    """For `loader`: the order under which the batch must have been made, where that can be had."""


class Step(NamedTuple):
    """What the loop made of a batch."""

    wait_ns: int
    """From the loop's request to delivery."""
    body_ns: int
    """From delivery to the next request."""
    is_whole: bool
    """Whether nothing else came between: no end of an epoch, no other loader."""
    telemetry: Telemetry | None
    """How the batch was made, if a worker made it."""


class Spent(NamedTuple):
    """Clocks of the loop's process at one moment, or between two."""

    wall_ns: int
    cpu_ns: int
    collected_ns: int
    """Of the garbage collector."""

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: Spent) -> Spent:
        """From the other to this."""
        return Spent(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


class Bench(Protocol):
    """What the program works on."""

    settings: Settings
    has_fleet: bool
    threads: int
    epoch_length: int | None
    pool_bytes: int
    affinity: list[int]
    machine_cores: list[int]
    cores: float
    can_reorder: bool
    can_pin: bool
    dataset_name: str
    collate_name: str
    collate_source: str | None

    @property
    def workers(self) -> int: ...
    @property
    def cycle(self) -> int: ...
    @property
    def batches_left(self) -> int | None: ...
    @property
    def fleet(self) -> int: ...
    @property
    def has_device(self) -> bool: ...
    @property
    def can_copy_ahead(self) -> bool: ...
    @property
    def has_batches(self) -> bool: ...
    def clock_ns(self) -> int: ...
    def cpu_ns(self) -> int: ...
    def collected_ns(self) -> int: ...
    def allow_collector(self, is_allowed: bool) -> None: ...
    def synchronize(self) -> None: ...
    def issue(self, order: dict[str, Any]) -> int: ...
    @property
    def most_workers(self) -> int: ...
    @property
    def why_no_more_workers(self) -> str | None: ...
    @property
    def start_s(self) -> float: ...
    def use(self, settings: Settings | None) -> bool: ...
    def dismiss(self, settings: Settings) -> None: ...
    def collect_batches(self, *, fewest: bool, more_s: float = 0.0) -> None: ...
    def limit_threads(self, count: int | None) -> None: ...
    def block(self, block: Block) -> None: ...
    def rungs(self, rungs: Sequence[Rung]) -> None: ...
    def stages(self, stages: Sequence[Stage]) -> None: ...
    def batch_size(self, seen: int) -> None: ...
    def heads(self, heads: Sequence[Head]) -> None: ...
    def note(self, note: Note) -> None: ...
    def natural(self, step: Step) -> None: ...
    def body(self, lines: Sequence[BodyLine]) -> None: ...
    def worker_environment(self, facts: dict[str, Any]) -> None: ...
    def body_sampler(self) -> BodySampler: ...
    def sampler_watch(self) -> BodySampler: ...
    def sampler_lines(self, lines: Sequence[BodyLine]) -> None: ...
    def sync_watch(self) -> SyncWatch | None: ...
    def device_profile(self) -> DeviceProfile | None: ...
    def device_busy(self, fraction: float) -> None: ...
    def watch_use(self, steps: int) -> None: ...
    def fill_device(self) -> None: ...
    def audit(self) -> None: ...
    def lean_changes(self) -> tuple[Change, ...]: ...
    def progress(self, text: str) -> None: ...


def trial(settings: Settings) -> Rung:
    """The rung under which the loader has other settings."""
    return Rung(id=f"trial:{settings}", label=str(settings), kind="trial", order=-1, settings=settings)


def program(bench: Bench, options: Options) -> Program:
    """The whole experiment on one loop."""
    return Experiment(bench, options).run()


class Experiment:
    """Blocks under rungs, and how they come about; what to measure is up to `run`, or to another program."""

    def __init__(self, bench: Bench, options: Options) -> None:
        self._bench = bench
        self._options = options
        self._began_ns = bench.clock_ns()
        self._random = random.Random(options.seed)
        self._generation = 0
        self._do_workers_rest = False
        self._pass = 0
        self._period_ns = 0.0
        self._is_starved = False
        self._is_sampler_seen = False
        self.budget_s = options.budget_s or DEFAULT_BUDGET_S
        self._blocks: list[Block] = []
        self._rungs: dict[str, tuple[Rung, str, dict[str, Any]]] = {}
        self._findings: list[Findings] = []
        self._orders: Orders | None = None
        self._repeats: Repeats | None = None
        self._storable: set[str] = set()
        self._filled_fleet = -1
        self._wanted: list[Address] = []
        self._opened: list[Address] = []
        self._addresses: dict[str, Address] = {}
        self._failed: set[str] = set()
        self._nodes: list[plan.Node] = []
        self._body_lines: list[BodyLine] = []

    # The programme -------------------------------------------------------------------------------

    def run(self) -> Program:
        yield from self.warm_up()
        if self._options.only_baseline:
            while True:
                yield from self._give("loader")
        yield from self._collect()
        if self._bench.has_fleet:
            self._bench.progress("looking into the workers")
            yield from self._look()
            self._choose_cuts()
            yield from self._fill()
        self._make_coarse_rungs()
        yield from self._rounds()

    def warm_up(self) -> Program:
        """Some untouched steps, for the loop's speed; everything else follows from it."""
        self._bench.progress("warming up")
        turn = self._turn("loader")
        count = 2 * turn * math.ceil(2 / turn)
        began, waited = self._bench.clock_ns(), 0
        for position in range(count):
            if position == count // 2:
                began = self._bench.clock_ns()
            step = yield from self._give("loader")
            waited += step.wait_ns if position >= count // 2 else 0
            if position >= turn:
                self._bench.natural(step)
            if position > turn and self.elapsed_s() > 0.1 * self.budget_s:
                break
        measured = position + 1 - count // 2
        self._period_ns = (self._bench.clock_ns() - began) / (measured if measured > 0 else position + 1)
        self._is_starved = waited > STARVED * self._period_ns * (position + 1 - count // 2)
        if self._options.budget_s is None:
            wanted = STEPS_NEEDED * self._period_ns / 1e9
            self.budget_s = min(max(DEFAULT_BUDGET_S, wanted), LONGEST_BUDGET_S)

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

    @property
    def _is_slow(self) -> bool:
        """Whether a worker needs so long for a batch that whole batches are not to be wasted."""
        return self._period_ns * max(1, self._bench.workers) > SLOW_S * 1e9

    def _give(self, source: str) -> Generator[Give, Step | None, Step]:
        step = yield Give(source, self._generation)
        assert step is not None
        found = step.telemetry.findings if step.telemetry is not None else None
        if isinstance(found, Orders):
            self._orders = found
        elif isinstance(found, Repeats):
            self._repeats = found
        elif found is not None:
            self._findings.append(found)
        return step

    def elapsed_s(self) -> float:
        """Time since the experiment began."""
        return (self._bench.clock_ns() - self._began_ns) / 1e9

    # Watching ------------------------------------------------------------------------------------

    def _look(self) -> Program:
        """Time samples, going deeper where the time goes, until statements or foreign calls are reached."""
        last = 2 * self._options.depth  # a loop in each call
        for level in range(last + 1):
            yield from self._watch(samples=6, skip=2 if level == 0 else 0, limit=0, wanted=[])
            costs = self._costs()
            call_ns = self._call_ns()
            if level == last or self.elapsed_s() > 0.4 * self.budget_s:
                break
            new = plan.to_open(costs, self._opened, call_ns, self._options.depth) if costs else []
            new += self._to_open_in_collate()
            if not new:
                break
            self._opened += new
        whole_ns = self._call_ns() + self._collation_ns() * self._made_together
        self._nodes = plan.nodes(self._costs(), whole_ns, self._bench.dataset_name)
        self._bench.stages(self._stages())
        self._bench.batch_size(self._batch_size)

    def _watch(
        self, *, samples: int, skip: int, limit: int, wanted: Sequence[Address], limit_bytes: int = 0
    ) -> Program:
        self._pass += 1
        first = len(self._findings)
        is_aside = self._is_slow and self._bench.has_batches and self._bench.workers > 0
        self._issue(
            {
                "mode": "watch", "pass": self._pass, "samples": samples, "skip": skip, "limit": limit,
                "limit_bytes": limit_bytes, "opened": self._opened, "wanted": list(wanted),
                "aside": is_aside,
            }
        )  # fmt: skip
        began = self._bench.clock_ns()
        most = 3 * max(1, self._bench.workers) + 16
        for position in range(100 * most):
            yield from self._give("loader")
            if len(self._findings) - first >= max(1, self._bench.workers):
                break
            is_late = self._bench.clock_ns() - began > WATCH_PATIENCE_S * 1e9
            if position + 1 >= most and (is_late or not is_aside):
                break
        self._fleet_findings = self._findings[first:]

    def _costs(self, *, of_collate: bool = False) -> dict[Address, Any]:
        """Costs by address, of all passes so far; those inside the collate function without their first number."""
        first = 1 if of_collate else 0
        passes: dict[int, list[dict[Address, Any]]] = {}
        for findings in self._findings:
            part = {a[first:]: cost for a, cost in findings.costs.items() if (a[0] == COLLATE) is of_collate}
            if part:
                passes.setdefault(findings.number, []).append(part)
        return plan.unperturbed([parts for _, parts in sorted(passes.items())])

    def _to_open_in_collate(self) -> list[Address]:
        if self._collate_share() < 0.1:
            return []
        opened = [address[1:] for address in self._opened if address[0] == COLLATE]
        costs = self._costs(of_collate=True)
        found = plan.to_open(costs, opened, self._collate_ns(), self._options.depth) if costs else []
        return [(COLLATE, *address) for address in found]

    def _collate_ns(self) -> float:
        return estimate.mean([wall for findings in self._first_collations() for wall in findings.collate_wall_ns])

    def _collation_ns(self) -> float:
        """A sample's part of collating its batch."""
        return self._collate_ns() / self._batch_size

    @property
    def _batch_size(self) -> int:
        """Samples in a batch on average, as the workers saw it."""
        return round(estimate.mean([f.batch_size for f in self._findings if f.batch_size])) or 1

    def _first_collations(self) -> list[Findings]:
        """What the first pass saw of collation: later ones look into it, and slow it down."""
        seen = [findings for findings in self._findings if findings.collate_wall_ns]
        return [findings for findings in seen if findings.number == seen[0].number]

    @property
    def _made_together(self) -> int:
        """Samples that one call of the data set makes, and that what was watched is of: a batch by `__getitems__`, else one."""
        return self._batch_size if any(findings.granularity == "batch" for findings in self._findings) else 1

    def _call_ns(self) -> float:
        """What one call of the data set takes."""
        return estimate.mean([wall for findings in self._findings for wall in findings.sample_wall_ns])

    def _sample_ns(self) -> float:
        """A sample's part of that."""
        return self._call_ns() / self._made_together

    def _stages(self) -> list[Stage]:
        together = self._made_together
        stages = [plan.shared_out(node.stage, together) for node in self._nodes]
        samples = [findings for findings in self._findings if findings.sample_wall_ns]
        walls = tuple(wall // together for findings in samples for wall in findings.sample_wall_ns)
        cpus = tuple(cpu // together for findings in samples for cpu in findings.sample_cpu_ns)
        reason = next((findings.why_whole for findings in self._findings if findings.why_whole), None)
        if not stages and walls:
            stages.append(
                plan.fixed_stage("code", "dataset", wall_ns=walls, cpu_ns=cpus, samples=len(walls), why_whole=reason)
            )
            lines = next((findings.lines for findings in reversed(self._findings) if findings.lines), ())
            stages += plan.sampled_stages(lines, walls)
        first = self._first_collations()
        collate_walls = tuple(wall for findings in first for wall in findings.collate_wall_ns)
        collate_cpus = tuple(cpu for findings in first for cpu in findings.collate_cpu_ns)
        size = self._batch_size
        if collate_walls:
            collate = plan.fixed_stage(
                "collate", self._bench.collate_name, source=self._bench.collate_source, samples=len(collate_walls),
                wall_ns=collate_walls, cpu_ns=collate_cpus,
            )  # fmt: skip
            stages.append(plan.shared_out(collate, size))
            stages += plan.collate_stages(self._costs(of_collate=True), self._collate_ns(), size)
        if self._bench.workers:
            stages.append(plan.fixed_stage("ipc", "transport from the workers"))
        return stages

    def ask_workers(self) -> Generator[Give, Step | None, int]:
        """The most threads that a library uses in one of the workers; 1 where nobody can be asked."""
        if self._bench.has_fleet and self._bench.workers:
            yield from self._watch(samples=1, skip=0, limit=0, wanted=[])
        return max((_threads(findings.environment) for findings in self._findings), default=1)

    # Filling -------------------------------------------------------------------------------------

    def _choose_cuts(self) -> None:
        cuts = plan.cuts_between(self._nodes, minimum=plan.SUSPECT_SHARE)
        self._addresses = {node.stage.id: node.address for node in cuts}
        for node in plan.suspects(self._nodes, 4):
            self._addresses[node.stage.id] = plan.knockable(node.address)
        raw = plan.raw_cut(self._costs(), self._nodes)
        if raw is not None:
            self._addresses["raw"] = raw
        self._wanted = list(dict.fromkeys(self._addresses.values()))

    def _fill(self) -> Program:
        """Fill the pools of the present workers; again for every new fleet."""
        if self._filled_fleet == self._bench.fleet:
            return
        limit_bytes = self._bench.pool_bytes // max(1, len(self._wanted) + 2)
        for _ in range(3):
            fleet = self._bench.fleet
            yield from self._watch(samples=0, skip=0, limit=16, wanted=self._wanted, limit_bytes=limit_bytes)
            if fleet == self._bench.fleet:
                break
        self._filled_fleet = self._bench.fleet
        self._note_refusals()

    def _note_refusals(self) -> None:
        refused = {address: reason for findings in self._fleet_findings for address, reason in findings.refused.items()}
        kept: dict[Address, int] = {}
        for findings in self._fleet_findings:
            for address, count in findings.kept.items():
                kept[address] = min(kept.get(address, count), count)
        for ident, address in list(self._addresses.items()):
            if address in refused or not kept.get(address):
                reason = refused.get(address, "it is not reached by every sample")
                self._bench.note(Note(id="cut-refused", sentence=f"No rung after {ident}: {reason}."))
                del self._addresses[ident]
        for address, rung in (((-1,), SAMPLES), ((-2,), COLLATED)):
            if not kept.get(address):
                self._failed.add(rung.id)
                reason = refused.get(address, "no value could be kept")
                self._bench.note(Note(id="cut-refused", sentence=f"No rung “{rung.label}”: {reason}."))

    # Rungs ---------------------------------------------------------------------------------------

    def _make_coarse_rungs(self) -> None:
        self.add(NONE, "loader", {"mode": "run"})
        if self._bench.has_fleet:
            if "raw" in self._addresses:
                self.add(RAW, "loader", {"mode": "cut", "address": self._addresses["raw"]})
            self.add(SAMPLES, "loader", {"mode": "samples"})
            if self._bench.workers:
                self.add(COLLATED, "loader", {"mode": "collated"})
        if self._bench.has_batches:
            self.add(HOST, "host", {})
            if self._bench.has_device:
                self.add(DEVICE, "device", {})
        if self._options.full:
            self._add_bytes()
            self._add_fine_rungs(all_cuts=True)

    def _add_fine_rungs(self, *, all_cuts: bool) -> None:
        """Knock-outs of the suspects, and the rungs on both sides of each."""
        chain = self._chain()
        top = [node for node in plan.suspects(self._nodes, 3) if node.stage.id in self._addresses]
        for node in top:
            self.add(
                plan.knockout_rung(node.stage),
                "loader",
                {"mode": "knockout", "address": self._addresses[node.stage.id]},
            )
        near = {position for position, node in enumerate(chain) for suspect in top if _is_near(node, suspect)}
        near |= {position - 1 for position in near}
        for position, node in enumerate(chain[:-1] if chain and chain[-1].is_item else chain):
            if all_cuts or position in near:
                self._add_cut(node, position)

    def _chain(self) -> list[plan.Node]:
        """The stages after which values are kept, in pipeline order."""
        cuts = plan.cuts_between(self._nodes, minimum=plan.SUSPECT_SHARE)
        return [node for node in cuts if node.stage.id in self._addresses]

    def _add_cut(self, node: plan.Node, position: int) -> None:
        """The rung after a stage of the chain, unless it is the one before the first transform."""
        address = self._addresses[node.stage.id]
        if address != self._addresses.get("raw"):
            self.add(plan.cut_rung(node, 79 - position), "loader", {"mode": "cut", "address": address})

    def add(self, rung: Rung, source: str, order: dict[str, Any]) -> None:
        """Plan a rung: where its batches come from, and what the workers are told."""
        if rung.id not in self._failed and rung.id not in self._rungs:
            self._rungs[rung.id] = (rung, source, order)
            self._bench.rungs(self.planned)

    @property
    def planned(self) -> list[Rung]:
        """Rungs on the plan."""
        return [rung for rung, _, _ in self._rungs.values()]

    @property
    def blocks(self) -> list[Block]:
        """Blocks measured so far."""
        return self._blocks

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
            names = self._names_of_round(number)
            for name in names:
                if self._is_out_of_time(number) or self._is_time_to_look(number):
                    return
                yield from self.block(name, number)
            if number == 0:
                yield from self._sample_body()
            self._refine(number)
            yield from self._look_at_sampler()
            if number == 1:
                yield from self._add_orders()
                yield from self._look_at_heads()
            if self._is_decided(number):
                return

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

    def _sample_body(self) -> Program:
        """See which lines of the loop body take its time and wait for the device, over unmeasured steps from cache."""
        if HOST.id not in self._rungs:
            return
        source = "device" if DEVICE.id in self._rungs else "host"
        sampler, watch = self._bench.body_sampler(), self._started(self._bench.sync_watch())
        began = self._bench.clock_ns()
        sampler.start()
        steps = 0
        try:
            while steps < 400 and (steps < 2 or self._bench.clock_ns() - began < SAMPLED_S * 1e9):
                yield from self._give(source)
                steps += 1
        finally:
            lines = sampler.stop()
            if watch is not None:
                watch.stop()
        self._body_lines = with_syncs(lines, watch.places if watch is not None else {}, max(1, steps))
        self._bench.body(self._body_lines)
        if source == "device":
            yield from self._profile_device()
        self._bench.audit()

    def _look_at_sampler(self) -> Program:
        """See once which lines of the sampler take its time, if it costs the loop something, over unmeasured steps in which
        nothing is made."""
        if self._is_sampler_seen or self._ratio(HOST.id, NO_LOADING.id) <= 1 + self._options.threshold / 2:
            return
        self._is_sampler_seen = True
        self._issue({"mode": "idle"})
        began = self._bench.clock_ns()
        watch = self._bench.sampler_watch()
        watch.start()
        try:
            while self._bench.clock_ns() - began < SAMPLED_S * 1e9:
                yield from self._give("loader")
        finally:
            self._bench.sampler_lines(watch.stop())

    def _profile_device(self) -> Program:
        """See how much of a step fed from the device the device computes."""
        yield from self._give("device")
        self._bench.synchronize()
        profile = self._started(self._bench.device_profile())
        if profile is None:
            return
        began = self._bench.clock_ns()
        steps = 0
        try:
            while steps < 50 and (steps < 2 or self._bench.clock_ns() - began < 0.3e9):
                yield from self._give("device")
                steps += 1
        finally:
            self._bench.synchronize()
            span_s = (self._bench.clock_ns() - began) / 1e9
            busy_s = self._stopped(profile)
        if busy_s:
            self._bench.device_busy(min(1.0, busy_s / span_s))

    def _started(self, probe: Probe | None) -> Probe | None:
        """The probe, at work; None where it cannot work: then it steps aside."""
        try:
            if probe is not None:
                probe.start()
        except Exception as error:
            self._bench.note(Note(id="probe-failed", sentence=f"{type(probe).__name__} could not start: {error}."))
            return None
        return probe

    def _stopped(self, probe: DeviceProfile) -> float | None:
        try:
            return probe.stop()
        except Exception as error:
            self._bench.note(Note(id="probe-failed", sentence=f"{type(probe).__name__} failed: {error}."))
            return None

    def _is_out_of_time(self, number: int) -> bool:
        is_open = not {HOST.id, NONE.id} <= {block.rung for block in self._blocks}
        grace = 4.0 if is_open else 1.5 if number == 0 else 1.0
        return self.elapsed_s() > grace * self.budget_s

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
        if ratio(HOST.id, COLLATED.id) > 1.05 or self._body_ns(NONE.id) > 1.1 * self._body_ns(HOST.id):
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
        threads = max(_threads(found) for found in facts)
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
        if self._bench.can_reorder and own.in_order and own.num_workers > 1 and self._has_slow_batches():
            self.add(trial(replace(own, in_order=False)), "loader", {"mode": "run"})

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

    @property
    def _one_workers_bytes(self) -> int:
        """Memory for values that only one of the workers keeps."""
        return self._bench.pool_bytes * max(1, self._bench.workers)

    def _heads(self) -> list[Head]:
        """The heads of the pipeline as the worker saw them, the shortest first."""
        raw = self._addresses.get("raw")
        ends: list[tuple[str, Address, str | None]] = []
        for node in self._chain():
            address = self._addresses[node.stage.id]
            ends.append((RAW.id if address == raw else plan.cut_id(node), address, node.stage.id))
        if raw is not None and all(address != raw for _, address, _ in ends):
            after = next((node.stage.id for node in self._nodes if node.address == raw), None)
            ends.append((RAW.id, raw, after))
        seen = self._repeats.found if self._repeats is not None else {}
        return [
            Head(
                rung=rung,
                after=after,
                is_repeatable=seen[address].is_repeatable,
                samples=seen[address].samples,
                bytes_per_sample=seen[address].content_bytes,
                is_seeded=seen[address].is_seeded,
            )
            for rung, address, after in [*sorted(ends, key=lambda end: end[1]), (SAMPLES.id, WHOLE, None)]
            if address in seen
        ]

    def _has_slow_batches(self) -> bool:
        fetches = sorted(fetch for block in self._blocks if block.rung == NONE.id for fetch in block.fetches_ns)
        return len(fetches) >= 4 and fetches[-1] > 3 * fetches[len(fetches) // 4]

    def _collate_share(self) -> float:
        whole = self._sample_ns() * self._batch_size
        return self._collate_ns() / whole if whole else 0.0

    def _body_ns(self, rung: str) -> float:
        return estimate.mean([body for block in self._blocks if block.rung == rung for body in block.bodies_ns])

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

    # Blocks --------------------------------------------------------------------------------------

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
        yield from self._go_on_from_cache(source, wait_ns)
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
        if source != "loader" or (self._is_slow and self._is_starved):
            return 1  # starved workers have nothing ready: the first new batch will do
        return max(1, self._bench.workers)

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


def with_syncs(lines: Sequence[BodyLine], places: Mapping[tuple[str, int], int], steps: int) -> list[BodyLine]:
    """The lines with how often each waited for the device in a step; lines that only wait are added."""
    counts = {f"{filename}:{number}": count / steps for (filename, number), count in places.items()}
    found = [replace(line, syncs=counts.pop(line.source, 0.0)) for line in lines]
    for source, count in counts.items():
        filename, _, number = source.rpartition(":")
        text = linecache.getline(filename, int(number)).strip()
        found.append(BodyLine(source=source, text=text, wall_fraction=0.0, cpu_fraction=0.0, syncs=count))
    return found


def _is_copying(step: Step) -> bool:
    """Whether serving from cache still spends a good part of its time on watched copies, which will end."""
    made = step.telemetry
    return made is not None and made.copied_ns > 0.2 * made.wall_ns


def _threads(facts: Mapping[str, Any]) -> int:
    """The most threads that a library with a setting for it may use in a worker.

    Those of BLAS and OpenMP count where threads work, and not so many that they must be somebody else's.
    """
    own, in_pools, working = (facts.get(name, 0) for name in ("threads", "pool_threads", "working_threads"))
    return max(1, own, in_pools if 0 < working <= 2 * in_pools else 0)


def _is_near(node: plan.Node, suspect: plan.Node) -> bool:
    shorter = min(len(node.address), len(suspect.address))
    return node.address[:shorter] == suspect.address[:shorter]


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


__all__ = ["Bench", "Experiment", "Give", "Options", "Step", "program", "trial"]
