"""Verdicts from literal recordings: no torch, no clock."""

from __future__ import annotations

import dataclasses
import json

import pytest
from literals import CROP, DECODE, MS, make_blocks, make_recording, make_stage, make_start, with_fetches

from unstarve import recording as recordings
from unstarve.judge import account, judge
from unstarve.recording import Block, Loader, Note, Recording, Settings


def test_a_starved_loop_convicts_the_stage_whose_removal_helps() -> None:
    """Input-bound: the culprit is the stage with the largest knock-out, with its gain, line and text."""
    periods = {"none": 80, "samples": 22, "host": 20, "knockout:decode": 25, "knockout:crop": 72}
    report = judge(make_recording(periods, stages=(CROP, DECODE)))
    assert report.verdict.bound == "input"
    first = report.verdict.culprits[0]
    assert (first.stage, first.kind, first.source, first.text) == ("decode", "decode", "train.py:41", "x = decode(x)")
    assert first.gain.low <= 80 / 25 <= first.gain.high
    assert "train.py:41" in report.verdict.sentence
    assert report.remedies[0].about == "decode"


def test_a_fed_loop_is_step_bound_without_culprit() -> None:
    """Step-bound: no culprit is named where the rungs are equal, whatever the stages cost."""
    report = judge(make_recording({"none": 20.2, "samples": 20.1, "host": 20}, stages=(DECODE,)))
    assert report.verdict.bound == "step"
    assert report.verdict.culprits == ()


def test_a_difference_that_may_be_nothing_is_not_called_input() -> None:
    """A headroom whose interval includes the threshold and whose value is small stays step-bound, with a caveat."""
    recording = make_recording({"none": 21.5, "host": 20})
    noisy = make_blocks({"none": 21.5, "host": 20}, body_ms=20, jitter=0.2)
    report = judge(recordings.from_json(_as_json(recording, blocks=noisy)))
    assert report.verdict.bound == "step"
    assert "near-threshold" in {caveat.id for caveat in report.caveats}


def test_a_large_but_uncertain_difference_is_unresolved() -> None:
    """A headroom that may be large or nothing, in a loop that hardly waits, is unresolved, and says what would help."""
    noisy = make_blocks({"none": 27, "host": 20}, body_ms=100, jitter=0.3)
    report = judge(recordings.from_json(_as_json(make_recording({"none": 27, "host": 20}, body_ms=100), blocks=noisy)))
    assert report.verdict.bound == "unresolved"
    assert "--budget" in report.verdict.sentence


def test_a_loop_that_was_seen_to_wait_is_input_bound_though_the_ratio_is_uncertain() -> None:
    """Much waiting on fresh batches and none on cached ones settles the bound where the headroom's interval is wide."""
    noisy = make_blocks({"none": 40, "host": 20}, body_ms=20, jitter=0.3)
    report = judge(recordings.from_json(_as_json(make_recording({"none": 40, "host": 20}), blocks=noisy)))
    assert report.headroom is not None
    assert report.headroom.low < 1.05
    assert report.verdict.bound == "input"


@pytest.mark.parametrize(
    ("body_ms", "busy", "bound"),
    [(20, None, "input"), (20, 30, "input"), (20, 40, "unresolved"), (100, 30, "unresolved"), (100, 40, "step")],
    ids=["waits", "waits, and more so when fed", "both", "neither", "contention"],
)
def test_an_uncertain_ratio_is_settled_by_what_agrees(body_ms: int, busy: float | None, bound: str) -> None:
    """Waiting says input, a loop that is as slow from cache beside busy workers says step; both or neither say nothing."""
    noisy = make_blocks({"none": 40, "host": 20}, body_ms=body_ms, jitter=0.3)
    controls = make_blocks({"control:busy": busy}, body_ms=body_ms) if busy else ()
    report = judge(dataclasses.replace(make_recording({"none": 40, "host": 20}), blocks=noisy + controls))
    assert report.verdict.bound == bound
    assert ("waiting-disagrees" in {caveat.id for caveat in report.caveats}) is (body_ms == 20 and busy == 40)


def test_a_culprit_that_was_not_shown_is_not_stated_as_a_fact() -> None:
    """Where its gain may be none, the sentence says so, with both ends of the interval."""
    rungs = {"none": 80, "host": 20, "knockout:decode": 40}
    noisy = make_blocks({"knockout:decode": 40}, body_ms=20, jitter=0.9)
    recording = make_recording(rungs, stages=(DECODE,))
    kept = tuple(block for block in recording.blocks if block.rung != "knockout:decode")
    verdict = judge(dataclasses.replace(recording, blocks=kept + noisy)).verdict
    gain = verdict.culprits[0].gain
    assert gain.low < 1
    assert verdict.sentence.endswith(
        "decode (train.py:41) seems to hold it back most, which is not shown: without it the loop would run "
        f"{gain.low:.2f} to {gain.high:.2f} times as fast."
    )


@pytest.mark.parametrize(
    ("period", "why"),
    [
        (26.0, "it slows what runs beside it, or the watched samples do not stand for all"),
        (70.0, "something beside it binds"),
    ],
)
def test_a_removal_that_does_not_fit_the_share_is_doubted_with_what_may_be_behind_it(period: float, why: str) -> None:
    """Half of the time gains x2: where its removal gains more, nothing beside it can be what binds."""
    stages = (make_stage("decode", 10, kind="decode"), make_stage("crop", 10, kind="transform"))
    report = judge(make_recording({"none": 80, "host": 20, "knockout:decode": period}, stages=stages))
    (caveat,) = (caveat for caveat in report.caveats if caveat.id == "evidence-disagrees")
    assert caveat.sentence.endswith(f"{why}.")


def _as_json(recording: Recording, **changes):
    return json.loads(json.dumps(dataclasses.asdict(dataclasses.replace(recording, **changes))))


def test_time_lost_between_epochs_is_start_bound() -> None:
    """A perfect steady state with expensive iterator starts is start-bound, and worker start-up is to blame."""
    loader = Loader(number=0, name="DataLoader(Toy)", length=20, batch_size=8, num_workers=2, source="train.py:90")
    starts = (make_start(construct_ms=600, first_ms=400, batches=20),) * 3
    report = judge(make_recording({"none": 20.2, "host": 20}, loader=loader, starts=starts))
    assert report.verdict.bound == "start"
    assert report.verdict.culprits[0].name == "starting the workers"
    assert report.verdict.culprits[0].kind == "worker-start"
    assert report.time.start == pytest.approx(1 / (1 + 20 * 0.0202), rel=0.1)
    assert "persistent_workers=True" in (report.remedies[0].patch or "")


def test_no_workers_at_all_is_blamed_before_an_equal_stage() -> None:
    """With num_workers=0 and balanced stages, more workers are the first thing to change."""
    loader = Loader(number=0, name="DataLoader(Toy)", length=1000, num_workers=0, source="train.py:90")
    recording = make_recording({"none": 60, "samples": 22, "host": 20, "knockout:decode": 30}, stages=(DECODE,))
    blocks = tuple(
        dataclasses.replace(block, fetches_ns=(40 * MS,) * 8, fetches_cpu_ns=(40 * MS,) * 8)
        for block in recording.blocks
    )
    report = judge(dataclasses.replace(recording, loader=loader, blocks=blocks))
    assert report.verdict.culprits[0].kind == "workers"


@pytest.mark.parametrize(("freed_ms", "kinds"), [(32, ["transform", "workers"]), (45, ["workers", "transform"])])
def test_a_stage_that_is_all_that_workers_would_do_goes_before_them(freed_ms: float, kinds: list[str]) -> None:
    """Where a loader has none: freeing the stage gains what workers were seen to gain, or not nearly so much."""
    loader = Loader(number=0, name="DataLoader(Toy)", length=1000, num_workers=0, source="train.py:90")
    one = Settings(num_workers=1)
    mask = make_stage("transform:2", 40, kind="transform")
    periods = {"none": 60, "samples": 22, "host": 20, "knockout:transform:2": freed_ms, "trial:1 worker": 31}
    recording = make_recording(periods, stages=(mask,))
    rungs = tuple(
        dataclasses.replace(rung, settings=one) if rung.id == "trial:1 worker" else rung for rung in recording.rungs
    )
    report = judge(dataclasses.replace(recording, loader=loader, rungs=rungs))
    assert [culprit.kind for culprit in report.verdict.culprits] == kinds


def test_waiting_is_told_from_computing() -> None:
    """A stage whose CPU time is far below its wall time is blamed on waiting, and concurrency is advised."""
    read = make_stage("read", 10, cpu=0.05, kind="read")
    report = judge(make_recording({"none": 80, "samples": 20, "host": 20, "knockout:read": 20}, stages=(read,)))
    assert report.verdict.culprits[0].resource == "wait"
    assert report.remedies[0].id == "concurrent-reads"


def test_the_hottest_statement_of_a_transform_is_its_place() -> None:
    """A transform is convicted as a whole, but the line given is the statement in it that takes most of its time."""
    mask = make_stage("transform:2", 10, kind="transform", name="RandomMask", source="train.py:40", parent=None)
    line = make_stage("code:3.1", 8, name="convolve2d", source="train.py:44", parent="transform:2")
    recording = make_recording({"none": 80, "samples": 22, "host": 20, "knockout:transform:2": 25}, stages=(mask, line))
    first = judge(recording).verdict.culprits[0]
    assert (first.stage, first.name, first.source) == ("transform:2", "RandomMask", "train.py:44")
    assert first.path == ("RandomMask", "convolve2d")


def test_a_slow_copy_is_told_from_a_slow_loader() -> None:
    """A loop fed as fast as from host memory, but slower than from the device, is held back by the copy."""
    recording = make_recording({"none": 30.2, "samples": 30.1, "host": 30, "device": 20}, body_ms=30, has_device=True)
    report = judge(with_fetches(recording, 10))
    assert report.verdict.culprits[0].kind == "copy"


@pytest.mark.parametrize(("long_ms", "period"), [(100, 40), (2200, 565)])
def test_a_step_that_depends_on_the_data_is_not_blamed_on_input(long_ms: int, period: float) -> None:
    """Rare long steps on fresh batches, with no waiting and a usual step as from cache, make the loop step-bound; also where
    each means seconds of compiling."""
    recording = make_recording({"none": period, "host": 20}, body_ms=period)
    bodies = (20 * MS,) * 6 + (long_ms * MS,) * 2
    blocks = tuple(
        dataclasses.replace(block, bodies_ns=bodies, waits_ns=(0,) * 8) if block.rung == "none" else block
        for block in recording.blocks
    )
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert report.verdict.bound == "step"
    assert "step-varies" in {caveat.id for caveat in report.caveats}


@pytest.mark.parametrize(("sent_ms", "bound"), [(20, "step"), (24, "step"), (40, "input")])
def test_a_body_that_pays_for_transport_does_not_depend_on_the_data(sent_ms: float, bound: str) -> None:
    """A long body on fresh batches is the step's own only if batches sent from a worker's cache are quick."""
    periods = {"none": 40, "collated": sent_ms, "knockout:ipc": 20, "host": 20}
    recording = make_recording(periods, body_ms=60, stages=(make_stage("ipc", 0, kind="ipc"),))
    report = judge(recording)
    assert report.verdict.bound == bound
    assert [culprit.kind for culprit in report.verdict.culprits] == ([] if bound == "step" else ["ipc"])


@pytest.mark.parametrize(("period", "bound"), [(22.5, "step"), (30.0, "input")])
def test_a_small_headroom_that_the_loop_does_not_wait_for_is_no_matter_of_input(period: float, bound: str) -> None:
    """Cached batches may happen to be light; a headroom beyond what that explains is input's even then."""
    loop = make_recording({"none": period, "host": 20}, body_ms=period)
    report = judge(loop)
    assert report.verdict.bound == bound
    assert ("step-varies" in {caveat.id for caveat in report.caveats}) == (bound == "step")
    waiting = judge(make_recording({"none": 22.5, "host": 20}, body_ms=20))
    assert waiting.verdict.bound == "input"


def test_notes_become_caveats() -> None:
    """What the measuring side noticed is printed as a doubt."""
    report = judge(make_recording({"none": 80, "host": 20}, notes=(Note(id="pool-small", sentence="Only 2 fit."),)))
    assert "Only 2 fit." in {caveat.sentence for caveat in report.caveats}


def test_a_recording_without_blocks_is_unresolved() -> None:
    """Without measured rungs there is no figure and no culprit, and the reason is given."""
    report = judge(make_recording({}, blocks=(), rungs=()))
    assert report.verdict.bound == "unresolved"
    assert report.baseline is None
    assert report.caveats


def test_copying_by_the_cache_is_taken_off() -> None:
    """Time that serving from a cache spent on copying does not count against the rung, as far as the loop waited."""
    plain = make_recording({"none": 80, "samples": 30, "host": 20})
    blocks = tuple(
        recordings.Block(**{**_fields(block), "copies_ns": (20 * MS,) * 8}) if block.rung == "samples" else block
        for block in plain.blocks
    )
    corrected = judge(recordings.from_json(_as_json(plain, blocks=blocks)))
    rate = {rung.id: rung.steps_per_s.value for rung in corrected.rungs}["samples"]
    assert rate == pytest.approx(1000 / (30 - 9), rel=0.02)


def _fields(block: Block) -> dict:
    return {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}


def test_watching_makes_no_claim_about_gains() -> None:
    """The account of a watched run tells where time went, and names no culprit."""
    report = account(make_recording({}, blocks=(), rungs=()))
    assert report.verdict.sentence.startswith("Watched, not tried")
    assert report.verdict.culprits == ()
    assert report.to_json()


@pytest.mark.parametrize(("others", "is_told"), [(1.1, True), (0.05, False)])
def test_cores_that_other_processes_took_are_told(others: float, is_told: bool) -> None:
    """The figures of a machine that others use hold for one as busy."""
    report = judge(make_recording({"none": 60, "host": 20}, other_cores=others))
    assert ("busy-machine" in {caveat.id for caveat in report.caveats}) == is_told
