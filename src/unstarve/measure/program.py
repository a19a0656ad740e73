"""What a programme and the bench that it works on say to each other."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from unstarve.measure.body import BodySampler
from unstarve.measure.cuda import DeviceProfile, SyncWatch
from unstarve.measure.worker import Telemetry
from unstarve.payload import Change
from unstarve.recording import Block, BodyLine, Head, Note, Rung, Settings, Stage

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
    may_load_here: bool = False
    """Whether the loop's own process may make batches that workers make otherwise: what the data set opens there stays open,
    so the script must end with the experiment."""
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
    def epoch_length(self) -> int | None: ...
    @property
    def cycle(self) -> int: ...
    @property
    def ahead(self) -> int: ...
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
    def wait(self, wait_s: float) -> None: ...
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
