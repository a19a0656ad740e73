"""What the experiment works on: the engine, as far as it concerns the loader that is diagnosed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import torch

from unstarve.measure import cuda, environment, values
from unstarve.measure.body import BodySampler
from unstarve.measure.describe import describe_function
from unstarve.measure.memory import COLLECTOR
from unstarve.measure.session import Session
from unstarve.payload import Change, changes
from unstarve.recording import Settings

if TYPE_CHECKING:
    from unstarve.measure.engine import Engine

MOST_WORKERS = 64
"""Worker processes that are tried at most."""

AHEAD = 5
"""Batches that a worker may have ready or in the making, with the largest prefetch factor that is tried."""

HOST_BATCHES = 4
"""Batches kept on the host and on the device: more than one, since shapes and values vary."""


class LoopBench:
    """The bench of `experiment` in a live loop."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self.settings = session.facts.settings
        self.has_fleet = session.fleet is not None
        self.epoch_length = session.length
        self.pool_bytes = environment.memory_bytes() // 12 // max(1, session.facts.num_workers)
        collate = getattr(session.loader, "collate_fn", None)
        self.collate_name, self.collate_source = describe_function(collate)
        self.threads = torch.get_num_threads()
        self.dataset_name = type(getattr(session.loader, "dataset", None)).__name__
        self.clock_ns = engine.clock_ns
        self.rungs = engine.set_rungs
        self.stages = engine.set_stages
        self.heads = engine.set_heads
        self.note = engine.note
        self.natural = engine.note_natural
        self.body = engine.set_body
        self.device_busy = engine.set_device_busy
        self.watch_use = engine.watch_use
        self.audit = engine.audit
        self.worker_environment = engine.set_worker_environment
        self.cores = environment.cores_available()
        self.can_reorder = hasattr(session.loader, "in_order")
        self.can_pin = torch.cuda.is_available()
        self.machine_cores = environment.machine_cores()
        self.affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.body_sampler = BodySampler
        self.block = engine.add_block
        self.progress = engine.progress

    @property
    def workers(self) -> int:
        """Worker processes that make the batches at present."""
        return self._session.fleet.workers if self._session.fleet is not None else self._session.facts.num_workers

    @property
    def fleet(self) -> int:
        """Number of the present workers; it changes when others take their place."""
        return self._session.fleet.number if self._session.fleet is not None else 0

    @property
    def has_device(self) -> bool:
        """Whether there is an accelerator in use."""
        return self._engine.device is not None

    @property
    def has_batches(self) -> bool:
        """Whether batches could be kept."""
        return bool(self._engine.host)

    def cpu_ns(self) -> int:
        """CPU time of the thread that runs the loop."""
        return time.thread_time_ns()

    def collected_ns(self) -> int:
        """What the garbage collector of this process has taken so far."""
        return COLLECTOR.ns

    def allow_collector(self, is_allowed: bool) -> None:
        """Switch the garbage collector of this process off, or on again where the script had it on."""
        COLLECTOR.allow(is_allowed)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._engine.device is not None:
            self._engine.device.synchronize()

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
        """Worker processes that may be tried: cores and memory for the batches that they have ready are limited."""
        batch = max((values.size_bytes(batch) for batch in self._engine.host), default=1)
        room = environment.shared_memory_bytes() // (2 * AHEAD * max(1, batch))
        return int(max(self.settings.num_workers, min(MOST_WORKERS, 4 * self.cores, room)))

    def dismiss(self, settings: Settings) -> None:
        """End workers that were only tried."""
        self._engine.dismiss(self._session, settings)

    def sync_watch(self) -> cuda.SyncWatch | None:
        """What counts the loop's waits for the device, where there is such a thing."""
        return cuda.SyncWatch() if cuda.is_in_use() else None

    def device_profile(self) -> cuda.DeviceProfile | None:
        """What records when the device computes, where there is such a thing and nobody else is recording."""
        return cuda.DeviceProfile() if cuda.is_in_use() and not cuda.is_profiled() else None

    def limit_threads(self, count: int | None) -> None:
        """Let torch compute on so many threads in this process; None for as many as the script chose."""
        wanted = count or self.threads
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)

    def lean_changes(self) -> tuple[Change, ...]:
        """How the fields of a batch could be sent as less, after the audit."""
        return changes(self._engine.payload, batch_size=self._session.facts.batch_size)

    def collect_batches(self, *, fewest: bool) -> None:
        """Keep some batches on the host and the device; only as many as arrive together if `fewest`."""
        count = min(HOST_BATCHES, max(2, self.workers)) if fewest else HOST_BATCHES
        self._engine.collect_batches(self._session, count)
