"""What busy workers cost the loop body, from literal recordings: a caveat, and the bound of what settings can gain."""

from __future__ import annotations

import dataclasses

import pytest
from literals import LOADER, MS, make_blocks, make_recording, tried

from unstarve import law
from unstarve.judge import judge
from unstarve.recording import Settings
from unstarve.report import Report

STARVED = {"none": 80.0, "samples": 22.0, "host": 20.0}


def with_busy(period_ms: float, **facts) -> Report:
    return judge(make_recording({**STARVED, "control:busy": period_ms}, **facts))


def sentences(report: Report, ident: str) -> list[str]:
    return [caveat.sentence for caveat in report.caveats if caveat.id == ident]


def test_a_body_that_busy_workers_slow_is_told() -> None:
    """By how much, how much of the headroom is left for waiting, and what more workers cannot exceed."""
    (sentence,) = sentences(with_busy(25.0), "contention")
    assert "takes 25% longer" in sentence
    assert "of the headroom ×4.00 at most ×3.20 comes from waiting" in sentence
    assert "cannot reach beyond 40 steps/s" in sentence


def test_a_loop_that_does_not_even_reach_its_speed_beside_idle_moments_is_promised_nothing() -> None:
    """Workers that never pause slow the body below what it reaches now: waiting is no part of the headroom."""
    (sentence,) = sentences(with_busy(100.0), "contention")
    assert "of the headroom ×4.00 nothing comes from waiting" in sentence
    assert "cannot reach beyond 12.5 steps/s" in sentence


@pytest.mark.parametrize("period_ms", [20.4, 19.0, 20.0])
def test_a_body_that_busy_workers_hardly_slow_is_not_worth_a_word(period_ms: float) -> None:
    """Three percent, nothing, and noise in the other direction are no caveat."""
    assert not sentences(with_busy(period_ms), "contention")


def test_an_uncertain_slowdown_is_not_claimed() -> None:
    """A ratio whose interval includes nothing says nothing."""
    recording = make_recording({**STARVED, "control:busy": 22.0})
    noisy = make_blocks({"control:busy": 22.0}, body_ms=20, jitter=1.0)
    kept = tuple(block for block in recording.blocks if block.rung != "control:busy")
    assert not sentences(judge(dataclasses.replace(recording, blocks=kept + noisy)), "contention")


def test_the_ceiling_stays_that_beside_resting_workers() -> None:
    """Knock-outs free cores too; the speed beside busy workers stands with it in the document."""
    plain, busy = judge(make_recording(STARVED)), with_busy(25.0)
    assert busy.ceiling is not None
    assert plain.ceiling is not None
    assert busy.ceiling.value == pytest.approx(plain.ceiling.value)
    assert busy.verdict.bound == plain.verdict.bound
    assert busy.to_dict()["ceiling"]["with_busy_workers"]["value"] == pytest.approx(40.0, rel=0.02)
    assert set(plain.to_dict()["ceiling"]) == {"steps_per_s"}
    assert "busy_ceiling" not in busy.to_dict()


def test_more_workers_are_promised_no_more_than_busy_workers_allow() -> None:
    """The computed gain of worker processes ends at the speed beside busy workers."""
    recording = tried(1, {}, {**STARVED, "control:busy": 32.0}, environment={"cores_available": 16.0})
    blocks = tuple(
        dataclasses.replace(block, fetches_ns=(60 * MS,) * 8, fetches_cpu_ns=(60 * MS,) * 8)
        for block in recording.blocks
    )
    culprits = judge(dataclasses.replace(recording, blocks=blocks)).verdict.culprits
    gain = next(culprit.gain for culprit in culprits if culprit.kind == "workers")
    assert gain.value == pytest.approx(80 / 32, rel=0.02)


def fed_by_one_worker(kind: str) -> Report:
    loader = dataclasses.replace(LOADER, num_workers=8, kind=kind)
    recording = make_recording({**STARVED, "control:busy": 40.0}, loader=loader)
    blocks = tuple(dataclasses.replace(block, workers=(0,) * len(block.fetches_ns)) for block in recording.blocks)
    quiet = tuple(dataclasses.replace(b, workers=(0,) * 8) if b.rung == "none" else b for b in blocks)
    return judge(dataclasses.replace(recording, blocks=quiet))


def test_uneven_shards_are_promised_no_more_than_busy_workers_allow() -> None:
    """Even shards keep all workers busy."""
    culprits = fed_by_one_worker("iterable").verdict.culprits
    gain = next(culprit.gain for culprit in culprits if culprit.kind == "scheduling")
    assert gain.value == pytest.approx(80 / 40, rel=0.02)


def test_a_data_set_without_shards_has_none_that_are_uneven() -> None:
    """Where samples are asked for by index, whichever worker is free makes the next batch."""
    assert "scheduling" not in [culprit.kind for culprit in fed_by_one_worker("map").verdict.culprits]


def test_needs_are_those_of_the_speed_that_workers_can_bring() -> None:
    """Cores and workers for more than the loop takes beside busy workers would be for nothing; prices stay."""
    plain, busy = judge(make_recording(STARVED), price=3.6).needs, None
    busy = judge(make_recording({**STARVED, "control:busy": 40.0}), price=3.6).needs
    assert plain is not None
    assert busy is not None
    assert busy.cores == pytest.approx(plain.cores / 2, rel=0.03)
    assert busy.epoch_price_at_ceiling == pytest.approx(plain.epoch_price_at_ceiling, rel=0.01)


def test_the_law_takes_the_body_beside_busy_workers() -> None:
    """However many workers, the loop is not faster than its body beside them; without workers it is as it was."""
    blocks = make_blocks({"none": 80.0, "host": 20.0, "control:busy": 25.0}, body_ms=20, jitter=0.0)
    loop = law.of_blocks(blocks, 2, 64.0)
    assert loop.rate(60) == pytest.approx(40.0)
    assert loop.rate(0) == pytest.approx(1 / (0.020 + 0.160))


def test_a_trial_says_more_than_the_control() -> None:
    """What another number of workers gained in the loop stands, whatever bound the control gave."""
    recording = tried(1, {Settings(num_workers=6): 22.0}, {**STARVED, "control:busy": 40.0})
    gain = next(culprit.gain for culprit in judge(recording).verdict.culprits if culprit.kind == "workers")
    assert gain.value == pytest.approx(80 / 22, rel=0.02)


@pytest.mark.parametrize(("busy", "bound"), [(21.9, "step"), (20.2, "input"), (None, "input")])
def test_a_little_headroom_that_is_contention_is_no_matter_of_input(busy: float | None, bound: str) -> None:
    """Where the loop fed from cache is as slow while the workers are busy, its body is the limit: it shares the cores."""
    periods = {"none": 22.0, "host": 20.0} | ({"control:busy": busy} if busy is not None else {})
    assert judge(make_recording(periods, body_ms=20)).verdict.bound == bound


def test_much_headroom_stays_a_matter_of_input() -> None:
    """Workers that take the cores from the body for a third of the time are to be mended, whatever it is called."""
    assert judge(make_recording({"none": 30.0, "host": 20.0, "control:busy": 30.0})).verdict.bound == "input"
