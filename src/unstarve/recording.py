"""Facts measured in a live loop, and the file that keeps them. No judgement lives here, and no torch.

Format history
--------------
`unstarve.recording/1`: first version.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstarve.errors import FormatError
from unstarve.payload import Change, Field

SCHEMA = "unstarve.recording/1"

LATE = 3.0
"""A batch is late when it takes so many times as long as usual."""

USED_NS = 300_000
"""A loop that asks for the next batch sooner has done nothing with this one but free its memory, or put it by."""

BRIEF = 2
"""Batches that are taken from an iterator which is made for one step."""

OFTEN = 0.1
"""Waits in a step from which on a line of the loop body takes its time by waiting."""

HALF = 0.5
"""Share from which on a part stands for the whole."""

BUSY = "control:busy"
"""The rung under which batches come from cache while the workers stay busy."""

COLLECTOR_OFF = "trial:collector"
"""The rung under which no process collects garbage."""

FEWEST_ANEW = 4
"""Iterators from which on it is a loop's way to make them in its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Arguments of a `DataLoader` that change how batches are made, not what is in them."""

    num_workers: int
    """Worker processes."""
    prefetch_factor: int = 2
    """Batches ordered ahead for each worker; without workers it means nothing."""
    in_order: bool = True
    """Whether batches are handed out in the order of their indices."""
    pin_memory: bool = False
    """Whether batches are copied to page-locked memory."""
    worker_threads: int | None = None
    """Threads that torch and OpenCV may use in each worker; None for what the workers chose."""

    def changes(self, own: Settings) -> dict[str, Any]:
        """Arguments of a `DataLoader` that must change to come here from `own`."""
        names = ["num_workers", "in_order", "pin_memory"] + (["prefetch_factor"] if self.num_workers else [])
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(own, name)}

    def __str__(self) -> str:
        parts = [f"{self.num_workers or 'no'} worker{'' if self.num_workers == 1 else 's'}"]
        if self.num_workers and self.prefetch_factor != 2:
            parts.append(f"prefetch {self.prefetch_factor}")
        if not self.in_order:
            parts.append("any order")
        if self.pin_memory:
            parts.append("pinned")
        if self.worker_threads is not None:
            parts.append(f"{self.worker_threads} thread{'' if self.worker_threads == 1 else 's'} each")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordering:
    """Another order of a chain of transforms, which gave the same on real samples and took less time."""

    path: tuple[str, ...]
    """How the chain is reached from the dataset, such as `(".transform", ".transforms")`."""
    names: tuple[str, ...]
    """Names of the transforms, in the script's order."""
    order: tuple[int, ...]
    """Their numbers, from 0, in the other order."""
    likeness: str
    """How far both orders gave the same under the same random draws: `exact`, `rounding`, or `border` for all but the
    edge of an image."""
    differing: float = 0.0
    """Share of the values that differed."""
    samples: int
    """Samples that were compared."""
    before_ns: int
    """Median wall time of the chain on one sample, in the script's order."""
    after_ns: int
    """The same in the other order: less what the transforms that get other values in it were seen to save."""
    source: str | None = None
    """`file:line` where the transform that moves is listed, where the chain was found in the source."""
    patch: str | None = None
    """The change of the source as a unified diff, where the chain is written as a plain list."""

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """Numbers of each transform that moves ahead, and of the one that it then comes before."""
        found = []
        for place, step in enumerate(self.order):
            behind = [other for other in self.order[place + 1 :] if other < step]
            if behind:
                found.append((step, behind[0]))
        return tuple(found)

    def __str__(self) -> str:
        return ", ".join(f"{self.names[step]} before {self.names[other]}" for step, other in self.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One configuration of the pipeline: which stages are served from cache instead of run."""

    id: str
    """Unique within a recording, such as `device`, `none`, `after:3.1` or `knockout:3.1`."""
    label: str
    """How a person reads it: "batch cached on the device"."""
    kind: str
    """`device`, `host`, `collated`, `samples`, `cut`, `none`, `knockout`, `control` or `trial`."""
    after: str | None = None
    """Stage whose output is the first that is served from cache; None where no stage is."""
    order: int = 0
    """Position in the ladder, 0 for the earliest served from the device; -1 for rungs beside the ladder."""
    settings: Settings | None = None
    """The loader's settings under a rung that tries others than the script's."""
    reordering: Reordering | None = None
    """The order of transforms under a rung that tries another than the script's."""
    changes: tuple[Change, ...] = ()
    """The fields that are sent as less under a rung that tries a leaner batch."""

    @property
    def rank(self) -> tuple[bool, int]:
        """Sorts rungs for showing: the ladder from the device down, then what stands beside it."""
        return self.order < 0, max(0, self.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A run of consecutive measured steps under one rung, bounded by device synchronisation."""

    rung: str
    """`Rung.id`."""
    round: int
    """Pass over the rungs this block belongs to; contrasts are paired by it."""
    start_ns: int
    """Clock at the block's first delivery, after synchronisation."""
    end_ns: int
    """Clock when the loop asked for the batch after the last one, after synchronisation; less what came between where
    an epoch ended in the block."""
    waits_ns: tuple[int, ...]
    """For each step, how long the loop waited for its batch."""
    bodies_ns: tuple[int, ...]
    """For each step, delivery to the next request: the loop body as the host saw it."""
    main_cpu_ns: int = 0
    """CPU time of the thread that runs the loop, over the block."""
    fetches_ns: tuple[int, ...] = ()
    """For each batch that a worker made, the wall time of making it."""
    fetches_cpu_ns: tuple[int, ...] = ()
    """For each batch that a worker made, the CPU time of making it: of the process, all threads, and of programs that it
    ran to their end."""
    copies_ns: tuple[int, ...] = ()
    """For each batch that a worker made, the wall time that serving from the cache spent on copying."""
    delays_ns: tuple[int, ...] = ()
    """For each batch that a worker made, how long the worker was ready to run but had no core."""
    collections_ns: tuple[int, ...] = ()
    """For each batch that a worker made, what Python's garbage collector took of the time."""
    main_collected_ns: int = 0
    """What the garbage collector of the loop's own process took of the block."""
    workers: tuple[int, ...] = ()
    """For each batch that a worker made, the worker's number."""

    @property
    def steps(self) -> int:
        """Measured steps in the block."""
        return len(self.waits_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A piece of the input pipeline with a cost, as the workers' clocks saw it on timed samples."""

    id: str
    """Address in the pipeline: unit numbers joined by dots, or the name of a fixed stage such as `collate`."""
    kind: str
    """One of the contract's kinds: `read`, `decode`, `transform`, `code`, `collate`, `ipc`, …"""
    name: str
    """A transform's class, a function's name, or the statement itself."""
    source: str | None = None
    """`file:line` of the user's code."""
    text: str | None = None
    """The statement as it stands in the source."""
    parent: str | None = None
    """`Stage.id` of the stage that contains it."""
    callee: str | None = None
    """Name of the function the stage's statement calls, where it was entered."""
    why_whole: str | None = None
    """Why the stage was not taken apart further, where that was tried."""
    samples: int = 0
    """Timed samples behind the figures below. Where a call makes or collates a whole batch, each timing is of a batch, and
    every figure is a sample's part of it."""
    wall_ns: tuple[int, ...] = ()
    """Wall time of each timed sample."""
    cpu_ns: tuple[int, ...] = ()
    """CPU time of each timed sample: of the process, all threads, and of programs that it ran to their end."""
    delay_ns: tuple[int, ...] = ()
    """How long each timed sample was ready to run but had no core."""
    read_bytes: int = 0
    """Bytes that system calls read during the timed samples, page cache included."""
    read_calls: float = 0
    """Read system calls during the timed samples."""
    reading_samples: int | None = None
    """Timed samples that read anything; None where that was not counted."""
    decodes: bool = False
    """Whether the statement calls something that decodes, by its name."""
    faults: int = 0
    """Minor and major page faults during the timed samples."""
    storage_bytes: int | None = None
    """Bytes that the kernel counted as coming from storage during the timed samples, what it read ahead and pages of mapped
    files included; None where that was not looked at. Some file systems count none."""
    is_servable: bool = True
    """Whether it can be served from cache alone; a statement in a loop, or one of several callables to choose from, only with
    all of the loop or the choice."""

    @property
    def waited_ns(self) -> float:
        """How long a sample neither was on a core nor wanted one, on average."""
        waited = sum(self.wall_ns) - sum(self.cpu_ns) - sum(self.delay_ns)
        return max(0, waited) / max(1, len(self.wall_ns))


def find_stage(stages: Sequence[Stage], ident: str | None) -> Stage | None:
    """The stage with this id, if there is one."""
    return next((stage for stage in stages if stage.id == ident), None)


def leaves(stages: Sequence[Stage]) -> list[Stage]:
    """Those of the stages that contain no other of them."""
    parents = {stage.parent for stage in stages}
    return [stage for stage in stages if stage.id not in parents]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One iterator of one loader: what it cost before its first batch, and how far it went."""

    loader: int
    """Number of the loader, in order of first iteration."""
    created_ns: int
    """Clock when the loop asked for the iterator."""
    construct_ns: int
    """Time to make the iterator: sampler set-up and worker start."""
    first_wait_ns: int
    """Time the loop waited for the first batch."""
    batches: int
    """Batches delivered to the loop."""
    wait_ns: int
    """Sum of all waits of this iterator, the first included."""
    ended_ns: int
    """Clock when the iterator ended or was last used."""
    sampler_ns: int = 0
    """Of the above, time in the sampler before its first index."""
    dropped: int = 0
    """Batches at its beginning that the loop dropped unused, as a run does that skips what it had seen before."""
    dropped_ns: int = 0
    """From the request for the iterator to the end of dropping."""
    natural: bool = True
    """Whether it ran as without unstarve: own workers, nothing cached."""
    beside: int = 0
    """Batches that the loop had from other loaders while it was open."""
    wait_cpu_ns: int | None = None
    """CPU time of the waiting thread in `wait_ns`, which is what making the batches took of a core where there are no
    workers; None where it was not clocked."""
    closed_ns: int = 0
    """What ending it took, where the loop let go of it in the middle: its workers, and what its sampler had drawn."""


def begun_share(starts: Sequence[Start]) -> float:
    """Part of what was waited for iterators that passed until their first batches."""
    begun = sum(start.construct_ns + start.first_wait_ns for start in starts)
    return begun / max(1, sum(start.construct_ns + start.wait_ns for start in starts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A loader that the script iterated."""

    number: int
    """In order of first iteration, from 0."""
    name: str
    """Class of the loader and of its dataset."""
    length: int | None = None
    """Batches of one epoch, where known."""
    batch_size: int | None = None
    """Samples of a batch, where known."""
    seen_batch_size: int | None = None
    """Samples of a batch on average, as the workers saw it, where a batch sampler of the user's own does not tell."""
    dataset_length: int | None = None
    """Samples of the data set, where it is indexed and tells."""
    num_workers: int = 0
    """Worker processes."""
    prefetch_factor: int = 2
    """Batches ordered ahead for each worker."""
    persistent_workers: bool = False
    """Whether workers outlive an epoch, as long as the loader does."""
    made: int = 1
    """Loaders that the script made in its place, one after the other."""
    pin_memory: bool = False
    """Whether batches are copied to page-locked memory."""
    start_method: str = "fork"
    """How worker processes start."""
    in_order: bool = True
    """Whether batches are handed out in the order of their indices."""
    source: str | None = None
    """`file:line` where the script makes it, or iterates it where that was not seen."""
    sampler: str | None = None
    """Class of the sampler that gives indices, if it is the user's own."""
    sampler_source: str | None = None
    """`file:line` of that sampler's `__iter__`."""
    kind: str = "map"
    """`map`, `iterable` or `other` (not a DataLoader)."""
    makes_batches: bool = False
    """Whether the data set makes the samples of a batch in one call, by `__getitems__` of its own."""
    most_workers: int | None = None
    """Workers at most that would each give samples of their own: a stream that does not ask which worker it is in gives
    them all in each; None without such a limit."""

    @property
    def keeps_workers(self) -> bool:
        """Whether workers that have started serve all epochs."""
        return self.persistent_workers and self.made == 1

    @property
    def imports_anew(self) -> bool:
        """Whether each iterator starts workers that are no copies of the script's process, and import everything first."""
        return self.num_workers > 0 and not self.keeps_workers and self.start_method != "fork"

    @property
    def samples_per_batch(self) -> int:
        """Samples of a batch, as it was told or seen; 1 where neither is known."""
        return self.batch_size or self.seen_batch_size or 1

    @property
    def samples(self) -> int | None:
        """Samples of the data set, by its own account, or of an epoch; None where neither is known."""
        if self.dataset_length is not None:
            return self.dataset_length
        return self.length * self.batch_size if self.length and self.batch_size else None

    @property
    def settings(self) -> Settings:
        """What the script chose of what could be chosen otherwise."""
        return Settings(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            in_order=self.in_order,
            pin_memory=self.pin_memory,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Everything that runs before a cut point, as it showed itself where some samples were made more than once."""

    rung: str
    """`Rung.id` of the rung that serves what it gives."""
    after: str | None = None
    """`Stage.id` of its last stage; None for the whole of a data set's work on a sample, or where that stage is not shown."""
    is_repeatable: bool
    """Whether it gave the same each time, under other random draws, drew no random numbers itself, and asks for no number
    of an epoch."""
    samples: int
    """Samples that were made."""
    bytes_per_sample: int
    """Bytes of the pixels, numbers and texts that it gives of a sample, on average."""
    is_seeded: bool = False
    """Whether its code seeds a generator itself, so that another epoch may see what these samples did not."""


def collecting(blocks: Sequence[Block]) -> tuple[float, float]:
    """Shares of the time that garbage collections took: of making the batches, and of the loop in its own process."""
    made = sum(sum(block.fetches_ns) for block in blocks)
    span = sum(block.end_ns - block.start_ns for block in blocks)
    in_workers = sum(sum(block.collections_ns) for block in blocks) / max(1, made)
    return in_workers, sum(block.main_collected_ns for block in blocks) / max(1, span)


STALL = 8
"""A batch that is waited for so many times as long as a step usually takes stalls the loop."""


def stalls(blocks: Sequence[Block]) -> list[int]:
    """Places, counted through the blocks, of the batches that were waited for many times as long as a step takes."""
    waits = [wait for block in blocks for wait in block.waits_ns]
    bodies = [body for block in blocks for body in block.bodies_ns]
    periods = [wait + body for wait, body in zip(waits, bodies, strict=True)]
    usual = statistics.median(periods) if periods else 0
    return [place for place, wait in enumerate(waits) if wait > STALL * usual]


LONG = 3
"""A block of the loop as it is that has so many times the steps of others is a long look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLine:
    """A line of the loop body, as a sampling of the loop's thread saw it while batches came from cache."""

    source: str
    """`file:line` of the user's code."""
    text: str
    """The line."""
    wall_fraction: float
    """Share of the body's wall time."""
    cpu_fraction: float
    """Share of the body's wall time in which the thread was on a core there."""
    is_torch: bool = False
    """Whether torch was computing for most of that time."""
    cpu_inclusive: float = 0.0
    """Share of the body's wall time in which the thread was on a core there or in what the line calls, torch aside."""
    busy_inclusive: float = 0.0
    """The same, torch included."""
    wall_inclusive: float = 0.0
    """Share of the body's wall time spent there or in what the line calls."""
    delay_inclusive: float = 0.0
    """Share of the body's wall time in which the thread was there, or in what the line calls, ready to run but without a core;
    0 where the kernel does not say."""
    depth: int = 0
    """Functions of the user's around it, from the loop's own at 0."""
    loop: int = 0
    """Line of the innermost loop statement around it in the same function; 0 where there is none."""
    in_iterator: float = 0.0
    """Share of the body's wall time spent there, or in what the line calls, by a generator of the user's that draws from the
    loader and is drawn from by the loop; at the lines of that generator only."""
    syncs: float = 0.0
    """How often the line waited for the device in a step, where the device can tell; such waits spin on a core."""

    @property
    def rests(self) -> float:
        """Share of the body's wall time in which the thread was there, or in what the line calls, and wanted no core."""
        return max(0.0, self.wall_inclusive - self.busy_inclusive - self.delay_inclusive)

    @property
    def waits_often(self) -> bool:
        """Whether it waits for the device so often that its time is that of waiting, not of work."""
        return self.syncs >= OFTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLine:
    """A line of the user's in which workers were seen while a batch took far longer than usual."""

    source: str
    """`file:line`."""
    text: str
    """The line."""
    wall_ns: int
    """Time spent there in such batches, all workers together, as far as it was seen."""
    cpu_ns: int
    """Of that, on a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLook:
    """The memory of one worker at one moment; levels, or counts from the worker's birth."""

    loader: int
    """Number of the loader that it makes batches for."""
    fleet: int
    """Number of the fleet that it belongs to."""
    worker: int
    """Its number among them."""
    fetches: int
    """Batches that it had made."""
    private_bytes: int
    """Memory that it had written and shared with nobody."""
    shared_bytes: int
    """Written memory that it shared with another process, such as what a fork left in common."""
    minor_faults: int
    """Page faults that read nothing."""
    major_faults: int
    """Page faults that read from storage or swap."""
    system_ns: int
    """CPU time in the kernel."""
    cpu_ns: int
    """CPU time, the kernel's included."""
    delay_ns: int
    """Time in which it was ready to run but had no core."""
    wall_ns: int
    """Wall time of making its batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """How another rank of a distributed training fared while its loop was as the script has it."""

    rank: int
    """Its number."""
    steps: int
    """Steps that were clocked."""
    wait_ns: int
    """What waiting for batches took of them."""
    span_ns: int
    """What they took in all."""


EXPERIMENT_FAILED, DATA_CHANGED = ENDED_BY = ("experiment-failed", "data-changed")
"""Notes that say why a diagnosis ended before its time: a fault of ours, or data of another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the measuring side saw that weakens or explains a figure."""

    id: str
    """Stable name, such as `pool-small`."""
    sentence: str
    """The whole thing in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All facts of one run; everything a report says is derived from them."""

    command: str
    """What was run."""
    created: str
    """ISO 8601 time of the start of the run."""
    loader: Loader | None
    """The loader that was diagnosed."""
    loaders: tuple[Loader, ...] = ()
    """Every loader that the script iterated."""
    rungs: tuple[Rung, ...] = ()
    """Rungs that were measured, in ladder order."""
    blocks: tuple[Block, ...] = ()
    """Measured blocks, in the order they ran."""
    stages: tuple[Stage, ...] = ()
    """Stages found, in pipeline order."""
    heads: tuple[Head, ...] = ()
    """Heads of the pipeline that were looked at, the shortest first."""
    starts: tuple[Start, ...] = ()
    """Iterators, in order of creation."""
    body: tuple[BodyLine, ...] = ()
    """Lines of the loop body that take a good part of it."""
    sampler: tuple[BodyLine, ...] = ()
    """Lines of the sampler, with their shares of its time, where ordering batches takes a good part of the loop's, or
    those of its beginning an epoch, where that takes long."""
    device_busy: float | None = None
    """Share of a step fed from the device in which the device computed or copied, where it can tell."""
    worker_environment: dict[str, Any] = field(default_factory=dict)
    """Affinity and thread counts that the workers reported."""
    late: tuple[SlowLine, ...] = ()
    """Where workers were seen in batches that took far longer than usual, the line that took most first."""
    memory: tuple[MemoryLook, ...] = ()
    """Looks at the workers' memory, in the order they arrived."""
    page_bytes: int = 4096
    """Memory that one page fault provides."""
    memory_stall_ns: int = 0
    """Time in which some process of the machine waited for memory, from the first request for a batch; 0 where the kernel
    does not tell."""
    swapped_bytes: int = 0
    """Memory that the machine read back from swap in that time."""
    other_cores: float = 0.0
    """Cores that processes which are none of the script's used in that time, on average; 0 where that is not known."""
    shared_memory_bytes: int = 0
    """Shared memory that was free for batches; 0 where it is not limited or not known."""
    free_memory_bytes: int = 0
    """Memory that could be used without swapping when the diagnosis ended; 0 where that is not known."""
    natural_period_ns: int = 0
    """Median time of a step before anything was served from cache."""
    steps_total: int = 0
    """Batches handed to the loop, measured or not, until the last block ended."""
    span_ns: int = 0
    """From the start of the run to the end of the diagnosis."""
    loop_ns: int = 0
    """From the first request for a batch to the end of the diagnosis."""
    has_device: bool = False
    """Whether there was an accelerator, or a simulated one, so that the device rung differs from the host rung."""
    payload: tuple[Field, ...] = ()
    """Leaves of the batch, as they were in the batches that were looked at."""
    ranks: tuple[RankWait, ...] = ()
    """The other ranks of a distributed training, as far as they reported."""
    notes: tuple[Note, ...] = ()
    """Observations that qualify the figures."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Machine, versions and settings that the figures depend on."""
    schema: str = SCHEMA
    """Format of the file."""

    @property
    def cores(self) -> float:
        """Cores that the run could use."""
        return float(self.environment.get("cores_available", 1))

    @property
    def batch_bytes(self) -> int:
        """Bytes of all that a batch carries."""
        return sum(field.bytes_per_step for field in self.payload)

    def starts_of(self, loader: Loader) -> list[Start]:
        """Iterators of one loader, in order of creation."""
        return [start for start in self.starts if start.loader == loader.number]

    def starts_beside(self, loader: Loader) -> list[Start]:
        """Iterators of other loaders, but for those that were done with before this one began: an evaluation of the
        untrained model, say, happens once in a run."""
        began = min((start.created_ns for start in self.starts_of(loader)), default=0)
        return [start for start in self.starts if start.loader != loader.number and start.ended_ns > began]

    def save(self, path: str | Path) -> None:
        """Write the recording as JSON.

        Raises:
            OSError: the file cannot be written.
        """
        Path(path).write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")


def load(path: str | Path) -> Recording:
    """The recording stored at `path`.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not a recording, or of a version this release does not know.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path} is not a recording: expected JSON with the schema {SCHEMA!r} ({error}).") from None
    return from_json(data, str(path))


def from_json(data: Any, where: str = "the data") -> Recording:
    """The recording described by a decoded JSON document.

    Raises:
        FormatError: as for `load`.
    """
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        hint = (
            " It is a report; pass the file written by --save instead."
            if str(found).startswith("unstarve.report/")
            else ""
        )
        raise FormatError(f"{where} has the schema {found!r}, expected {SCHEMA!r}.{hint}")
    try:
        return _build(Recording, data)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise FormatError(f"{where} claims the schema {SCHEMA!r} but does not follow it: {error}.") from None


def _build(kind: Any, value: Any) -> Any:
    """`value` as the annotated type `kind`: dataclasses from dicts, tuples from lists, the rest checked and as it is."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _build(hints[name], item) for name, item in value.items() if name in hints})
    origin = typing.get_origin(kind)
    if origin is tuple:
        return tuple(_build(typing.get_args(kind)[0], item) for item in value)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _build(next(option for option in typing.get_args(kind) if option is not type(None)), value)
    plain = origin or kind
    if plain is not Any and not isinstance(value, plain) and not (plain is float and isinstance(value, int)):
        raise TypeError(f"expected {plain.__name__}, got {value!r:.60}")
    return value
