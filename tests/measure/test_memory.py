"""Clocking the garbage collector, and looks at a process's memory."""

from __future__ import annotations

import gc
import multiprocessing
import sys

import pytest

from unstarve.measure.counters import RunDelay
from unstarve.measure.memory import Collector, Look, MachineMemory, MemoryWatch

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells only on Linux")


@pytest.fixture
def collector():
    found = Collector()
    found.start()
    yield found
    found.stop()


def test_collections_are_clocked_and_nothing_stays_behind() -> None:
    """The clock runs from start to stop, however often it is started, and leaves no callback."""
    before = list(gc.callbacks)
    collector = Collector()
    gc.collect()
    assert collector.ns == 0
    collector.start()
    collector.start()
    gc.collect()
    assert collector.ns > 0
    assert len(gc.callbacks) == len(before) + 1
    collector.stop()
    taken = collector.ns
    gc.collect()
    assert collector.ns == taken
    assert gc.callbacks == before


def test_a_trial_without_the_collector_ends_with_it_on(collector: Collector) -> None:
    """Off for the trial, on again after it, and on when the clock is stopped in between."""
    collector.allow(False)
    assert not gc.isenabled()
    collector.allow(True)
    assert gc.isenabled()
    collector.allow(False)
    collector.stop()
    assert gc.isenabled()


def test_a_collector_that_the_script_has_switched_off_stays_off(collector: Collector) -> None:
    """It is the script's own choice, before and after a trial."""
    gc.disable()
    try:
        collector.allow(False)
        collector.allow(True)
        assert not gc.isenabled()
    finally:
        gc.enable()


@needs_proc
def test_looks_are_few() -> None:
    """After the 1st, 2nd, 4th, 8th batch, and the one at birth comes along with the first."""
    watch = MemoryWatch(RunDelay())
    looks = [look for _ in range(20) for look in watch.after(10**12)]
    assert [look.fetches for look in looks] == [0, 1, 2, 4, 8, 16]
    assert looks[-1].wall_ns == 16 * 10**12


@needs_proc
def test_looks_wait_where_batches_are_quick() -> None:
    """A look takes longer than a batch of a microsecond, so there is no look before many batches have been made."""
    watch = MemoryWatch(RunDelay())
    looks = [look for _ in range(20) for look in watch.after(1000)]
    assert [look.fetches for look in looks] in ([], [0])


def _read_objects(objects: list, results) -> None:
    watch = MemoryWatch(RunDelay())
    kept = [item for item in objects]  # counts a reference to each  # noqa: C416
    results.put((watch.after(10**12), len(kept)))


@needs_proc
def test_reading_objects_of_the_parent_makes_shared_pages_private() -> None:
    """A forked process that only reads a list of strings copies their pages, by page faults, which the looks show."""
    objects = [f"{number:0100d}" for number in range(100_000)]
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_read_objects, args=(objects, results))
    process.start()
    (before, after), count = results.get(timeout=60)
    process.join(timeout=60)
    assert count == len(objects)
    before, after = Look(*before), Look(*after)
    size = 100_000 * sys.getsizeof(objects[0])
    assert after.private_bytes - before.private_bytes > 0.8 * size
    assert before.shared_bytes - after.shared_bytes > 0.8 * size
    assert after.minor_faults > before.minor_faults


@needs_proc
def test_the_machine_tells_its_shared_memory() -> None:
    """What is free at the beginning is known, and a machine that lacked nothing reports no loss below zero."""
    machine = MachineMemory()
    machine.begin()
    machine.end()
    assert machine.shared_bytes > 0
    assert machine.stalled_ns >= 0
    assert machine.swapped_bytes >= 0
