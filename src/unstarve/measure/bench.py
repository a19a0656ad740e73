"""What the experiment works on: the engine, as far as it concerns the loader that is diagnosed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from unstarve.measure import cuda, environment
from unstarve.measure.body import BodySampler, cpu_clock, iterator_of
from unstarve.measure.counters import RunDelay
from unstarve.measure.cuts import values
from unstarve.measure.describe import describe_function
from unstarve.measure.fleet import ORDERING
from unstarve.measure.memory import COLLECTOR
from unstarve.measure.session import Session
from unstarve.measure.worker import Telemetry
from unstarve.payload import Change, changes
from unstarve.recording import Note, Settings

if TYPE_CHECKING:
    from unstarve.measure.engine import Engine

Probe = BodySampler | cuda.SyncWatch | cuda.DeviceProfile
"""What looks at the loop while it runs."""

AnyProbe = TypeVar("AnyProbe", BodySampler, cuda.SyncWatch, cuda.DeviceProfile)

MOST_WORKERS = 64
"""Worker processes that are tried at most."""

AHEAD = 5
"""Batches that a worker may have ready or in the making, with the largest prefetch factor that is tried."""

HOST_BATCHES = 4
"""Batches kept on the host and on the device: more than one, since shapes and values vary."""

MOST_HOST_BATCHES = 16
"""The same where batches are small and come quickly: the ceiling is no better known than the mean of these."""

SMALL_BYTES = 128 << 20
"""More than `HOST_BATCHES` are kept only as far as they take no more memory than this."""


def workers_by_cores(cores: float) -> int:
    """Worker processes that may be tried on so many cores."""
    return int(min(MOST_WORKERS, 4 * cores))


def workers_by_memory(free_bytes: int, batch_bytes: int) -> int:
    """Worker processes whose batches this much shared memory has room for."""
    return free_bytes // (2 * AHEAD * max(1, batch_bytes))


class LoopBench:
    """The bench of `experiment` in a live loop."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self.settings = session.facts.settings
        self.has_fleet = session.fleet is not None
        self.pool_bytes = environment.memory_bytes() // 12 // max(1, session.facts.num_workers)
        collate = getattr(session.loader, "collate_fn", None)
        self.collate_name, self.collate_source = describe_function(collate)
        self._drain = engine.drain
        self.threads = torch.get_num_threads() if self._drain is None else 1  # those of the loop's thread are its own
        self._loop_cpu_ns = time.thread_time_ns if self._drain is None else cpu_clock(self._drain.loop_thread)
        self._threads_tried: int | None = None
        self._own_threads: int | None = None
        self._is_collecting = True
        self._is_paused = False
        self.dataset_name = type(getattr(session.loader, "dataset", None)).__name__
        self.clock_ns = engine.clock_ns
        self.rungs = engine.set_rungs
        self.stages = engine.set_stages
        self.heads = engine.set_heads
        self.note = engine.note
        self.natural = engine.note_natural
        self.body = engine.set_body
        self.device_busy = engine.set_device_busy
        self.audit = engine.audit
        self.worker_environment = engine.set_worker_environment
        self.cores = environment.cores_available()
        self.can_reorder = hasattr(session.loader, "in_order")
        self.can_pin = torch.cuda.is_available()
        self.machine_cores = environment.machine_cores()
        self.affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._probes: list[Probe] = []
        self._paused_probes: list[Probe] = []
        self.sampler_lines = engine.set_sampler
        self.block = engine.add_block
        self.other_ranks = engine.set_ranks
        self.progress = engine.progress

    @property
    def workers(self) -> int:
        """Worker processes that make the batches at present."""
        return self._session.fleet.workers if self._session.fleet is not None else self._session.facts.num_workers

    @property
    def epoch_length(self) -> int | None:
        """Batches of the present epoch, where that can be relied upon."""
        return self._session.length

    def pull(self) -> Telemetry | None:
        """Take a batch beside the loop; how it was made."""
        return self._engine.pull(self._session)

    @property
    def cycle(self) -> int:
        """Batches that the loop takes at once."""
        return self._session.cycle

    @property
    def ahead(self) -> int:
        """Batches that a thread of the script may have taken before the loop asks for them."""
        return self._drain.depth if self._drain is not None else 0

    @property
    def batches_left(self) -> int | None:
        """Batches that the epoch has still to give, where that is known."""
        return None if self._session.length is None else self._session.length - self._session.delivered

    @property
    def fleet(self) -> int:
        """Number of the present workers; it changes when others take their place."""
        return self._session.fleet.number if self._session.fleet is not None else 0

    @property
    def has_device(self) -> bool:
        """Whether batches are kept on an accelerator."""
        return self._engine.cached.has_device_batches

    @property
    def can_copy_ahead(self) -> bool:
        """Whether a batch can be copied to the device while that computes."""
        return self._engine.cached.device is not None and self._engine.cached.device.copy_ahead is not None

    @property
    def has_batches(self) -> bool:
        """Whether batches could be kept."""
        return bool(self._engine.cached.host)

    def cpu_ns(self) -> int:
        """CPU time of the thread that runs the loop."""
        return self._loop_cpu_ns()

    def collected_ns(self) -> int:
        """What the garbage collector of this process has taken so far."""
        return COLLECTOR.ns

    def allow_collector(self, is_allowed: bool) -> None:
        """Switch the garbage collector of this process off, or on again where the script had it on."""
        self._is_collecting = is_allowed
        self._set(self._threads_tried, is_collecting=is_allowed)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._engine.cached.device is not None:
            self._engine.cached.device.synchronize()

    def wait(self, wait_s: float) -> None:
        """Let the loop wait so long for its next batch; that is no wait of its own."""
        time.sleep(wait_s)

    def issue(self, order: dict[str, Any]) -> int:
        """Publish an order to the workers."""
        self._session.ordered = fleet = self._session.fleet
        return fleet.issue(order) if fleet is not None else 0

    def use(self, settings: Settings | None) -> bool:
        """Let batches come from workers with these settings, None for the script's own; whether that can be had."""
        return self._engine.use(self._session, settings)

    @property
    def start_s(self) -> float:
        """What it took to make the last iterator, the workers included."""
        return self._session.construct_ns / 1e9

    @property
    def most_workers(self) -> int:
        """Worker processes that may be tried."""
        if not self.settings.num_workers and not self._can_start_workers():
            sentence = (
                "Worker processes were not tried: without `if __name__ == '__main__':` each would run the script."
            )
            self.note(Note(id="no-main-guard", sentence=sentence))
            return 0
        return max(self.settings.num_workers, self._limit[0])

    @property
    def why_no_more_workers(self) -> str | None:
        """What keeps more workers than that from being tried, other than the number of cores."""
        return self._limit[1]

    @property
    def _limit(self) -> tuple[int, str | None]:
        """How many workers cores, the stream and memory for the batches that they have ready allow, and which of the latter
        it was."""
        if self._session.facts.most_workers is not None:
            reason = "each would give every sample of the stream, which is not seen to be split among workers"
            return self._session.facts.most_workers, reason
        by_cores = workers_by_cores(self.cores)
        if self.epoch_length is not None:  # more would have no batch to make
            by_cores = min(by_cores, self.epoch_length)
        batch_bytes = max((values.size_bytes(values.tensors(batch)) for batch in self._engine.cached.host), default=1)
        free = environment.shared_memory_bytes()
        room = workers_by_memory(free, batch_bytes)
        if room >= by_cores:
            return by_cores, None
        reason = f"the {free / 2**20:.0f} MiB of shared memory that are free have no room for their batches (docker: --shm-size)"
        return room, reason

    def _can_start_workers(self) -> bool:
        """Whether a script that has no workers would bear some: where they are not forked, each runs the script once more,
        as far as it does not ask whether it is `__main__`."""
        source = getattr(sys.modules.get("__main__"), "__file__", None)
        if self._session.facts.start_method == "fork" or source is None:
            return True
        try:
            return "__main__" in Path(source).read_text(encoding="utf-8", errors="ignore")
        except OSError:
            return False

    def dismiss(self, settings: Settings) -> None:
        """End workers that were only tried."""
        self._engine.dismiss(self._session, settings)

    def body_sampler(self) -> BodySampler:
        """What samples the lines of the loop."""
        if self._drain is not None:
            delay, at = RunDelay(threading.main_thread().native_id), self._drain
            sampler = BodySampler(iterator=at.code, delay=delay, thread=at.loop_thread, beside=at.thread)
            return self._paused_with_loop(sampler)
        delay = RunDelay(threading.get_native_id())
        return self._paused_with_loop(BodySampler(iterator=iterator_of(sys._getframe()), delay=delay))

    def sampler_watch(self) -> BodySampler:
        """What samples the lines of the script's sampler."""
        return self._paused_with_loop(BodySampler(below=ORDERING))

    def sync_watch(self) -> cuda.SyncWatch | None:
        """What counts the loop's waits for the device, where there is such a thing."""
        return self._paused_with_loop(cuda.SyncWatch()) if cuda.is_in_use() else None

    def device_profile(self) -> cuda.DeviceProfile | None:
        """What records when the device computes, where there is such a thing and nobody else is recording."""
        is_free = cuda.is_in_use() and not cuda.is_profiled()
        return self._paused_with_loop(cuda.DeviceProfile(self.synchronize)) if is_free else None

    def _paused_with_loop(self, probe: AnyProbe) -> AnyProbe:
        """The probe, which is at work only in the loop's own steps from when it is started until it is stopped."""
        self._probes = [*(other for other in self._probes if other.is_on), probe]
        return probe

    def batch_size(self, seen: int) -> None:
        """Take note of how many samples the workers saw in a batch, where the loader does not tell."""
        if self._session.facts.batch_size is None:
            self._session.facts = replace(self._session.facts, seen_batch_size=seen)

    def limit_threads(self, count: int | None) -> None:
        """Let torch compute on so many threads in this process; None for as many as the script chose."""
        self._threads_tried = count
        self._set(count, is_collecting=self._is_collecting)

    def pause(self) -> None:
        """Give this process its own settings back: what the script does now is not the loop that is tried."""
        self._is_paused = True
        self._set(None, is_collecting=True)
        for probe in [probe for probe in self._probes if probe.is_on]:
            if self._works(probe, probe.pause):
                self._paused_probes.append(probe)

    def go_on(self) -> None:
        """Have the settings on trial in force again after `pause`."""
        if self._is_paused:
            self._is_paused = False
            self._set(self._threads_tried, is_collecting=self._is_collecting)
            probes, self._paused_probes = self._paused_probes, []
            for probe in probes:
                self._works(probe, probe.start)

    def _works(self, probe: Probe, act: Callable[[], None]) -> bool:
        """Have a probe do something, and say whether it could: one that fails steps aside."""
        try:
            act()
        except Exception as error:
            self.note(Note(id="probe-failed", sentence=f"{type(probe).__name__} failed: {error}."))
            return False
        return True

    def _set(self, threads: int | None, *, is_collecting: bool) -> None:
        COLLECTOR.allow(is_collecting)
        if threads is not None and self._own_threads is None:
            self._own_threads = torch.get_num_threads()
            torch.set_num_threads(threads)
        elif threads is None and self._own_threads is not None:
            torch.set_num_threads(self._own_threads)
            self._own_threads = None

    def lean_changes(self) -> tuple[Change, ...]:
        """How the fields of a batch could be sent as less, after the audit."""
        return changes(self._engine.payload, batch_size=self._session.facts.batch_size)

    def watch_use(self, steps: int) -> None:
        """Watch which fields the next steps fed from host memory read and move."""
        self._engine.watch_use(steps)

    def fill_device(self) -> None:
        """Keep the batches on the device as well, where there is one."""
        self._engine.cached.fill_device()

    def collect_batches(self, *, fewest: bool, more_s: float = 0.0) -> None:
        """Keep some batches on the host and the device; only as many as arrive together if `fewest`, else some more if
        they come within `more_s` seconds."""
        count = min(HOST_BATCHES, max(2, self.workers)) if fewest else HOST_BATCHES
        until_ns = self.clock_ns() + int(more_s * 1e9)

        def is_enough(kept: int, size: int) -> bool:
            is_more = not fewest and kept < MOST_HOST_BATCHES and size < SMALL_BYTES and self.clock_ns() < until_ns
            return kept >= count and not is_more

        self._engine.collect_batches(self._session, is_enough)


class LeadingBench(LoopBench):
    """A bench that takes note of what other ranks are to do as well."""

    def __init__(self, engine: Engine, session: Session) -> None:
        super().__init__(engine, session)
        self._deeds: list[tuple[str, Any]] = []

    def deeds(self) -> tuple[tuple[str, Any], ...]:
        """Methods that were called since this was asked last, each with its argument."""
        found, self._deeds = tuple(self._deeds), []
        return found

    def issue(self, order: dict[str, Any]) -> int:
        """As of `LoopBench`."""
        self._deeds.append(("issue", order))
        return super().issue(order)

    def use(self, settings: Settings | None) -> bool:
        """As of `LoopBench`; settings that cannot be had here are nothing for the others."""
        is_had = super().use(settings)
        if is_had:
            self._deeds.append(("use", settings))
        return is_had

    def dismiss(self, settings: Settings) -> None:
        """As of `LoopBench`."""
        self._deeds.append(("dismiss", settings))
        super().dismiss(settings)

    def limit_threads(self, count: int | None) -> None:
        """As of `LoopBench`."""
        self._deeds.append(("limit_threads", count))
        super().limit_threads(count)

    def allow_collector(self, is_allowed: bool) -> None:
        """As of `LoopBench`."""
        self._deeds.append(("allow_collector", is_allowed))
        super().allow_collector(is_allowed)

    def collect_batches(self, *, fewest: bool, more_s: float = 0.0) -> None:
        """As of `LoopBench`."""
        self._deeds.append(("collect_batches", {"fewest": fewest, "more_s": more_s}))
        super().collect_batches(fewest=fewest, more_s=more_s)

    def watch_use(self, steps: int) -> None:
        """As of `LoopBench`."""
        self._deeds.append(("watch_use", steps))
        super().watch_use(steps)

    def fill_device(self) -> None:
        """As of `LoopBench`."""
        self._deeds.append(("fill_device", None))
        super().fill_device()
