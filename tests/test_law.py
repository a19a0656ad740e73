"""The throughput law on literal loops: no torch, no clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstarve import law
from unstarve.law import Loop
from unstarve.recording import Block, Start

MS = 1_000_000
SECONDS = st.floats(min_value=0, max_value=10)
LOOPS = st.builds(
    Loop,
    step_s=SECONDS,
    fetch_s=SECONDS,
    cpu_s=st.floats(min_value=0, max_value=80),
    cores=st.floats(min_value=0.25, max_value=128),
    main_cores=st.floats(min_value=0, max_value=1),
)
HEAVY = Loop(step_s=0.01, fetch_s=0.1, cpu_s=0.1, cores=4, main_cores=0.5)


def block(rung: str, *, period_ms: int, fetch_ms: int = 0, delay_ms: int = 0, steps: int = 4, busy: float = 0) -> Block:
    is_made = rung == "none"
    return Block(
        rung=rung, round=0, start_ns=0, end_ns=steps * period_ms * MS, waits_ns=(0,) * steps,
        bodies_ns=(period_ms * MS,) * steps, main_cpu_ns=int(busy * steps * period_ms * MS),
        fetches_ns=(fetch_ms * MS,) * steps if is_made else (),
        fetches_cpu_ns=(fetch_ms * MS // 2,) * steps if is_made else (),
        delays_ns=(delay_ms * MS,) * steps if is_made else (),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("loop", "workers", "rate"),
    [
        (Loop(step_s=0.1, fetch_s=0.3, cpu_s=0.3, cores=8), 0, 1 / 0.4),
        (Loop(step_s=0.1, fetch_s=0.3, cpu_s=0.3, cores=8), 2, 2 / 0.3),
        (Loop(step_s=0.1, fetch_s=0.3, cpu_s=0.3, cores=8), 4, 1 / 0.1),
        (Loop(step_s=0.1, fetch_s=0.8, cpu_s=0.8, cores=2), 8, 2 / 0.8),
        (Loop(step_s=0.1, fetch_s=0.8, cpu_s=0.75, cores=2, main_cores=0.5), 8, 2 / 0.8),
        (Loop(step_s=0.1, fetch_s=0.1, cpu_s=3.9, cores=2, main_cores=1), 0, 2 / 4.0),
    ],
    ids=["taking turns", "too few workers", "step-bound", "cpu-bound", "with the loop's own share", "threads at 0"],
)
def test_the_slowest_resource_sets_the_pace(loop: Loop, workers: int, rate: float) -> None:
    """The rate is that of the step, of the workers together, or of the cores, whichever is least."""
    assert loop.rate(workers) == pytest.approx(rate)


@given(LOOPS, st.integers(0, 200), st.integers(0, 200))
def test_more_workers_never_slow_the_law_down(loop: Loop, some: int, more: int) -> None:
    """By the law the rate does not fall as workers are added, the step from none to one included."""
    few, many = sorted((some, more))
    assert loop.rate(few) <= loop.rate(many) * (1 + 1e-9)


@given(LOOPS)
def test_enough_workers_are_the_fewest_that_reach_the_best_rate(loop: Loop) -> None:
    """So many workers reach the best rate there is, and one fewer, where there is one, does not."""
    enough, best = loop.enough_workers(), loop.rate(1 << 16)
    assert enough >= 1
    assert loop.rate(enough) >= best * (1 - 1e-5)
    assert enough == 1 or loop.rate(enough - 1) < best


@given(loop=LOOPS, own=st.integers(0, 40), above=st.integers(1, 40), count=st.integers(2, 8), share=st.floats(0, 1))
def test_worker_counts_are_few_distinct_and_within_limits(
    loop: Loop, own: int, above: int, count: int, share: float
) -> None:
    """The script's own number and the law's choice are always among them, and no other exceeds the limit."""
    most = own + above
    counts = law.worker_counts(loop, own, rate=share * loop.rate(own), most=most, count=count)
    assert own in counts
    assert min(loop.enough_workers(), most) in counts
    assert counts == sorted(set(counts))
    assert len(counts) <= count
    assert all(0 <= number <= most for number in counts if number != own)


def test_worker_counts_leave_out_what_is_far_too_slow() -> None:
    """Numbers under which the law expects less than 60 % of the best rate are not worth a trial."""
    counts = law.worker_counts(HEAVY, 1, rate=HEAVY.rate(1), most=16)
    best = max(map(HEAVY.rate, counts))
    assert all(HEAVY.rate(number) >= 0.6 * best for number in counts if number != 1)


@pytest.mark.parametrize(("rate", "is_tried"), [(45.0, True), (100.0, True), (120.0, False), (300.0, False)])
def test_no_workers_are_tried_where_workers_gain_hardly_anything(rate: float, is_tried: bool) -> None:
    """By the law the loop would make 100 steps per second without workers, 250 with two; what it makes with two decides."""
    loop = Loop(step_s=0.004, fetch_s=0.006, cpu_s=0.006, cores=4)
    counts = law.worker_counts(loop, 2, rate=rate, most=16)
    assert (0 in counts) is is_tried
    assert loop.enough_workers() in counts


def test_no_workers_are_not_tried_where_more_are_needed() -> None:
    """One worker is hardly better than none in a loop that waits for it, but others are."""
    assert HEAVY.rate(0) > law.AS_FAST * HEAVY.rate(1)
    assert 0 not in law.worker_counts(HEAVY, 1, rate=HEAVY.rate(1), most=16)


def test_the_figures_come_from_the_blocks() -> None:
    """The step is that of the loop fed from host memory; a fetch is counted without the time it waited for a core."""
    blocks = [
        block("none", period_ms=50, fetch_ms=80, delay_ms=20, busy=0.1),
        block("host", period_ms=10, busy=0.4),
        block("knockout:ipc", period_ms=7),
    ]
    loop = law.of_blocks(blocks, 2, 4.0)
    assert loop.step_s == pytest.approx(0.010)
    assert loop.fetch_s == pytest.approx(0.060)
    assert loop.cpu_s == pytest.approx(0.040)
    assert loop.main_cores == pytest.approx(0.4)
    assert loop.cores == 4.0


def test_without_workers_nobody_waits_for_a_core_beside_the_loop() -> None:
    """The loop's own process reports delays of its own, which are no part of what a worker would be spared."""
    loop = law.of_blocks([block("none", period_ms=90, fetch_ms=80, delay_ms=20)], 0, 4.0)
    assert loop.fetch_s == pytest.approx(0.080)


def test_nothing_measured_gives_a_law_that_still_answers() -> None:
    """No block, no figure, and no division by zero."""
    loop = law.of_blocks([], 2, 4.0)
    assert loop.rate(0) > 0
    assert law.worker_counts(loop, 2, rate=loop.rate(2), most=8)


def epoch_s(body_ms: int, fetch_ms: int, workers: int, batches: int) -> float:
    """Time of an epoch whose workers have nothing ready when it begins, batch by batch; with room ahead for all."""
    ready = [fetch_ms * (1 + number // workers) for number in range(batches)]
    now = 0
    for at in ready:
        now = max(now, at) + body_ms
    return now / 1e3


@given(
    body_ms=st.integers(1, 500), fetch_ms=st.integers(1, 5000), workers=st.integers(1, 16), batches=st.integers(1, 200)
)
def test_an_epoch_is_longer_than_its_steps_by_what_its_start_costs(
    body_ms: int, fetch_ms: int, workers: int, batches: int
) -> None:
    """Kept workers and those that are ready at once lose only what the first batches, or the last, are waited for."""
    start = Start(
        loader=0, created_ns=0, construct_ns=0, first_wait_ns=fetch_ms * MS, batches=batches, wait_ns=0, ended_ns=0,
        sampler_ns=0, natural=True,
    )  # fmt: skip
    none = Block(
        rung="none", round=0, start_ns=0, end_ns=MS, waits_ns=(0,), bodies_ns=(body_ms * MS,),
        fetches_ns=(fetch_ms * MS,),
    )  # fmt: skip
    cost = law.start_cost(start, [none], workers=workers, batches=batches)
    steady_s = batches * max(body_ms, fetch_ms / workers) / 1e3
    assert cost.setup_s == 0
    assert cost.total_s == pytest.approx(max(0, epoch_s(body_ms, fetch_ms, workers, batches) - steady_s), abs=1e-6)


def test_kept_workers_spare_what_precedes_their_first_batch() -> None:
    """Not the first batch itself, nor the sampler: those of kept workers are waited for all the same."""
    start = Start(
        loader=0, created_ns=0, construct_ns=300 * MS, first_wait_ns=900 * MS, batches=100, wait_ns=0, ended_ns=0,
        sampler_ns=200 * MS, natural=True,
    )  # fmt: skip
    cost = law.start_cost(start, [block("none", period_ms=500, fetch_ms=400)], workers=2, batches=100)
    assert (cost.setup_s, cost.sampler_s, cost.idle_s) == pytest.approx((0.6, 0.2, 0.4))
    assert law.spared_share([cost]) == pytest.approx(0.5)
