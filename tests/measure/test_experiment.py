"""The programme of a diagnosis on a scripted bench: no torch worker, no clock."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from scripted import Bench, Pipeline, findings, with_own

from unstarve import estimate
from unstarve.judge.evidence import at_length
from unstarve.law import Loop
from unstarve.measure import experiment, plan
from unstarve.measure.experiment import Experiment
from unstarve.measure.program import Give, Options, Step
from unstarve.measure.rungs import BUSY, BYTES, HOST, NONE
from unstarve.recording import Block, Rung, Settings, Stage

MS = 1_000_000
STARVED = Pipeline(Loop(step_s=0.01, fetch_s=0.08, cpu_s=0.08, cores=8), Settings(num_workers=2))
FED = Pipeline(Loop(step_s=0.05, fetch_s=0.02, cpu_s=0.02, cores=8), Settings(num_workers=2))


def paced(period_s: float, workers: int = 2) -> Pipeline:
    """A loop that takes so long for a step, nearly all of it for input."""
    fetch_s = period_s * max(1, workers) - (0.0 if workers else 0.001)
    return Pipeline(Loop(step_s=0.001, fetch_s=fetch_s, cpu_s=0.0, cores=8), Settings(num_workers=workers))


@pytest.mark.parametrize(
    ("period_s", "budget_s"), [(0.01, 40), (0.39, 40), (1.0, 100), (10.0, 150)], ids=["quick", "edge", "slow", "crawl"]
)
def test_the_default_budget_suits_the_speed_of_the_loop(period_s: float, budget_s: float) -> None:
    """Where steps are slow the experiment gets the time of a hundred of them, between 40 and 150 seconds."""
    bench = Bench(paced(period_s), noise=0.001)
    lab = Experiment(bench, Options())
    assert bench.drive(lab.warm_up())
    assert lab.budget_s == pytest.approx(budget_s, rel=0.02)


def test_a_given_budget_stays_as_it_is() -> None:
    """What the user asks for is not adapted, however slow the loop."""
    bench = Bench(paced(10.0))
    lab = Experiment(bench, Options(budget_s=7))
    assert bench.drive(lab.warm_up())
    assert lab.budget_s == 7


@pytest.mark.parametrize("seed", range(4))
def test_the_first_round_begins_with_what_a_verdict_needs(seed: int) -> None:
    """Host, none and device come first, in case the budget ends there; later rounds are in random order."""
    bench = Bench(STARVED, has_device=True)
    assert bench.drive(experiment.program(bench, Options(budget_s=20, seed=seed)))
    first = [block.rung for block in bench.blocks if block.round == 0]
    assert first[:3] == ["host", "none", "device"]
    assert set(first[3:]) == {"samples", "collated"}


def test_later_rounds_are_in_another_order() -> None:
    """Rungs are interleaved at random, or drift within a round would fall on the same rung each time."""
    bench = Bench(STARVED, noise=0.2)
    assert bench.drive(experiment.program(bench, Options(budget_s=60)))
    orders = {
        tuple(block.rung for block in bench.blocks if block.round == number)
        for number in range(1, 1 + max(block.round for block in bench.blocks))
    }
    assert len(orders) > 1


def test_the_time_between_epochs_is_in_none_of_a_blocks_figures() -> None:
    """A validation that computes for a second is no CPU time of the steps around it."""
    busy = replace(FED, loop=replace(FED.loop, main_cores=0.5))
    bench = Bench(busy, epoch_length=12, gap_s=1.0, noise=0.001)
    lab = Experiment(bench, Options(budget_s=60))
    assert bench.drive(lab.warm_up())
    lab.add(NONE, "loader", {"mode": "run"})
    for number in range(1, 4):
        assert bench.drive(lab.block(NONE.id, number))
    assert len(lab.blocks) == 3
    for block in lab.blocks:
        span = block.end_ns - block.start_ns
        assert block.main_cpu_ns == pytest.approx(0.5 * span, rel=0.01)
        assert span == pytest.approx(sum(block.waits_ns) + sum(block.bodies_ns), rel=0.05)


def test_after_two_rounds_time_goes_to_what_may_be_the_best() -> None:
    """A knock-out that surely gains less than another is measured again in every third round only; the baseline and the
    ceiling in every one."""
    lab = Experiment(Bench(STARVED), Options(budget_s=60))
    rates = {"host": 100, "none": 20, "collated": 95, "knockout:ipc": 21, "knockout:code:1": 60, "knockout:code:2": 61}
    for name, rate in rates.items():
        lab.add(Rung(id=name, label=name, kind="knockout"), "loader", {"mode": "run"})
        for number in range(2):
            period = int(1e9 / rate * (1 + 0.01 * number))
            lab._blocks.append(
                Block(
                    rung=name, round=number, start_ns=0, end_ns=8 * period, waits_ns=(0,) * 8, bodies_ns=(period,) * 8
                )
            )
    assert set(lab._names_of_round(2)) == {"host", "none", "knockout:code:1", "knockout:code:2"}
    assert set(lab._names_of_round(4)) == set(rates)


def test_the_second_round_begins_with_the_first_suspect_and_with_where_workers_run() -> None:
    """The budget may end in it."""
    lab = Experiment(Bench(STARVED), Options(budget_s=60))
    urgent = {"host", "none", "knockout:code:1", "trial:affinity"}
    for name in ["knockout:collate", "knockout:code:1", "knockout:code:2", "trial:1 worker", "samples", *urgent]:
        lab.add(Rung(id=name, label=name, kind="knockout"), "loader", {"mode": "run"})
    names = lab._names_of_round(1)
    assert set(names[:4]) == urgent
    assert names[-1] == "samples"


@pytest.mark.parametrize(("samples", "is_behind"), [(1.0, True), (1.1, True), (1.8, False)])
def test_what_lies_behind_the_stages_is_looked_at_soon_where_most_is_to_be_gained_there(
    samples: float, is_behind: bool
) -> None:
    """Such as the sampler: noise that has finished samples gain a little must not put it off."""
    lab = Experiment(Bench(STARVED), Options(budget_s=60))
    rates = {"none": 10.0, "samples": 10.0 * samples, "host": 30.0, "knockout:code:1": 11.0, "control:sampler": 12.0}
    for name, rate in rates.items():
        lab.add(Rung(id=name, label=name, kind="knockout"), "loader", {"mode": "run"})
        period = int(1e9 / rate)
        lab._blocks.append(
            Block(rung=name, round=0, start_ns=0, end_ns=8 * period, waits_ns=(0,) * 8, bodies_ns=(period,) * 8)
        )
    assert ("control:sampler" in lab._names_of_round(1)[:3]) is is_behind


@pytest.mark.parametrize("budget_s", [5.0, 20.0, 60.0])
def test_the_budget_bounds_the_experiment(budget_s: float) -> None:
    """It ends about when its time is over, and has measured the loop as it is and fed from cache by then."""
    bench = Bench(STARVED, noise=0.3)
    assert bench.drive(experiment.program(bench, Options(budget_s=budget_s)))
    assert bench.now_ns / 1e9 < 1.6 * budget_s
    assert {"host", "none"} <= {block.rung for block in bench.blocks}


MANY_SLOW = {
    "fed": Pipeline(Loop(step_s=1.0, fetch_s=0.4, cpu_s=0.0, cores=8), Settings(num_workers=8)),
    "starved": Pipeline(Loop(step_s=0.2, fetch_s=8.0, cpu_s=0.0, cores=8), Settings(num_workers=8)),
    "very many": Pipeline(Loop(step_s=0.5, fetch_s=0.4, cpu_s=0.0, cores=16), Settings(num_workers=16)),
    "alone": Pipeline(Loop(step_s=1.0, fetch_s=2.0, cpu_s=0.0, cores=8), Settings(num_workers=0)),
}


@pytest.mark.parametrize("which", MANY_SLOW)
def test_a_small_budget_for_many_workers_and_slow_steps_still_gives_a_verdict(which: str) -> None:
    """Of the loop fed and as it is, before anything else, in whole turns of the workers; what was left out is said, with the
    budget that has room for it."""
    pipeline = MANY_SLOW[which]
    bench = Bench(pipeline, noise=0.01)
    assert bench.drive(experiment.program(bench, Options(budget_s=10)))
    assert [block.rung for block in bench.blocks] == ["host", "none"]
    assert bench.blocks[1].steps % max(1, pipeline.own.num_workers) == 0
    assert bench.now_ns / 1e9 < 30
    assert not [order for order in bench.orders if order["mode"] == "watch"]
    (note,) = [note for note in bench.notes if note.id == "no-looks"]
    assert int(re.findall(r"--budget (\d+)", note.sentence)[0]) >= 60


@pytest.mark.parametrize("which", MANY_SLOW)
def test_a_budget_with_room_for_looks_has_them_after_the_first_blocks(which: str) -> None:
    """The budget that the note names is enough for what the loop loses and for where it loses it."""
    bench = Bench(MANY_SLOW[which], noise=0.01)
    assert bench.drive(experiment.program(bench, Options(budget_s=100)))
    assert {"host", "none", "samples"} <= {block.rung for block in bench.blocks}
    assert not [note for note in bench.notes if note.id == "no-looks"]
    assert [block.rung for block in bench.blocks if block.round == 0].count("host") == 1


def test_an_epoch_end_inside_a_block_is_left_out_of_it() -> None:
    """Neither the gap between epochs nor what the workers had ready after it counts for the block."""
    bench = Bench(FED, noise=0.0, epoch_length=20, gap_s=5.0)
    lab = Experiment(bench, Options(budget_s=40))
    lab.add(NONE, "loader", {"mode": "run"})
    for number in range(1, 12):
        assert bench.drive(lab.block(NONE.id, number))
    assert bench.steps > 60
    assert len(lab.blocks) == 11
    for block in lab.blocks:
        assert block.end_ns - block.start_ns == pytest.approx(block.steps * 0.05e9, rel=1e-6)
        assert max(block.waits_ns) < 1e9


class Asynchronous(Bench):
    """A loop that launches its steps on a device in a millisecond each and never waits for it."""

    queued_ns = 0
    """When the device will have done what was launched."""

    def _step(self, give: Give) -> Step:
        step = super()._step(give)
        self.queued_ns = max(self.queued_ns, self.now_ns) + 60_000_000
        return step

    def synchronize(self) -> None:
        self.now_ns = max(self.now_ns, self.queued_ns)


def test_what_a_device_was_to_do_before_an_epoch_ended_counts_for_the_block() -> None:
    """Though the loop was through with launching it long before, and the device did it in the gap."""
    bench = Asynchronous(replace(FED, loop=replace(FED.loop, step_s=0.001)), noise=0.0, epoch_length=30, gap_s=5.0)
    lab = Experiment(bench, Options(budget_s=40))
    lab.add(HOST, "host", {})
    for number in range(1, 12):
        assert bench.drive(lab.block(HOST.id, number))
    assert len(lab.blocks) == 11
    for block in lab.blocks:
        assert (block.end_ns - block.start_ns) / block.steps == pytest.approx(0.06e9, rel=0.03)


class Accumulating(Bench):
    """A loop that takes four batches, then works on all of them for 0.1 s; at an epoch's end also for whatever follows."""

    def __init__(self, length: int) -> None:
        super().__init__(FED, epoch_length=length, noise=0.0)
        self.cycle = 4

    def _step(self, give: Give) -> Step:
        self.steps += 1
        self.served.append((give.source, self.used))
        place = self.steps % (self.epoch_length or 1)
        body = 100_000_000 if place % self.cycle == 0 else 10_000
        self.now_ns += body + (0 if place else 5_000_000_000)
        return Step(0, body, place > 1, None)  # nor is the first step after an end whole


@pytest.mark.parametrize("length", [12, 20, 32])
def test_a_cycle_that_an_epochs_end_cuts_short_is_left_out(length: int) -> None:
    """Without the step that worked on them its batches would seem to take no time."""
    bench = Accumulating(length)
    lab = Experiment(bench, Options(budget_s=400))
    lab.add(HOST, "host", {})
    for number in range(1, 12):
        assert bench.drive(lab.block(HOST.id, number))
    assert len(lab.blocks) == 11
    for block in lab.blocks:
        assert (block.end_ns - block.start_ns) / block.steps == pytest.approx(0.025e9, rel=0.03)


def test_a_block_that_epoch_ends_keep_interrupting_is_given_up() -> None:
    """Where epochs are shorter than it takes to settle, the block ends without a figure instead of never."""
    bench = Bench(FED, epoch_length=1, gap_s=1.0)
    lab = Experiment(bench, Options(budget_s=40))
    lab.add(NONE, "loader", {"mode": "run"})
    assert bench.drive(lab.block(NONE.id, 0))
    assert lab.blocks == []


@pytest.mark.parametrize(
    ("pipeline", "is_aside"), [(paced(0.5), True), (paced(0.02), False), (paced(0.6, workers=0), False)]
)
def test_slow_workers_are_looked_into_beside_the_loop(pipeline: Pipeline, is_aside: bool) -> None:
    """Where a worker needs long for a batch it makes only the samples that are watched; never without workers."""
    bench = Bench(pipeline)
    bench.drive(experiment.program(bench, Options(budget_s=60)))
    watched = [order for order in bench.orders if order["mode"] == "watch"]
    assert watched
    assert {bool(order["aside"]) for order in watched} == {is_aside}


def test_another_number_of_workers_is_tried_where_the_law_expects_something_of_it() -> None:
    """A starved loop with idle cores gets the trial, a fed one does not."""
    starved, fed = Bench(STARVED), Bench(FED)
    assert starved.drive(experiment.program(starved, Options(budget_s=30)))
    assert fed.drive(experiment.program(fed, Options(budget_s=30)))
    assert set(starved.started) == {Settings(num_workers=8)}
    assert not fed.started


RECEIVING = Pipeline(
    Loop(step_s=0.002, fetch_s=0.002, cpu_s=0.002, cores=2), Settings(num_workers=2), receiving_s=0.005
)
"""Workers that are quick, and batches that are dear to have from them."""


@pytest.mark.parametrize(
    ("pipeline", "may_load_here", "is_tried"),
    [
        (RECEIVING, True, True),
        (RECEIVING, False, False),
        (replace(RECEIVING, loop=replace(RECEIVING.loop, fetch_s=0.012, cpu_s=0.012)), True, False),
        (replace(RECEIVING, receiving_s=0.0), True, False),
    ],
    ids=["dear to receive", "the script goes on", "dear to make", "cheap to receive"],
)
def test_no_workers_are_tried_once_where_having_batches_from_them_costs_more(
    pipeline: Pipeline, may_load_here: bool, is_tried: bool
) -> None:
    """Only where the law expects the main process alone to be about as fast, and nothing is started after what the data
    set may have opened there."""
    bench = Bench(pipeline, noise=0.01)
    assert bench.drive(experiment.program(bench, Options(budget_s=30, may_load_here=may_load_here)))
    here = replace(pipeline.own, num_workers=0)
    assert bench.started[here] == is_tried
    assert not is_tried or list(bench.started)[-1] == here


def test_workers_that_take_long_to_start_are_not_tried() -> None:
    """A trial must not cost a good part of the budget before its first batch."""
    bench = Bench(STARVED, start_s=10.0)
    assert bench.drive(experiment.program(bench, Options(budget_s=30)))
    assert not bench.started


def test_any_order_is_tried_where_some_batches_are_much_slower() -> None:
    """Delivery in order can only cost something where ready batches wait for a slow one."""
    pipeline = Pipeline(Loop(step_s=0.01, fetch_s=0.02, cpu_s=0.0, cores=8), Settings(num_workers=2), stalls=0.5)
    bench = Bench(pipeline)
    assert bench.drive(experiment.program(bench, Options(budget_s=30)))
    assert Settings(num_workers=2, in_order=False) in bench.started


def test_host_and_none_alone_make_a_programme_without_workers_control() -> None:
    """An iterable that is no loader gets the outer rungs, and no order is issued for anything else."""
    bench = Bench(STARVED)
    bench.has_fleet = False
    assert bench.drive(experiment.program(bench, Options(budget_s=20)))
    assert {block.rung for block in bench.blocks} == {HOST.id, NONE.id}
    assert {order["mode"] for order in bench.orders} == {"run"}


@pytest.mark.parametrize(("share", "calls", "is_offered"), [(0.5, 20, True), (0.01, 20, False), (0.5, 0, False)])
def test_the_bytes_rung_is_offered_where_a_stage_that_matters_reads(share: float, calls: int, is_offered: bool) -> None:
    """Without reading there is nothing to tell from decoding, and a cheap stage is not worth a rung."""
    stage = Stage(id="code:0", kind="code", name="load", text="x = load(path)", wall_ns=(1,) * 10, read_calls=calls)
    lab = Experiment(Bench(STARVED), Options(budget_s=20))
    lab._nodes = [plan.Node((0,), stage, is_item=False, share=share, is_leaf=True)]
    lab._add_bytes()
    assert [rung.id for rung in lab.planned] == ["bytes"] * is_offered


def test_every_worker_fills_before_the_bytes_rung_is_measured() -> None:
    """Each worker's first batch under the rung finds out which files to keep, so as many steps pass unmeasured, also
    where workers are slow and blocks start at once."""
    bench = Bench(paced(0.5, workers=4))
    lab = Experiment(bench, Options(budget_s=40))
    assert bench.drive(lab.warm_up())
    lab._filled_fleet = bench.fleet
    lab.add(BYTES, "loader", {"mode": "reads", "limit_bytes": 1})
    before = bench.steps
    assert bench.drive(lab.block(BYTES.id, 1))
    assert bench.steps - before == 4 + lab.blocks[0].steps


def test_the_call_around_a_stage_that_cannot_be_served_takes_its_place_at_once() -> None:
    """It is measured next, after values of it were kept; a stage that is no part of another is just given up."""
    lab = Experiment(Bench(STARVED), Options())
    stages = [Stage(id=ident, kind="code", name=ident) for ident in ("record", "index", "other")]
    addresses, shares = [(0,), (0, 1), (1,)], [0.8, 0.7, 0.1]
    lab._nodes = [
        plan.Node(address, stage, is_item=False, share=share, is_leaf=True)
        for address, stage, share in zip(addresses, stages, shares, strict=True)
    ]
    lab._filled_fleet = 3
    for stage, address in zip(stages[1:], addresses[1:], strict=True):
        lab.add(plan.knockout_rung(stage), "loader", {"mode": "knockout", "address": address})
    lab._drop("knockout:other")
    assert ([rung.id for rung in lab.planned], lab._filled_fleet) == (["knockout:index"], 3)
    lab._drop("knockout:index")
    assert [rung.id for rung in lab.planned] == lab._instead == ["knockout:record"]
    assert (lab._wanted, lab._filled_fleet) == ([(0,)], -1)


# --- Controls ---------------------------------------------------------------------------------------------------------


def headroom(bench: Bench) -> float:
    found = estimate.contrast(at_length(bench.blocks, 0.05), "host", "none")
    assert found is not None
    return found.value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stops", [(64, 1.0), (150, 3.0)], ids=str)
def test_stalls_that_come_once_in_many_batches_are_met(stops: tuple[int, float], seed: int) -> None:
    """A loop that seems fed is looked at for long: short blocks may all lie between the stalls."""
    every, stop_s = stops
    true = 1 + stop_s / (every * FED.loop.step_s)
    bench = Bench(replace(FED, stops=stops), seed=seed)
    assert bench.drive(experiment.program(bench, Options(budget_s=40, seed=seed)))
    assert max(block.steps for block in bench.blocks) >= every
    assert headroom(bench) == pytest.approx(true, rel=0.2)


def test_a_long_look_at_a_loop_that_is_fed_changes_nothing() -> None:
    """It is one more block, within the budget; a loop that is starved gets none."""
    fed, starved = Bench(FED), Bench(STARVED)
    for bench in (fed, starved):
        assert bench.drive(experiment.program(bench, Options(budget_s=40)))
        assert bench.now_ns < 41e9
    assert max(block.steps for block in fed.blocks) > 150
    assert at_length(fed.blocks, 0.05) == tuple(fed.blocks)
    assert max(block.steps for block in starved.blocks) < 100


def with_contention(share: float, **changes) -> Bench:
    return Bench(replace(STARVED, contention=share), epoch_length=1000, noise=0.001, **changes)


def test_the_loop_is_fed_from_cache_while_its_workers_rest() -> None:
    """They are told to, and get the time that one more batch takes them."""
    bench = Bench(STARVED, epoch_length=1000, noise=0.001)
    lab = Experiment(bench, Options(budget_s=60))
    assert bench.drive(lab.warm_up())
    lab.add(NONE, "loader", {"mode": "run"})
    lab.add(HOST, "host", {})
    assert bench.drive(lab.block(NONE.id, 0))
    began = bench.now_ns
    assert bench.drive(lab.block(HOST.id, 0))
    assert bench.orders[-1] == {"mode": "idle"}
    assert lab.blocks[-1].start_ns - began >= STARVED.loop.fetch_s * 1e9


def test_waiting_for_workers_to_rest_takes_the_loop_few_steps() -> None:
    """However long they are at a batch: the steps of an epoch may be few, and are for measuring."""
    slow = replace(STARVED, loop=replace(STARVED.loop, step_s=0.05, fetch_s=0.8))
    bench = Bench(slow, epoch_length=1000, noise=0.001)
    lab = Experiment(bench, Options(budget_s=120))
    assert bench.drive(lab.warm_up())
    lab.add(NONE, "loader", {"mode": "run"})
    lab.add(HOST, "host", {})
    assert bench.drive(lab.block(NONE.id, 0))
    steps, began = bench.steps, bench.now_ns
    assert bench.drive(lab.block(HOST.id, 0))
    assert bench.steps - steps - lab.blocks[-1].steps <= 4
    assert lab.blocks[-1].start_ns - began >= slow.loop.fetch_s * 1e9


def test_a_starved_loop_is_fed_from_cache_while_its_workers_are_busy() -> None:
    """What busy workers cost the loop body is the ratio of the ceiling to this control, as planted."""
    bench = with_contention(0.25)
    assert bench.drive(experiment.program(bench, Options(budget_s=30)))
    ratio = estimate.contrast(bench.blocks, "host", "control:busy")
    assert ratio is not None
    assert ratio.value == pytest.approx(1.25, rel=0.02)
    first = next(block.round for block in bench.blocks if block.rung == "control:busy")
    assert first == 1


@pytest.mark.parametrize("source", ["host", "device"])
def test_busy_workers_are_fed_with_indices_before_and_sent_to_rest_after(source: str) -> None:
    """They clear what they have, get one index each under the order, and nothing is taken from the loader meanwhile."""
    bench = with_contention(0.25, has_device=source == "device")
    lab = Experiment(bench, Options())
    assert bench.drive(lab.warm_up())
    bench.served.clear()
    lab.add(BUSY, source, {"mode": "busy"})
    assert bench.drive(lab.block(BUSY.id, 1))
    assert [order["mode"] for order in bench.orders] == ["idle", "busy", "idle"]
    served = "".join({"loader": "L", "host": "h", "device": "d"}[kind] for kind, _ in bench.served)
    assert re.fullmatch(f"LL(L*)h+LL{source[0]}+L", served)
    assert len(lab.blocks) == 1
    assert bench.orders[1]["limit_ns"] >= 2 * (lab.blocks[0].end_ns - lab.blocks[0].start_ns)


@pytest.mark.parametrize(
    "bench",
    [
        Bench(replace(FED, contention=0.25), epoch_length=1000),
        Bench(STARVED),
        Bench(with_own(STARVED, in_order=False), epoch_length=1000),
        Bench(paced(0.02, workers=0), epoch_length=1000),
    ],
    ids=["input costs nothing", "a stream", "any order", "no workers"],
)
def test_workers_are_not_kept_busy_in_vain(bench: Bench) -> None:
    """Not where nothing is starved, where indices would be lost, where nobody knows who gets them, or without workers."""
    assert bench.drive(experiment.program(bench, Options(budget_s=20)))
    assert "busy" not in {order["mode"] for order in bench.orders}


@pytest.mark.parametrize(("share", "is_tried"), [(0.2, True), (0.01, False)])
@pytest.mark.parametrize("pipeline", [STARVED, FED], ids=["starved", "fed"])
def test_the_collector_is_tried_off_where_collections_take_time(
    pipeline: Pipeline, share: float, is_tried: bool
) -> None:
    """In the workers and in the loop's own process, for the blocks of the trial only."""
    bench = Bench(replace(pipeline, collecting=share))
    assert bench.drive(experiment.program(bench, Options(budget_s=20)))
    assert any(order.get("collector") == "off" for order in bench.orders) is is_tried
    assert (False in bench.collector) is is_tried
    assert bench.collector[-1] is True


@pytest.mark.parametrize(
    ("facts", "tried"),
    [
        ({"threads": 1, "working_threads": 0, "pool_threads": 8}, set()),
        ({"threads": 4, "working_threads": 0}, {"trial:worker-threads"}),
        ({"threads": 1, "working_threads": 8, "pool_threads": 8}, {"trial:worker-threads"}),
        ({"threads": 1, "working_threads": 16, "pool_threads": 2}, {"trial:one-core"}),
        ({"threads": 1, "working_threads": 1, "pool_threads": 0}, set()),
    ],
    ids=["pool that sleeps", "library's setting", "BLAS at work", "threads of its own", "one helper"],
)
def test_threads_in_workers_are_tried_on_where_they_work(facts: dict[str, int], tried: set[str]) -> None:
    """By the library's own setting where there is one, by a core for each worker where there is none."""
    bench = Bench(replace(STARVED, facts={"affinity": 2, **facts}))
    assert bench.drive(experiment.program(bench, Options(budget_s=20)))
    assert {rung.id for rung in bench.planned} & {"trial:worker-threads", "trial:one-core"} == tried


def watched(granularity: str) -> Experiment:
    """An experiment that saw calls of 8 ms and collations of 2 ms, in batches of 8."""
    lab = Experiment(Bench(STARVED), Options())
    found = findings({"pass": 1, "limit": 0}, {})
    milliseconds = {"sample_wall_ns": (8 * MS,) * 6, "collate_wall_ns": (2 * MS,) * 3, "collate_cpu_ns": (2 * MS,) * 3}
    lab._findings = [replace(found, granularity=granularity, sample_cpu_ns=(8 * MS,) * 6, **milliseconds)]
    return lab


@pytest.mark.parametrize(("granularity", "sample_ms", "share"), [("sample", 8, 2 / 64), ("batch", 1, 2 / 8)])
def test_what_a_call_takes_is_that_of_all_samples_it_makes(granularity: str, sample_ms: int, share: float) -> None:
    """A data set that makes batches takes an eighth of its call for each of eight samples, as collation is a batch's."""
    lab = watched(granularity)
    dataset, collate = (stage for stage in lab._stages() if stage.id in ("code", "collate"))
    assert set(dataset.wall_ns) == {sample_ms * MS}
    assert set(collate.wall_ns) == {MS // 4}
    assert lab._collate_share() == pytest.approx(share)
