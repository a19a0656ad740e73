"""A bench without loader, worker or clock: steps take the times that a modelled pipeline says, with seeded noise."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from unstarve import law
from unstarve.measure.program import Give, Program, Step
from unstarve.measure.worker import Findings, Telemetry
from unstarve.recording import Block, Head, Note, Rung, Settings, Stage

S = 1_000_000_000


@dataclass(frozen=True)
class Pipeline:
    """A loop by the throughput law, with what the law leaves out."""

    loop: law.Loop
    own: Settings
    stalls: float = 0.0
    """Share of the loop's time lost to batches that wait for a slow one, delivered in order, with a prefetch of 2."""
    contention: float = 0.0
    """How much longer a step from cache takes while the workers are busy, as a share."""
    collecting: float = 0.0
    """Share of making a batch that garbage collections take."""
    facts: dict[str, int] = field(default_factory=lambda: {"affinity": 2, "threads": 1})
    """What workers report of themselves."""
    bursts: float = 0.0
    """Share lost to data that comes in bursts, in any order, with a prefetch of 2."""
    stops: tuple[int, float] = (1 << 30, 0.0)
    """The loop waits so many seconds at every so many batches from the loader."""
    receiving_s: float = 0.0
    """Seconds that receiving a batch from a worker takes of the loop's process."""

    def rate(self, settings: Settings) -> float:
        """Steps per second in the long run."""
        loop, workers = self.loop, settings.num_workers
        wanted = workers * loop.cpu_s / loop.fetch_s + loop.main_cores
        crowd = 1 + 0.03 * max(0.0, wanted - loop.cores)  # each process beyond the cores costs a little
        lost = self.stalls * 2 / settings.prefetch_factor if settings.in_order and workers > 1 else 0.0
        rate = loop.rate(workers) / crowd * (1 - lost) * (1 - self.bursts * 2 / settings.prefetch_factor)
        return 1 / (1 / rate + self.receiving_s) if workers else rate

    def grid(self, most_workers: int) -> list[Settings]:
        """Everything that a full search would try."""
        return [
            Settings(num_workers=workers, prefetch_factor=ahead, in_order=in_order)
            for workers in range(most_workers + 1)
            for ahead in (2, 4, 8)
            for in_order in (True, False)
        ]


@dataclass
class Bench:
    """What `program.Bench` asks for, on a scripted clock."""

    pipeline: Pipeline
    seed: int = 0
    noise: float = 0.03
    most_workers: int = 16
    why_no_more_workers: str | None = None
    epoch_length: int | None = None
    has_device: bool = False
    can_copy_ahead: bool = False
    start_s: float = 0.1
    refused: set[Settings] = field(default_factory=set)
    """Settings whose workers do not even start."""
    dying: set[Settings] = field(default_factory=set)
    """Settings whose workers fail at their first batch."""
    gap_s: float = 0.0
    """Time between epochs."""

    def __post_init__(self) -> None:
        self.settings = self.pipeline.own
        self.cores = self.pipeline.loop.cores
        self.has_fleet, self.can_reorder, self.can_pin = True, True, False
        self.cycle = 1
        self.ahead = 0
        self.threads, self.pool_bytes, self.affinity, self.machine_cores = 1, 1 << 30, [0, 1], [0, 1]
        self.dataset_name, self.collate_name, self.collate_source = "Toy", "default_collate", None
        self.has_batches = False
        self.fleet = 1
        self.now_ns = 0
        self.used: Settings | None = None
        self.orders: list[dict[str, Any]] = []
        self.blocks: list[Block] = []
        self.planned: list[Rung] = []
        self.notes: list[Note] = []
        self.started: Counter[Settings] = Counter()
        self.resting: dict[Settings | None, int] = {}
        self.steps = self.drawn = 0
        self.collector: list[bool] = []
        self.served: list[tuple[str, Settings | None]] = []
        self._random = random.Random(self.seed)
        self._told: set[tuple[int, int, int]] = set()

    # What the programs ask for -------------------------------------------------------------------

    @property
    def workers(self) -> int:
        return (self.used or self.settings).num_workers

    @property
    def batches_left(self) -> int | None:
        return None if self.epoch_length is None else self.epoch_length - self.steps % self.epoch_length

    def clock_ns(self) -> int:
        return self.now_ns

    def cpu_ns(self) -> int:
        return int(self.now_ns * self.pipeline.loop.main_cores)

    def collected_ns(self) -> int:
        return 0

    def allow_collector(self, is_allowed: bool) -> None:
        self.collector.append(is_allowed)

    def issue(self, order: dict[str, Any]) -> int:
        self.orders.append(order)
        return len(self.orders)

    def use(self, settings: Settings | None) -> bool:
        if settings in self.refused:
            return False
        if settings != self.used:
            self.resting[self.used] = self.fleet
            if settings in self.resting:
                self.fleet = self.resting.pop(settings)
            else:
                assert settings is not None
                self.started[settings] += 1
                self.fleet = 1 + sum(self.started.values())
                self.now_ns += int(self.start_s * S)
            self.used = settings
        return True

    def dismiss(self, settings: Settings) -> None:
        assert settings != self.used, "workers were dismissed while at work"
        self.resting.pop(settings, None)

    def collect_batches(self, *, fewest: bool, more_s: float = 0.0) -> int:
        self.has_batches = True
        return 4

    def block(self, block: Block) -> None:
        self.blocks.append(block)

    def rungs(self, rungs: list[Rung]) -> None:
        self.planned = list(rungs)

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def body_sampler(self) -> Bench:
        return self

    def sampler_watch(self) -> Bench:
        return self

    def sampler_lines(self, lines: list[Any]) -> None: ...

    def start(self) -> None:
        """As a sampler of the loop body: nothing to see."""

    def stop(self) -> list[Any]:
        return []

    def sync_watch(self) -> None:
        return None

    def device_profile(self) -> None:
        return None

    def stages(self, stages: list[Stage]) -> None: ...
    def batch_size(self, seen: int) -> None: ...
    def heads(self, heads: list[Head]) -> None: ...
    def synchronize(self) -> None: ...

    def wait(self, wait_s: float) -> None:
        self.now_ns += int(wait_s * S)

    def limit_threads(self, count: int | None) -> None: ...
    def natural(self, step: Step) -> None: ...
    def body(self, lines: list[Any]) -> None: ...
    def worker_environment(self, facts: dict[str, Any]) -> None: ...
    def device_busy(self, fraction: float) -> None: ...

    def watch_use(self, steps: int) -> None: ...

    def fill_device(self) -> None: ...

    def audit(self) -> None: ...

    def lean_changes(self) -> tuple[()]:
        return ()

    def progress(self, text: str) -> None: ...

    # The loop ------------------------------------------------------------------------------------

    def drive(self, program: Program, steps: int = 20_000) -> bool:
        """Run the program as the engine does; whether it came to its end within so many steps."""
        give = next(program, None)
        while give is not None and self.steps < steps:
            try:
                give = program.send(self._step(give))
            except StopIteration:
                return True
        return give is None

    def _step(self, give: Give) -> Step:
        self.steps += 1
        is_first = self.epoch_length is not None and self.steps % self.epoch_length == 0
        if is_first:
            self.now_ns += int(self.gap_s * S)
        if give.source == "loader" and self.used in self.dying:
            self.refused.add(self.used)
            dead = self.used
            self.use(None)
            self.dismiss(dead)
        self.served.append((give.source, self.used))
        order = self.orders[-1] if self.orders else {"mode": "run"}
        is_full = give.source == "loader" and order["mode"] in ("run", "watch")
        rate = self.pipeline.rate(self.used or self.settings) if is_full else 1 / self.pipeline.loop.step_s
        if give.source == "loader" and order["mode"] == "collated" and self.workers:
            rate = 1 / (1 / rate + self.pipeline.receiving_s)
        if order["mode"] == "busy":
            rate /= 1 + self.pipeline.contention
        period = int(S / rate * self._random.lognormvariate(0, self.noise))
        every, stop_s = self.pipeline.stops
        self.drawn += is_full
        period += int(stop_s * S) if is_full and self.drawn % every == 0 else 0
        self.now_ns += period
        body = min(period, int(self.pipeline.loop.step_s * S))
        telemetry = self._telemetry(order) if give.source == "loader" else None
        return Step(period - body + is_first * int(self.gap_s * S), body, not is_first, telemetry)

    def _telemetry(self, order: dict[str, Any]) -> Telemetry:
        loop = self.pipeline.loop
        worker = self.steps % max(1, self.workers)
        slow = 8 if self.pipeline.stalls and self._random.random() < 0.05 else 1
        made = Telemetry(len(self.orders), worker, int(loop.fetch_s * slow * S), int(loop.cpu_s * S))
        made = made._replace(collected_ns=int(self.pipeline.collecting * made.wall_ns))
        key = (self.fleet, worker, order.get("pass", 0))
        if order["mode"] != "watch" or key in self._told:
            return made
        self._told.add(key)
        return made._replace(findings=findings(order, self.pipeline.facts))


def findings(order: dict[str, Any], facts: dict[str, int]) -> Findings:
    """What a worker reports of a data set that cannot be taken apart."""
    is_filling = order["limit"] > 0
    return Findings(
        number=order["pass"], costs={}, collate_wall_ns=(1000,) * 3, collate_cpu_ns=(1000,) * 3,
        sample_wall_ns=(10**6,) * 6, sample_cpu_ns=(10**6,) * 6, refused={},
        kept={(-1,): 16, (-2,): 3} if is_filling else {}, why_whole="it makes samples outside Python", batch_size=8,
        granularity="sample", environment=facts,
    )  # fmt: skip


def with_own(pipeline: Pipeline, **changes: Any) -> Pipeline:
    """The same loop from other settings of the script's own."""
    return replace(pipeline, own=replace(pipeline.own, **changes))
