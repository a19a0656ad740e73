"""What happens inside a worker: fetch a batch as the current order says, and send back how it went.

Nothing of the user's is patched: variants of the dataset's functions are called beside the originals, and under the
order `run` the original fetcher runs untouched. Only what opens files is replaced, during fetches under the order `reads`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch._utils import ExceptionWrapper
from torch.utils.data import Subset, _DatasetKind, default_collate, get_worker_info

from unstarve.measure import environment, lean, threads
from unstarve.measure.body import BodySampler
from unstarve.measure.counters import RunDelay, cpu_ns
from unstarve.measure.cuts import split, values
from unstarve.measure.cuts.observer import Cost, Observer
from unstarve.measure.cuts.pool import Pool
from unstarve.measure.cuts.resolving import is_library, resolve
from unstarve.measure.cuts.scout import Scout
from unstarve.measure.cuts.server import Server
from unstarve.measure.cuts.split import Address, Unsplittable
from unstarve.measure.cuts.stream import OPAQUE_SHARE, Effects, Place, Serving, Stream, StreamObserver, is_sole
from unstarve.measure.heads import SAMPLES, Making, Repeats, repeated
from unstarve.measure.memory import COLLECTOR, Look, MemoryWatch
from unstarve.measure.reads import KEPT_SAMPLES, Reads, Unkept
from unstarve.measure.reorder import Arrangement, Orders, Search
from unstarve.measure.slow import Late, LateWatch
from unstarve.measure.switchboard import Switchboard
from unstarve.recording import BodyLine
from unstarve.script import user_part

BATCH_POOL = 3
"""Collated batches kept in each worker: enough to vary, few enough to fit."""

COPIES_SHARE = 0.25
"""Share of the free memory that copies of a batch's samples may take in all workers together; views may drag a large
storage along with each."""

COPIES_UNASKED_BYTES = 1 << 26
"""Copies so small are made without asking how much memory is free."""

SAMPLED_NS = 400_000_000
"""Time to sample a data set that cannot be taken apart: some eight hundred looks at what it does."""

SAMPLED_BATCHES = 5
"""Batches after which sampling ends all the same: the experiment does not wait for ever."""

SAMPLED_EVERY_S = 0.0005
"""Between two looks: a few small batches may be all that there is to see."""

SCARCE_VALUES = 4
"""Samples timed, and values kept, where every batch gives only one: the function makes whole batches."""

COLLATE = -3
"""First number of addresses inside the collate function."""

PATIENCE_NS = 3_000_000_000
"""Watching or filling stops after this long in one worker, once it has a minimum of samples."""


class Telemetry(NamedTuple):
    """How one batch was made; a tuple, since one is made, sent and read back for every batch."""

    generation: int
    """Order it was made under."""
    worker: int
    """Number of the worker; -1 for the main process."""
    wall_ns: int
    """Wall time of making it."""
    cpu_ns: int
    """CPU time of making it, as `counters.cpu_ns` tells it."""
    copied_ns: int = 0
    """Of the wall time, what serving from pools spent on copying."""
    delay_ns: int = 0
    """Of the wall time, how long the worker was ready to run but had no core."""
    findings: Findings | Orders | Repeats | None = None
    """Result of watching, of looking for other orders, or of making samples again, on the batch that completed it."""
    failure: str | None = None
    """Why the order could not be carried out; the batch was made as without it."""
    collected_ns: int = 0
    """Of the wall time, what Python's garbage collector took."""
    looks: tuple[Look, ...] = ()
    """Looks at the worker's memory since the last that were sent."""
    late: tuple[Late, ...] = ()
    """Where the batch was seen, if it took far longer than usual."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What one worker learnt by watching samples."""

    number: int
    """Which pass of watching."""
    costs: dict[Address, Cost]
    """Units by address."""
    collate_wall_ns: tuple[int, ...]
    """Wall time of each collate call."""
    collate_cpu_ns: tuple[int, ...]
    """CPU time of each collate call."""
    sample_wall_ns: tuple[int, ...]
    """Wall time of each sample, unwatched where the dataset cannot be taken apart."""
    sample_cpu_ns: tuple[int, ...]
    """CPU time of each sample."""
    refused: dict[Address, str]
    """Cut points or calls that could not be used, with the reason."""
    kept: dict[Address, int]
    """Values kept at each cut point."""
    why_whole: str | None
    """Why the dataset's own code could not be taken apart."""
    batch_size: int
    """Samples of the batches seen."""
    granularity: str
    """`sample` or `batch`: what one call of the watched function makes."""
    environment: dict[str, Any]
    """Affinity and thread counts of the worker, with its first pass; finding them out takes milliseconds."""
    lines: tuple[BodyLine, ...] = ()
    """Lines of the data set's code, by sampling, where it could not be taken apart."""


TAG = "unstarve:tagged"
"""First item of what travels in place of a batch; the second is the batch, the third its telemetry.

A tuple of plain values, since a class of ours would cost its pickling in every batch three times what the batch does,
and since the thread that pins batches knows tuples.
"""


def untagged(item: Any) -> tuple[Any, Telemetry | None]:
    """The batch in what a worker sent, and how it was made."""
    if type(item) in (tuple, list) and len(item) == 3 and type(item[0]) is str and item[0] == TAG:
        made = Telemetry._make(item[2])
        try:
            return lean.unpacked(item[1]), made
        except Exception as error:  # the device may have no room for it, or lack the type
            failure = f"{type(error).__name__}: {error}"
            return lean.unpacked(item[1], on_host=True), made._replace(failure=failure)
    return item, None


class Token:
    """Stands for a batch that a worker made and kept to itself."""


class WorkerInit:
    """The user's `worker_init_fn`, then ours; picklable if the user's is."""

    def __init__(self, board: Switchboard, user: Callable[[int], Any] | None) -> None:
        self._board = board
        self._user = user

    def __call__(self, worker_id: int) -> None:
        if self._user is not None:
            self._user(worker_id)
        COLLECTOR.allow(True)  # the parent's may be off for a trial
        COLLECTOR.start()
        instruments = Instruments(self._board, worker_id)
        original = _DatasetKind.create_fetcher

        def create(kind: Any, dataset: Any, *rest: Any) -> Any:
            fetcher = original(kind, dataset, *rest)
            info = get_worker_info()
            is_own = info is not None and info.dataset is dataset  # and not of a loader that the data set iterates
            return instruments.attach(fetcher) if is_own else fetcher

        _DatasetKind.create_fetcher = staticmethod(create)  # type: ignore[method-assign]  # this process ends with its loader


class Instruments:
    """Everything unstarve keeps in one process that makes batches: pools, servers, the observer."""

    def __init__(self, board: Switchboard, worker_id: int) -> None:
        self._board = board
        self._worker = worker_id
        self._fetcher: Any = None
        self._pools: dict[Address, Pool] = {}
        self._chains: dict[Address, Any] = {}
        self._why_not_alone: dict[Address, str] = {}
        """For statements of a stream, why they must not be served alone."""
        self._servers: dict[tuple[Address, bool], Server] = {}
        self._sample_pool = Pool()
        self._batch_pool = Pool(always_copy=True)
        self._reads: Reads | None = None
        self._recent: deque[Any] = deque(maxlen=KEPT_SAMPLES)
        self._scout = Scout()
        self._stream: Stream | None = None
        self._effects: dict[Place, Effects] = {}
        self._why_no_stream: str | None = None
        self._watch: _Watch | None = None
        self._failure: str | None = None
        self._generation = 0
        self._run_delay = RunDelay()
        self._memory = MemoryWatch(self._run_delay) if worker_id >= 0 else None
        self._late = LateWatch() if worker_id >= 0 else None
        self._thread_limit = threads.Limit()
        self._own_cores: list[int] = []
        self._arrangement = Arrangement()
        self._search: Search | None = None
        self._has_searched = False
        self._again: list[Any] = []
        self._has_repeated = False
        self._told: Orders | Repeats | None = None

    def attach(self, fetcher: Any) -> Instruments:
        """Stand in for `fetcher`; called again when persistent workers start another epoch."""
        self._fetcher = fetcher
        self._stream = None
        if hasattr(fetcher, "dataset_iter"):
            self._switch(fetcher)
        if self._watch is not None:
            self._watch.go_on_with(self._stream)
        return self

    def _switch(self, fetcher: Any) -> None:
        """Have the data set's generator run step by step, if it has one that nobody else holds."""
        try:
            if not is_sole(fetcher):
                raise Unsplittable("its iterator is kept elsewhere too")
            self._stream = fetcher.dataset_iter = Stream(fetcher.dataset, fetcher.dataset_iter, self._effects)
        except Exception as error:  # whatever it is, the data set does without
            self._why_no_stream = str(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_fetcher"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What is set from outside, such as a restored `dataset_iter`, is meant for the fetcher."""
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._fetcher, name, value)

    def fetch(self, index: Any) -> Any:
        """A tagged batch for `index`, made as the switchboard says."""
        generation, order = self._board.read()
        if generation != self._generation:
            self._generation = generation
            with contextlib.suppress(OSError):  # cores that this process may not use: the trial changes nothing then
                self._try_settings(order)
            self._arrangement.undo()
        began, cpu, delay = time.perf_counter_ns(), cpu_ns(), self._run_delay.read_ns()
        collected = COLLECTOR.ns
        is_plain = order["mode"] == "run"
        copied = 0 if is_plain else self._copied_ns()
        if self._failure is not None:
            self._failure = None
        findings: Findings | Orders | Repeats | None = None
        late = self._late if is_plain else None
        if late is not None:
            late.begin(began)
        try:
            data = self._fetcher.fetch(index) if is_plain else self._carry_out(order, index)
            if order["mode"] == "watch" and self._watch is not None:
                findings = self._watch.take_findings()
            elif self._told is not None:
                findings, self._told = self._told, None
        except StopIteration:
            self._abandon(late)
            raise
        except Exception:
            self._abandon(late)
            if self._worker < 0:
                raise
            return _wrapped_exception(self._worker)
        wall, used = time.perf_counter_ns() - began, cpu_ns() - cpu
        copied = 0 if is_plain else self._copied_ns() - copied
        delay = self._run_delay.read_ns() - delay
        collected = COLLECTOR.ns - collected
        looks = self._memory.after(wall) if self._memory is not None else ()
        seen = late.end(wall) if late is not None else ()
        made = (generation, self._worker, wall, used, copied, delay, findings, self._failure, collected, looks, seen)
        return TAG, data, made

    @staticmethod
    def _abandon(late: LateWatch | None) -> None:
        if late is not None:
            late.abandon()

    def _try_settings(self, order: dict[str, Any]) -> None:
        """Take over settings that the order tries in this worker, or go back to the worker's own."""
        if self._worker >= 0:
            COLLECTOR.allow(order.get("collector") != "off")
        if self._worker < 0:
            return
        self._thread_limit.set(order.get("worker_threads"))
        if hasattr(os, "sched_setaffinity"):
            self._bind(order)

    def _bind(self, order: dict[str, Any]) -> None:
        """Run on the cores that the order tries, on one core of this worker's own, or again on the worker's own cores."""
        is_tried = "affinity" in order or order.get("is_on_one_core", False)
        if not (is_tried or self._own_cores):
            return
        own = self._own_cores = self._own_cores or sorted(os.sched_getaffinity(0))
        single = [own[self._worker % len(own)]] if order.get("is_on_one_core") else own
        threads.set_affinity(order.get("affinity", single))
        if not is_tried:
            self._own_cores = []

    def _copied_ns(self) -> int:
        kept_ns = self._reads.kept_ns if self._reads is not None else 0
        pools = (self._sample_pool, self._batch_pool, *self._pools.values())
        return kept_ns + sum(pool.copied_ns for pool in pools)

    def _carry_out(self, order: dict[str, Any], index: Any) -> Any:
        mode = order["mode"]
        if mode == "watch":
            return self._watched(order, index)
        try:
            return getattr(self, f"_serve_{mode}")(order, index)
        except StopIteration:
            raise
        except Exception as error:  # ours or the user's: the plain fetch decides, and raises the user's own
            self._failure = str(error) if isinstance(error, Unsplittable) else f"{type(error).__name__}: {error}"
            return self._fetcher.fetch(index)

    # Orders --------------------------------------------------------------------------------------

    def _serve_samples(self, order: dict[str, Any], index: Any) -> Any:
        samples = self._served_samples(index)
        batch = self._fetcher.collate_fn(samples)
        self._sample_pool.settle(batch)
        return batch

    def _served_samples(self, index: Any) -> Any:
        if not self._fetcher.auto_collation or _root(self._fetcher).granularity == "batch":
            return self._sample_pool.serve()
        if self._fetcher.collate_fn is default_collate:
            self._sample_pool.trust()
        _check_memory(self._sample_pool, index)
        return [self._sample_pool.serve() for _ in index]

    def _serve_collated(self, order: dict[str, Any], index: Any) -> Any:
        return self._batch_pool.serve()

    def _serve_cut(self, order: dict[str, Any], index: Any) -> Any:
        return self._serve_at(order, index, resume=True)

    def _serve_knockout(self, order: dict[str, Any], index: Any) -> Any:
        return self._serve_at(order, index, resume=False)

    def _serve_at(self, order: dict[str, Any], index: Any, *, resume: bool) -> Any:
        if hasattr(self._fetcher, "dataset_iter"):
            return self._serve_stream(order, index, resume=resume)
        return self._serve_through(self._server(order, resume=resume), index)

    def _serve_stream(self, order: dict[str, Any], index: Any, *, resume: bool) -> Any:
        fetcher, stream = self._fetcher, self._stream
        if stream is None or fetcher.dataset_iter is not stream:
            raise Unsplittable("the iterator of the data set was exchanged meanwhile")
        address = tuple(order["address"])
        if address in self._why_not_alone and not resume:
            raise Unsplittable(self._why_not_alone[address])
        pool = self._pools[address]
        _check_memory(pool, index if fetcher.auto_collation else [index])
        stream.serve(Serving(address, pool, resume))
        try:
            samples = _drawn(fetcher, index, lambda: next(stream))
        finally:
            stream.serve(None)
        batch = fetcher.collate_fn(samples)
        pool.settle(batch)
        return batch

    def _serve_uncollated(self, order: dict[str, Any], index: Any) -> Any:
        """Samples made, the collated batch from cache: the loop's speed if collation were free."""
        self._samples(index)
        return self._batch_pool.serve()

    def _serve_token(self, order: dict[str, Any], index: Any) -> Any:
        """Everything made, nothing sent: the loop's speed if transport were free."""
        self._fetcher.fetch(index)
        return Token()

    def _serve_idle(self, order: dict[str, Any], index: Any) -> Any:
        """Nothing made, nothing sent: what ordering batches costs by itself."""
        return Token()

    def _serve_reads(self, order: dict[str, Any], index: Any) -> Any:
        """Everything made, from files in memory: the loop's speed if reading from storage were free."""
        fetcher = self._fetcher
        if hasattr(fetcher, "dataset_iter"):
            raise Unkept("an iterable data set cannot be asked for the same samples again")
        if self._reads is None:
            self._reads = Reads(order["limit_bytes"])
        by_sample = fetcher.auto_collation and _root(fetcher).granularity == "sample"
        recent = self._recent if by_sample or not fetcher.auto_collation else ()
        return self._reads.fetch(fetcher, index, list(recent), by_sample=by_sample)

    def _serve_busy(self, order: dict[str, Any], index: Any) -> Any:
        """The batch made over and over and thrown away, until there is another order: what real work takes of cores,
        caches and memory. The time limit is for a main process that dies; a batch that cannot be made ends it too."""
        deadline = time.perf_counter_ns() + order["limit_ns"]
        while time.perf_counter_ns() < deadline and self._board.read()[0] == self._generation:
            try:
                self._fetcher.fetch(index)
            except Exception:  # nobody gets this batch; the loop meets the user's own error where it would without us
                break
        return Token()

    def _serve_reorder(self, order: dict[str, Any], index: Any) -> Any:
        """Everything made, with the transforms of one chain in another order."""
        try:
            self._arrangement.put(self._fetcher.dataset, order["path"], order["order"])
            return self._fetcher.fetch(index)
        except BaseException:
            self._arrangement.undo()
            raise

    def _serve_lean(self, order: dict[str, Any], index: Any) -> Any:
        """Everything made, and sent as less."""
        batch = self._fetcher.fetch(index)
        try:
            return lean.packed(batch, order["changes"])
        except Exception as error:  # the batch is made, and goes as it is
            self._failure = f"{type(error).__name__}: {error}"
            return batch

    def _serve_commute(self, order: dict[str, Any], index: Any) -> Any:
        """Everything made; meanwhile the first worker looks for other orders of transforms on its samples.

        The other workers have no part in it, a process that loads for itself has no copy of the dataset to try them on,
        and a stream could not give a sample again if that failed.
        """
        if self._worker != 0 or self._has_searched:
            return self._fetcher.fetch(index)
        if hasattr(self._fetcher, "dataset_iter"):
            self._has_searched, self._told = True, Orders(())
            return self._fetcher.fetch(index)
        search = self._search = self._search or Search(self._fetcher.dataset, order["limit_bytes"])
        try:
            batch = search.follow(lambda: self._fetcher.fetch(index))
        except Exception:  # a chain that cannot be looked at; the plain fetch decides
            self._has_searched, self._told = True, Orders(())
            raise
        if search.has_enough:
            self._has_searched, self._told = True, search.orders()
        return batch

    def _serve_heads(self, order: dict[str, Any], index: Any) -> Any:
        """Everything made; beside that the first worker makes some of the samples again, to see how much of the way to them
        gives the same. A stream could not give a sample again."""
        batch = self._fetcher.fetch(index)
        if self._worker <= 0 and not self._has_repeated:
            making = self._making(order)
            self._again += index if making is not None else ()
            if making is None or len(self._again) >= SAMPLES:
                self._has_repeated, self._told = True, _repeats(making, self._again)
        return batch

    def _making(self, order: dict[str, Any]) -> Making | None:
        """How single samples are made; None where they are not made by a function of Python's, one at a time."""
        root = _root(self._fetcher)
        if root.function is None or root.granularity != "sample" or not self._fetcher.auto_collation:
            return None
        opened = [tuple(address) for address in order["opened"] if address[0] != COLLATE]
        wanted = [tuple(address) for address in order["wanted"]]
        return Making(root.function, self._fetcher.dataset, opened, wanted, self._scout.known, order["limit_bytes"])

    def _serve_through(self, server: Server, index: Any) -> Any:
        fetcher = self._fetcher
        if fetcher.auto_collation and _root(fetcher).granularity == "sample":
            _check_memory(server.pool, index)
            data = [server.run((fetcher.dataset, item)) for item in index]
        else:
            data = server.run((fetcher.dataset, index))
        batch = fetcher.collate_fn(data)
        server.pool.settle(batch)
        return batch

    def _server(self, order: dict[str, Any], *, resume: bool) -> Server:
        address = tuple(order["address"])
        key = (address, resume)
        if key not in self._servers:
            self._servers[key] = Server(self._pools[address], self._chains[address], resume=resume)
        return self._servers[key]

    def _samples(self, index: Any) -> Any:
        """The batch's samples before collation, as the original fetcher would make them."""
        fetcher = self._fetcher
        dataset = fetcher.dataset
        if hasattr(fetcher, "dataset_iter"):
            return _drawn(fetcher, index, lambda: next(fetcher.dataset_iter))
        if not fetcher.auto_collation:
            return dataset[index]
        if getattr(dataset, "__getitems__", None):
            return dataset.__getitems__(index)
        return [dataset[item] for item in index]

    # Watching ------------------------------------------------------------------------------------

    def _watched(self, order: dict[str, Any], index: Any) -> Any:
        if self._watch is None or self._watch.number != order["pass"]:
            stream = self._stream if self._stream is getattr(self._fetcher, "dataset_iter", None) else None
            is_untold = self._watch is None or self._watch.owes_environment
            self._watch = _Watch(order, self._fetcher, self._worker, self._scout, stream, self._why_no_stream)
            self._watch.tells_environment = is_untold
            self._watch.begin(self._sample_pool, self._batch_pool)
        self._recent.extend(index if self._fetcher.auto_collation else [index])
        watch = self._watch
        if watch.is_done:
            return Token() if watch.is_aside else self._fetcher.fetch(index)
        try:
            batch = watch.fetch(self._fetcher, index)
        except Exception:
            if not watch.is_aside:
                raise
            watch.is_aside = watch.is_done = False  # collating a few samples over and over may be what failed
            return self._fetcher.fetch(index)
        if watch.is_done:
            self._pools.update(watch.pools)
            self._chains.update(watch.chains)
            self._why_not_alone.update(watch.why_not_alone)
        return Token() if watch.is_aside else batch


def _repeats(making: Making | None, indices: list[Any]) -> Repeats:
    try:
        return repeated(making, indices) if making is not None else Repeats({})
    except Exception:  # the user's code, or what watches it, may fail on a sample that was made before
        return Repeats({})


def _check_memory(pool: Pool, index: Any) -> None:
    """Refuse to serve copies that would not fit into memory.

    Raises:
        Uncopyable: they would not.
    """
    copies = pool.mean_bytes * len(index) if pool.is_copying else 0
    info = get_worker_info()
    workers = info.num_workers if info is not None else 1
    if copies > COPIES_UNASKED_BYTES and copies * workers > environment.memory_bytes() * COPIES_SHARE:
        raise values.Uncopyable("copies of a batch's samples would take too much memory")


@dataclass(frozen=True, slots=True)
class _Root:
    """The outermost function of the user's that makes samples."""

    function: Any
    """The function, or None where there is no Python function."""
    granularity: str
    """`sample` or `batch`."""
    reason: str | None = None
    """Why there is none."""


def _root(fetcher: Any) -> _Root:
    dataset = fetcher.dataset
    if not hasattr(fetcher, "auto_collation") or hasattr(fetcher, "dataset_iter"):
        return _Root(None, "sample", "its iterator cannot be taken apart")
    if fetcher.auto_collation and makes_batches(dataset):
        function = getattr(type(dataset), "__getitems__", None)
        granularity = "batch"
    else:
        function = getattr(type(dataset), "__getitem__", None)
        granularity = "sample"
    if type(function) is not types.FunctionType:  # nor a proxy that claims to be one
        return _Root(None, granularity, f"{type(dataset).__name__} makes samples outside Python")
    return _Root(function, granularity)


def _splittable(root: _Root) -> _Root:
    """The function, unless it cannot be taken apart; then its lines are sampled, as where there is none."""
    try:
        if root.function is not None:
            split.split(root.function)
    except Unsplittable as error:
        return _Root(None, root.granularity, str(error))
    return root


def makes_batches(dataset: Any) -> bool:
    """Whether it makes the samples of a batch in one call; those of a plain subset are just single items, which can be
    watched one by one."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))


class _Watch:
    """One pass of watching in one worker: time some samples, keep values at the wanted cut points."""

    def __init__(
        self,
        order: dict[str, Any],
        fetcher: Any,
        worker: int,
        scout: Scout,
        stream: Stream | None,
        why_no_stream: str | None,
    ) -> None:
        self.number = order["pass"]
        self._worker = worker
        self._scout = scout
        self._stream = stream
        self._root = _splittable(_root(fetcher))
        is_scarce = self._root.granularity == "batch" or not fetcher.auto_collation
        most = SCARCE_VALUES if is_scarce else 1 << 30
        self._target = min(order["samples"], most)
        self._wanted = [tuple(address) for address in order["wanted"]]
        self._limit = min(order["limit"], most)
        self._limit_bytes = order["limit_bytes"]
        opened = [tuple(address) for address in order["opened"]]
        observer = Observer if stream is None else StreamObserver
        inside = [a for a in opened if a[0] != COLLATE]
        self._observer: Any = observer(inside, self._wanted, self._limit, scout.known, self._limit_bytes)
        self._collate_observer = Observer([a[1:] for a in opened if a[0] == COLLATE])
        self._collate_call = _own_function(fetcher.collate_fn)
        self._skip = min(order["skip"], 1) if is_scarce else order["skip"]
        self._seen = 0
        self._deadline = time.perf_counter_ns() + PATIENCE_NS
        self._samples: list[tuple[int, int]] = []
        self._collates: list[tuple[int, int]] = []
        self._why_whole = (why_no_stream or self._root.reason) if stream is None else None
        self._batch_size = 0
        self._reported = False
        is_sampled = self._root.function is None and stream is None and not self._limit
        self._sampler = BodySampler(SAMPLED_EVERY_S, with_stages=True) if is_sampled else None
        self._sampled_ns = 0
        self.tells_environment = True
        """Whether its findings say how the process is set up."""
        self.is_done = False
        self.is_aside = order["aside"] and fetcher.auto_collation and self._root.granularity == "sample"
        """Whether the batch is not for the loop, so that only as many samples are made as are to be watched."""
        self.is_aside = self.is_aside and self._root.function is not None

    @property
    def pools(self) -> dict[Address, Pool]:
        """Filled pools by cut point."""
        return {a: pool for a, pool in self._observer.pools.items() if len(pool) and a not in self._observer.refused}

    @property
    def chains(self) -> dict[Address, Any]:
        """Functions on the way to each cut point."""
        return self._observer.chains

    @property
    def owes_environment(self) -> bool:
        """Whether it was to say how the process is set up, and has not come to its end yet."""
        return self.tells_environment and not self._reported

    @property
    def why_not_alone(self) -> dict[Address, str]:
        """For statements of a stream, why they must not be served alone."""
        return self._observer.why_not_alone if isinstance(self._observer, StreamObserver) else {}

    def begin(self, sample_pool: Pool, batch_pool: Pool) -> None:
        """Fill these pools too."""
        self._sample_pool, self._batch_pool = sample_pool, batch_pool

    def fetch(self, fetcher: Any, index: Any) -> Any:
        """A batch made as the original fetcher would, watched."""
        began = time.perf_counter_ns()
        if self._sampler is not None:
            self._sampler.start()
        try:
            return self._fetch(fetcher, index)
        finally:
            if self._sampler is not None:
                self._sampler.pause()
            self._sampled_ns += time.perf_counter_ns() - began
            self._finish_if_enough()

    def _fetch(self, fetcher: Any, index: Any) -> Any:
        if hasattr(fetcher, "dataset_iter"):
            samples = self._fetch_iterable(fetcher, index)
        elif not fetcher.auto_collation:
            samples = self._sample(fetcher.dataset, index)
        elif self._root.granularity == "batch":
            samples = self._sample(fetcher.dataset, index, many=True)
        else:
            samples = self._some_samples(fetcher.dataset, index)
        self._batch_size = len(index) if fetcher.auto_collation else 1
        before, cpu, overhead = time.perf_counter_ns(), cpu_ns(), self._collate_observer.overhead_ns
        batch = self._collate(fetcher.collate_fn, samples)
        overhead = self._collate_observer.overhead_ns - overhead
        wall, used = time.perf_counter_ns() - before, cpu_ns() - cpu
        self._collates.append((max(1, wall - overhead), max(1, used - overhead)))
        self._keep(self._batch_pool, batch, BATCH_POOL if self._limit else 0)
        return batch

    def _some_samples(self, dataset: Any, index: Any) -> list[Any]:
        """The samples of a batch; of one that nobody gets, only those that are watched, over and over."""
        samples: list[Any] = []
        for item in index:
            if self.is_aside and samples and (self._has_enough() or self._is_late()):
                break
            samples.append(self._sample(dataset, item))
        return [samples[position % len(samples)] for position in range(len(index))]

    def _collate(self, collate: Callable[[Any], Any], samples: Any) -> Any:
        """The batch; watched statement by statement where the collate function is the user's own."""
        if self._collate_call is None or self._limit:
            return collate(samples)
        function, bound = self._collate_call
        try:
            return self._collate_observer.run(function, (*bound, samples))
        except Exception:  # ours or the user's: collating plainly decides
            self._collate_call = None
            return collate(samples)

    def _fetch_iterable(self, fetcher: Any, index: Any) -> Any:
        return _drawn(fetcher, index, lambda: self._timed(lambda: self._draw(fetcher.dataset_iter)))

    def _draw(self, iterator: Any) -> Any:
        """The next sample of an iterable data set, watched step by step where it can be."""
        if self._stream is None or self._has_enough():
            return next(iterator)
        draw = functools.partial(next, iterator)
        if not self._scout.is_done:
            return self._scout.follow(draw)
        return self._observer.watch(self._stream, draw, record=self._seen >= self._skip)

    def go_on_with(self, stream: Stream | None) -> None:
        """Another epoch has begun: the old stream is the loop's to close."""
        self._stream = stream if self._stream is not None else None

    def _sample_instead(self) -> None:
        """Go on by sampling: the steps of the stream hide where the time goes."""
        self._stream = None
        self._observer.close()
        self._observer = Observer()
        self._why_whole = "most of its time goes into iterators that cannot be taken apart"
        self._sampler = BodySampler(SAMPLED_EVERY_S, with_stages=True)

    def _sample(self, dataset: Any, index: Any, *, many: bool = False) -> Any:
        make = (lambda: dataset.__getitems__(index)) if many else (lambda: dataset[index])
        if self._has_enough() or self._is_late():
            return make()
        if self._root.function is None:
            return self._timed(make)
        if not self._scout.is_done:
            if self._seen < self._skip:  # the first sample pays for opening files and the like, watched or not
                self._seen += self._scout.is_new
            return self._scout.follow(make)
        return self._timed(lambda: self._observed(dataset, index, make))

    def _observed(self, dataset: Any, index: Any, make: Callable[[], Any]) -> Any:
        try:
            return self._observer.run(self._root.function, (dataset, index), record=self._seen >= self._skip)
        except Unsplittable as error:
            self._why_whole = str(error)
            self._root = _Root(None, self._root.granularity)
        except Exception as error:  # ours or the user's: making the sample plainly decides
            self._why_whole = f"watching it failed ({type(error).__name__}: {error})"
            self._root = _Root(None, self._root.granularity)
        return make()

    def _timed(self, make: Callable[[], Any]) -> Any:
        before, cpu, overhead = time.perf_counter_ns(), cpu_ns(), self._observer.overhead_ns
        sample = make()
        if self._seen >= self._skip:
            overhead = self._observer.overhead_ns - overhead
            wall, used = time.perf_counter_ns() - before, cpu_ns() - cpu
            self._samples.append((max(1, wall - overhead), max(1, used - overhead)))
        self._seen += 1
        self._keep(self._sample_pool, sample, self._limit)
        return sample

    def _keep(self, pool: Pool, value: Any, limit: int) -> None:
        if len(pool) >= limit or pool.bytes > self._limit_bytes:
            return
        try:
            pool.add(values.snapshot(value))
        except values.Uncopyable as error:
            self._observer.refused[(-1,) if pool is self._sample_pool else (-2,)] = str(error)

    def _needs_more(self) -> bool:
        pools = {(-1,): self._sample_pool, **self._observer.pools}
        is_full = self._limit == 0 or all(
            len(pool) >= self._limit or pool.bytes > self._limit_bytes or address in self._observer.refused
            for address, pool in pools.items()
        )
        return not is_full and self._seen < 4 * self._limit

    def _has_enough(self) -> bool:
        return self._seen >= self._target + self._skip and not self._needs_more()

    def _finish_if_enough(self) -> None:
        enough = self._has_enough()
        if enough and self._stream is not None and not self._limit and self._observer.opaque_share > OPAQUE_SHARE:
            self._sample_instead()
        if self._sampler is not None:
            enough = enough and (self._sampled_ns >= SAMPLED_NS or len(self._collates) >= SAMPLED_BATCHES)
        if enough or self._is_late():
            self.is_done = True
            self._stream = None

    def _is_late(self) -> bool:
        """Whether watching has taken long enough, for what it has seen."""
        return len(self._samples) >= 3 and time.perf_counter_ns() > self._deadline

    def take_findings(self) -> Findings | None:
        """What was learnt, once, when the pass is done."""
        if not self.is_done or self._reported:
            return None
        self._reported = True
        self._observer.close()
        self._collate_observer.close()
        kept = {address: len(pool) for address, pool in self._observer.pools.items()}
        kept[(-1,)], kept[(-2,)] = len(self._sample_pool), len(self._batch_pool)
        return Findings(
            number=self.number,
            costs={**self._observer.costs, **{(COLLATE, *a): cost for a, cost in self._collate_observer.costs.items()}},
            collate_wall_ns=tuple(wall for wall, _ in self._collates),
            collate_cpu_ns=tuple(cpu for _, cpu in self._collates),
            sample_wall_ns=tuple(wall for wall, _ in self._samples),
            sample_cpu_ns=tuple(cpu for _, cpu in self._samples),
            refused=dict(self._observer.refused),
            kept=kept,
            why_whole=self._why_whole,
            batch_size=self._batch_size,
            granularity=self._root.granularity,
            environment=_worker_environment() if self.tells_environment else {},
            lines=tuple(self._sampler.lines()) if self._sampler is not None else (),
        )


def _drawn(fetcher: Any, index: Any, draw: Callable[[], Any]) -> Any:
    """What an iterable data set gives for a batch, drawn and ended as torch's own fetcher does."""
    if fetcher.ended:
        raise StopIteration
    if not fetcher.auto_collation:
        return draw()
    data = []
    for _ in index:
        try:
            data.append(draw())
        except StopIteration:
            fetcher.ended = True
            break
    if len(data) == 0 or (fetcher.drop_last and len(data) < len(index)):
        raise StopIteration
    return data


def _own_function(collate: Any) -> tuple[types.FunctionType, tuple[Any, ...]] | None:
    """The user's Python function behind a collate callable, with what it is bound to; None for torch's own."""
    found = resolve(collate, ())
    if found is None or is_library(found[0].__code__.co_filename):
        return None
    return found


def _worker_environment() -> dict[str, Any]:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "affinity": affinity,
        "threads": threads.most_allowed(),
        "working_threads": threads.working(),
        "pool_threads": threads.in_pools(),
    }


def _wrapped_exception(worker_id: int) -> ExceptionWrapper:
    """The exception being handled as the worker loop would wrap it, without our frames in the traceback."""
    kind, value, traceback = sys.exc_info()
    kept = user_part(traceback)
    caller = sys._getframe(2)
    kept = types.TracebackType(kept, caller, caller.f_lasti, caller.f_lineno)
    return ExceptionWrapper((kind, value, kept), where=f"in DataLoader worker process {worker_id}")
