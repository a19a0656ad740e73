"""Workers on trial beside the script's own, and batches that a loop drops: the engine with real loaders."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from unstarve import errors
from unstarve.measure import environment
from unstarve.measure.engine import Engine
from unstarve.measure.fleet import Fleet
from unstarve.measure.hook import installed
from unstarve.measure.program import Bench, Give, Options, Program
from unstarve.recording import Settings

pytestmark = pytest.mark.live

NOBODY, ONE, THREE = Settings(num_workers=0), Settings(num_workers=1), Settings(num_workers=3)


class Signed(Dataset):
    """Samples that tell how many workers their loader has."""

    def __init__(self, length: int = 400, fails_with: int | None = None) -> None:
        self.length = length
        self.fails_with = fails_with

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, int]:
        info = get_worker_info()
        count = info.num_workers if info is not None else 0
        if count == self.fails_with:
            raise ValueError(f"no luck with {count} workers")
        return index, count


def engine_with(program: Callable[[Bench], Program], *, stop: bool = True) -> Engine:
    return Engine(Options(budget_s=20), stop=stop, program=lambda bench, options: program(bench))


def makers(engine: Engine, loader: DataLoader, epochs: int = 1) -> Iterator[int]:
    """For each batch of a loop, by how many workers it was made; to the end of the diagnosis."""
    with installed(engine):
        try:
            for _ in range(epochs):
                for batch in loader:
                    _work()
                    yield int(batch[1][0])
        except errors.Finished:
            pass


def _work() -> None:
    time.sleep(0.001)


def some(bench: Bench, count: int) -> Program:
    """So many batches made under the present settings."""
    generation = bench.issue({"mode": "run"})
    for _ in range(count):
        yield Give("loader", generation)


def workers_of(engine: Engine) -> set[int]:
    """Numbers of workers of the fleets that are kept for the loader that is diagnosed, those that rest included."""
    session = engine.target
    assert session is not None
    fleets = [fleet for fleet in (session.fleet, *session.resting.values()) if fleet is not None]
    return {fleet.workers for fleet in fleets}


def children() -> int:
    return len(psutil.Process().children(recursive=True))


@pytest.mark.parametrize("own", [0, 2])
def test_batches_come_from_the_workers_on_trial_and_then_from_the_scripts_own(own: int) -> None:
    """As the programme says; an epoch has as many batches as without us, and going back starts no workers anew."""
    seen: dict[str, list[int]] = {}

    def program(bench: Bench) -> Program:
        first = bench.fleet
        assert bench.use(THREE)
        yield from some(bench, 6)
        seen["workers"] = [bench.workers]
        assert bench.use(None)
        yield from some(bench, 6)
        seen["fleets"] = [first, bench.fleet]

    made = list(makers(engine_with(program), DataLoader(Signed(), batch_size=4, num_workers=own)))
    assert seen["workers"] == [3]
    assert len(set(seen["fleets"])) == 1
    assert set(made[2:8]) == {3}
    assert set(made[8:]) == {own}
    assert len(made) >= 14


def test_batches_can_come_from_no_workers_at_all() -> None:
    """The loop's own process makes them then, while the script's workers rest, and leaves off when told."""
    seen = []

    def program(bench: Bench) -> Program:
        before = children()
        assert bench.use(NOBODY)
        yield from some(bench, 6)
        seen.append((bench.workers, children() - before))
        assert bench.use(None)
        yield from some(bench, 6)
        bench.dismiss(NOBODY)
        seen.append((bench.workers, children() - before))

    loader = DataLoader(Signed(), batch_size=4, num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=60)
    made = list(makers(engine_with(program), loader))
    assert seen == [(0, 0), (2, 0)]
    assert set(made[2:8]) == {0}
    assert set(made[8:]) == {2}


def test_an_epoch_ends_where_it_would_whoever_makes_its_batches() -> None:
    """The loop gets `len(loader)` batches in each epoch, trials or not."""

    def program(bench: Bench) -> Program:
        for settings in (THREE, None, ONE, None, THREE):
            bench.use(settings)
            yield from some(bench, 7)

    counts = []
    engine = engine_with(program)
    loader = DataLoader(Signed(48), batch_size=4, num_workers=2)
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            counts.append(0)
            for _ in loader:
                _work()
                counts[-1] += 1
    assert counts[:-1] == [12] * (len(counts) - 1)
    assert len(counts) > 2


def test_dismissed_workers_are_gone_and_can_come_back() -> None:
    """Dismissing ends their processes; trying the settings again starts others."""
    seen = []

    def program(bench: Bench) -> Program:
        before = children()
        bench.use(THREE)
        yield from some(bench, 3)
        bench.use(None)
        seen.append(children() - before)
        bench.dismiss(THREE)
        seen.append(children() - before)
        assert bench.use(THREE)
        yield from some(bench, 3)
        seen.append(children() - before)

    made = list(makers(engine_with(program), DataLoader(Signed(), batch_size=4, num_workers=1)))
    assert seen == [3, 0, 3]
    assert set(made[-3:]) == {3}


def test_batches_keep_coming_when_workers_on_trial_fail() -> None:
    """The script's own step in, the reason is noted, the settings are not tried again, their workers are gone."""
    seen = []

    def program(bench: Bench) -> Program:
        before = children()
        yield from some(bench, 1)
        yield from some(bench, 1)
        assert bench.use(THREE)
        yield from some(bench, 3)  # an order that the script's own workers never get
        seen.append((bench.workers, bench.use(THREE), children() - before))
        yield from some(bench, 4)

    engine = engine_with(program)
    made = list(makers(engine, DataLoader(Signed(fails_with=3), batch_size=4, num_workers=1)))
    assert seen == [(1, False, 0)]
    assert set(made) == {1}
    notes = [note.sentence for note in engine.recording().notes if note.id == "trial-failed"]
    assert notes == ["The trial of 3 workers was given up: ValueError: no luck with 3 workers"]


def test_workers_that_fail_behind_a_loop_without_any_may_share_what_it_opened() -> None:
    """The data set was used where they are forked from, and the script's own first workers would not meet that."""

    def program(bench: Bench) -> Program:
        yield from some(bench, 1)
        assert bench.use(THREE)
        yield from some(bench, 3)

    engine = engine_with(program)
    list(makers(engine, DataLoader(Signed(fails_with=3), batch_size=4)))
    (note,) = [note.sentence for note in engine.recording().notes if note.id == "trial-failed"]
    assert "no luck with 3 workers" in note
    assert ("before these workers were forked" in note) is (engine.loaders[0].start_method == "fork")


@pytest.mark.parametrize("error", [TypeError("cannot pickle 'module' object"), OSError(12, "no memory")])
def test_workers_that_cannot_start_are_passed_over(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keeps them from starting is no error of the script's: its own workers go on."""
    start = Fleet.start

    def refuse(self: Fleet, **options: bool) -> None:
        if self.settings is not None:
            raise error
        start(self, **options)

    monkeypatch.setattr(Fleet, "start", refuse)
    seen = []

    def program(bench: Bench) -> Program:
        seen.append(bench.use(THREE))
        yield from some(bench, 4)

    made = list(makers(engine_with(program), DataLoader(Signed(), batch_size=4, num_workers=1)))
    assert seen == [False]
    assert set(made) == {1}
    assert len(made) >= 6


@pytest.mark.parametrize(("free", "most"), [(1 << 40, None), (0, 0)])
def test_shared_memory_limits_how_many_workers_are_tried(
    free: int, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has no room for their batches none are, and that is said; with enough of it the cores decide."""
    monkeypatch.setattr(environment, "shared_memory_bytes", lambda: free)
    found: list[tuple[int, float, str | None]] = []

    def program(bench: Bench) -> Program:
        found.append((bench.most_workers, bench.cores, bench.why_no_more_workers))
        yield Give("loader")

    list(makers(engine_with(program), DataLoader(Signed(), batch_size=4)))
    ((workers, cores, reason),) = found
    assert workers == (int(min(64, 4 * cores)) if most is None else most)
    assert (reason is None) is (most is None)


def test_no_more_workers_are_tried_than_an_epoch_has_batches() -> None:
    """In the script's own epochs the others would make none."""
    found = []

    def program(bench: Bench) -> Program:
        found.append((bench.most_workers, bench.why_no_more_workers))
        yield Give("loader")

    list(makers(engine_with(program), DataLoader(Signed(12), batch_size=4), epochs=3))
    assert found == [(3, None)]


def test_settings_of_an_iterable_that_is_no_loader_cannot_be_had() -> None:
    """It has none, so a trial of others is refused instead of measured on the same iterable."""
    batches = [torch.zeros(4)] * 40
    seen = []

    def program(bench: Bench) -> Program:
        seen.append((bench.use(THREE), bench.use(None)))
        yield from some(bench, 2)

    engine = engine_with(program)
    with pytest.raises(errors.Finished):
        for _ in engine.iterate(batches, iter):
            _work()
    assert seen == [(False, True)]


def test_nobody_is_left_behind() -> None:
    """After a search that ends with workers on trial at work and others resting, no process remains."""
    before = children()

    def program(bench: Bench) -> Program:
        for settings in (ONE, THREE):
            bench.use(settings)
            yield from some(bench, 3)

    list(makers(engine_with(program), DataLoader(Signed(), batch_size=4, num_workers=2)))
    assert children() == before


def test_continuing_goes_on_with_the_scripts_own_workers() -> None:
    """After the diagnosis every batch comes from them, each index once, and nobody else is kept."""

    def program(bench: Bench) -> Program:
        for settings in (ONE, THREE):
            bench.use(settings)
            yield from some(bench, 3)

    before = children()
    engine = engine_with(program, stop=False)
    loader = DataLoader(Signed(120), batch_size=4, num_workers=2)
    made, kept, indices = [], [], []
    with installed(engine):
        for _ in range(3):
            indices.append([])
            for batch in loader:
                _work()
                made.append(int(batch[1][0]))
                indices[-1] += batch[0].tolist()
                if engine.is_finished and len(indices) == 1:
                    kept.append(workers_of(engine))
            kept_after = children() - before
    assert set(made[8:]) == {2}
    assert kept
    assert all(found == {2} for found in kept)
    assert len(made) == 90
    assert sorted(indices[1]) == sorted(indices[2]) == list(range(120))
    assert kept_after == 0


def test_the_fleet_of_a_diagnosis_ends_with_its_epoch() -> None:
    """A script that goes on makes workers of its own for the next epoch, so ours would only take memory."""
    before = children()
    engine = engine_with(lambda bench: some(bench, 3), stop=False)
    loader = DataLoader(Signed(80), batch_size=4, num_workers=2)
    with installed(engine):
        for _ in loader:
            _work()
        assert engine.is_finished
        assert children() == before


# --- Dropped batches --------------------------------------------------------------------------------------------------


class Clock:
    """A clock that passes a microsecond for every look at it, and more when told."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1000
        return self.now

    def work(self, ms: float) -> None:
        self.now += int(ms * 1e6)


def loop(engine: Engine, clock: Clock, *, drop: int, use: int, length: int = 400) -> None:
    """An epoch in which the first batches are dropped, as a resumed run does, and then some are used."""
    loader = DataLoader(Signed(length), batch_size=4)
    with installed(engine):
        for number, _ in enumerate(loader):
            if number < drop:
                continue
            if number == drop + use:
                break
            clock.work(5)


def test_batches_dropped_at_the_beginning_are_counted() -> None:
    """Those that the loop asked past without doing anything, and the time until the first that it used."""
    clock = Clock()
    engine = Engine(passive=True, clock_ns=clock)
    loop(engine, clock, drop=30, use=5)
    found = engine.recording().starts[0]
    assert found.dropped == 30
    assert 0 < found.dropped_ns < 5_000_000
    assert found.batches == 36


def test_a_loop_that_drops_nothing_has_none() -> None:
    """A batch that is used is not dropped, nor is a quick one after it."""
    clock = Clock()
    engine = Engine(passive=True, clock_ns=clock)
    with installed(engine):
        for number, _ in enumerate(DataLoader(Signed(40), batch_size=4)):
            if number == 0:
                clock.work(5)
    found = engine.recording().starts[0]
    assert (found.dropped, found.dropped_ns) == (0, 0)


def test_a_loop_that_only_drops_counts_as_timing_its_loader() -> None:
    """Nothing was lost before the first used batch where none was used."""
    clock = Clock()
    engine = Engine(passive=True, clock_ns=clock)
    loop(engine, clock, drop=10_000, use=0, length=80)
    assert engine.recording().starts[0].dropped == 0


def test_the_experiment_begins_with_the_batches_that_are_used() -> None:
    """While a resumed run still drops what it had seen, its loop is not measured; eight used in a row end that."""
    clock, begun = Clock(), []
    engine: Engine

    def program(bench: Bench) -> Program:
        begun.append(engine.most_batches)
        yield Give("loader")

    engine = Engine(program=lambda bench, options: program(bench), clock_ns=clock)
    with pytest.raises(errors.Finished):
        loop(engine, clock, drop=25, use=50)
    assert begun == [33]


def test_a_loop_that_only_drops_is_measured_all_the_same_after_a_third_of_its_epoch() -> None:
    """It may be there to time the loader: nothing else will come."""
    clock, begun = Clock(), []
    engine: Engine

    def program(bench: Bench) -> Program:
        begun.append(engine.most_batches)
        yield Give("loader")

    engine = Engine(program=lambda bench, options: program(bench), clock_ns=clock)
    with pytest.raises(errors.Finished):
        loop(engine, clock, drop=10_000, use=0)
    assert begun == [34]


def test_a_starved_loop_that_only_launches_work_is_measured_before_long() -> None:
    """Where each batch is waited for and handed on at once, ten seconds are enough, in the longest epoch too."""
    clock, begun = Clock(), []

    class Waiting(Signed):
        def __getitem__(self, index: int):
            clock.work(100)
            return super().__getitem__(index)

    def program(bench: Bench) -> Program:
        begun.append(clock.now)
        yield Give("loader")

    engine = Engine(program=lambda bench, options: program(bench), clock_ns=clock)
    with installed(engine), pytest.raises(errors.Finished):
        for _ in DataLoader(Waiting(4000), batch_size=1):
            clock.work(0.1)
    assert 10e9 < begun[0] < 11e9


def test_each_epoch_counts_its_own() -> None:
    """The counts begin anew with every iterator."""
    clock = Clock()
    engine = Engine(passive=True, clock_ns=clock)
    loader = DataLoader(Signed(80), batch_size=4)
    with installed(engine):
        for drop in (12, 0):
            for number, _ in enumerate(loader):
                if number >= drop:
                    clock.work(5)
    assert [start.dropped for start in engine.recording().starts] == [12, 0]


def test_what_the_script_does_between_epochs_has_its_own_settings() -> None:
    """Threads and collector are on trial while the loop runs, and not in the validation or the start of an epoch."""

    def program(bench: Bench) -> Program:
        bench.limit_threads(1)
        bench.allow_collector(False)
        yield from some(bench, 40)
        bench.limit_threads(None)
        bench.allow_collector(True)

    own = torch.get_num_threads()
    torch.set_num_threads(2)
    inside, between, validating = set(), set(), set()
    engine = engine_with(program)
    loader, other = DataLoader(Signed(48), batch_size=4), DataLoader(Signed(8), batch_size=4)
    try:
        with installed(engine), pytest.raises(errors.Finished):
            while True:
                for position, _ in enumerate(loader):
                    _work()
                    if position > 4:  # the loader has been chosen by then
                        inside.add((torch.get_num_threads(), gc.isenabled()))
                    if position > 9:
                        break
                with torch.no_grad():
                    for _ in other:
                        validating.add((torch.get_num_threads(), gc.isenabled()))
                for _ in loader:
                    _work()
                between.add((torch.get_num_threads(), gc.isenabled()))
        assert inside == {(1, False)}
        assert between == validating == {(2, True)}
        assert (torch.get_num_threads(), gc.isenabled()) == (2, True)
    finally:
        torch.set_num_threads(own)
