"""The simulated accelerator, against a clock that moves only when somebody sleeps."""

from __future__ import annotations

import copy
import dataclasses
import io
import subprocess
import sys
import threading
import time
from collections import OrderedDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unstarve import simulate
from unstarve.simulate import SimulatedAccelerator

MEGABYTE = 1_000_000
Pair = namedtuple("Pair", ["left", "right"])


class ManualClock:
    """A clock whose own `sleep` is the only thing that moves it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


class Interrupted(float):
    """A number that lets other threads run in the middle of an addition."""

    def __radd__(self, other: float) -> float:
        time.sleep(0)
        return other + float(self)


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: torch.Tensor
    name: str
    pixels: int = dataclasses.field(init=False, default=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def accelerator(clock: ManualClock) -> SimulatedAccelerator:
    return SimulatedAccelerator(bandwidth_bytes_per_s=MEGABYTE, depth=3, clock=clock, sleep=clock.sleep)


def half_megabyte() -> torch.Tensor:
    return torch.ones(500_000, dtype=torch.uint8)


def test_launch_returns_at_once_while_the_queue_has_room(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """The host never waits for launches that are fewer than `depth` ahead of the device."""
    for _ in range(3):
        accelerator.launch(2.0)
    assert clock.sleeps == []
    assert accelerator.free_at == 106.0


def test_launch_waits_for_room_and_no_longer(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """One launch more than the queue holds makes the host wait until the oldest is done, not until all are."""
    for _ in range(4):
        accelerator.launch(2.0)
    assert clock.now == 102.0
    assert accelerator.free_at == 108.0


def test_finished_launches_leave_room(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """Launches that were done before the next one came do not count against the depth."""
    for _ in range(20):
        accelerator.launch(0.5)
        clock.now += 1.0
    assert clock.sleeps == []


def test_an_idle_device_starts_now(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """Work that reaches an idle device starts at its launch: idle time is never credited."""
    accelerator.launch(1.0)
    clock.now += 50.0
    accelerator.launch(1.0)
    assert accelerator.free_at == 151.0


def test_synchronize_waits_for_everything_once(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """Synchronising sleeps up to the end of the queue in one go, and a second time not at all."""
    accelerator.launch(1.0)
    accelerator.launch(2.5)
    accelerator.synchronize()
    accelerator.synchronize()
    assert clock.sleeps == [3.5]


def test_a_sleep_that_ends_early_is_continued(clock: ManualClock) -> None:
    """Synchronising returns only when the moment has come, however short the sleeps turn out."""
    accelerator = SimulatedAccelerator(clock=clock, sleep=lambda seconds: clock.sleep(min(seconds, 0.4)))
    accelerator.launch(1.0)
    accelerator.synchronize()
    assert clock.now == pytest.approx(101.0)


@given(
    steps_s=st.lists(st.floats(0, 10), max_size=30),
    hosts_s=st.lists(st.floats(0, 10), min_size=30, max_size=30),
    depth=st.integers(1, 5),
)
def test_the_device_is_never_faster_than_its_work(steps_s: list[float], hosts_s: list[float], depth: int) -> None:
    """After synchronising, at least the sum of the launches has passed, and at most host and device time together."""
    clock = ManualClock()
    accelerator = SimulatedAccelerator(depth=depth, clock=clock, sleep=clock.sleep)
    for step_s, host_s in zip(steps_s, hosts_s, strict=False):
        clock.now += host_s
        accelerator.launch(step_s)
    accelerator.synchronize()
    device_s, host_s = sum(steps_s), sum(hosts_s[: len(steps_s)])
    assert max(device_s, host_s) - 1e-6 <= clock.now - 100.0 <= device_s + host_s + 1e-6


def test_two_threads_do_not_lose_launches(clock: ManualClock) -> None:
    """Work queued by several threads adds up, as it would on one stream."""
    accelerator = SimulatedAccelerator(depth=100_000, clock=clock, sleep=clock.sleep)

    def launch_many() -> None:
        for _ in range(100):
            accelerator.launch(Interrupted(1.0))

    threads = [threading.Thread(target=launch_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accelerator.free_at == 500.0


def test_a_pageable_copy_waits_for_queue_and_bytes(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """A blocking copy takes the rest of the queue and then bytes over bandwidth of the host's time."""
    accelerator.launch(2.0)
    accelerator.to_device([half_megabyte(), half_megabyte()])
    assert clock.now == 103.0


def test_a_non_blocking_copy_is_only_queued(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """A copy that does not block costs the host nothing and the device bytes over bandwidth."""
    accelerator.launch(2.0)
    accelerator.to_device(half_megabyte(), non_blocking=True)
    assert clock.sleeps == []
    assert accelerator.free_at == 102.5


def test_a_copy_ahead_overlaps_with_what_is_queued(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """Taking the batch costs the host nothing; the queue goes on when both its work and the copy are done."""
    size = int(accelerator.bandwidth_bytes_per_s)  # one second
    batch = torch.empty(size, dtype=torch.uint8, device="meta")
    accelerator.launch(0.6)
    take = accelerator.copy_ahead(batch)
    began = clock()
    placed = take()
    assert clock() == began
    assert accelerator.is_resident(placed)
    assert not accelerator.is_resident(batch)
    accelerator.launch(0.5)
    accelerator.synchronize()
    assert clock() - began == pytest.approx(1.5)


def test_a_resident_batch_is_free_and_unchanged(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """What is on the device already is handed back as it is, without waiting for the queue."""
    resident = accelerator.to_device(half_megabyte())
    accelerator.launch(5.0)
    before = clock.now
    assert accelerator.to_device(resident) is resident
    assert clock.now == before
    assert accelerator.free_at == before + 5.0


def test_the_host_batch_stays_on_the_host(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """Copying marks a new tensor on the same memory, so that the same host batch costs its copy again."""
    host = half_megabyte()
    resident = accelerator.to_device(host)
    assert resident.data_ptr() == host.data_ptr()
    assert accelerator.is_resident(resident)
    assert not accelerator.is_resident(host)
    accelerator.to_device(host)
    assert clock.now == 101.0


def test_residence_is_on_one_device(accelerator: SimulatedAccelerator) -> None:
    """A tensor on one accelerator is not on another."""
    assert not SimulatedAccelerator().is_resident(accelerator.to_device(torch.ones(3)))


def test_a_copy_of_a_resident_tensor_is_resident_and_derived_ones_are_not(accelerator: SimulatedAccelerator) -> None:
    """`deepcopy` keeps the mark, as on a real device; the result of an operation has none, which is documented."""
    resident = accelerator.to_device(torch.ones(3))
    assert accelerator.is_resident(copy.deepcopy(resident))
    assert not accelerator.is_resident(resident + 1)


def test_a_resident_tensor_can_be_stored(accelerator: SimulatedAccelerator) -> None:
    """The mark is plain data: it does not drag the accelerator's clock and lock into a checkpoint."""
    torch.save(accelerator.to_device(torch.ones(3)), io.BytesIO())


@pytest.mark.parametrize(
    "batch",
    [
        {"x": torch.ones(2), "nested": [torch.zeros(1), (torch.ones(3), "name")], "none": None},
        OrderedDict(x=torch.ones(2)),
        defaultdict(dict, x={"y": torch.ones(2)}),
        Pair(torch.ones(2), 7),
        (torch.ones(2),),
        [],
        "text",
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_containers_keep_their_type_and_values(accelerator: SimulatedAccelerator, batch: Any) -> None:
    """The batch comes back in containers of the same types with equal contents."""
    placed = accelerator.to_device(batch)
    assert type(placed) is type(batch)
    assert str(placed) == str(batch)


def test_containers_of_the_host_are_not_written_to(accelerator: SimulatedAccelerator) -> None:
    """Rebuilding leaves the host's own containers, and the tensors in them, as they were."""
    images, frozen = [torch.ones(2)], Frozen(torch.ones(2), "a")
    accelerator.to_device({"images": images, "frozen": frozen})
    assert not accelerator.is_resident(images[0])
    assert not accelerator.is_resident(frozen.image)


def test_a_frozen_dataclass_with_a_computed_field_is_rebuilt(accelerator: SimulatedAccelerator) -> None:
    """Fields that `__init__` does not take are carried over, and the tensors of a frozen dataclass are moved."""
    placed = accelerator.to_device(Frozen(torch.ones(2), "a"))
    assert accelerator.is_resident(placed.image)
    assert (placed.name, placed.pixels) == ("a", 0)


def test_a_mapping_that_cannot_be_written_becomes_a_dict(accelerator: SimulatedAccelerator) -> None:
    """The tensors of a read-only mapping are moved all the same."""
    placed = accelerator.to_device(MappingProxyType({"x": torch.ones(2)}))
    assert accelerator.is_resident(placed["x"])


def test_a_view_costs_its_own_elements_only(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """A slice costs the bytes it shows, not those of the storage behind it."""
    accelerator.to_device(half_megabyte()[::5])
    assert clock.now == pytest.approx(100.1)


def test_a_sparse_tensor_costs_its_indices_and_values(accelerator: SimulatedAccelerator, clock: ManualClock) -> None:
    """A sparse tensor costs what it stores: here a thousand indices of 8 bytes and values of 4."""
    ones = torch.ones(1000)
    accelerator.to_device(torch.sparse_coo_tensor(torch.arange(1000)[None], ones, (10**9,), check_invariants=True))
    assert clock.now == pytest.approx(100.012)


def test_the_innermost_use_is_current() -> None:
    """Blocks nest, and each gives back what was current before it, even when it ends in an exception."""
    outer, inner = SimulatedAccelerator(), SimulatedAccelerator()
    assert simulate.current() is None
    with simulate.use(outer) as entered:
        assert entered is outer
        with pytest.raises(KeyError), simulate.use(inner):
            raise KeyError(simulate.current() is inner)
        assert simulate.current() is outer
    assert simulate.current() is None


def test_other_threads_see_the_current_accelerator() -> None:
    """A loop that a trainer runs in its own thread finds the accelerator that the main thread put in use."""
    seen = []
    with simulate.use(SimulatedAccelerator()) as accelerator:
        thread = threading.Thread(target=lambda: seen.append(simulate.current()))
        thread.start()
        thread.join()
    assert seen == [accelerator]


@pytest.mark.parametrize(
    "arguments", [{"bandwidth_bytes_per_s": 0}, {"depth": 0}, {"bandwidth_bytes_per_s": float("nan")}]
)
def test_impossible_devices_are_refused(arguments: dict[str, Any]) -> None:
    """A device that could never copy or launch is refused with the value that was given."""
    with pytest.raises(ValueError, match=str(next(iter(arguments.values())))):
        SimulatedAccelerator(**arguments)


def test_time_does_not_run_backwards(accelerator: SimulatedAccelerator) -> None:
    """Work of negative length is refused."""
    with pytest.raises(ValueError, match="-1"):
        accelerator.launch(-1)


def test_importing_it_loads_no_torch() -> None:
    """A process that only names the accelerator does not pay for torch."""
    code = "import sys, unstarve.simulate as s; s.SimulatedAccelerator().launch(0); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
