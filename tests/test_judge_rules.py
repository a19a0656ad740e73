"""Single rules of judging, from literal recordings: settings that were tried, dropped batches, idle devices, shares."""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import dis
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_judge import MS, make_blocks, make_recording, make_stage, make_start, with_fetches
from test_payload import IMAGE, LABELS

from unstarve import estimate
from unstarve.judge import account, judge
from unstarve.judge.evidence import Evidence, at_length, gain_by_share
from unstarve.payload import Change
from unstarve.recording import BodyLine, Loader, Note, Recording, Reordering, Settings, SlowLine, Start
from unstarve.report import Culprit, Estimate, Remedy, Report

STARVED = {"none": 80.0, "samples": 22.0, "host": 20.0}
LOADER = Loader(number=0, name="DataLoader(Toy)", length=1000, batch_size=8, num_workers=2, source="train.py:90")


def tried(own: int, trials: dict[Settings, float], periods: dict[str, float] | None = None, **facts) -> Recording:
    """A recording of a loader with so many workers, in which other settings were tried."""
    periods = dict(periods or STARVED)
    names = {f"trial:{settings}": settings for settings in trials}
    periods |= {f"trial:{settings}": period for settings, period in trials.items()}
    recording = make_recording(periods, loader=dataclasses.replace(LOADER, num_workers=own), **facts)
    rungs = tuple(dataclasses.replace(rung, settings=names.get(rung.id)) for rung in recording.rungs)
    return dataclasses.replace(recording, rungs=rungs)


def kinds(report: Report) -> list[str]:
    return [culprit.kind for culprit in report.verdict.culprits]


def blamed(report: Report, kind: str) -> Culprit:
    return next(culprit for culprit in report.verdict.culprits if culprit.kind == kind)


def reordered(period: float, **facts) -> Recording:
    """A starved loop in which another order of transforms was tried."""
    found = Reordering(
        path=(".transform", ".transforms"), names=("Blur", "Crop"), order=(1, 0), samples=8, before_ns=9 * MS,
        after_ns=3 * MS, **{"likeness": "exact", "source": "train.py:12", "patch": "-a\n+b", **facts},
    )  # fmt: skip
    recording = make_recording({**STARVED, "trial:reorder:0": period})
    rungs = tuple(
        dataclasses.replace(rung, reordering=found) if rung.id == "trial:reorder:0" else rung
        for rung in recording.rungs
    )
    return dataclasses.replace(recording, rungs=rungs)


# --- Workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "number", "period"), [(0, 2, 40), (1, 4, 30), (8, 4, 60)])
def test_a_trial_of_another_number_of_workers_decides(own: int, number: int, period: float) -> None:
    """Far too few or too many workers are blamed with the gain that was measured, not a computed one."""
    culprit = blamed(judge(tried(own, {Settings(num_workers=number): period})), "workers")
    assert culprit.gain.value == pytest.approx(80 / period, rel=0.02)
    assert culprit.evidence.startswith("Tried in the loop")
    assert culprit.name == f"num_workers={own}"


@pytest.mark.parametrize(
    ("own", "number", "period"), [(0, 2, 80), (1, 2, 90), (8, 4, 78)], ids=["same", "slower", "saves little"]
)
def test_workers_whose_number_was_tried_in_vain_are_not_blamed(own: int, number: int, period: float) -> None:
    """What the law expects, which is much, does not count where the trial said otherwise."""
    assert "workers" not in kinds(judge(with_idle_cores(tried(own, {Settings(num_workers=number): period}))))


def with_idle_cores(recording: Recording) -> Recording:
    """The recording on a machine with so many cores that the throughput law expects a lot of more workers."""
    blocks = tuple(
        dataclasses.replace(block, fetches_ns=(60 * MS,) * 8, fetches_cpu_ns=(60 * MS,) * 8)
        for block in recording.blocks
    )
    return dataclasses.replace(recording, blocks=blocks, environment={"cores_available": 8.0})


@pytest.mark.parametrize("own", [0, 1])
def test_too_few_workers_are_blamed_by_computation_where_nothing_was_tried(own: int) -> None:
    """The throughput law stands in, says so, and its interval is wide."""
    culprit = blamed(judge(with_idle_cores(tried(own, {}))), "workers")
    assert "Computed, not tried" in culprit.evidence
    assert culprit.gain.value == pytest.approx(80 / 20, rel=0.05)
    assert culprit.gain.high - culprit.gain.low > 1


def test_several_workers_are_not_blamed_by_computation() -> None:
    """Where there are workers enough to share the work, stages are to blame."""
    stage = make_stage("decode", 10)
    report = judge(make_recording({**STARVED, "knockout:decode": 25}, stages=(stage,)))
    assert kinds(report) == ["code"]


SIXTH = {f"knockout:step{number}": 67.0 for number in range(6)}
SIXTHS = tuple(make_stage(f"step{number}", 1) for number in range(6))


def test_two_workers_are_too_few_where_more_gain_far_more_than_any_stage() -> None:
    """Six stages of a sixth of the time each gain 1.19, eight workers 3.9: the stages are named behind them."""
    report = judge(tried(2, {Settings(num_workers=8): 20.5}, {**STARVED, **SIXTH}, stages=SIXTHS))
    first, *others = report.verdict.culprits
    assert (first.kind, first.name) == ("workers", "num_workers=2")
    assert first.gain.value == pytest.approx(80 / 20.5, rel=0.02)
    assert {culprit.stage for culprit in others} <= {stage.id for stage in SIXTHS}
    assert others
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert (remedy.patch, remedy.about) == ("DataLoader(..., num_workers=8)", "workers")


@pytest.mark.parametrize(
    ("number", "period", "periods"),
    [(8, 20.5, {"knockout:step0": 35.0}), (3, 20.5, {}), (8, 62, {}), (8, 20.5, {"trial:affinity": 25.0})],
    ids=["a stage gains as much", "hardly more workers", "they gain little", "another setting gains as much"],
)  # fmt: skip
def test_several_workers_are_not_too_few_for_less(number: int, period: float, periods: dict[str, float]) -> None:
    """Whatever gains half as much on a log scale, or more, keeps its place."""
    recording = tried(2, {Settings(num_workers=number): period}, {**STARVED, **SIXTH, **periods}, stages=SIXTHS)
    report = judge(recording)
    assert report.verdict.culprits
    assert "workers" not in kinds(report)


def test_several_workers_are_not_too_few_for_a_data_set_that_no_removal_explains() -> None:
    """A data set of many small steps is blamed as a whole, by what finished samples gain, however much more workers do."""
    stages = tuple(make_stage(f"step{number}", 1) for number in range(20))
    report = judge(tried(2, {Settings(num_workers=8): 20.5}, stages=stages))
    assert [culprit.stage for culprit in report.verdict.culprits] == ["dataset"]


def test_another_delivery_alone_says_nothing_of_the_number_of_workers() -> None:
    """A trial of any order with as many workers is no trial of their number."""
    report = judge(tried(2, {Settings(num_workers=2, in_order=False): 40}))
    assert "workers" not in kinds(report)


def test_a_loader_without_workers_is_not_said_what_they_could_make() -> None:
    """The loop's own process makes its batches, and what that takes of a step is told instead."""
    report = judge(with_fetches(make_recording(FED, loader=dataclasses.replace(LOADER, num_workers=0)), 0.5))
    assert report.verdict.bound == "step"
    assert report.limit is not None
    assert "making a batch takes 0.5 ms of a step in the same process" in report.limit.explanation
    assert "workers" not in report.limit.explanation + report.verdict.sentence


def test_figures_of_small_machines_and_quick_loaders_are_no_zeros() -> None:
    """Half a core is not none, a batch of 0.3 ms takes something, and two thousand steps are no 2e+03."""
    periods = {"none": 0.5, "samples": 0.3, "host": 0.2}
    recording = make_recording(periods, body_ms=0.2, loader=dataclasses.replace(LOADER, num_workers=1))
    report = judge(with_fetches(dataclasses.replace(recording, environment={"cores_available": 0.5}), 0.3, 0.3))
    assert report.limit is not None
    assert "of 0.5): a batch takes 0.3 ms of a worker (0.3 ms CPU), 1 worker, 0.5 cores." in report.limit.explanation
    assert "e+" not in report.verdict.sentence


# --- Remedies ---------------------------------------------------------------------------------------------------------


def test_the_remedy_is_what_was_tried() -> None:
    """Where a number of workers was tried, no other is advised, and its measured gain stands beside it."""
    report = judge(tried(0, {Settings(num_workers=6): 30}))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert remedy.patch == "DataLoader(..., num_workers=6, persistent_workers=True)"
    assert remedy.measured_gain is not None
    assert remedy.measured_gain.value == pytest.approx(80 / 30, rel=0.02)
    assert remedy.predicted_gain is None
    assert remedy.about == "workers"


MIB = 2**20


@pytest.mark.parametrize(
    ("batch_mib", "free_mib", "number", "told"),
    [(1, 64, 4, ""), (5, 64, 3, "no room for the batches of more"), (77, 64, 4, "Make room in shared memory"), (77, 0, 4, "")],
    ids=["fits", "fits in part", "does not fit", "unknown"],
)  # fmt: skip
def test_no_more_workers_are_advised_than_shared_memory_has_room_for(
    batch_mib: int, free_mib: int, number: int, told: str
) -> None:
    """Each may have three batches ready or in the making, and where there is no room for one worker's there must be more."""
    image = dataclasses.replace(IMAGE, bytes=batch_mib * MIB, storage_bytes=batch_mib * MIB)
    facts = {"payload": (image,), "shared_memory_bytes": free_mib * MIB}
    remedy = next(item for item in judge(with_idle_cores(tried(0, {}, **facts))).remedies if item.id == "workers")
    assert f"num_workers={number}," in (remedy.patch or "")
    assert told in remedy.advice
    assert ("shared memory" in remedy.advice) is bool(told)
    assert ("--shm-size=2g" in (remedy.patch or "")) is (told.startswith("Make room"))


@pytest.mark.parametrize("is_guarded", [True, False])
def test_workers_that_would_run_the_script_are_advised_behind_a_guard(is_guarded: bool) -> None:
    """Where nothing was tried since each worker would run the script, so would each of those that are advised."""
    notes = () if is_guarded else (Note(id="no-main-guard", sentence="Worker processes were not tried."),)
    report = judge(with_idle_cores(tried(0, {}, notes=notes)))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert ("if __name__ == '__main__':" in remedy.advice) is not is_guarded
    assert ("if __name__ == '__main__':" in (remedy.patch or "")) is not is_guarded


def test_the_gain_of_more_workers_is_that_of_as_many_as_are_advised() -> None:
    """Workers that need 60 ms for a batch feed steps of 20 ms if there are enough; the two for which there is room gain
    less."""
    image = dataclasses.replace(IMAGE, bytes=8 * MIB, storage_bytes=8 * MIB)
    narrow = with_idle_cores(tried(0, {}, payload=(image,), shared_memory_bytes=64 * MIB))
    gains = [
        next(item for item in judge(recording).remedies if item.id == "workers").predicted_gain
        for recording in (with_idle_cores(tried(0, {})), narrow)
    ]
    assert [gain.value for gain in gains if gain is not None] == pytest.approx([80 / 20, 80 / 30], rel=0.05)


@pytest.mark.parametrize(("own", "number"), [(0, 6), (16, 3)])
def test_the_gain_of_a_trial_that_is_not_certain_goes_with_the_number_that_was_tried(own: int, number: int) -> None:
    """A gain that is blamed for its size, though its interval reaches below one, is predicted, and of no other number."""
    recording = tried(own, {Settings(num_workers=number): 50.0})
    ident = next(rung.id for rung in recording.rungs if rung.settings is not None)
    noisy = make_blocks({ident: 50.0}, body_ms=20, jitter=0.7)
    kept = tuple(block for block in recording.blocks if block.rung != ident)
    report = judge(dataclasses.replace(recording, blocks=kept + noisy))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert blamed(report, "workers").gain.low < 1.0
    assert remedy.patch == f"DataLoader(..., num_workers={number}, persistent_workers=True)"
    assert remedy.predicted_gain == blamed(report, "workers").gain


def test_an_order_of_transforms_that_helped_is_a_remedy() -> None:
    """With what was compared, the place, the patch and the measured gain."""
    report = judge(reordered(40))
    remedy = next(item for item in report.remedies if item.id == "reorder")
    assert remedy.measured_gain is not None
    assert remedy.measured_gain.value == pytest.approx(2, rel=0.02)
    assert remedy.patch == "-a\n+b"
    assert "Put `Crop` before `Blur` (train.py:12)" in remedy.advice
    assert "8 real samples" in remedy.advice
    assert "exactly the same" in remedy.advice


@pytest.mark.parametrize("period", [100, 80, 78], ids=["slower", "same", "saves little"])
def test_an_order_of_transforms_that_did_not_help_is_no_remedy(period: float) -> None:
    """It is shown among what was tried, with its rate, and nothing is advised."""
    report = judge(reordered(period))
    assert not any(item.id.startswith("reorder") for item in report.remedies)
    shown = next(rung for rung in report.rungs if rung.id == "trial:reorder:0")
    assert shown.steps_per_s.value == pytest.approx(1000 / period, rel=0.02)


@pytest.mark.parametrize(
    ("likeness", "differing", "words"),
    [
        ("rounding", 0.25, "but for rounding in 25% of the values"),
        ("border", 0.031, "a border with 3.1% of the values"),
    ],
)
def test_an_order_that_gives_nearly_the_same_says_so(likeness: str, differing: float, words: str) -> None:
    """Whether it is the same for the user's purpose is the user's to say."""
    remedy = next(
        item for item in judge(reordered(40, likeness=likeness, differing=differing)).remedies if item.id == "reorder"
    )
    assert words in remedy.advice


def lean_trial(period: float) -> Recording:
    """A starved loop in which a leaner batch was tried."""
    change = Change(path="batch[0]", how="cast", dtype="float32", small="uint8", saved_bytes=IMAGE.bytes * 3 // 4)
    recording = make_recording({**STARVED, "trial:lean-batch": period}, payload=(IMAGE, LABELS))
    rungs = tuple(
        dataclasses.replace(rung, changes=(change,)) if rung.id == "trial:lean-batch" else rung
        for rung in recording.rungs
    )
    return dataclasses.replace(recording, rungs=rungs)


def test_a_leaner_batch_that_helped_is_a_remedy() -> None:
    """With what is sent as what, the bytes, where it was made whole again, and the measured gain."""
    remedy = next(item for item in judge(lean_trial(60)).remedies if item.id == "lean-batch")
    assert remedy.measured_gain is not None
    assert remedy.measured_gain.value == pytest.approx(80 / 60, rel=0.02)
    assert "`batch[0]` as uint8 instead of float32" in remedy.advice
    assert "in the loop's process" in remedy.advice


@pytest.mark.parametrize("period", [100, 80, 78], ids=["slower", "same", "saves little"])
def test_a_leaner_batch_that_did_not_help_is_no_remedy(period: float) -> None:
    """Making the batch whole again may cost more than sending less saves: nothing is advised."""
    assert not any(item.id == "lean-batch" for item in judge(lean_trial(period)).remedies)


def test_fewer_workers_are_advised_where_fewer_were_tried() -> None:
    """A loader with too many workers is not told to take as many as there are cores."""
    report = judge(tried(16, {Settings(num_workers=4): 60}, environment={"cores_available": 8.0}))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert "num_workers=4" in (remedy.patch or "")


def test_settings_that_helped_are_a_remedy_without_a_culprit() -> None:
    """Four workers are not too few, but six were faster: that is worth a word."""
    report = judge(tried(4, {Settings(num_workers=6): 60}))
    assert "workers" not in kinds(report)
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert remedy.patch == "DataLoader(..., num_workers=6)"
    assert remedy.about == "loader"


def test_of_several_trials_the_best_is_advised() -> None:
    """Numbers of workers compete; delivery in any order is a remedy of its own."""
    trials = {
        Settings(num_workers=3): 70.0, Settings(num_workers=6): 40.0, Settings(num_workers=4): 60.0,
        Settings(num_workers=2, in_order=False): 50.0,
    }  # fmt: skip
    found = {item.id: item.patch for item in judge(tried(2, trials)).remedies}
    assert found["workers"] == "DataLoader(..., num_workers=6)"
    assert found["out-of-order"] == "DataLoader(..., in_order=False)"


def test_of_several_numbers_of_workers_the_best_is_blamed_and_advised() -> None:
    """The evidence and the remedy speak of the same trial, in whatever order they were made."""
    report = judge(tried(1, {Settings(num_workers=8): 27.0, Settings(num_workers=4): 24.0}))
    assert "with 4 workers it runs 3.3" in blamed(report, "workers").evidence
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert remedy.patch == "DataLoader(..., num_workers=4)"


@pytest.mark.parametrize("jitter", [0.01, 0.35], ids=["certain", "promising"])
def test_a_loader_that_is_better_without_workers_is_told_to_have_none(jitter: float) -> None:
    """The call loses what a `DataLoader` refuses without workers."""
    recording = tried(2, {Settings(num_workers=0): 50.0})
    loader = dataclasses.replace(LOADER, prefetch_factor=4, persistent_workers=True)
    blocks = make_blocks({**STARVED, "trial:no workers": 50.0}, body_ms=20, jitter=jitter)
    report = judge(dataclasses.replace(recording, loader=loader, blocks=blocks))
    assert kinds(report) == ["workers"]
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert remedy.patch == "DataLoader(..., num_workers=0, prefetch_factor=None, persistent_workers=False)"
    assert "Give the loader no workers" in remedy.advice


@pytest.mark.parametrize(
    ("torch", "patch"),
    [
        ("2.4.1+cu121", "DataLoader(..., prefetch_factor=9)"),
        ("2.6.0", "DataLoader(..., in_order=False, prefetch_factor=9)"),
        ("2.10.0a0+git1", "DataLoader(..., in_order=False, prefetch_factor=9)"),
        (None, "DataLoader(..., in_order=False, prefetch_factor=9)"),
    ],
)
def test_arguments_that_this_torch_lacks_are_not_advised(torch: str | None, patch: str) -> None:
    """`in_order`, which came with torch 2.6, is no remedy for a slow batch that holds up the others in an older one."""
    assert patch == stalled(environment={"torch": torch} if torch else {}).patch


def stalled(**facts) -> Remedy:
    """The remedy for two workers whose batches are held up by slow ones."""
    recording = tried(2, {}, **facts)
    fetches = (*(MS,) * 14, 300 * MS, 300 * MS)
    blocks = tuple(dataclasses.replace(block, fetches_ns=fetches) for block in recording.blocks)
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert "scheduling" in kinds(report)
    return next(remedy for remedy in report.remedies if remedy.about == "scheduling")


@pytest.mark.parametrize(
    ("batch_mib", "torch", "patch"),
    [
        (2, "2.5", "DataLoader(..., prefetch_factor=9)"),
        (5, "2.5", "DataLoader(..., prefetch_factor=4)"),
        (6, "2.5", "DataLoader(..., prefetch_factor=3)"),
        (8, "2.5", None),
        (8, "2.7", "DataLoader(..., in_order=False)"),
    ],
)
def test_no_more_batches_are_ordered_ahead_than_shared_memory_has_room_for(
    batch_mib: int, torch: str, patch: str | None
) -> None:
    """Two workers with so many batches ahead each, and one in the making, take most of 64 MiB at most."""
    image = dataclasses.replace(IMAGE, bytes=batch_mib * MIB, storage_bytes=batch_mib * MIB)
    remedy = stalled(environment={"torch": torch}, payload=(image,), shared_memory_bytes=64 * MIB)
    assert remedy.patch == patch
    assert ("--shm-size" in remedy.advice) is (batch_mib > 2)


def test_how_often_a_loop_stalls_is_told() -> None:
    """By the distance of the waits that are many times as long as a step, in the longest look."""
    recording = tried(2, {})
    fetches, waits = (*(MS,) * 14, 300 * MS, 300 * MS), [0] * 48
    waits[3] = waits[18] = waits[33] = 300 * MS
    blocks = tuple(
        dataclasses.replace(
            block, end_ns=block.start_ns + (900 + 48 * 20) * MS, fetches_ns=fetches, waits_ns=tuple(waits), bodies_ns=(20 * MS,) * 48,
        )
        if block.rung == "none" else block
        for block in recording.blocks
    )  # fmt: skip
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert "The loop stalls about once in 15 steps." in blamed(report, "scheduling").evidence


@pytest.mark.parametrize(("late_ms", "gain", "is_blamed"), [(300, None, True), (300, 1.0, False), (20, None, False)])
def test_a_slow_batch_holds_up_others_for_as_long_as_it_is_late(
    late_ms: int, gain: float | None, is_blamed: bool
) -> None:
    """What is waited for beyond that has other causes; and a trial that did not help says that it is not the order."""
    fetches = (*(MS,) * 14, late_ms * MS, late_ms * MS)
    recording = tried(2, {} if gain is None else {Settings(num_workers=2, in_order=False): 80 / gain})
    blocks = tuple(dataclasses.replace(block, fetches_ns=fetches) for block in recording.blocks)
    assert ("scheduling" in kinds(judge(dataclasses.replace(recording, blocks=blocks)))) is is_blamed


@pytest.mark.parametrize("period", [78, 90])
def test_settings_that_gained_little_are_no_remedy(period: float) -> None:
    """Under five percent, or a loss, nothing is advised."""
    assert "workers" not in {item.id for item in judge(tried(4, {Settings(num_workers=6): period})).remedies}


def test_settings_that_no_argument_makes_are_no_remedy() -> None:
    """Threads of the workers are not an argument of the loader, so there is no call to show."""
    report = judge(tried(2, {Settings(num_workers=2, worker_threads=1): 40}))
    assert not [item for item in report.remedies if (item.patch or "").startswith("DataLoader(..., )")]
    assert "workers" not in {item.id for item in report.remedies}


# --- Payload ----------------------------------------------------------------------------------------------------------

WASTEFUL = dataclasses.replace(IMAGE, dtype="float64", min=0, max=255, is_integral=True)
COPY_BOUND = {"none": 30.2, "samples": 30.1, "host": 30.0, "device": 20.0}


def copy_bound(fetch_ms: float = 10, **facts) -> Recording:
    """A loop that copies batches for 10 of its 30 ms, and whose two workers need so long for one."""
    return with_fetches(make_recording(COPY_BOUND, body_ms=30, has_device=True, **facts), fetch_ms)


def leaner(report: Report) -> list:
    return [item for item in report.remedies if item.id.startswith("payload:")]


def test_a_batch_that_carries_too_much_is_told_where_copying_it_costs() -> None:
    """Bytes instead of doubles save seven eighths of the copy, with a predicted gain below that of no copy at all."""
    report = judge(copy_bound(payload=(WASTEFUL, LABELS)))
    remedy = leaner(report)[0]
    assert (remedy.id, remedy.about) == ("payload:uint8:batch[0]", "payload")
    assert "1 MiB of the batch's 1 MiB would become 0.125 MiB" in remedy.advice
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(30.2 / (30.2 - 7 / 8 * 10), rel=0.03)


def copied_ahead(period: float, device: str = "cuda:0", **settings) -> Remedy:
    """The remedy for a loop that waits a quarter of its time for workers, and copies batches for 12 of 30 ms besides."""
    periods = {"none": 40.0, "samples": 31.0, "host": 30.0, "device": 18.0, "control:side-stream": period}
    facts = {"environment": {"device": device}, "loader": dataclasses.replace(LOADER, **settings)}
    report = judge(with_fetches(make_recording(periods, body_ms=30, has_device=True, **facts), 10))
    (remedy,) = [item for item in report.remedies if item.about == "copy"]
    return remedy


def test_copying_ahead_is_promised_what_it_gains_in_the_loop_as_it_is() -> None:
    """It was tried in a loop that was fed, where it gained 1.25; of a loop that waits for workers a quarter of its time,
    three quarters gain that."""
    remedy = copied_ahead(24.0)
    assert remedy.id == "overlapped-copy"
    assert remedy.measured_gain is None
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(1 / (0.25 + 0.75 / 1.25), rel=0.02)
    assert "device computes: ×1.2" in remedy.advice


def test_copying_ahead_is_handed_over_as_it_was_tried() -> None:
    """A side stream, with pinning only where batches are not pinned; and no code of torch's for a device that it does not
    know."""
    plain, pinned = copied_ahead(24.0, "cuda:0"), copied_ahead(24.0, "cuda:0", pin_memory=True)
    assert plain.patch == f"DataLoader(..., pin_memory=True)\n{pinned.patch}"
    assert "Pin the batches" in plain.advice
    assert "Pin the batches" not in pinned.advice
    unknown = copied_ahead(24.0, "simulated accelerator")
    assert unknown.patch is None
    assert "Pin the batches" not in unknown.advice
    (own,) = moving("x = device.copy(x)", 0.4).remedies
    assert own.patch is None
    assert own.advice.startswith("Copy the next batch")


class Moved:
    """A tensor that a fake stream copies, and where it is used."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def to(self, device: str, *, non_blocking: bool) -> Moved:
        self.log.append(f"copy {self.name}")
        return self

    def record_stream(self, stream: object) -> None:
        self.log.append(f"record {self.name}")


def test_the_copy_of_a_batch_begins_before_the_one_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch comes once and in order, after the loop's stream waits for its copy and its memory is recorded, by code
    that needs nothing of the script's."""
    log: list[str] = []
    stream = types.SimpleNamespace(
        record_event=lambda: len(log), wait_event=lambda done: log.append(f"wait {log[done - 1]}")
    )
    fake = types.SimpleNamespace(
        Stream=lambda device: stream,
        stream=lambda stream: contextlib.nullcontext(),
        current_stream=lambda device: stream,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=fake))
    names: dict = {}
    exec(copied_ahead(24.0, "cuda:0", pin_memory=True).patch or "", names)
    for (tensor,) in names["copied_ahead"]([[Moved(log, name)] for name in "ab"], "cuda"):
        log.append(f"use {tensor.name}")
    assert log == ["copy a", "copy b", "wait copy a", "record a", "use a", "wait copy b", "record b", "use b"]


def test_copying_ahead_is_promised_no_more_than_no_copy() -> None:
    """Chance may put it above; what is copied can be hidden at most."""
    gain = copied_ahead(15.0).predicted_gain
    assert gain is not None
    assert gain.value == pytest.approx(1 / (0.25 + 0.75 * 18 / 30), rel=0.03)
    assert gain.low <= gain.value <= gain.high


def test_a_copy_gains_only_what_the_workers_leave() -> None:
    """Eight workers that deliver a batch every 40 ms do so however soon it is on the device; the stage that keeps them is
    to blame."""
    periods = {"none": 40.0, "samples": 31.0, "host": 30.0, "device": 18.0, "knockout:decode": 30.0}
    loader, stages = dataclasses.replace(LOADER, num_workers=8), (make_stage("decode", 10, kind="decode"),)
    facts = {"loader": loader, "stages": stages, "environment": {"cores_available": 16.0}}
    report = judge(with_fetches(make_recording(periods, body_ms=30, has_device=True, **facts), 320))
    assert kinds(report) == ["decode"]


def test_a_copy_that_the_workers_bound_says_that_its_gain_is_computed() -> None:
    """Workers that could deliver every 25 ms leave 30/25 of the 30/20 that the copy costs a loop that is fed; what is
    advised promises no more."""
    report = judge(copy_bound(50, payload=(WASTEFUL, LABELS)))
    assert blamed(report, "copy").gain.is_computed
    gains = [blamed(report, "copy").gain, *(item.predicted_gain for item in report.remedies)]
    assert [gain.value for gain in gains if gain] == [pytest.approx(30.2 / 25, rel=0.02)] * 3


def test_a_copy_is_lightened_only_by_what_it_moves() -> None:
    """The storage behind a view stays on the host, as a field does that the step does not move; of what the step moves the
    saving is a larger share."""
    view = dataclasses.replace(IMAGE, path="batch[2]", storage_bytes=40 * MIB, moved_by_step=True)
    kept = dataclasses.replace(WASTEFUL, path="batch[3]", bytes=7 * MIB, storage_bytes=7 * MIB, moved_by_step=False)
    payload = (dataclasses.replace(WASTEFUL, moved_by_step=True), view, kept)
    report = judge(copy_bound(payload=payload))
    gains = {item.id: item.predicted_gain for item in leaner(report)}
    assert any("40 MiB of the batch's 48 MiB would become 1 MiB." in item.advice for item in leaner(report))
    assert gains.keys() == {"payload:uint8:batch[0]", "payload:view:batch[2]", "payload:uint8:batch[3]"}
    assert gains["payload:view:batch[2]"] is None
    assert gains["payload:uint8:batch[3]"] is None
    gain = gains["payload:uint8:batch[0]"]
    assert gain is not None
    assert gain.value == pytest.approx(30.2 / (30.2 - 7 / 16 * 10), rel=0.03)


def test_what_a_batch_carries_does_not_matter_where_moving_it_costs_nothing() -> None:
    """A loop starved by decoding is not told to send fewer bytes."""
    stage = make_stage("decode", 10, kind="decode")
    report = judge(make_recording({**STARVED, "knockout:decode": 25}, stages=(stage,), payload=(WASTEFUL,)))
    assert kinds(report) == ["decode"]
    assert not leaner(report)


def test_small_savings_are_not_told() -> None:
    """Less than a twentieth of the batch is not worth a change."""
    big = dataclasses.replace(IMAGE, bytes=30 * 2**20, storage_bytes=30 * 2**20, path="batch[9]")
    report = judge(copy_bound(payload=(WASTEFUL, big)))
    assert not leaner(report)


BOXES = tuple(
    dataclasses.replace(LABELS, path=f"batch[1][{number}]", bytes=80, storage_bytes=80) for number in range(80)
)


@pytest.mark.parametrize("kind", ["ipc", "copy", "collate"])
def test_many_small_tensors_are_told_where_handing_them_over_costs(kind: str) -> None:
    """They save no bytes if they are joined, so no gain is predicted; collating goes over their values all the same."""
    if kind == "copy":
        recording = copy_bound(payload=(IMAGE, *BOXES))
    else:
        stages = (make_stage(kind, 0.1, kind=kind),)
        recording = make_recording({**STARVED, f"knockout:{kind}": 40}, stages=stages, payload=(IMAGE, *BOXES))
    report = judge(recording)
    assert kinds(report) == [kind]
    found = leaner(report)
    assert [item.id for item in found] == ([] if kind == "collate" else ["payload:small-tensors:batch[1][0]"])
    for item in found:
        assert "A batch holds 80 small tensors" in item.advice
        assert "would become" not in item.advice
        assert item.predicted_gain is None


def test_without_a_device_no_gain_is_predicted() -> None:
    """Where transport from the workers costs, the bytes are told, but there is no copy to compute a gain from."""
    stage = make_stage("ipc", 0.1, kind="ipc")
    recording = make_recording({**STARVED, "knockout:ipc": 40}, stages=(stage,), payload=(WASTEFUL,))
    found = leaner(judge(recording))
    assert found
    assert found[0].predicted_gain is None


# --- Dropped batches --------------------------------------------------------------------------------------------------


def dropping(count: int, seconds: float, periods: dict[str, float] | None = None) -> Report:
    start = dataclasses.replace(make_start(), dropped=count, dropped_ns=int(seconds * 1e9))
    loader = dataclasses.replace(LOADER, length=200)
    return judge(make_recording(periods or {"none": 20.2, "host": 20}, loader=loader, starts=(start,)))


def test_batches_made_only_to_be_dropped_are_blamed() -> None:
    """A resumed run that makes 100 batches to skip them would be shorter by what that took."""
    report = dropping(100, 8.0)
    assert report.verdict.bound == "start"
    culprit = report.verdict.culprits[0]
    assert culprit.name == "batches made only to be dropped"
    assert culprit.gain.value == pytest.approx(1 + 8 / (100 * 0.0202), rel=0.02)
    assert "dropped the first 100 batches" in culprit.evidence


@pytest.mark.parametrize(("count", "seconds"), [(5, 8.0), (100, 0.4), (0, 0.0)], ids=["few", "quick", "none"])
def test_few_or_quickly_dropped_batches_are_no_accusation(count: int, seconds: float) -> None:
    """Looking at a first batch, or skipping what costs nothing, is nobody's fault."""
    names = {culprit.name for culprit in dropping(count, seconds).verdict.culprits}
    assert "batches made only to be dropped" not in names


def test_a_starved_loop_that_drops_batches_too_is_starved_first() -> None:
    """Input that costs a factor of four in every step is worse than a start that costs some steps once."""
    assert dropping(20, 1.5, {**STARVED, "none": 80}).verdict.bound == "input"


# --- An idle device ---------------------------------------------------------------------------------------------------

FED = {"none": 20.1, "host": 20.0, "device": 20.0}
LOSS = BodyLine(source="train.py:60", text="total += loss.item()", wall_fraction=0.42, cpu_fraction=0.4, syncs=1.0)
METRIC = BodyLine(source="train.py:62", text="metric(out.cpu())", wall_fraction=0.38, cpu_fraction=0.1, syncs=3.0)
FORWARD = BodyLine(source="train.py:50", text="out = net(x)", wall_fraction=0.5, cpu_fraction=0.5)


def idle(busy: float | None, *lines: BodyLine) -> Report:
    return judge(with_fetches(make_recording(FED, has_device=True, device_busy=busy, body=lines), 10))


def test_a_device_that_idles_between_waits_is_held_back_by_them() -> None:
    """Of lines that take about as long, the one that waits more often is to blame; fewer waits are advised."""
    report = idle(0.5, FORWARD, LOSS, METRIC)
    assert report.verdict.bound == "step"
    culprit = report.verdict.culprits[0]
    assert (culprit.kind, culprit.resource, culprit.source) == ("step-host", "device", "train.py:62")
    assert culprit.gain.value == pytest.approx(2.0, rel=0.01)
    assert "4 times a step, 3 of them here" in culprit.evidence
    assert report.remedies[0].id == "fewer-waits"


def test_a_device_that_idles_without_waits_is_held_back_by_work_of_the_host() -> None:
    """Then the line that computes most is to blame, and a leaner body is advised."""
    report = idle(0.4, dataclasses.replace(LOSS, syncs=0.02), FORWARD)
    culprit = report.verdict.culprits[0]
    assert (culprit.resource, culprit.source) == ("cpu", "train.py:50")
    assert culprit.gain.value == pytest.approx(2.5, rel=0.01)
    assert report.remedies[0].id == "leaner-body"


@pytest.mark.parametrize("wall", [0.0, 0.03])
def test_waits_are_not_blamed_for_the_launching_of_a_step(wall: float) -> None:
    """Without a wait of a thirtieth of the step the device would idle as before: the line that launches its work is blamed."""
    wait = dataclasses.replace(LOSS, wall_fraction=wall, cpu_fraction=wall)
    report = idle(0.4, wait, dataclasses.replace(FORWARD, wall_fraction=0.95, cpu_fraction=0.9))
    culprit = report.verdict.culprits[0]
    assert (culprit.resource, culprit.source) == ("cpu", "train.py:50")
    assert report.remedies[0].id == "leaner-body"


def test_waits_gain_no_more_than_they_take() -> None:
    """Without waits of 0.4 of a step the host still needs the other 0.6, however little the device computes."""
    culprit = idle(0.3, dataclasses.replace(LOSS, wall_fraction=0.4), FORWARD).verdict.culprits[0]
    assert (culprit.resource, culprit.source) == ("device", "train.py:60")
    assert culprit.gain.value == pytest.approx(1 / 0.6, rel=0.01)


def test_a_wait_that_comes_once_in_several_steps_is_one() -> None:
    """A thread that waits at the end of every fourth step for as long as two of them take is not at work there."""
    culprit = idle(0.6, dataclasses.replace(LOSS, cpu_fraction=0.42, syncs=0.25), FORWARD).verdict.culprits[0]
    assert (culprit.resource, culprit.source) == ("device", "train.py:60")


def test_a_short_wait_alone_is_not_worth_a_word() -> None:
    """Where no line that works was seen, nobody is blamed for what a wait of a hundredth leaves idle."""
    assert idle(0.4, dataclasses.replace(LOSS, wall_fraction=0.01)).verdict.culprits == ()


@pytest.mark.parametrize("lines", [(LOSS, METRIC), ()], ids=["busy", "nothing seen"])
def test_a_busy_device_is_held_back_by_nobody(lines: tuple[BodyLine, ...]) -> None:
    """A device that computes nearly all the time is the limit, whatever waits for it."""
    assert idle(0.93, *lines).verdict.culprits == ()
    assert idle(0.4).verdict.culprits == ()


def test_a_body_gains_only_what_the_workers_leave() -> None:
    """Workers that could make 1.33 times as many batches feed no loop that is twice as fast, and none that keeps them busy
    already; nor is the rate fed from cache called the most that is possible where the body is to blame."""
    recording = make_recording(FED, has_device=True, device_busy=0.5, body=(LOSS, METRIC))
    report = judge(with_fetches(recording, 30))
    assert blamed(report, "step-host").gain.value == pytest.approx(20.1 / 15, rel=0.01)
    assert "could make 1.3 times as many batches" in report.verdict.sentence
    assert "would run 1.34 times as fast" in report.verdict.sentence
    assert "possible" not in report.verdict.sentence
    assert "49.8 steps/s, 50.1 with batches cached on the device; feeding it faster" in report.verdict.sentence
    assert judge(with_fetches(recording, 40)).verdict.culprits == ()


def test_a_step_that_waits_for_its_copy_is_not_said_to_gain_nothing_by_one() -> None:
    """A tenth that only the device's cache spares is the copy's; making batches sooner is what would gain nothing."""
    recording = make_recording({"none": 20.0, "host": 20.0, "device": 18.0}, body_ms=20, has_device=True)
    report = judge(with_fetches(recording, 10))
    assert (report.verdict.bound, kinds(report)) == ("step", ["copy"])
    assert "; making its batches sooner w" in report.verdict.sentence


def test_what_the_device_tells_goes_before_what_the_thread_seems_to_do() -> None:
    """A thread that waits for CUDA spins: by its CPU time the same loop would be called host-bound."""
    assert idle(0.95, dataclasses.replace(FORWARD, cpu_fraction=0.9)).verdict.culprits == ()


@pytest.mark.parametrize(
    ("on_core", "lines", "told"),
    [(0.4, (FORWARD,), []), (0.95, (FORWARD,), ["step-host"]), (0.95, (FORWARD, LOSS), [])],
    ids=["rests", "never rests", "spins"],
)
def test_a_device_that_tells_nothing_may_compute_beside_the_host(
    on_core: float, lines: tuple[BodyLine, ...], told: list[str]
) -> None:
    """Only a host that hardly rests is known to hold up what may run beside it, and then the device is not the limit."""
    recording = make_recording(FED, has_device=True, body=lines)
    blocks = tuple(
        dataclasses.replace(block, main_cpu_ns=int(on_core * (block.end_ns - block.start_ns)))
        for block in recording.blocks
    )
    report = judge(with_fetches(dataclasses.replace(recording, blocks=blocks), 10))
    assert (report.verdict.bound, kinds(report)) == ("step", told)
    assert report.limit is not None
    assert report.limit.binding == ("main" if told else "device")


@pytest.mark.parametrize(
    ("cpu", "delay", "resource"), [(50, 0, "cpu"), (2, 0, "wait"), (20, 30, "cpu")], ids=["works", "asks", "crowded"]
)
def test_a_collate_function_that_waits_is_told_so(cpu: int, delay: int, resource: str) -> None:
    """Asking a data base for 50 ms is no computing; waiting for a core is no waiting for something else."""
    stage = make_stage("collate", 10, kind="collate")
    recording = make_recording({**STARVED, "knockout:collate": 30.0}, stages=(stage,))
    figures = {"none": (60, 10 + cpu, delay), "knockout:collate": (10, 10, 0)}
    blocks = tuple(
        dataclasses.replace(
            block, **{
                name: (ms * MS,) * 8
                for name, ms in zip(("fetches_ns", "fetches_cpu_ns", "delays_ns"), figures[block.rung], strict=True)
            },
        )
        if block.rung in figures
        else block
        for block in recording.blocks
    )  # fmt: skip
    culprit = blamed(judge(dataclasses.replace(recording, blocks=blocks)), "collate")
    assert culprit.resource == resource


# --- Shares and doubts ------------------------------------------------------------------------------------------------


@given(wall=st.floats(0, 50), others=st.floats(0, 50), most=st.floats(0.5, 20), spread=st.floats(1, 2))
def test_a_gain_by_share_is_an_interval_below_the_most(wall: float, others: float, most: float, spread: float) -> None:
    """It is at least nothing, at most what no input at all would gain, and lies within its interval."""
    stage, other = make_stage("a", wall), make_stage("b", others)
    recording = make_recording(STARVED, stages=(stage, other))
    evidence = Evidence(
        recording=recording, blocks=recording.blocks, rates=estimate.rates(recording.blocks), ceiling_id="host",
        threshold=0.05,
    )  # fmt: skip
    limit = Estimate(value=most, low=most / spread, high=most * spread)
    gain = gain_by_share(evidence, stage, limit)
    assert 1 <= gain.low <= gain.value <= gain.high
    assert gain.value <= max(1, most)
    assert gain.high <= max(1, limit.high)


def test_half_of_the_time_doubles_the_speed_at_best() -> None:
    """The gain of a stage with half of a sample's time is two, where nothing else limits it."""
    recording = make_recording(STARVED, stages=(make_stage("a", 5), make_stage("b", 5)))
    evidence = Evidence(recording=recording, blocks=(), rates={}, ceiling_id="host", threshold=0.05)
    gain = gain_by_share(evidence, recording.stages[0], Estimate(value=9, low=8, high=10))
    assert gain.value == pytest.approx(2)
    assert gain.low == pytest.approx(1.7)


def test_where_no_removal_is_beyond_doubt_the_likeliest_is_named() -> None:
    """Too few rounds to be sure of any stage still tell which gained most; no other is named beside it."""
    stages = (make_stage("decode", 10, kind="decode"), make_stage("crop", 9, kind="transform"))
    recording = make_recording({**STARVED, "knockout:decode": 40, "knockout:crop": 50}, stages=stages)
    noisy = make_blocks({"knockout:decode": 40, "knockout:crop": 50}, body_ms=20, jitter=1.5)
    kept = tuple(block for block in recording.blocks if not block.rung.startswith("knockout:"))
    report = judge(dataclasses.replace(recording, blocks=kept + noisy))
    assert report.verdict.bound == "input"
    assert [culprit.stage for culprit in report.verdict.culprits] == ["decode"]
    assert report.verdict.culprits[0].gain.low <= 1 < report.verdict.culprits[0].gain.value


@pytest.mark.parametrize("periods", [{}, {"knockout:step0": 76.0}], ids=["none tried", "one tried"])
def test_a_data_set_of_many_small_steps_is_blamed_as_a_whole(periods: dict[str, float]) -> None:
    """Forty statements with a fortieth of the time each: none of them is named, and the gain is that of all."""
    stages = tuple(make_stage(f"step{number}", 1, source=f"train.py:{40 + number}") for number in range(40))
    report = judge(make_recording({**STARVED, **periods}, stages=stages))
    culprit = report.verdict.culprits[0]
    assert (culprit.name, culprit.kind, culprit.source, culprit.text) == ("Toy", "code", "train.py:40", None)
    assert culprit.gain.value == pytest.approx(80 / 22, rel=0.02)
    assert not culprit.gain.is_computed
    assert "of the 40 statements that make a sample none takes more than 2%" in culprit.evidence


@pytest.mark.parametrize(("count", "name"), [(5, "Toy"), (3, "step0")])
def test_a_fifth_of_the_time_is_not_named_where_its_removal_gained_nothing(count: int, name: str) -> None:
    """The data set as a whole was shown to cost something; a third of it is worth a guess."""
    stages = tuple(make_stage(f"step{number}", 5 - (number > 0) / 10) for number in range(count))
    report = judge(make_recording({**STARVED, "knockout:step0": 81.0, "knockout:step1": 81.0}, stages=stages))
    assert [culprit.name for culprit in report.verdict.culprits] == [name]


@pytest.mark.parametrize("inner", [True, False], ids=["its call was tried", "refused"])
def test_the_largest_stage_is_named_where_it_could_not_be_served_alone(inner: bool) -> None:
    """What others gained stands beside it, with the computed gain of the stage that was refused before them."""
    decode = make_stage("decode", 7, parent="load" if inner else None)
    stages = (make_stage("load", 7), decode, make_stage("crop", 3))
    periods = {**STARVED, "knockout:crop": 55.0} | ({"knockout:load": 50.0} if inner else {})
    culprits = judge(make_recording(periods, stages=stages if inner else stages[1:])).verdict.culprits
    assert [culprit.stage for culprit in culprits] == (["load", "crop"] if inner else ["decode", "crop"])
    assert culprits[0].gain.is_computed is (not inner)


@pytest.mark.parametrize(("jitter", "named"), [(0.3, ["decode"]), (0.0, ["decode", "read"])])
def test_a_stage_that_takes_little_is_named_second_only_where_its_gain_is_sure(jitter: float, named: list[str]) -> None:
    """A twentieth of the time cannot gain 1.4 by being free; few blocks that scatter may say so, many must be believed."""
    stages = (make_stage("decode", 19), make_stage("read", 1))
    recording = make_recording({**STARVED, "knockout:decode": 35, "knockout:read": 57}, stages=stages)
    kept = tuple(block for block in recording.blocks if block.rung != "knockout:read")
    scattered = make_blocks({"knockout:read": 57}, body_ms=20, jitter=jitter)
    report = judge(dataclasses.replace(recording, blocks=kept + scattered))
    assert [culprit.stage for culprit in report.verdict.culprits] == named


def test_a_statement_that_once_had_no_core_is_not_blamed_for_it() -> None:
    """Of many small steps one took long because its worker had to wait: it is still one of many."""
    stages = [make_stage(f"step{number}", 1) for number in range(40)]
    stages[7] = dataclasses.replace(
        stages[7], wall_ns=(*stages[7].wall_ns[1:], 90 * MS), delay_ns=(0,) * 9 + (89 * MS,)
    )
    assert judge(make_recording(STARVED, stages=tuple(stages))).verdict.culprits[0].name == "Toy"


def test_ten_stages_that_share_the_time_are_named_one_by_one() -> None:
    """A tenth of the time is worth a word of its own."""
    stages = tuple(make_stage(f"step{number}", 1) for number in range(10))
    periods = {**STARVED, "knockout:step0": 65.0, "knockout:step1": 70.0, "knockout:step2": 79.0}
    report = judge(make_recording(periods, stages=stages))
    assert [culprit.stage for culprit in report.verdict.culprits] == ["step0", "step1"]


def test_threads_of_libraries_are_limited_as_they_were_in_the_trial() -> None:
    """Torch is on one thread in a worker anyway: the lines that are not comments limit OpenCV, BLAS and OpenMP too."""
    remedies = judge(make_recording({**STARVED, "trial:worker-threads": 40})).remedies
    patch = next(remedy.patch for remedy in remedies if remedy.id == "trial:worker-threads") or ""
    code = ast.unparse(ast.parse(patch))
    assert [call for call in ("cv2.setNumThreads(0)", "threadpool_limits(1)") if call not in code] == []


@pytest.mark.parametrize("trial", ["worker-threads", "one-core", "affinity"])
def test_what_is_to_run_in_workers_brings_its_imports_along(trial: str) -> None:
    """The function that a patch defines uses no name that the script may not have, and the patch says who calls it."""
    remedies = judge(make_recording({**STARVED, f"trial:{trial}": 40})).remedies
    patch = next(remedy.patch for remedy in remedies if remedy.id == f"trial:{trial}") or ""
    definition, call = patch.split("\nDataLoader(")
    names: dict[str, types.FunctionType] = {}
    exec(definition, names)
    code = list(dis.get_instructions(names["worker_init_fn"]))
    used = {instruction.argval for instruction in code if instruction.opname == "LOAD_GLOBAL"}
    assert used <= vars(builtins).keys()
    assert "worker_init_fn=worker_init_fn" in call


@pytest.mark.parametrize(("kind", "is_pickled"), [("tensor", False), ("array", True), ("other", True)])
def test_what_is_pickled_is_told_from_what_goes_through_shared_memory(kind: str, is_pickled: bool) -> None:
    """A batch without tensors is not told to send fewer tensors."""
    payload = (dataclasses.replace(IMAGE, kind=kind), LABELS)
    stages = (make_stage("ipc", 0, kind="ipc"),)
    report = judge(make_recording({**STARVED, "knockout:ipc": 40.0}, stages=stages, payload=payload))
    (remedy,) = [remedy for remedy in report.remedies if remedy.id == "lighter-transport"]
    assert ("pickled" in remedy.advice) is is_pickled
    assert ("fewer and smaller tensors" in remedy.advice) is (not is_pickled)


def tried_with_doubt(period: float, jitter: float) -> Report:
    """A loop in which one stage is worth a little for certain, and the threads of the workers were tried few times."""
    recording = make_recording(
        {**STARVED, "knockout:decode": 65, "trial:worker-threads": period},
        stages=(make_stage("decode", 10, kind="decode"),),
    )
    noisy = make_blocks({"trial:worker-threads": period}, body_ms=20, jitter=jitter)
    kept = tuple(block for block in recording.blocks if block.rung != "trial:worker-threads")
    return judge(dataclasses.replace(recording, blocks=kept + noisy))


def test_a_setting_that_gained_much_is_named_despite_doubt() -> None:
    """Its interval may reach below one: what it gained on average is more than the stage, and trying it costs nothing."""
    culprits = tried_with_doubt(52, jitter=0.7).verdict.culprits
    assert (culprits[0].kind, culprits[0].stage) == ("cpu", "trial:worker-threads")
    assert culprits[0].gain.low < 1.05


@pytest.mark.parametrize(("period", "named"), [(70, ["decode"]), (55, ["decode", "ipc"])])
def test_transport_is_named_beside_a_stage_only_if_it_gains_about_as_much(period: float, named: list[str]) -> None:
    """Every loader has some, so a small gain without it accuses nobody."""
    periods = {**STARVED, "knockout:decode": 45, "knockout:ipc": period}
    stages = (make_stage("decode", 10, kind="decode"), make_stage("ipc", 0, kind="ipc"))
    assert [culprit.kind for culprit in judge(make_recording(periods, stages=stages)).verdict.culprits] == named


@pytest.mark.parametrize(("period", "named"), [(56, ["cpu"]), (45, ["cpu", "decode"])])
def test_stages_are_symptoms_of_a_setting(period: float, named: list[str]) -> None:
    """Where threads fight for cores any work spared helps: a stage is named beside them only if it gains clearly more."""
    periods = {**STARVED, "knockout:decode": period, "trial:worker-threads": 55}
    report = judge(make_recording(periods, stages=(make_stage("decode", 10, kind="decode"),)))
    assert [culprit.kind for culprit in report.verdict.culprits] == named


@pytest.mark.parametrize(("period", "jitter"), [(70, 0.7), (79, 0.01)])
def test_a_setting_that_gained_little_or_by_chance_is_not_named(period: float, jitter: float) -> None:
    """With doubt a small gain is chance."""
    assert [culprit.kind for culprit in tried_with_doubt(period, jitter).verdict.culprits] == ["decode"]


def test_torchs_threads_go_first_where_they_are_more_than_the_cores() -> None:
    """A trial of one thread that gained less than a stage still names the cause, if threads crowd the cores."""
    periods = {**STARVED, "knockout:decode": 50, "trial:threads": 58}
    stages = (make_stage("decode", 10, kind="decode"),)
    for threads, first in ((32, "cpu"), (2, "decode")):
        facts = {"environment": {"cores_available": 2.0, "torch_threads": threads}}
        assert judge(make_recording(periods, stages=stages, **facts)).verdict.culprits[0].kind == first


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("chain = [ToTensor(), Mask(), Crop(64)]", "Make `Mask` cheaper"),
        ("mask = convolve(seeds) > 0", "Make `mask = convolve(seeds) > 0` cheaper"),
        ("", "Make `Mask` cheaper"),
    ],
)
def test_what_to_make_cheaper_is_said_shortly(text: str, told: str) -> None:
    """The stage's name where its line says more than that, else the statement that was found inside it."""
    stage = dataclasses.replace(make_stage("mask", 10, kind="transform"), name="Mask", text=text)
    report = judge(make_recording({**STARVED, "knockout:mask": 40}, stages=(stage,)))
    assert any(told in remedy.advice for remedy in report.remedies)


def test_a_rung_with_settings_is_no_rung_of_the_ladder() -> None:
    """Trials stand beside it, so that the bars of the ladder are those of what was cached."""
    report = judge(tried(0, {Settings(num_workers=6): 30}))
    ranks = [rung.id for rung in report.rungs]
    assert ranks.index("none") < ranks.index("trial:6 workers")


@pytest.mark.parametrize(
    ("fetch_ms", "gain"), [(120, None), (90, 60 / 45), (5, 60 / 35)], ids=["hidden", "half", "bare"]
)
def test_a_sampler_that_works_beside_the_workers_gains_what_they_leave(fetch_ms: int, gain: float | None) -> None:
    """What it takes of the loop's own process is lost only as far as the workers would be ready sooner."""
    recording = make_recording({"none": 60.0, "host": 30.0, "control:sampler": 55.0}, body_ms=30)
    blocks = tuple(
        dataclasses.replace(b, fetches_ns=(fetch_ms * MS,) * 8, fetches_cpu_ns=(MS,) * 8) if b.rung == "none" else b
        for b in recording.blocks
    )
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert [round(c.gain.value, 1) for c in report.verdict.culprits] == ([] if gain is None else [round(gain, 1)])
    assert kinds(report) == ([] if gain is None else ["sampler"])
    assert [remedy.id for remedy in report.remedies] == ([] if gain is None else ["quicker-sampler"])


@pytest.mark.parametrize(("share", "source"), [(0.7, "train.py:60"), (0.3, "train.py:50")], ids=["one line", "many"])
def test_a_sampler_is_blamed_at_the_line_that_takes_its_time(share: float, source: str) -> None:
    line = BodyLine(source="train.py:60", text="order = weigh(seen)", wall_fraction=share, cpu_fraction=share)
    loader = dataclasses.replace(LOADER, sampler="Balanced", sampler_source="train.py:50")
    recording = make_recording({"none": 60.0, "host": 30.0, "control:sampler": 55.0}, body_ms=30, loader=loader)
    culprit = blamed(judge(with_fetches(dataclasses.replace(recording, sampler=(line,)), 5)), "sampler")
    assert (culprit.name, culprit.source) == ("Balanced", source)
    assert (culprit.text == line.text) is (source == line.source)


def test_a_loop_that_was_never_fed_from_the_host_is_judged_all_the_same() -> None:
    """Its blocks may have met a validation each time; the sampler and the copy are then compared with nothing."""
    periods = {"none": 60.0, "device": 30.0, "control:sampler": 55.0, "knockout:collate": 40.0}
    collate = make_stage("collate", 10, kind="collate")
    recording = make_recording(periods, body_ms=30, has_device=True, stages=(collate,), payload=(WASTEFUL,))
    report = judge(recording)
    assert kinds(report) == ["collate"]
    assert [remedy.predicted_gain for remedy in leaner(report)] == [None]


# --- Other loaders, lines that lead, needs ----------------------------------------------------------------------------

VALID = Loader(number=1, name="DataLoader(Valid)", length=50, batch_size=8, num_workers=0, source="train.py:95")


def after(first: Start, other: Start, span: int) -> Start:
    """The other iterator as one that lasts so long after the first has ended."""
    return dataclasses.replace(other, created_ns=first.ended_ns, ended_ns=first.ended_ns + span)


def with_validation(wait_fraction: float, *, seconds: float = 10.0, workers: int = 0) -> Report:
    """A fed training loop whose epochs of 20 s end with a validation of so many seconds, partly spent on waiting."""
    span = int(seconds * 1000 * MS)
    first = make_start(batches=1000)
    valid = after(first, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=int(wait_fraction * span)), span)
    other = dataclasses.replace(VALID, num_workers=workers)
    starts = (first, valid)
    return judge(make_recording(FED, starts=starts, loaders=(LOADER, other)))


def test_another_loader_that_the_script_waits_for_is_blamed() -> None:
    """A validation loader without workers makes a fed loop input-bound, by the share of the epoch that it takes."""
    report = with_validation(0.9)
    culprit = blamed(report, "workers")
    assert report.verdict.bound == "input"
    assert (culprit.source, culprit.stage) == ("train.py:95", "loader:1")
    assert culprit.gain.value == pytest.approx(1 / (1 - 0.3), rel=0.05)


def test_a_stage_that_could_not_be_served_alone_gains_no_more_than_all_up_to_it() -> None:
    """It takes seven tenths of the time, yet with it and all before it from cache the loop is only 1.6 times as fast."""
    stages = (make_stage("decode", 7), make_stage("crop", 3))
    periods = {**STARVED, "knockout:crop": 60.0, "after:decode": 50.0}
    (first, *_) = judge(make_recording(periods, stages=stages)).verdict.culprits
    assert (first.stage, first.gain.value) == ("decode", pytest.approx(1.6, rel=0.02))


def test_what_is_said_of_another_loader_tells_the_speed_over_whole_epochs() -> None:
    """1000 steps take 20 s, and the validation after them 10 s."""
    assert with_validation(0.9).verdict.sentence.startswith("Input-bound: 49.8 steps/s, 33.2 over whole epochs")


def test_another_loader_without_workers_is_given_some_of_its_own() -> None:
    """The remedy names it and its line, and takes nothing from what was measured of the loader that was diagnosed."""
    first = make_start(batches=1000)
    valid = after(first, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=9_000 * MS), 10_000 * MS)
    recording = tried(2, {Settings(num_workers=6): 15.0}, FED, starts=(first, valid), loaders=(LOADER, VALID))
    found = {item.id: item for item in judge(recording).remedies}
    assert {"workers", "workers:loader:1"} <= set(found)
    remedy = found["workers:loader:1"]
    assert remedy.about == "loader:1"
    assert "DataLoader(Valid) (train.py:95) has no workers" in remedy.advice
    assert remedy.patch == "DataLoader(..., num_workers=2, persistent_workers=True)"
    assert remedy.measured_gain is None
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(1 / (1 - 0.5 * 0.3), rel=0.05)  # two make batches twice as fast


def test_another_loader_with_workers_is_blamed_as_a_loader() -> None:
    """Where it has workers their number is not what is wrong with it."""
    culprit = blamed(with_validation(0.9, workers=2), "loader")
    assert culprit.name.endswith("waited for between epochs")
    assert culprit.resource == "wait"


@pytest.mark.parametrize(
    ("construct_ms", "first_ms", "facts", "told"),
    [
        (50, 6000, {"start_method": "spawn"}, "persistent-workers:loader:1"),
        (6000, 50, {}, "persistent-workers:loader:1"),
        (50, 6000, {}, None),
        (50, 6000, {"start_method": "spawn", "persistent_workers": True}, None),
        (50, 500, {}, "workers:loader:1"),
    ],
    ids=["spawned", "forked", "slow batches", "kept", "too few"],
)
def test_another_loader_with_workers_is_told_what_spares_its_waiting(
    construct_ms: float, first_ms: float, facts: dict, told: str | None
) -> None:
    """Keeping its workers spares their start, more of them the later batches, and neither the making of a first batch."""
    first = make_start(batches=1000)
    valid = make_start(loader=1, batches=50, construct_ms=construct_ms, first_ms=first_ms)
    valid = after(first, dataclasses.replace(valid, wait_ns=int(9000 - construct_ms) * MS), 10_000 * MS)
    loaders = (LOADER, dataclasses.replace(VALID, **{"num_workers": 2, **facts}))
    report = judge(make_recording(FED, starts=(first, valid), loaders=loaders, environment={"cores_available": 4.0}))
    found = [remedy for remedy in report.remedies if remedy.about == "loader:1"]
    assert [remedy.id for remedy in found] == ([told] if told else [])
    for remedy in found:
        assert "DataLoader(Valid) (train.py:95)" in remedy.advice
        assert remedy.predicted_gain is not None
        assert 1.05 < remedy.predicted_gain.value < blamed(report, "loader").gain.value


@pytest.mark.parametrize(
    ("is_beside", "words"), [(True, "waited for beside the loop"), (False, "waited for in the middle of epochs")]
)
def test_another_loader_is_said_to_be_waited_for_where_it_is(is_beside: bool, words: str) -> None:
    """The second loader of a zip is drawn from in every step, and a validation may come in the middle of an epoch."""
    first = dataclasses.replace(make_start(batches=1000), ended_ns=20_000 * MS)
    inside = dataclasses.replace(
        make_start(loader=1, batches=50), created_ns=5_000 * MS, ended_ns=15_000 * MS, wait_ns=9_000 * MS
    )
    starts = (first, zipped(10.0) if is_beside else inside)
    recording = make_recording(FED, starts=starts, loaders=(LOADER, dataclasses.replace(VALID, num_workers=2)))
    culprit = blamed(judge(with_fetches(recording, 10)), "loader")
    assert culprit.name == f"DataLoader(Valid), {words}"
    assert words.removeprefix("waited for ") in culprit.evidence


@pytest.mark.parametrize(("wait_fraction", "seconds"), [(0.05, 10.0), (0.9, 0.5)], ids=["computes", "is short"])
def test_another_loader_that_costs_little_is_not_blamed(wait_fraction: float, seconds: float) -> None:
    """A validation that computes, or that is over soon, is nobody's fault."""
    report = with_validation(wait_fraction, seconds=seconds)
    assert report.verdict.bound == "step"
    assert report.verdict.culprits == ()


def test_the_innermost_line_that_leads_to_most_of_the_work_is_blamed() -> None:
    """Not a line of the helper that happens to be hot, nor the loop around everything: the call between them."""
    lines = (
        BodyLine(source="train.py:9", text="a", wall_fraction=0.25, cpu_fraction=0.25, cpu_inclusive=0.25, depth=2),
        BodyLine(source="train.py:8", text="b", wall_fraction=0.25, cpu_fraction=0.25, cpu_inclusive=0.25, depth=2),
        BodyLine(source="train.py:40", text="m", wall_fraction=0.0, cpu_fraction=0.0, cpu_inclusive=0.5, depth=1),
        BodyLine(source="train.py:60", text="s", wall_fraction=0.0, cpu_fraction=0.0, cpu_inclusive=0.5, depth=0),
    )
    blocks = tuple(
        dataclasses.replace(b, main_cpu_ns=(b.end_ns - b.start_ns) // 2) for b in make_blocks(FED, body_ms=20)
    )
    report = judge(with_fetches(dataclasses.replace(make_recording(FED, body=lines), blocks=blocks), 10))
    assert blamed(report, "step-host").source == "train.py:40"


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.4])
def test_a_long_look_at_the_loop_stands_for_the_short_ones_that_it_contradicts(ratio: float) -> None:
    """Stalls that come once in many batches are missed by short blocks, or met by chance; where it agrees all count."""
    short = make_blocks({"none": 20.0, "host": 20.0}, body_ms=20)
    one = next(block for block in short if block.rung == "none")
    many, span = 6, int((one.end_ns - one.start_ns) * 6 / ratio)
    long = dataclasses.replace(
        one, round=9, end_ns=one.start_ns + span, waits_ns=one.waits_ns * many, bodies_ns=one.bodies_ns * many
    )
    kept = [block for block in at_length([*short, long], 0.05) if block.rung == "none"]
    assert kept == ([block for block in short if block.rung == "none"] if ratio == 1.0 else []) + [long]


@pytest.mark.parametrize(
    ("head", "gain"),
    [
        ("for i in x:", 1 / 0.3),
        ("for i, j in zip(x.flatten(), y.flatten(), strict=True):", 1 / 0.3),
        ("for i in net(x):", 1 / 0.5),
        ("for i in zip(x, net(x)):", 1 / 0.5),
    ],
)
def test_what_a_loop_costs_goes_with_the_line_that_it_is_for(head: str, gain: float) -> None:
    """Iterating over a tensor is torch's time, and is saved where the line in the loop is; a model's time is not."""
    lines = (
        BodyLine(source="a.py:9", text="n[i] += 1", wall_fraction=0.5, cpu_fraction=0.5, cpu_inclusive=0.5, loop=8),
        BodyLine(source="a.py:8", text=head, wall_fraction=0.2, cpu_fraction=0.2, is_torch=True),
        BodyLine(source="b.py:8", text="y = net(x)", wall_fraction=0.1, cpu_fraction=0.1, is_torch=True),
    )
    blocks = tuple(
        dataclasses.replace(b, main_cpu_ns=(b.end_ns - b.start_ns) // 2) for b in make_blocks(FED, body_ms=20)
    )
    report = judge(with_fetches(dataclasses.replace(make_recording(FED, body=lines), blocks=blocks), 10))
    assert blamed(report, "step-host").gain.value == pytest.approx(gain, rel=0.01)


def moving(text: str, share: float, *, cpu: float = 0.0, has_device: bool = False) -> Report:
    line = BodyLine(
        source="train.py:56",
        text=text,
        wall_fraction=0.0,
        cpu_fraction=0.0,
        busy_inclusive=cpu,
        wall_inclusive=share,
    )
    return judge(with_fetches(make_recording({"none": 20.1, "host": 20.0}, body=(line,), has_device=has_device), 10))


@pytest.mark.parametrize(
    "text", ["x = device.copy(x)", "batch = batch.to(gpu)", "queue.put_batch(x)", "augment(DeviceTensor(x).to(device))"]
)
def test_a_copy_that_the_body_waits_for_is_named(text: str) -> None:
    """On a device that torch does not know, a call that moves the batch and waits is what overlapping would mend."""
    culprit = blamed(moving(text, 0.4), "copy")
    assert (culprit.source, culprit.resource) == ("train.py:56", "bandwidth")
    assert culprit.gain.value == pytest.approx(1 / 0.6)


def test_a_copy_in_which_all_waiting_happens_is_not_named() -> None:
    """It may be the device's own work that is waited for there: asynchronous time is billed to nobody."""
    assert kinds(moving("x = device.copy(x)", 0.97)) == []


@pytest.mark.parametrize(
    ("text", "share", "cpu", "has_device"),
    [
        ("time.sleep(0.03)", 0.97, 0.0, False),
        ("device.launch(0.03)", 0.97, 0.0, False),
        ("total = stop(x)", 0.97, 0.0, False),
        ("rows.to_csv(path)", 0.5, 0.0, False),
        ("results.put(x)", 0.5, 0.0, False),
        ("out = model(x.to(device))", 0.9, 0.8, False),
        ("x = device.copy(x)", 0.1, 0.0, False),
        ("x = x.to(torch.float64)", 0.5, 0.5, False),
        ("x = x.to(device)", 0.5, 0.0, True),
    ],
)
def test_other_waits_and_work_are_no_copies(text: str, share: float, cpu: float, has_device: bool) -> None:
    """A step that sleeps or computes, a short copy, and devices whose copies are measured, convict no copy."""
    assert "copy" not in kinds(moving(text, share, cpu=cpu, has_device=has_device))


def test_needs_are_those_of_the_ceiling() -> None:
    """Feeding 50 steps/s with batches of 160 ms takes 8 cores and 8 workers; an epoch's price falls with its length."""
    needs = judge(make_recording(STARVED), price=3.6).needs
    assert needs is not None
    assert needs.cores == pytest.approx(8.0, rel=0.03)
    assert needs.workers in (8, 9)  # the ninth for what the rates scatter
    assert needs.epoch_price == pytest.approx(1000 * 0.08 * 3.6 / 3600, rel=0.03)
    assert needs.epoch_price_at_ceiling == pytest.approx(1000 * 0.02 * 3.6 / 3600, rel=0.03)
    assert {feed.workers: round(feed.step_ms) for feed in needs.feeds}[2] == 80


def test_small_reads_are_told_to_be_grouped() -> None:
    """A stage that waits for a few KiB a sample is told so, with what it reads; one that reads much is not."""
    stage = make_stage("load", 10, cpu=0.1, kind="read")
    periods = {**STARVED, "knockout:load": 25.0}
    advice = {
        size: [r.id for r in judge(make_recording(periods, stages=(dataclasses.replace(stage, read_bytes=10 * size, read_calls=20),))).remedies]
        for size in (4096, 1 << 20)
    }  # fmt: skip
    assert "larger-files" in advice[4096]
    assert "larger-files" not in advice[1 << 20]


def test_a_setting_that_was_tried_and_helped_goes_before_a_stage_that_gains_more() -> None:
    """What a wrong setting makes of a stage is not the stage's fault."""
    stage = make_stage("blur", 10, kind="transform")
    report = judge(make_recording({**STARVED, "knockout:blur": 36.0, "trial:affinity": 45.0}, stages=(stage,)))
    assert [culprit.kind for culprit in report.verdict.culprits[:2]] == ["cpu", "transform"]


@pytest.mark.parametrize(("setting", "period", "first"), [
    ("trial:worker-threads", 70.0, "transform"), ("trial:worker-threads", 60.0, "cpu"),
    (Settings(num_workers=2, in_order=False), 71.0, "transform"), (Settings(num_workers=2, in_order=False), 45.0, "scheduling"),
])  # fmt: skip
def test_a_setting_goes_before_a_stage_of_about_the_same_gain_only(
    setting: str | Settings, period: float, first: str
) -> None:
    """A stage that gains x2.4 is not hidden by a setting that gains x1.12."""
    stage = make_stage("blur", 10, kind="transform")
    periods = {**STARVED, "knockout:blur": 80 / 2.4 if first == "transform" else 38.0}
    if isinstance(setting, str):
        recording = make_recording({**periods, setting: period}, stages=(stage,))
    else:
        recording = tried(2, {setting: period}, periods, stages=(stage,))
    assert judge(recording).verdict.culprits[0].kind == first


def test_a_loop_that_its_cache_feeds_no_faster_is_judged_all_the_same() -> None:
    """Noise can put the ceiling below the baseline: what is computed from the headroom is then no gain, and no error."""
    span = 10_000 * MS
    first = make_start(batches=1000)
    valid = after(first, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=int(0.9 * span)), span)
    blocks = make_blocks({"none": 20.0, "host": 20.4}, body_ms=20, workers=(0,) * 8)
    stream = dataclasses.replace(LOADER, kind="iterable")
    recording = make_recording(
        {"none": 20.0, "host": 20.4}, starts=(first, valid), loader=stream, loaders=(stream, VALID)
    )
    report = judge(dataclasses.replace(recording, blocks=blocks))
    assert report.verdict.bound == "input"
    assert [culprit.kind for culprit in report.verdict.culprits] == ["workers"]


def many_validations(*, is_inside: bool) -> Report:
    """A fed loop of 1000 batches an epoch, stopped after 300, in which two validations of 3 s were seen."""
    first = dataclasses.replace(make_start(batches=300), ended_ns=20_000 * MS)
    begins = (5_000 * MS, 10_000 * MS) if is_inside else (21_000 * MS, 25_000 * MS)
    valids = tuple(
        dataclasses.replace(
            make_start(loader=1, batches=50), created_ns=begin, ended_ns=begin + 3_000 * MS, wait_ns=2_700 * MS
        )
        for begin in begins
    )
    return judge(make_recording(FED, starts=(first, *valids), loaders=(LOADER, VALID)))


def test_validations_every_so_many_steps_count_for_the_whole_epoch() -> None:
    """Two in 300 of 1000 batches are seven an epoch; two between epochs are two."""
    inside, between = many_validations(is_inside=True).time, many_validations(is_inside=False).time
    assert inside.other_loaders == pytest.approx(20 / (20 + 20), rel=0.05)
    assert between.other_loaders == pytest.approx(6 / (20 + 6), rel=0.05)


def test_a_loader_that_is_drawn_from_beside_the_loop_takes_what_it_is_waited_for() -> None:
    """The second loader of a zip is open as long as the first, and costs only its waits."""
    first = make_start(batches=1000)
    beside = dataclasses.replace(
        make_start(loader=1, batches=1000), created_ns=1, ended_ns=first.ended_ns - 1, wait_ns=100 * MS, beside=1000
    )
    report = judge(make_recording(FED, starts=(first, beside), loaders=(LOADER, VALID)))
    assert report.time.other_loaders < 0.02


def many_epochs(count: int, batches: int) -> tuple[Start, ...]:
    """Epochs of 20 ms a step, each followed by a validation of 3 s that is mostly spent on waiting."""
    starts, now = [], 0
    for _ in range(count):
        ours = dataclasses.replace(make_start(batches=batches), created_ns=now, ended_ns=now + batches * 20 * MS)
        valid = after(ours, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=2_900 * MS), 3_000 * MS)
        starts += [ours, valid]
        now = valid.ended_ns
    return (*starts, dataclasses.replace(make_start(batches=10), created_ns=now, ended_ns=now + 200 * MS))


@pytest.mark.parametrize("length", [None, 10_000, 1000])
def test_a_validation_is_in_the_price_of_an_epoch(length: int | None) -> None:
    """Epochs of 1000 steps end with 3 s of it, and would with steps of 20 ms in place of 80 as well; batches that the loop
    never takes cost nothing."""
    loader = dataclasses.replace(LOADER, length=length)
    recording = make_recording(STARVED, starts=many_epochs(3, 1000), loader=loader, loaders=(loader, VALID))
    needs = judge(recording, price=3600.0).needs
    assert needs is not None
    assert needs.epoch_price == pytest.approx(80 + 3, rel=0.02)
    assert needs.epoch_price_at_ceiling == pytest.approx(20 + 3, rel=0.02)


@pytest.mark.parametrize("length", [None, 10_000, 1200, 1000])
def test_a_validation_counts_once_for_each_epoch_that_was_seen(length: int | None) -> None:
    """Also where the loader tells no length, or where the loop leaves its epochs early."""
    loader = dataclasses.replace(LOADER, length=length)
    report = judge(make_recording(FED, starts=many_epochs(6, 1000), loader=loader, loaders=(loader, VALID)))
    assert report.time.other_loaders == pytest.approx(3 / (3 + (length or 1000) % 9000 * 0.0201), rel=0.05)


def test_a_look_at_a_batch_is_no_epoch() -> None:
    """What is drawn from the training loader before the loop begins leaves the share of validations as it is."""
    look = dataclasses.replace(make_start(batches=1), ended_ns=1)
    shares = [
        judge(make_recording(FED, starts=(*looks, *many_epochs(1, 1000)), loaders=(LOADER, VALID))).time.other_loaders
        for looks in ((), (look, look))
    ]
    assert shares[0] == pytest.approx(shares[1])


def test_an_evaluation_before_training_is_no_part_of_an_epoch() -> None:
    """It happens once in a run, however long it takes."""
    valid = dataclasses.replace(make_start(loader=1, batches=500), ended_ns=60_000 * MS, wait_ns=60_000 * MS)
    first = dataclasses.replace(make_start(batches=300), created_ns=60_000 * MS, ended_ns=66_000 * MS)
    report = judge(make_recording(FED, starts=(valid, first), loaders=(LOADER, VALID)))
    assert report.time.other_loaders == 0
    assert report.verdict.bound == "step"


def zipped(wait_ms: float) -> Start:
    """The second loader of a `zip` of 1000 steps, which is waited for so long in each of them."""
    return dataclasses.replace(
        make_start(loader=1, batches=1000, construct_ms=0, first_ms=0),
        created_ns=1, ended_ns=19_000 * MS, wait_ns=int(1000 * wait_ms * MS), beside=1000,
    )  # fmt: skip


@pytest.mark.parametrize("length", [1000, None])
def test_waiting_for_a_loader_beside_the_loop_is_a_part_of_the_step(length: int | None) -> None:
    """Half of the body is half of the time: it is not added to the body once more."""
    loader = dataclasses.replace(LOADER, length=length)
    starts = (dataclasses.replace(make_start(batches=1000), ended_ns=20_000 * MS), zipped(10.0))
    report = judge(with_fetches(make_recording(FED, starts=starts, loader=loader, loaders=(loader, VALID)), 10))
    assert report.time.other_loaders == pytest.approx(0.5, rel=0.02)
    assert blamed(report, "workers").gain.value == pytest.approx(2.0, rel=0.05)


def test_parts_of_a_watched_run_add_up_to_the_whole() -> None:
    """Validations in the middle of an epoch, and loaders beside the loop, lie within the loop's own time."""
    ours = dataclasses.replace(make_start(batches=1000), ended_ns=20_000 * MS)
    inside = dataclasses.replace(make_start(loader=1, batches=50), created_ns=5_000 * MS, ended_ns=10_000 * MS)
    for other, share in ((inside, 0.25), (zipped(10.0), 0.5)):
        time = account(make_recording({}, blocks=(), rungs=(), starts=(ours, other))).time
        assert time.other_loaders == pytest.approx(share)
        assert time.steady + time.start + time.other_loaders == pytest.approx(1)


def with_checkpoints(validation_s: int) -> tuple[Start, ...]:
    """Three epochs of 20 s, each followed by a validation and by ten seconds of saving."""
    starts, now = [], 0
    for _ in range(3):
        ours = dataclasses.replace(make_start(batches=1000), created_ns=now, ended_ns=now + 20_000 * MS)
        starts += [ours, after(ours, make_start(loader=1, batches=50), validation_s * 1000 * MS)]
        now = starts[-1].ended_ns + 10_000 * MS
    return tuple(starts)


@pytest.mark.parametrize("validation_s", [0, 5])
def test_time_between_epochs_outside_of_any_loader_is_accounted_for(validation_s: int) -> None:
    """Ten seconds of saving after each epoch are a part of it, and no other loader's."""
    starts, loaders = with_checkpoints(validation_s), (LOADER, VALID)
    time = judge(make_recording(FED, starts=starts, loaders=loaders)).time
    assert time.other == pytest.approx(10 / (20 + validation_s + 10), rel=0.02)
    assert time.steady + time.start + time.other_loaders + time.other == pytest.approx(1)
    watched = account(make_recording({}, blocks=(), rungs=(), starts=starts, loaders=loaders)).time
    assert watched.other == pytest.approx(20 / (3 * (20 + validation_s) + 20), rel=0.02)
    assert watched.steady + watched.start + watched.other_loaders + watched.other == pytest.approx(1)


def test_what_follows_a_look_at_a_batch_is_outside_of_no_epoch() -> None:
    """Building the model between a look at a batch and the loop happens once in a run."""
    look = dataclasses.replace(make_start(batches=1), ended_ns=1)
    running = dataclasses.replace(make_start(batches=300), created_ns=60_000 * MS, ended_ns=66_000 * MS)
    assert judge(make_recording(FED, starts=(look, running))).time.other == 0


def test_workers_that_outlive_an_epoch_start_once() -> None:
    """Where they are kept, their start says nothing of later epochs, and does not hide what every step waits for."""
    start = make_start(construct_ms=200, first_ms=6000, batches=150)
    periods = {"none": 50.0, "host": 40.0, "knockout:decode": 40.5}
    stages = (make_stage("decode", 10, kind="decode"),)
    for is_kept, bound in ((False, "start"), (True, "input")):
        loader = dataclasses.replace(LOADER, length=200, persistent_workers=is_kept)
        report = judge(make_recording(periods, body_ms=40, stages=stages, loader=loader, starts=(start,)))
        assert report.verdict.bound == bound
        assert (report.time.start < 0.01) == is_kept


def started(fetch_ms: float, *, construct_ms: float = 100, first_ms: float = 4000, **facts) -> Report:
    """The report on a loop of 40 steps an epoch whose workers need so long for a batch, and for the first of an epoch."""
    loader = dataclasses.replace(LOADER, **{"length": 40, "num_workers": 8, **facts})
    starts = (make_start(construct_ms=construct_ms, first_ms=first_ms, batches=40),) * 3
    recording = make_recording({"none": 502.0, "host": 500.0}, body_ms=500, loader=loader, starts=starts)
    return judge(with_fetches(recording, fetch_ms))


def test_what_any_batch_takes_is_not_blamed_on_starting_the_workers() -> None:
    """Kept workers need four seconds for the first batch of an epoch as well, so that keeping them is not advised."""
    report = started(4000)
    assert report.verdict.bound == "start"
    assert report.verdict.culprits[0].name == "the way to the first batch"
    assert [remedy.id for remedy in report.remedies] == ["epochs-run-on"]


def test_kept_workers_are_promised_what_they_spare() -> None:
    """Of a start of four seconds three go into starting the workers: the fourth makes a batch, and comes again."""
    report = started(1000, construct_ms=0, start_method="spawn")
    assert report.verdict.culprits[0].name == "starting the workers"
    (remedy,) = report.remedies
    assert (remedy.id, remedy.patch) == ("persistent-workers", "DataLoader(..., persistent_workers=True)")
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(1 / (1 - 0.75 * report.time.start))


def test_workers_are_not_kept_by_a_loader_that_is_made_anew() -> None:
    """Each epoch starts workers all the same, and the loader must be kept for them to be."""
    report = started(1000, persistent_workers=True, made=3)
    assert (report.verdict.bound, report.verdict.culprits[0].name) == ("start", "starting the workers")
    (remedy,) = report.remedies
    assert remedy.id == "persistent-workers"
    assert remedy.advice.startswith("Make the loader once")


@pytest.mark.parametrize(
    ("fetch_ms", "facts", "told"),
    [
        (100, {}, "smaller-buffer"),
        (100, {"start_method": "spawn"}, "persistent-workers"),
        (100, {"start_method": "forkserver"}, "persistent-workers"),
        (100, {"start_method": "spawn", "persistent_workers": True}, "smaller-buffer"),
        (4000, {}, "epochs-run-on"),
    ],
    ids=["forked", "spawned", "from a server", "kept", "slow anyway"],
)
def test_a_stream_fills_a_buffer_only_where_nothing_else_explains_its_first_wait(
    fetch_ms: float, facts: dict, told: str
) -> None:
    """Workers that are no copies of the script's process import everything first, and a batch takes what it takes."""
    assert [remedy.id for remedy in started(fetch_ms, kind="iterable", **facts).remedies] == [told]


@pytest.mark.parametrize("count", [1, 2])
def test_a_sampler_begins_anew_however_long_workers_live(count: int) -> None:
    """What it takes before its first index is lost in every epoch, also where the next one is begun ahead of time."""
    first = dataclasses.replace(make_start(construct_ms=6000), sampler_ns=4000 * MS)
    later = dataclasses.replace(make_start(construct_ms=0, first_ms=1), sampler_ns=4000 * MS)
    loader = dataclasses.replace(LOADER, length=100, persistent_workers=True, sampler="Balanced")
    report = judge(make_recording(FED, starts=(first, later)[:count], loader=loader))
    assert report.verdict.bound == "start"
    assert report.time.start == pytest.approx(4 / (4 + 2), rel=0.03)
    assert [(culprit.kind, culprit.name) for culprit in report.verdict.culprits] == [("sampler", "Balanced")]
    assert [remedy.id for remedy in report.remedies] == ["quicker-sampler"]


def test_an_epoch_without_an_end_says_nothing_of_starts() -> None:
    """A long first wait of a stream that has no length may come once in days."""
    stream = dataclasses.replace(LOADER, length=None, kind="iterable")
    report = judge(make_recording(FED, starts=(make_start(first_ms=8000, batches=100),), loader=stream))
    assert report.time.start == 0
    assert report.verdict.bound != "start"


def test_epochs_that_a_loop_leaves_early_are_as_long_as_it_lets_them() -> None:
    """A hundred of ten thousand batches each time, with a dear start: the starts bind."""
    long = dataclasses.replace(LOADER, length=10_000)
    starts = tuple(make_start(first_ms=4000, batches=100) for _ in range(4))
    assert judge(make_recording(FED, starts=starts, loader=long)).verdict.bound == "start"


def begun_in_steps(count: int, *, sampler_ms: float, wait_ms: float, num_workers: int = 0, length: int = 50) -> Report:
    """The report on a loop whose steps of 20 ms each make an iterator over another loader for one batch."""
    other = dataclasses.replace(
        make_start(loader=1, batches=1, construct_ms=1, first_ms=int(wait_ms)),
        wait_ns=int(wait_ms * MS), sampler_ns=int(sampler_ms * MS), beside=1,
    )  # fmt: skip
    ours = dataclasses.replace(make_start(batches=100), created_ns=0)
    others = tuple(dataclasses.replace(other, created_ns=i * 20 * MS, ended_ns=(i + 1) * 20 * MS) for i in range(count))
    valid = dataclasses.replace(VALID, num_workers=num_workers, length=length)
    return judge(with_fetches(make_recording(FED, starts=(ours, *others), loaders=(LOADER, valid)), 10))


def test_a_loader_that_every_step_begins_anew_is_blamed_for_its_starts() -> None:
    """What one iterator for all steps would save is its gain: the sampler's start, not the making of the batch."""
    report = begun_in_steps(100, sampler_ms=9, wait_ms=10)
    assert report.verdict.bound == "input"
    culprit = report.verdict.culprits[0]
    assert (culprit.kind, culprit.stage) == ("sampler", "loader:1")
    assert culprit.gain.value == pytest.approx(2.0, rel=0.05)
    assert "one-iterator" in {remedy.id for remedy in report.remedies}
    assert report.time.other_loaders == pytest.approx(11 / 20, rel=0.05)


@pytest.mark.parametrize(
    ("length", "name", "told"),
    [(1, "epochs of a single batch", "epochs-run-on"), (1000, "a new iterator for every step", "one-iterator")],
)
def test_an_iterator_that_has_no_second_batch_is_not_said_to_be_left_early(length: int, name: str, told: str) -> None:
    """Training on the whole data set at once makes an iterator for every step, and cannot take more batches from it."""
    starts = tuple(
        dataclasses.replace(make_start(construct_ms=180, first_ms=60, batches=1), created_ns=number * 250 * MS)
        for number in range(20)
    )
    loader = dataclasses.replace(LOADER, length=length)
    report = judge(make_recording({}, blocks=(), rungs=(), starts=starts, loader=loader))
    assert report.verdict.bound == "start"
    assert name in report.verdict.sentence
    assert report.verdict.culprits[0].name == name
    assert [remedy.id for remedy in report.remedies] == [told]


@pytest.mark.parametrize(
    ("length", "name", "told"),
    [(2, "epochs of 2 batches", "epochs-run-on"), (1000, "a new iterator for every step", "one-iterator")],
)
def test_iterators_of_two_batches_are_as_brief_as_those_of_one(length: int, name: str, told: str) -> None:
    """A loop that takes a pair of batches from each of its iterators is told so, though two of them are natural at most."""
    start = make_start(construct_ms=300, batches=2)
    starts = tuple(
        dataclasses.replace(start, created_ns=n * 400 * MS, ended_ns=n * 400 * MS + start.ended_ns, natural=n < 2)
        for n in range(40)
    )
    report = judge(make_recording(FED, starts=starts, loader=dataclasses.replace(LOADER, length=length)))
    assert report.verdict.bound == "start"
    assert report.verdict.culprits[0].name == name
    assert [remedy.id for remedy in report.remedies] == [told]


def test_a_long_epoch_after_looks_at_two_batches_is_no_brief_one() -> None:
    """What was looked at before training says nothing of how the loop goes on."""
    look = dataclasses.replace(make_start(first_ms=350, construct_ms=5000, batches=2), ended_ns=400 * MS)
    epoch = dataclasses.replace(make_start(first_ms=9000, batches=100), created_ns=400 * MS, natural=False)
    loader = dataclasses.replace(LOADER, length=100)
    report = judge(make_recording(FED, starts=(look, look, epoch), loader=loader))
    assert report.verdict.bound == "start"
    assert "new-iterators" not in {culprit.cause for culprit in report.verdict.culprits}


@pytest.mark.parametrize(
    ("workers", "method", "gain"), [(2, "fork", 130 / 50), (20, "fork", 13), (2, "spawn", 13), (0, "fork", 130 / 110)]
)
def test_workers_of_one_iterator_make_its_batches_still(workers: int, method: str, gain: float) -> None:
    """Of the 100 ms until a first batch each of two forked workers has 50 a step; what spawned ones import is not told from
    that, so that their gain may be as small."""
    starts = tuple(
        dataclasses.replace(make_start(construct_ms=20, first_ms=100, batches=1), created_ns=number * 130 * MS)
        for number in range(20)
    )
    loader = dataclasses.replace(LOADER, num_workers=workers, start_method=method)
    report = judge(make_recording({}, blocks=(), rungs=(), starts=starts, loader=loader))
    found = report.verdict.culprits[0].gain
    assert found.value == pytest.approx(gain, rel=0.01)
    assert report.ceiling is not None
    assert report.ceiling.value == pytest.approx(gain / 0.13, rel=0.01)
    assert found.is_computed is (workers > 0)
    assert found.low <= 130 / 50 or workers == 20
    assert ("their first batches" in report.verdict.sentence) is (workers > 0)


def test_a_worker_of_another_loader_makes_its_batches_still() -> None:
    """Without the 16 ms of each step of 20 until its batch comes, the one worker would need 15 for the next."""
    report = begun_in_steps(100, sampler_ms=0.1, wait_ms=15, num_workers=1)
    assert report.verdict.culprits[0].gain.value == pytest.approx(20.1 / 15, rel=0.02)


def test_another_loader_of_one_batch_is_given_no_workers_that_fill_up_for_it() -> None:
    """Workers of its own would start for one batch, and one iterator has no second."""
    for wait_ms, sampler_ms in ((10, 0.1), (10, 9)):
        report = begun_in_steps(100, sampler_ms=sampler_ms, wait_ms=wait_ms, length=1)
        assert report.verdict.culprits[0].name == "DataLoader(Valid), epochs of a single batch"
        assert {remedy.id for remedy in report.remedies if remedy.about == "loader:1"} == {"epochs-run-on"}


def test_a_look_at_another_loader_now_and_then_is_not_begun_in_every_step() -> None:
    assert "sampler" not in {culprit.kind for culprit in begun_in_steps(5, sampler_ms=9, wait_ms=10).verdict.culprits}


def passed_on(share: float, *, step_ms: float = 20.0) -> Report:
    """The report on a loop in whose body a generator around the loader takes this share."""
    line = BodyLine(
        source="train.py:30", text="yield augment(batch)", wall_fraction=share, cpu_fraction=share, busy_inclusive=share,
        wall_inclusive=share, in_iterator=share,
    )  # fmt: skip
    return judge(with_fetches(make_recording({"none": step_ms + 0.1, "host": step_ms}, body=(line,)), 10))


def test_work_between_the_loader_and_the_loop_is_input() -> None:
    """A generator that takes half of the body on batches that it hands on is named with its line."""
    report = passed_on(0.5)
    assert report.verdict.bound == "input"
    culprit = report.verdict.culprits[0]
    assert (culprit.kind, culprit.source, culprit.resource) == ("loader", "train.py:30", "cpu")
    assert culprit.gain.value == pytest.approx(2.0, rel=0.05)
    assert "work-in-workers" in {remedy.id for remedy in report.remedies}


@pytest.mark.parametrize("share", [0.0, 0.03, 0.99])
def test_a_loop_that_is_a_generator_itself_is_not_input(share: float) -> None:
    """Nor is a generator that hands batches on at once."""
    report = passed_on(share)
    assert report.verdict.bound == "step"
    assert "loader" not in {culprit.kind for culprit in report.verdict.culprits}


# --- What is rare -----------------------------------------------------------------------------------------------------


def with_late(slow_ms: int, *, cpu_share: float = 0.0, usual_ms: int = 20) -> Report:
    """The report on a starved loop of two workers, of whose batches one in eight takes so long, in one line of its own."""
    late = (
        SlowLine(source="train.py:33", text="self.open(shard)", wall_ns=900, cpu_ns=int(900 * cpu_share)),
        SlowLine(source="train.py:40", text="parse(row)", wall_ns=100, cpu_ns=100),
    )
    recording = make_recording({"none": 30.0, "host": 20.0}, late=late)
    blocks = tuple(
        dataclasses.replace(
            block, fetches_ns=(*(usual_ms * MS,) * 7, slow_ms * MS), fetches_cpu_ns=(5 * MS,) * 8, delays_ns=(0,) * 8
        )
        if block.rung == "none"
        else block
        for block in recording.blocks
    )
    return judge(dataclasses.replace(recording, blocks=blocks))


@pytest.mark.parametrize(("cpu_share", "kind", "resource"), [(0.0, "read", "wait"), (1.0, "code", "cpu")])
def test_a_line_that_is_rarely_slow_is_blamed_where_nothing_else_was_shown(
    cpu_share: float, kind: str, resource: str
) -> None:
    """Watching a few samples does not meet what happens once in a shard; looking at what runs in late batches does."""
    report = with_late(240, cpu_share=cpu_share)
    culprit = report.verdict.culprits[0]
    assert (culprit.stage, culprit.kind, culprit.resource) == ("late", kind, resource)
    assert culprit.source == "train.py:33"
    assert 1.2 < culprit.gain.value <= 1.55
    assert culprit.gain.is_computed


def test_batches_ahead_are_advised_that_bridge_a_slow_one() -> None:
    """Twelve steps fit into the slow batch, and each of two workers has its share of these ready."""
    remedy = next(remedy for remedy in with_late(240).remedies if remedy.id == "prefetch")
    assert remedy.patch == "DataLoader(..., prefetch_factor=7)"


def test_batches_that_take_about_as_long_as_usual_are_not_late() -> None:
    assert "late" not in {culprit.stage for culprit in with_late(50).verdict.culprits}


# --- What lies beside the loop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10_000, None])
def test_looks_at_a_batch_before_training_are_no_epochs(length: int | None) -> None:
    """A script that takes a first batch twice, for its shape and for a picture, has not left two epochs early."""
    looks = tuple(make_start(first_ms=1000, batches=1) for _ in range(2))
    running = dataclasses.replace(make_start(batches=300), created_ns=10**12, ended_ns=2 * 10**12)
    loader = dataclasses.replace(LOADER, length=length)
    report = judge(make_recording(FED, starts=(*looks, running), loader=loader))
    assert report.verdict.bound == "step"


def test_workers_that_never_rest_do_not_bound_what_a_shorter_body_gains() -> None:
    """They slow the body in the control; in a loop that waits for its body they rest most of the time."""
    line = BodyLine(
        source="train.py:30", text="yield augment(batch)", wall_fraction=0.5, cpu_fraction=0.5, busy_inclusive=0.5,
        wall_inclusive=0.5, in_iterator=0.5,
    )  # fmt: skip
    periods = {"none": 20.1, "host": 20.0, "control:busy": 30.0}
    report = judge(with_fetches(make_recording(periods, body=(line,)), 10))
    assert report.verdict.culprits[0].stage == "iterator"
    assert report.verdict.culprits[0].gain.value == pytest.approx(2.0, rel=0.05)


def test_a_generator_gains_only_what_the_workers_leave() -> None:
    """They go on beside it: where they need nearly all of the period, a shorter body waits for them."""
    line = BodyLine(
        source="train.py:30", text="yield augment(batch)", wall_fraction=0.7, cpu_fraction=0.1, wall_inclusive=0.7,
        in_iterator=0.7,
    )  # fmt: skip
    report = judge(with_fetches(make_recording({"none": 24.0, "host": 20.0}, body=(line,)), 47))
    assert all(culprit.gain.value < 1.1 for culprit in report.verdict.culprits if culprit.stage == "iterator")


def test_a_small_certain_culprit_does_not_hide_a_large_uncertain_one() -> None:
    """A computed gain of six per cent is sure, and no answer to a loop that could run four times as fast."""
    stage = make_stage("transform:1", 30.0)
    recording = make_recording(
        {"none": 80.0, "host": 20.0, "knockout:transform:1": 24.0}, stages=(stage,), loaders=(LOADER, VALID),
        starts=(
            dataclasses.replace(make_start(batches=1000), ended_ns=80_000 * MS),
            dataclasses.replace(make_start(loader=1, batches=50), created_ns=81_000 * MS, ended_ns=86_000 * MS, wait_ns=5_000 * MS),
        ),
    )  # fmt: skip
    noisy = tuple(block for block in recording.blocks if block.round == 0)
    report = judge(dataclasses.replace(recording, blocks=noisy))
    assert report.verdict.culprits[0].stage == "transform:1"


def test_a_loader_whose_batches_are_dear_is_not_given_workers_for_every_step() -> None:
    """Workers of an iterator that is made for one batch would fill up in each step for nothing."""
    report = begun_in_steps(100, sampler_ms=0.1, wait_ms=10)
    assert {remedy.id for remedy in report.remedies if remedy.about == "loader:1"} == {"one-iterator"}
    assert report.verdict.culprits[0].kind == "workers"
