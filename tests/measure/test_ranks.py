"""Several ranks of one training: what the leader does is what the others do, batch by batch."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch.distributed
from torch.distributed import HashStore
from torch.utils.data import DataLoader

from unstarve.errors import UsageError
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.program import Give, Options, Program, Step
from unstarve.measure.ranks import END, Ranks, Turn, follow, lead, of_this_process
from unstarve.measure.worker import Telemetry
from unstarve.recording import RankWait, Settings

TWO = Settings(num_workers=2)


@dataclass
class Bench:
    """What a program calls, noted."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    waits: tuple[RankWait, ...] = ()
    workers: int = 1
    orders: int = 0
    said: int = 0

    def issue(self, order: dict[str, Any]) -> int:
        self.calls.append(("issue", order["mode"]))
        self.orders += 10  # another rank may have got other orders before
        return self.orders

    def use(self, settings: Settings | None) -> None:
        self.calls.append(("use", settings))

    def collect_batches(self, *, fewest: bool, more_s: float) -> None:
        self.calls.append(("collect_batches", fewest))

    def pull(self) -> Telemetry:
        self.calls.append(("pull", None))
        return Telemetry(self.orders, 0, 1, 1, findings="what was seen")  # type: ignore[arg-type]

    def deeds(self) -> tuple[tuple[str, Any], ...]:
        found, self.said = self.calls[self.said :], len(self.calls)
        named = {
            "issue": lambda mode: {"mode": mode},
            "collect_batches": lambda fewest: {"fewest": fewest, "more_s": 0},
        }
        return tuple((name, named.get(name, lambda same: same)(argument)) for name, argument in found)

    def other_ranks(self, waits: tuple[RankWait, ...]) -> None:
        self.waits = waits


def some(bench: Bench) -> Program:
    """A program that does a bit of everything."""
    yield Give("loader")
    bench.collect_batches(fewest=True, more_s=0)
    yield Give("loader", bench.issue({"mode": "watch"}))
    yield Give("loader", bench.issue({"mode": "run"}))
    yield Give("host", 20)
    bench.use(TWO)
    yield Give("loader")


def ranks_of(store: HashStore, number: int) -> Ranks:
    return Ranks(store, number, 2, leader=0)


def told(store: HashStore, first: int = 3) -> Bench:
    """The bench of a leader that has done it all, from its batch `first` on."""
    bench, number = Bench(), iter(range(first, 100))
    ranks = ranks_of(store, 0)
    ranks.report(RankWait(rank=0, steps=0, wait_ns=0, span_ns=0))
    ranks_of(store, 1).report(RankWait(rank=1, steps=4, wait_ns=10, span_ns=40))
    ranks.begin(1, first)
    for _ in lead(some(bench), bench, ranks, lambda: next(number)):  # type: ignore[arg-type]
        pass
    return bench


STEP = Step(3, 5, True, None)


def followed(store: HashStore, joins_at: int) -> tuple[Bench, list[Give]]:
    """The bench of a follower, and what it gave for each batch from `joins_at` on."""
    bench, gives, position = Bench(), [], joins_at
    program = follow(bench, ranks_of(store, 1), 3, lambda: position, 0.2)  # type: ignore[arg-type]
    try:
        give = next(program)
        while True:
            gives.append(give)
            position += 1
            give = program.send(STEP)
    except StopIteration:
        return bench, gives


def test_a_follower_does_what_the_leader_did() -> None:
    """The same calls and sources in the same order, batches dated by its own orders; its workers end their watching."""
    store = HashStore()
    leader = told(store)
    bench, gives = followed(store, joins_at=3)
    assert [call for call in bench.calls if call[0] != "pull"] == leader.calls
    assert [give.source for give in gives] == ["loader", "loader", "loader", "host", "loader"]
    assert [give.generation for give in gives] == [0, 10, 20, 20, 0]
    assert bench.calls.index(("pull", None)) == bench.calls.index(("issue", "run")) - 1


def test_a_follower_that_joins_late_catches_up() -> None:
    """What was done before is done at once, and it ends with the leader all the same."""
    store = HashStore()
    leader = told(store)
    bench, gives = followed(store, joins_at=5)
    assert [call for call in bench.calls if call[0] != "pull"] == leader.calls
    assert [give.source for give in gives] == ["loader", "host", "loader"]


def test_a_turn_is_repeated_for_batches_that_come_before_what_it_asks_for() -> None:
    """Such as the first of an epoch whose start is clocked; what the leader did is not done again, nor told twice."""
    store = HashStore()
    ranks = ranks_of(store, 0)
    ranks.tell(3, Turn((("use", TWO),), "host"))
    ranks.repeat(3)
    ranks.repeat(4)
    ranks.tell(5, Turn(source=END))
    assert ranks_of(store, 1).hear(3, 0.1) == Turn((("use", TWO),), "host")
    assert ranks_of(store, 1).hear(4, 0.1) == Turn(source="host")
    assert ranks_of(store, 1).hear(5, 0.1).source == END


def test_the_leader_learns_how_the_others_fared() -> None:
    store = HashStore()
    assert told(store).waits == (RankWait(rank=1, steps=4, wait_ns=10, span_ns=40),)
    followed(store, joins_at=3)
    assert ranks_of(store, 0).gather() == (RankWait(rank=1, steps=2, wait_ns=6, span_ns=16),)  # two plain steps


def test_a_follower_ends_where_the_leader_is_not_heard_of() -> None:
    """A leader that died must not hold the others for ever."""
    program = follow(Bench(), ranks_of(HashStore(), 1), 3, lambda: 3, 0.01)  # type: ignore[arg-type]
    assert list(program) == []


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), KeyboardInterrupt()])
def test_the_others_go_on_where_the_leaders_program_fails(error: BaseException) -> None:
    """They hear the end for the batch at which it failed, and do not wait for it until their patience is over."""

    def failing(bench: Bench) -> Program:
        yield Give("loader")
        bench.use(TWO)
        raise error

    store, bench, number = HashStore(), Bench(), iter(range(3, 100))
    ranks_of(store, 0).begin(1, 3)
    with pytest.raises(type(error)):
        list(lead(failing(bench), bench, ranks_of(store, 0), lambda: next(number)))  # type: ignore[arg-type]
    assert ranks_of(store, 1).hear(4, 0.0) == Turn((("use", TWO),), END)


@pytest.mark.parametrize("taken", [True, False], ids=["in a step", "before its batch came"])
def test_the_others_go_on_where_the_leaders_program_is_closed(taken: bool) -> None:
    """As when its loop ends before the diagnosis does: they hear the end for the first batch of which nothing was told, and
    what the program sets back of itself is set back."""
    left = []

    def under_way(bench: Bench) -> Program:
        try:
            while True:
                yield Give("host")
        finally:
            left.append(True)

    store, bench = HashStore(), Bench()
    total = 3
    ranks_of(store, 0).begin(1, total)
    program = lead(under_way(bench), bench, ranks_of(store, 0), lambda: total)  # type: ignore[arg-type]
    next(program)
    total += taken
    program.close()
    assert left == [True]
    assert ranks_of(store, 1).hear(3, 0.0).source == "host"
    assert ranks_of(store, 1).hear(4, 0.0).source == END


def test_an_error_is_not_lost_with_the_store() -> None:
    """The store may have gone with the process that kept it."""

    class Gone(Ranks):
        def tell(self, batch: int, turn: Turn) -> None:
            raise RuntimeError("connection reset")

    def failing() -> Program:
        raise ValueError("a fault of ours")
        yield

    with pytest.raises(ValueError, match="of ours"):
        list(lead(failing(), Bench(), Gone(None, 0, 2, 0), lambda: 3))  # type: ignore[arg-type]


def test_a_follower_does_not_wait_for_workers_that_it_cannot_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a loop whose batches cannot be made up for, none is taken to let its workers end their watching."""
    store, pulls = HashStore(), []
    told(store)
    monkeypatch.setattr(Bench, "pull", lambda bench: pulls.append(1))
    followed(store, joins_at=3)
    assert len(pulls) == 1


def test_a_rank_that_there_is_not_cannot_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every rank would be diagnosed for itself, and starve or feed the others meanwhile."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UsageError, match="--rank 2: there are 2 ranks, of which the last is 1"):
        of_this_process(2)


def test_nobody_follows_before_the_leader_has_begun() -> None:
    store = HashStore()
    assert ranks_of(store, 1).begun() is None
    ranks_of(store, 0).begin(2, 7)
    assert ranks_of(store, 1).begun() == (2, 7)


def test_a_process_that_trains_alone_has_no_ranks() -> None:
    assert not torch.distributed.is_initialized()
    assert of_this_process(0) is None


def test_a_second_diagnosis_of_the_same_ranks_hears_nothing_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may call `diagnose` more than once: what the leader told, who was there and who waited begins anew."""
    store = HashStore()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_store", lambda: store)

    def ranks_of_a_diagnosis() -> list[Ranks | None]:
        found = []
        for number in range(2):
            monkeypatch.setattr(torch.distributed, "get_rank", lambda number=number: number)
            found.append(of_this_process(0))
        return found

    leader, follower = ranks_of_a_diagnosis()
    assert leader is not None
    assert follower is not None
    leader.begin(0, 2)
    leader.tell(2, Turn(source="host"))
    assert follower.hear(2, 0.1).source == "host"
    follower.report(RankWait(rank=1, steps=4, wait_ns=10, span_ns=40))
    monkeypatch.setattr("unstarve.measure.ranks.GATHER_S", 0.01)
    again, follower_again = ranks_of_a_diagnosis()
    assert again is not None
    assert follower_again is not None
    assert follower_again.begun() is None
    assert follower_again.hear(2, 0.0).source == END
    assert again.gather() == ()
    assert again.absent(0.0) == ()


def test_ranks_that_never_ask_for_a_batch_are_absent() -> None:
    """Whoever has said that it takes batches is there, also where the leader looks later."""
    store = HashStore()
    leader = ranks_of(store, 0)
    leader.arrive()
    assert leader.absent(0.01) == (1,)
    ranks_of(store, 1).arrive()
    assert leader.absent(0.0) == ()


@pytest.mark.parametrize("follows", [True, False])
def test_a_loop_whose_other_ranks_would_not_follow_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    """As where a trainer starts them without us, or one rank hands out the batches of all: no verdict, and the reason."""
    store = HashStore()
    for number in range(1 + follows):
        ranks_of(store, number).arrive()
    monkeypatch.setattr("unstarve.measure.ranks.of_this_process", lambda leader: ranks_of(store, 0))
    monkeypatch.setattr("unstarve.measure.ranks.ARRIVE_S", 0.05)
    engine = Engine(Options(), program=lambda bench, options: (Give("loader") for _ in itertools.count()))
    with installed(engine):
        for _batch in DataLoader(list(range(12)), batch_size=2):
            time.sleep(0.0005)
    assert (engine.target is not None) == follows
    assert ("rank 1 of 2" in engine.why_alone) == (not follows)
    assert ranks_of(store, 1).begun() == ((0, 2) if follows else None)


def broadcast(batch: Any, src: int) -> Any:
    return batch


def dispatched(loader: DataLoader) -> Iterator[Any]:
    batches = iter(loader)
    for _ in range(len(loader) // 2):
        pair = [next(batches) for _ in range(2)]
        yield broadcast(pair, src=0)


def test_a_rank_that_hands_its_batches_on_is_diagnosed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others take no batches of their own, so that nobody has to follow; where it is done, is told."""
    monkeypatch.setattr("unstarve.measure.ranks.of_this_process", lambda leader: ranks_of(HashStore(), 0))
    monkeypatch.setattr("unstarve.measure.ranks.ARRIVE_S", 0.05)
    engine = Engine(Options(), program=lambda bench, options: (Give("loader") for _ in itertools.count()))
    with installed(engine):
        for _batch in dispatched(DataLoader(list(range(96)), batch_size=2)):
            time.sleep(0.005)
    assert engine.target is not None
    (note,) = (note for note in engine.recording().notes if note.id == "handed-on")
    assert "test_ranks.py" in note.sentence


SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Slow(Dataset):
    def __len__(self):
        return EPOCH
    def __getitem__(self, index):
        time.sleep(0.002 if dist.get_rank() == 0 else LATE)
        return torch.randn(8), index % 3

def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 3))
    dataset = Slow()
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset), num_workers=1)
    for epoch in range(EPOCHS):
        for inputs, labels in loader:
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            time.sleep(0.008)

main()
"""


def run_ranks(
    folder: Path, late_s: float, samples: int, epochs: int = 2000, *, is_alone: bool = False
) -> list[subprocess.CompletedProcess]:
    """Two ranks of the script under the tool, or only the first, which writes its report."""
    script, report = folder / "train.py", folder / "report.json"
    script.write_text(SCRIPT.replace("LATE", str(late_s)).replace("EPOCHS", str(epochs)).replace("EPOCH", str(samples)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--budget", "8", "--no-history", "--json", str(report)]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, *([] if is_alone and rank else ["-m", "unstarve", "run", *options]), str(script)],
            env={**os.environ, **shared, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    return [
        subprocess.CompletedProcess(process.args, process.wait(), *process.communicate(timeout=150))
        for process in processes
    ]


@pytest.mark.live
@pytest.mark.parametrize("samples", [2000, 130], ids=["long epochs", "short epochs"])
def test_ranks_that_wait_for_each_other_end_together(tmp_path: Path, samples: int) -> None:
    """Rank 0 gets the report, with the other's slower data named; rank 1 is fed when it is, says nothing, and fails not."""
    done = run_ranks(tmp_path, late_s=0.004, samples=samples)
    report = json.loads((tmp_path / "report.json").read_text())
    assert [process.returncode for process in done] == [0, 0], done[0].stderr + done[1].stderr
    assert "unstarve" in done[0].stdout.lower()
    assert done[1].stdout == ""
    assert report["environment"]["world_size"] == 2
    assert report["ceiling"]["steps_per_s"]["value"] > 1.5 * report["baseline"]["steps_per_s"]["value"]
    assert any(caveat["id"] == "other-rank" for caveat in report["caveats"])


@pytest.mark.live
def test_a_rank_whose_other_ranks_run_without_us_has_no_verdict(tmp_path: Path) -> None:
    """The script goes on to its end, untouched, on both; what to do is said."""
    done = run_ranks(tmp_path, late_s=0.004, samples=200, epochs=2, is_alone=True)
    assert [process.returncode for process in done] == [4, 0], done[0].stderr + done[1].stderr
    assert "rank 1 of 2" in done[0].stderr
    assert "torchrun --nproc-per-node" in done[0].stderr
