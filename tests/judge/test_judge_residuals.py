"""The throughput law against measured rungs, on recordings made by the law, with and without what it leaves out."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from literals import MS, make_recording, make_rung, make_stage

from unstarve.judge import judge
from unstarve.law import Loop
from unstarve.recording import Block, Loader, Recording, Settings

STEP_S, SAMPLES = 0.010, 8


def modelled(
    *, read_ms: float = 2.0, blur_ms: float = 8.0, workers: int = 4, cores: float = 8.0, lock_ms: float = 0.0,
    delivery: float = 1.0, tried: int | None = None, is_waiting: bool = False,
) -> Recording:  # fmt: skip
    """A loop of two stages that runs as the law says.

    Args:
        read_ms: wall time of the first stage, for a sample.
        blur_ms: that of the second.
        workers: worker processes.
        cores: cores of the machine.
        lock_ms: of the first stage, how long a sample holds a lock that all workers share.
        delivery: factor on the speed of the loop as it is that nothing explains.
        tried: another number of workers that was tried.
        is_waiting: whether the stages wait instead of computing.
    """
    cpu = 0.1 if is_waiting else 1.0

    def clocked(number: int, *parts: float) -> tuple[float, float]:
        """Seconds of a batch in a worker, and steps per second, with stages of so many milliseconds."""
        alone = SAMPLES * sum(parts) / 1e3
        loop = Loop(step_s=STEP_S, fetch_s=alone, cpu_s=alone * cpu, cores=cores)
        held = SAMPLES * lock_ms / 1e3 if parts and parts[0] == read_ms else 0.0
        rate = min(loop.rate(number), 1 / held if held else 1e9)
        return max(alone, number / rate if rate * STEP_S < 0.99 and held else alone), rate

    whole, rate = clocked(workers, read_ms, blur_ms)
    figures = {"none": (whole, rate * delivery, read_ms + blur_ms)}
    figures["knockout:read"] = (*clocked(workers, 1e-6, blur_ms), blur_ms)
    figures["knockout:blur"] = (*clocked(workers, read_ms), read_ms)
    rungs = [make_rung(name) for name in ("none", "host", "knockout:read", "knockout:blur")]
    if tried is not None:
        settings = Settings(num_workers=tried)
        rungs.append(dataclasses.replace(make_rung("trial:more"), settings=settings, label=str(settings)))
        figures["trial:more"] = (*clocked(tried, read_ms, blur_ms), read_ms + blur_ms)
    blocks = [_block("host", number, STEP_S, 0, 0) for number in range(4)]
    for name, (fetch, pace, alone) in figures.items():
        blocks += [_block(name, number, 1 / pace, fetch, SAMPLES * alone * cpu / 1e3) for number in range(4)]
    waited = whole * 1e3 / SAMPLES - read_ms - blur_ms  # the lock is waited for in the first stage
    stages = (make_stage("read", read_ms + waited, cpu=cpu), make_stage("blur", blur_ms, cpu=cpu))
    loader = Loader(number=0, name="DataLoader(Toy)", length=1000, batch_size=SAMPLES, num_workers=workers)
    return make_recording(
        {},
        stages=stages,
        blocks=tuple(blocks),
        rungs=tuple(rungs),
        loader=loader,
        environment={"cores_available": cores},
    )


def _block(rung: str, number: int, period_s: float, fetch_s: float, cpu_s: float) -> Block:
    step = int(period_s * 1e3 * MS * (1 + 0.01 * (number % 3 - 1)))
    is_made = fetch_s > 0
    return Block(
        rung=rung, round=number, start_ns=0, end_ns=8 * step, waits_ns=(max(0, step - int(STEP_S * 1e9)),) * 8,
        bodies_ns=(min(step, int(STEP_S * 1e9)),) * 8, fetches_ns=(int(fetch_s * 1e9),) * 8 if is_made else (),
        fetches_cpu_ns=(int(cpu_s * 1e9),) * 8 if is_made else (),
    )  # fmt: skip


def caveats(recording: Recording) -> list[str]:
    return [caveat.sentence for caveat in judge(recording).caveats if caveat.id == "law-residual"]


@given(
    read=st.floats(0.5, 20), blur=st.floats(0.5, 20), workers=st.integers(1, 12), cores=st.sampled_from([1.0, 2.0, 8.0]),
    tried=st.one_of(st.none(), st.integers(13, 20)), is_waiting=st.booleans(),
)  # fmt: skip
def test_a_loop_that_follows_the_law_gives_no_residual(
    read: float, blur: float, workers: int, cores: float, tried: int | None, is_waiting: bool
) -> None:
    """Whatever binds it: the step, the workers or the cores."""
    recording = modelled(
        read_ms=read, blur_ms=blur, workers=workers, cores=cores, tried=tried, is_waiting=is_waiting
    )  # fmt: skip
    assert not caveats(recording)


def test_a_lock_that_all_workers_share_is_a_residual() -> None:
    """With the other stage free the workers only wait longer for the lock: the law expects more, and a lock is suspected."""
    (sentence,) = caveats(modelled(read_ms=4.0, blur_ms=8.0, lock_ms=4.0, workers=4))
    assert "“knockout:blur” ran at" in sentence
    assert "a lock or a device that all workers wait for" in sentence
    assert "knockout:read" not in sentence


def test_more_workers_that_bring_nothing_are_a_residual() -> None:
    """A trial in which as many more workers as there are cores gain nothing is against the law."""
    (sentence,) = caveats(modelled(read_ms=4.0, blur_ms=8.0, lock_ms=4.0, workers=3, tried=6))
    assert "“6 workers” ran at" in sentence


def test_a_loop_that_is_slower_than_its_workers_is_a_residual() -> None:
    """Where neither workers, cores nor the step explain the pace, what lies between them is suspected."""
    (sentence,) = caveats(modelled(delivery=0.7))
    assert "“nothing cached” ran at 70% of the speed that they predict" in sentence
    assert "between workers and loop" in sentence


def test_cores_that_others_take_are_suspected() -> None:
    """Workers that wait for a core, on a machine whose cores the loop does not use up, share them with somebody."""
    recording = modelled(delivery=0.5)
    blocks = tuple(
        dataclasses.replace(b, fetches_ns=tuple(2 * f for f in b.fetches_ns), delays_ns=b.fetches_ns)
        if b.rung == "none"
        else b
        for b in recording.blocks
    )
    (sentence,) = caveats(dataclasses.replace(recording, blocks=blocks))
    assert "suspect other processes" in sentence
    assert "wait for a core 50% of the time" in sentence


def test_a_body_that_busy_workers_slow_may_be_faster_where_they_do_less() -> None:
    """Between its speed beside busy and beside resting workers every speed of a knock-out agrees with the law."""
    recording = modelled(read_ms=1.0, blur_ms=20.0, workers=4)
    busy = tuple(_block("control:busy", number, 0.030, 0, 0) for number in range(4))
    rungs = (*recording.rungs, make_rung("control:busy"))
    assert not caveats(dataclasses.replace(recording, blocks=recording.blocks + busy, rungs=rungs))


def test_what_has_a_rung_of_its_own_is_not_left_unexplained() -> None:
    """Where transport is to blame, the law, which leaves it out, has nothing to say."""
    recording = modelled(delivery=0.7)
    free = tuple(
        dataclasses.replace(block, rung="knockout:ipc", end_ns=int(block.end_ns * 0.7))
        for block in recording.blocks
        if block.rung == "none"
    )
    rungs = (*recording.rungs, make_rung("knockout:ipc"))
    stages = (*recording.stages, make_stage("ipc", 0.001, kind="ipc"))
    assert not caveats(dataclasses.replace(recording, blocks=recording.blocks + free, rungs=rungs, stages=stages))


@pytest.mark.parametrize("change", [{"num_workers": 0}, {"kind": "iterable"}, {"kind": "other"}])
def test_the_law_is_not_asked_where_it_has_no_ground(change: dict) -> None:
    """Not without workers, nor for streams, whose stages are not known."""
    recording = modelled(delivery=0.5)
    assert recording.loader is not None
    assert not caveats(dataclasses.replace(recording, loader=dataclasses.replace(recording.loader, **change)))
