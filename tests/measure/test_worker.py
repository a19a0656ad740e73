"""Instruments of a worker, in this process: watching beside the loop, and batches on their way through pinning."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate
from torch.utils.data._utils import pin_memory as pinning
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from unstarve.measure import environment
from unstarve.measure import worker as worker_module
from unstarve.measure.cuts import values
from unstarve.measure.memory import COLLECTOR
from unstarve.measure.switchboard import Switchboard
from unstarve.measure.worker import TAG, Findings, Instruments, Telemetry, Token, untagged

pytestmark = pytest.mark.live

MS = 1_000_000


class Sent(NamedTuple):
    """What a worker sent."""

    data: Any
    telemetry: Telemetry


def sent(item: Any) -> Sent:
    """What a worker sent, on its arrival in the loop."""
    data, telemetry = untagged(item)
    assert telemetry is not None, data
    return Sent(data, telemetry)


class Squares(Dataset):
    """Counts how many samples were made."""

    def __init__(self, broken: int | None = None) -> None:
        self.made: list[int] = []
        self.broken = broken

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.made.append(index)
        if index == self.broken:
            raise KeyError(f"sample {index}")
        values = torch.arange(6) * index
        return values * values, index


def distinct(samples: list) -> Any:
    """A collate function that wants every sample once, as one that builds a graph over them may."""
    if len({index for _, index in samples}) < len(samples):
        raise ValueError("the same sample twice")
    return default_collate(samples)


class Worker:
    """A worker's fetcher under orders."""

    def __init__(self, dataset: Any, collate: Any = default_collate) -> None:
        self.board = Switchboard()
        self.dataset = dataset
        self._next = 0
        self._instruments = Instruments(self.board, 0).attach(_MapDatasetFetcher(dataset, True, collate, False))

    def order(self, **order: Any) -> None:
        self.board.write(order)

    def watch(self, number: int = 1, *, aside: bool = True, samples: int = 2, limit: int = 0) -> None:
        """The order to watch samples, or to fill pools where there is a limit."""
        self.order(
            mode="watch", samples=samples, skip=0, limit=limit, limit_bytes=1 << 20, opened=[], wanted=[], aside=aside,
            **{"pass": number},
        )  # fmt: skip

    def fetch(self, size: int = 8) -> Sent:
        """What the worker sends for the next indices."""
        return sent(self.raw(size))

    def raw(self, size: int = 8) -> Any:
        """The same as it leaves the worker."""
        index = list(range(self._next, self._next + size))
        self._next += size
        return self._instruments.fetch(index)


def until_findings(worker: Worker, most: int = 50) -> list[Sent]:
    seen = []
    while len(seen) < most:
        seen.append(worker.fetch())
        if seen[-1].telemetry.findings is not None:
            return seen
    raise AssertionError("the pass never ended")


def test_watching_aside_makes_no_more_samples_than_it_watches() -> None:
    """Of a batch of eight that nobody gets, the two samples to watch are made, after two that the way is scouted on; a
    token stands for it."""
    worker = Worker(Squares())
    worker.watch(samples=2)
    seen = until_findings(worker)
    assert len(seen) == 1
    assert isinstance(seen[0].data, Token)
    assert len(worker.dataset.made) == 4
    found = seen[0].telemetry.findings
    assert found is not None
    assert len(found.sample_wall_ns) == 2
    assert found.batch_size == 8


class Transcoded(Dataset):
    """Has another program compute for 50 ms for each sample."""

    def __getitem__(self, index: int) -> int:
        spin = "import time\nwhile time.process_time() < 0.05: pass"
        subprocess.run([sys.executable, "-I", "-S", "-c", spin], check=True)
        return index


def test_programs_that_a_sample_runs_compute_for_it() -> None:
    """Their time is CPU time of the batch and of the statement: nobody is told that it waits."""
    worker = Worker(Transcoded())
    worker.watch(samples=2)
    telemetry = until_findings(worker)[0].telemetry
    found = telemetry.findings
    assert isinstance(found, Findings)
    assert telemetry.cpu_ns >= 4 * 50 * MS
    (cost,) = [cost for cost in found.costs.values() if cost.callee == "subprocess.run"]
    assert min(cost.cpu_ns) >= 10 * MS  # what watching took is taken off; waiting for a program takes next to none


def test_batches_collated_aside_are_whole() -> None:
    """The few samples are repeated to the size of the batch, so that collating costs what it does in the loop."""
    sizes = []

    def collate(samples: list) -> Any:
        sizes.append(len(samples))
        return default_collate(samples)

    worker = Worker(Squares(), collate)
    worker.watch(samples=3)
    until_findings(worker)
    assert sizes == [8]


def test_after_a_pass_aside_nothing_is_made_until_the_next_order() -> None:
    """Workers that have seen enough send tokens while they wait for the others."""
    worker = Worker(Squares())
    worker.watch(samples=2)
    until_findings(worker)
    before = len(worker.dataset.made)
    assert isinstance(worker.fetch().data, Token)
    assert len(worker.dataset.made) == before
    worker.order(mode="run")
    assert worker.fetch().data[1].tolist() == list(range(16, 24))


def test_a_worker_says_once_how_it_is_set_up() -> None:
    """The first pass that comes to its end tells it, even if a slow worker's passes before were cut short."""
    worker = Worker(Squares())
    worker.watch(1, aside=False, samples=50)
    assert worker.fetch().telemetry.findings is None
    told = []
    for number in (2, 3):
        worker.watch(number)
        found = until_findings(worker)[-1].telemetry.findings
        assert isinstance(found, Findings)
        told.append("threads" in found.environment)
    assert told == [True, False]


def test_pools_are_filled_aside() -> None:
    """After filling beside the loop, finished samples and collated batches can be served, whole."""
    worker = Worker(Squares())
    worker.watch(samples=0, limit=16)
    seen = until_findings(worker)
    assert all(isinstance(item.data, Token) for item in seen)
    found = seen[-1].telemetry.findings
    assert found is not None
    assert found.kept[-1,] == 16
    assert found.kept[-2,] >= 1
    made = len(worker.dataset.made)
    for mode in ("samples", "collated"):
        worker.order(mode=mode)
        item = worker.fetch()
        assert item.telemetry.failure is None
        assert item.data[0].shape == (8, 6)
    assert len(worker.dataset.made) == made


@pytest.mark.parametrize(("free_bytes", "is_refused"), [(1 << 10, True), (1 << 20, False)])
def test_copies_of_samples_are_refused_only_where_they_do_not_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int, is_refused: bool
) -> None:
    monkeypatch.setattr(worker_module, "COPIES_UNASKED_BYTES", 0)
    monkeypatch.setattr(environment, "memory_bytes", lambda: free_bytes)
    worker = Worker(Squares(), collate=lambda samples: default_collate(samples))
    worker.watch(samples=0, limit=16)
    until_findings(worker)
    worker.order(mode="samples")
    failure = worker.fetch().telemetry.failure
    assert ("too much memory" in str(failure)) == is_refused


def test_a_collate_that_fails_on_repeated_samples_gets_the_real_batch() -> None:
    """The plain fetch steps in, the loop gets the batch it would have had, and the pass goes on to its end."""
    worker = Worker(Squares(), distinct)
    worker.watch(samples=2)
    seen = until_findings(worker)
    assert [item.data[1].tolist() for item in seen] == [list(range(n * 8, n * 8 + 8)) for n in range(len(seen))]
    found = seen[-1].telemetry.findings
    assert found is not None
    assert len(found.sample_wall_ns) >= 2
    assert found.collate_wall_ns


def test_pools_are_filled_though_collating_aside_failed() -> None:
    """What the findings say was kept can be served afterwards, collated batches included."""
    worker = Worker(Squares(), distinct)
    worker.watch(samples=0, limit=6)
    found = until_findings(worker)[-1].telemetry.findings
    assert found is not None
    assert found.kept[-1,] == 6
    assert found.kept[-2,] >= 1
    worker.order(mode="collated")
    item = worker.fetch()
    assert item.telemetry.failure is None
    assert isinstance(item.data, list)


def test_a_broken_sample_is_the_users_own_error_aside_too() -> None:
    """The plain fetch raises it, and it reaches the loop as without us."""
    worker = Worker(Squares(broken=1))
    worker.watch(samples=4)
    with pytest.raises(KeyError, match="sample 1"):
        worker.raw().reraise()


def test_watching_without_aside_gives_the_loop_every_batch() -> None:
    """Quick loops are watched on the batches they get."""
    worker = Worker(Squares())
    worker.watch(aside=False)
    seen = until_findings(worker)
    assert seen[0].data[1].tolist() == list(range(8))
    assert worker.dataset.made == list(range(8 * len(seen)))


@pytest.mark.parametrize("kind", ["items", "stream", "unbatched"])
def test_batches_that_cannot_be_made_in_part_are_never_made_aside(kind: str) -> None:
    """A data set that makes whole batches, a stream and single samples are watched on what the loop gets."""

    class Items(Squares):
        def __getitems__(self, index: list[int]) -> list:
            return [self[item] for item in index]

    fetchers = {
        "items": lambda: _MapDatasetFetcher(Items(), True, default_collate, False),
        "stream": lambda: _IterableDatasetFetcher(iter([1, 2] * 400), True, default_collate, False),
        "unbatched": lambda: _MapDatasetFetcher(Squares(), False, lambda sample: sample, False),
    }
    board = Switchboard()
    instruments = Instruments(board, 0).attach(fetchers[kind]())
    order = {"mode": "watch", "pass": 1, "samples": 2, "skip": 0, "limit": 0, "limit_bytes": 0, "opened": []}
    board.write({**order, "wanted": [], "aside": True})
    for number in range(4):
        item = sent(instruments.fetch(number if kind == "unbatched" else [number, number + 1]))
        assert not isinstance(item.data, Token)


class Remembering(IterableDataset):
    """Keeps what it has made under its number."""

    def __init__(self) -> None:
        self.memo: dict[int, Any] = {}

    def __iter__(self) -> Any:
        for number in range(10_000):
            x = torch.full((4,), number)
            self.memo[number] = x
            yield x


def test_a_stream_that_keeps_its_samples_gets_none_of_another() -> None:
    """The statement that makes them is served together with its number, and never alone."""
    board, dataset = Switchboard(), Remembering()
    fetcher = _IterableDatasetFetcher(dataset, True, default_collate, False)
    instruments = Instruments(board, 0).attach(fetcher)
    order = {"mode": "watch", "samples": 2, "skip": 0, "limit_bytes": 1 << 20, "opened": [], "aside": False}
    failures = {}
    board.write({**order, "pass": 1, "limit": 4, "wanted": [(1,)]})
    while sent(instruments.fetch(range(4))).telemetry.findings is None:
        pass
    for mode in ("cut", "knockout"):
        board.write({"mode": mode, "address": (1,)})
        failures[mode] = sent(instruments.fetch(range(4))).telemetry.failure
    assert failures["cut"] is None
    assert "kept in self.memo" in failures["knockout"]
    assert all(number == x[0] for number, x in dataset.memo.items())


# --- Pinning ----------------------------------------------------------------------------------------------------------

TELEMETRY = Telemetry(4, 1, 1000, 900)


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Addresses of tensors in page-locked memory; there is none where no accelerator is, so pinning is a stand-in."""
    addresses: set[int] = set()

    def pin(self: torch.Tensor, device: object = None) -> torch.Tensor:
        copy = self.clone()
        addresses.add(copy.data_ptr())
        return copy

    plain = torch.empty_like

    def empty_like(like: torch.Tensor, *, pin_memory: bool = False, **more: Any) -> torch.Tensor:
        found = plain(like, **more)
        if pin_memory:
            addresses.add(found.data_ptr())
        return found

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self, device=None: self.data_ptr() in addresses)
    monkeypatch.setattr(torch, "empty_like", empty_like)
    return addresses


def through_pinning(batch: Any) -> Sent:
    """What a worker sent, as it leaves the loader's pinning thread."""
    return sent(pinning.pin_memory((TAG, batch, tuple(TELEMETRY)), "cuda"))


def test_a_tagged_batch_is_pinned_inside_and_keeps_its_telemetry(pinned: set[int]) -> None:
    """The loader's pinning thread pins the batch's tensors at any depth; the rest is as it was."""
    batch = {"image": torch.rand(2, 3), "more": [torch.ones(4), "a name"], "index": 7}
    found = through_pinning(batch)
    assert found.telemetry == TELEMETRY
    assert found.data["image"].is_pinned()
    assert found.data["more"][0].is_pinned()
    assert found.data["more"][1] == "a name"
    assert torch.equal(found.data["image"], batch["image"])
    assert not batch["image"].is_pinned()


def test_a_batch_with_a_pinning_of_its_own_is_asked_for_it(pinned: set[int]) -> None:
    """A class of the user's that pins itself does so, as it would without us."""

    class Own:
        is_done = False

        def pin_memory(self) -> Own:
            self.is_done = True
            return self

    assert through_pinning(Own()).data.is_done


def test_a_token_passes_the_pinning_thread(pinned: set[int]) -> None:
    """What stands for a batch has nothing to pin."""
    assert isinstance(through_pinning(Token()).data, Token)


@pytest.mark.parametrize("batch", [(1, 2, 3), ["a", "b", "c"], (torch.zeros(2), 1, 2), None])
def test_a_batch_of_three_is_not_taken_for_a_tagged_one(batch: Any) -> None:
    """What carries no tag of ours reaches the loop as it is."""
    found, telemetry = untagged(batch)
    assert found is batch
    assert telemetry is None


def test_pinned_batches_are_copied_into_pinned_memory(pinned: set[int]) -> None:
    """A copy of a cached batch is in the same kind of memory as the batch, or the copy to the device would be slower."""
    batch = [torch.rand(3, 4).pin_memory(), torch.rand(2)]
    copy = values.rewrap(batch, values.duplicate)
    assert [leaf.is_pinned() for leaf in copy] == [True, False]
    assert all(torch.equal(one, other) for one, other in zip(batch, copy, strict=True))
    assert not {leaf.data_ptr() for leaf in batch} & {leaf.data_ptr() for leaf in copy}


# --- Kept busy --------------------------------------------------------------------------------------------------------


def test_a_busy_worker_makes_one_batch_over_and_over_until_there_is_another_order() -> None:
    """The samples are those of one index, none is sent, and the next order ends it."""
    worker = Worker(Squares())
    worker.order(mode="busy", limit_ns=60 * 10**9)
    found: list[Sent] = []
    thread = threading.Thread(target=lambda: found.append(worker.fetch()))
    thread.start()
    while len(worker.dataset.made) < 40:
        time.sleep(0.001)
    worker.order(mode="run")
    thread.join(timeout=30)
    assert isinstance(found[0].data, Token)
    assert set(worker.dataset.made) == set(range(8))
    assert worker.fetch().data[1].tolist() == list(range(8, 16))


def test_a_busy_worker_gives_up_when_its_time_is_over() -> None:
    """A main process that has died changes no order; its workers must not go on for ever."""
    worker = Worker(Squares())
    worker.order(mode="busy", limit_ns=1_000_000)
    assert isinstance(worker.fetch().data, Token)


def test_a_broken_sample_does_not_reach_the_loop_from_a_busy_worker() -> None:
    """Nobody asked for that batch, so its error is nobody's."""
    worker = Worker(Squares(broken=3))
    worker.order(mode="busy", limit_ns=60 * 10**9)
    item = worker.fetch()
    assert isinstance(item.data, Token)
    assert item.telemetry.failure is None


def test_the_collector_is_off_as_long_as_the_order_says_so() -> None:
    """The trial switches it off in the worker, and the next order switches it on again."""
    worker = Worker(Squares())
    worker.order(mode="run", collector="off")
    worker.fetch()
    assert not gc.isenabled()
    worker.order(mode="run")
    worker.fetch()
    assert gc.isenabled()


def test_collections_within_a_batch_are_clocked() -> None:
    """What the collector took of making a batch comes back with it; where it did not run, that is nothing."""

    class Collecting(Squares):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            if index >= 8:
                gc.collect()
            return super().__getitem__(index)

    worker = Worker(Collecting())
    COLLECTOR.start()
    gc.disable()
    try:
        first, second = worker.fetch().telemetry, worker.fetch().telemetry
    finally:
        gc.enable()
        COLLECTOR.stop()
    assert first.collected_ns == 0
    assert 0 < second.collected_ns <= second.wall_ns


class Global(Squares):
    """Rebinds a global variable, and so cannot be taken apart."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        global last
        last = index
        busy(0.01)
        return torch.zeros(2), index


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_code_that_cannot_be_taken_apart_is_sampled() -> None:
    """Its expensive line is found all the same, and the reason is told."""
    worker = Worker(Global())
    worker.watch(samples=2, aside=False)
    findings = until_findings(worker)[-1].telemetry.findings
    assert isinstance(findings, Findings)
    assert "global" in str(findings.why_whole)
    assert findings.sample_wall_ns
    assert "busy(0.01)" in [line.text for line in findings.lines]
