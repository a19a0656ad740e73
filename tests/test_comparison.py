"""Two recordings beside each other, from literals: no torch, no clock."""

from __future__ import annotations

import dataclasses
import json
import math
import random

import pytest
from literals import CROP, DECODE, MS, make_blocks, make_recording, make_stage, make_start, with_fetches
from scipy import stats
from test_estimate import simulate

from unstarve.comparison import Comparison, compare
from unstarve.estimate import rate
from unstarve.recording import Loader, Recording

RATES = {"none": 10.0, "host": 22.0}
STARVED = {"none": 80, "samples": 22, "host": 20, "knockout:decode": 25, "knockout:crop": 72}
MENDED = {"none": 25, "samples": 22, "host": 20, "knockout:decode": 24, "knockout:crop": 23}
FAST_DECODE = make_stage("decode", 0.2, kind="decode")
BEFORE = make_recording(STARVED, stages=(CROP, DECODE))
AFTER = make_recording(MENDED, stages=(CROP, FAST_DECODE), created="2026-01-02T00:00:00+0000")


def ids(comparison: Comparison) -> set[str]:
    return {doubt.id for doubt in comparison.doubts}


def make_loader(**facts) -> Loader:
    values = {"number": 0, "name": "DataLoader(Toy)", "length": 1000, "batch_size": 8, "num_workers": 2, **facts}
    return Loader(**values)


def test_a_mended_loop_is_faster_by_the_ratio_of_its_baselines() -> None:
    """The answer is the ratio of untouched steps with an interval, called real because the interval excludes 1."""
    found = compare(BEFORE, AFTER)
    assert (found.outcome, found.is_real, found.unit, found.basis) == ("faster", True, "steps/s", "steady")
    assert found.ratio is not None
    assert found.ratio.low < 80 / 25 < found.ratio.high
    assert found.ratio == found.steady_ratio
    assert found.sentence.startswith("Faster: from 12.5 to 40.")
    assert found.before.baseline is not None
    assert found.before.baseline.value == pytest.approx(12.5, rel=0.01)
    assert found.doubts == ()


def test_swapping_the_runs_inverts_the_answer() -> None:
    """What was faster by a ratio becomes slower by its inverse, and the order of the dates is doubted."""
    there, back = compare(BEFORE, AFTER), compare(AFTER, BEFORE)
    assert back.outcome == "slower"
    assert there.ratio is not None
    assert back.ratio is not None
    assert back.ratio.value == pytest.approx(1 / there.ratio.value)
    assert back.ratio.low == pytest.approx(1 / there.ratio.high)
    assert ids(back) == {"order"}


def test_a_run_beside_itself_shows_no_difference() -> None:
    """The same recording twice: ratios of 1, nothing real, no stage changed, and the reader is told."""
    found = compare(BEFORE, BEFORE)
    assert (found.outcome, found.is_real) == ("same", False)
    assert all(rung.ratio is not None and rung.ratio.value == pytest.approx(1) for rung in found.rungs)
    assert {stage.status for stage in found.stages} == {"same"}
    assert ids(found) == {"same-recording"}
    assert found.sentence.startswith("No difference shown: 12.5, then 12.5 steps/s, ×1.00")


def test_a_rate_just_below_a_thousand_has_no_exponent() -> None:
    """Rates are written as in a report, where 999.8 is 1000 and not 1e+03."""
    recording = make_recording({"none": 1.0015, "host": 1.0})
    rate_of_both = compare(recording, recording).before.baseline
    assert rate_of_both is not None
    assert 999.5 < rate_of_both.value < 1000
    assert "1000, then 1000 steps/s" in compare(recording, recording).sentence


NOISES = {
    "alike": (dict.fromkeys(RATES, 0.04),) * 2,
    "one machine noisier": (dict.fromkeys(RATES, 0.02), dict.fromkeys(RATES, 0.08)),
    "baseline noisier": ({"none": 0.08, "host": 0.01},) * 2,
}


@pytest.mark.parametrize("rounds", [3, 4, 8])
@pytest.mark.parametrize("noise", list(NOISES))
def test_equal_runs_are_called_different_at_the_stated_rate(rounds: int, noise: str) -> None:
    """Pairs of runs of one loop are told apart in about 5 % (1.5 to 8 %), whichever machine or rung is the noisier."""
    draw = random.Random(rounds)
    alarms, pairs = 0, 300
    for _ in range(pairs):
        first, second = (simulated(draw, rounds, each) for each in NOISES[noise])
        alarms += compare(first, second).is_real
    assert 0.015 <= alarms / pairs <= 0.08


def test_intervals_cover_the_true_ratio() -> None:
    """The 95 % interval of the ratio holds the truth in 92 to 98.5 % of simulated pairs."""
    draw = random.Random(7)
    hits, pairs = 0, 300
    for _ in range(pairs):
        noise = dict.fromkeys(RATES, 0.05)
        found = compare(simulated(draw, 4, noise), simulated(draw, 5, noise, speed=1.4)).ratio
        assert found is not None
        hits += found.low <= 1.4 <= found.high
    assert 0.92 <= hits / pairs <= 0.985


def simulated(draw: random.Random, rounds: int, noise: dict[str, float], speed: float = 1.0) -> Recording:
    rates = {**RATES, "none": RATES["none"] * speed}
    blocks = simulate(draw, rates, rounds=rounds, noise=noise, drift=0.0)
    return make_recording(dict.fromkeys(rates, 1.0), blocks=tuple(blocks))


def test_time_outside_of_loaders_counts_only_where_both_runs_saw_the_end_of_an_epoch() -> None:
    """Two epochs with ten seconds of saving between them are no slower than the first of them alone."""
    periods = {"none": 20.1, "host": 20.0}
    first = dataclasses.replace(make_start(batches=1000), ended_ns=20_000 * MS)
    second = dataclasses.replace(first, created_ns=30_000 * MS, ended_ns=50_000 * MS)
    short, long = make_recording(periods, starts=(first,)), make_recording(periods, starts=(first, second))
    found = compare(short, long)
    assert found.epoch_ratio is not None
    assert found.epoch_ratio.value == pytest.approx(1)


def test_the_interval_is_that_of_welch() -> None:
    """The interval of the ratio is scipy's for Welch's test on block log-rates, up to the table of Student's t."""
    first, second = (
        make_recording({"none": period}, blocks=make_blocks({"none": period}, body_ms=20, jitter=jitter))
        for period, jitter in ((40, 0.05), (30, 0.2))
    )
    found = compare(first, second).ratio
    logs = [[math.log(rate(block)) for block in recording.blocks] for recording in (second, first)]
    expected = stats.ttest_ind(*logs, equal_var=False).confidence_interval()
    assert found is not None
    assert math.log(found.low) == pytest.approx(expected.low, rel=0.02)
    assert math.log(found.high) == pytest.approx(expected.high, rel=0.02)


def test_a_single_block_is_compared_by_the_scatter_of_its_steps() -> None:
    """After one round a side still has an interval, wider than that of four rounds, and the few rounds are doubted."""
    once = dataclasses.replace(AFTER, blocks=tuple(block for block in AFTER.blocks if block.round == 0))
    found, full = compare(BEFORE, once), compare(BEFORE, AFTER)
    assert found.ratio is not None
    assert full.ratio is not None
    assert found.ratio.low < full.ratio.low < full.ratio.high < found.ratio.high
    assert "few-rounds-second" in ids(found)


# What was predicted


def test_a_gain_that_arrives_as_predicted_is_within() -> None:
    """The first culprit's predicted gain is set beside the measured ratio, with what the culprit still costs."""
    prediction = compare(BEFORE, AFTER).prediction
    assert prediction is not None
    assert prediction.culprit.stage == "decode"
    assert prediction.culprit.gain.low <= prediction.arrived.value <= prediction.culprit.gain.high
    assert prediction.arrival == "within"
    assert prediction.left is not None
    assert prediction.left.after_s == pytest.approx(0.0002)


@pytest.mark.parametrize(("none", "arrival"), [(40, "less"), (21, "more")])
def test_a_gain_other_than_predicted_is_called_so(none: float, arrival: str) -> None:
    """A speed-up clearly outside the prediction is more or less than promised."""
    prediction = compare(BEFORE, make_recording({"none": none, "host": 20}, stages=(CROP, FAST_DECODE))).prediction
    assert prediction is not None
    assert prediction.arrival == arrival


def test_a_noisy_arrival_outside_the_interval_is_still_compatible() -> None:
    """An arrival outside the predicted interval is not held against the prediction if its own noise explains it."""
    blocks = make_blocks({"none": 27, "host": 20}, body_ms=20, jitter=0.4)
    prediction = compare(BEFORE, make_recording({"none": 27, "host": 20}, blocks=blocks)).prediction
    assert prediction is not None
    assert not prediction.culprit.gain.low <= prediction.arrived.value <= prediction.culprit.gain.high
    assert prediction.arrival == "compatible"


def test_without_culprit_nothing_was_predicted() -> None:
    """A run that blamed nothing promised nothing."""
    assert compare(make_recording({"none": 20.1, "host": 20}), AFTER).prediction is None


def test_the_next_bottleneck_is_the_later_verdict() -> None:
    """What binds after the change is the later run's verdict, culprits included."""
    found = compare(BEFORE, make_recording({"none": 60, "host": 20, "knockout:crop": 25}, stages=(CROP,)))
    assert found.after.verdict.bound == "input"
    assert found.after.verdict.culprits[0].name == "crop"


# Stages and rungs


def test_stages_are_matched_by_name_and_kind_whatever_their_ids() -> None:
    """An edit that shifts ids and lines still compares each stage with itself, and its knock-out too."""
    moved = dataclasses.replace(FAST_DECODE, id="4.2", source="train.py:77")
    periods = {"none": 25, "host": 20, "knockout:4.2": 24, "knockout:crop": 23}
    found = compare(BEFORE, make_recording(periods, stages=(make_stage("flip", 3), CROP, moved)))
    changes = {stage.name: stage for stage in found.stages}
    assert {name: change.status for name, change in changes.items()} == {
        "flip": "new", "crop": "same", "decode": "cheaper",
    }  # fmt: skip
    assert changes["decode"].ratio is not None
    assert changes["decode"].ratio.value == pytest.approx(0.02)
    assert changes["decode"].source == "train.py:77"
    rung = next(rung for rung in found.rungs if rung.id == "knockout:4.2")
    assert rung.ratio is not None
    assert rung.ratio.value == pytest.approx(25 / 24, rel=0.01)


def test_stages_are_matched_by_text_where_the_name_changed() -> None:
    """A statement that got another name or kind is the same stage as long as its text is."""
    before = make_stage("load", 5, text="image = load(path)")
    after = make_stage("imread", 5, kind="read", text="image = load(path)")
    (change,) = compare(make_recording(STARVED, stages=(before,)), make_recording(MENDED, stages=(after,))).stages
    assert (change.name, change.status) == ("imread", "same")


@pytest.mark.parametrize(("count", "status"), [(3, "unmeasured"), (4, "same")])
def test_a_stage_that_was_hardly_timed_has_no_ratio(count: int, status: str) -> None:
    """Of two or three samples the interval would reach from nothing to thousands."""
    stage = make_stage("load", 5)
    few = dataclasses.replace(stage, wall_ns=(MS, 9 * MS, 2 * MS, 8 * MS)[:count])
    (change,) = compare(make_recording(STARVED, stages=(stage,)), make_recording(MENDED, stages=(few,))).stages
    assert (change.status, change.ratio is None) == (status, status == "unmeasured")
    assert (change.before_samples, change.after_samples) == (10, count)


def test_namesakes_are_told_apart_by_the_stage_around_them() -> None:
    """Two stages of one name are matched by their parents, even where their order changed."""

    def tree(first: str, second: str, milliseconds: dict[str, float]):
        for place in (first, second):
            yield make_stage(place, 9, kind="transform")
            yield make_stage(f"{place}.0", milliseconds[place], name="resize", text=None, parent=place)

    before = make_recording(STARVED, stages=tuple(tree("a", "b", {"a": 1, "b": 5})))
    after = make_recording(MENDED, stages=tuple(tree("b", "a", {"a": 1, "b": 5})))
    assert {stage.status for stage in compare(before, after).stages} == {"same"}


def test_vanished_stages_and_their_rungs_are_listed() -> None:
    """A stage that is gone is listed last with what it cost; its rungs have no ratio, whoever bears its id now."""
    other = make_stage("decode", 1, name="pad", kind="transform", text="x = pad(x)")
    found = compare(BEFORE, make_recording(MENDED, stages=(CROP, other)))
    gone = found.stages[-1]
    assert (gone.name, gone.status, gone.after_s) == ("decode", "vanished", None)
    assert gone.before_s == pytest.approx(0.010)
    rungs = {(rung.id, rung.before is None, rung.after is None) for rung in found.rungs if rung.id == "knockout:decode"}
    assert rungs == {("knockout:decode", True, False), ("knockout:decode", False, True)}


def test_a_stage_timed_once_has_no_ratio() -> None:
    """One timed sample has no scatter, so no change is claimed."""
    once = dataclasses.replace(DECODE, wall_ns=(2 * MS,))
    (change,) = compare(make_recording(STARVED, stages=(DECODE,)), make_recording(MENDED, stages=(once,))).stages
    assert (change.status, change.ratio) == ("unmeasured", None)


def test_noisy_stages_are_not_called_changed() -> None:
    """A difference within the samples' scatter is no difference."""
    first = dataclasses.replace(DECODE, wall_ns=tuple(value * MS for value in (4, 9, 14, 6, 12)))
    second = dataclasses.replace(DECODE, wall_ns=tuple(value * MS for value in (5, 11, 13, 8, 14)))
    (change,) = compare(make_recording(STARVED, stages=(first,)), make_recording(MENDED, stages=(second,))).stages
    assert change.status == "same"


# Doubts


@pytest.mark.parametrize(
    ("facts", "ident", "said"),
    [
        ({"environment": {"cores_available": 8.0}}, "machine-differs", "cores_available 2.0, then 8.0"),
        ({"environment": {"cores_available": 2.0, "torch": "2.6"}}, "versions-differ", "torch None, then 2.6"),
        ({"command": "unstarve run fixed.py"}, "command-differs", "`unstarve run train.py`, then `unstarve run fixed"),
        ({"loader": make_loader(num_workers=8)}, "settings-differ", "num_workers 2, then 8"),
        ({"loader": make_loader(name="DataLoader(Val)")}, "loader-differs", "DataLoader(Toy), then DataLoader(Val)"),
    ],
)
def test_what_differs_beside_the_change_is_said(facts: dict, ident: str, said: str) -> None:
    """Another machine, version, command, loader or setting is named with both values."""
    doubts = {doubt.id: doubt.sentence for doubt in compare(BEFORE, dataclasses.replace(AFTER, **facts)).doubts}
    assert set(doubts) == {ident}
    assert said in doubts[ident]


def test_a_moved_ceiling_is_doubted() -> None:
    """If the loop without input changed as well, the step or the machine did, and the doubt gives the ratio."""
    found = compare(BEFORE, make_recording({**MENDED, "host": 10, "samples": 11}, created="2026-01-02T00:00:00+0000"))
    (doubt,) = [doubt for doubt in found.doubts if doubt.id == "ceiling-changed"]
    assert "×2.00" in doubt.sentence


def test_ceilings_of_different_kinds_are_not_compared() -> None:
    """A batch cached on the device and one cached on the host are different ceilings."""
    found = compare(BEFORE, make_recording({**MENDED, "device": 19}, has_device=True))
    assert found.ceiling_ratio is None
    assert "ceiling-incomparable" in ids(found)


def test_a_small_difference_may_lie_between_the_runs() -> None:
    """A difference of a few percent may be real within the runs and still be one between runs: the reader is told."""
    found = compare(BEFORE, make_recording({**STARVED, "none": 76}, stages=(CROP, DECODE)))
    assert found.is_real
    assert "between-runs" in ids(found)


def test_doubts_about_a_baseline_are_carried_over() -> None:
    """A run of two rounds weakens the comparison as it weakens its own report, and it is said which run."""
    few = tuple(block for block in AFTER.blocks if block.round < 2)
    found = compare(BEFORE, dataclasses.replace(AFTER, blocks=few))
    assert "few-rounds-second" in ids(found)
    assert any(doubt.sentence.startswith("In the second run: Only 2 rounds") for doubt in found.doubts)


def test_another_batch_size_turns_steps_into_samples() -> None:
    """With batches twice as large, half the steps per second are no slower loop: ratios are of samples per second."""
    doubled = {name: 2 * period for name, period in STARVED.items()}
    after = make_recording(doubled, stages=(CROP, DECODE), loader=make_loader(batch_size=16, source="train.py:90"))
    found = compare(BEFORE, after)
    assert (found.outcome, found.unit) == ("same", "samples/s")
    assert "100, then 100 samples/s" in found.sentence
    assert {"batch-size-differs", "settings-differ"} <= ids(found)


def test_a_start_that_is_nearly_all_of_an_epoch_leaves_the_ratio_known() -> None:
    """What starts cost is known to a quarter, and so is what an epoch without them gains, as predicted and as arrived."""
    loader = make_loader(length=20)
    long, short = (
        make_recording({"none": 20.2, "host": 20}, loader=loader, starts=(make_start(construct_ms=ms, batches=20),) * 3)
        for ms in (13_000, 0)
    )
    found = compare(long, short)
    assert found.ratio is not None
    assert found.ratio.value > 20
    assert 1 < found.ratio.high / found.ratio.value < 1.5
    assert found.prediction is not None
    gain = found.prediction.culprit.gain
    assert (gain.low - 1) / (gain.value - 1) == pytest.approx(0.75)
    assert (gain.high - 1) / (gain.value - 1) == pytest.approx(1.25)
    assert "3 natural starts: 13 s to make the iterator" in found.prediction.culprit.evidence
    assert "a usual batch takes 40.3 ms to make, and an epoch has 20 batches" in found.prediction.culprit.evidence


def test_a_mended_start_counts_by_the_epoch() -> None:
    """Where iterator starts were the limit, the answer is the epoch's speed: steady steps did not change."""
    loader = make_loader(length=20, source="train.py:90")
    slow, fast = (
        make_recording({"none": 20.2, "host": 20}, loader=loader, starts=(make_start(construct_ms=ms, batches=20),) * 3)
        for ms in (900, 5)
    )
    found = compare(slow, fast)
    assert (found.outcome, found.basis) == ("faster", "epoch")
    assert found.steady_ratio is not None
    assert found.steady_ratio.value == pytest.approx(1)
    assert found.ratio is not None
    assert found.ratio.low < (0.404 + 0.93) / (0.404 + 0.035) < found.ratio.high
    assert "iterator starts" in found.sentence


VALID = Loader(number=1, name="DataLoader(Valid)", length=50, batch_size=8, num_workers=0, source="train.py:95")


def validated(seconds: float, *, waiting: float, step_ms: float = 20.2) -> Recording:
    """A fed loop whose epochs of 20 s end with a validation of so many seconds, partly spent on waiting for its batches."""
    span = int(seconds * 1000 * MS)
    first, valid = make_start(batches=1000), make_start(loader=1, batches=50)
    valid = dataclasses.replace(
        valid, created_ns=first.ended_ns, ended_ns=first.ended_ns + span, wait_ns=int(waiting * span)
    )
    loader = make_loader(source="train.py:90")
    return make_recording(
        {"none": step_ms, "host": step_ms - 0.2}, loader=loader, loaders=(loader, VALID),
        starts=(first, valid) if seconds else (first,),
    )  # fmt: skip


@pytest.mark.parametrize("swap", [False, True])
def test_a_mended_loader_of_validation_data_counts_by_the_epoch(swap: bool) -> None:
    """Where waiting for another loader was the limit, the answer is the epoch's speed: 30 s, then 22 s."""
    runs = validated(10, waiting=0.9), validated(2, waiting=0.1)
    found = compare(*(runs[::-1] if swap else runs))
    assert (found.outcome, found.basis) == ("slower" if swap else "faster", "epoch")
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(22 / 30 if swap else 30 / 22, rel=0.03)
    assert "other loaders" in found.sentence
    if not swap:
        assert found.prediction is not None
        assert found.prediction.arrival in ("within", "compatible")


def test_a_loader_that_is_waited_for_as_before_shows_no_difference() -> None:
    """Validations are seen once or twice a run, so one of 10 s and one of 11 s are the same."""
    found = compare(validated(10, waiting=0.9), validated(11, waiting=0.9))
    assert (found.outcome, found.basis) == ("same", "epoch")


def zipped(step_ms: float, wait_ms: float) -> Recording:
    """A fed loop that waits so long in each step for the other loader of a `zip`."""
    first, loader = make_start(batches=1000), make_loader(source="train.py:90")
    beside = dataclasses.replace(
        make_start(loader=1, batches=1000, construct_ms=0, first_ms=0),
        created_ns=1, ended_ns=first.ended_ns - 1, wait_ns=int(1000 * wait_ms * MS), beside=1000,
    )  # fmt: skip
    recording = make_recording(
        {"none": step_ms, "host": step_ms - 0.2}, body_ms=step_ms, loader=loader, loaders=(loader, VALID),
        starts=(first, beside),
    )  # fmt: skip
    return with_fetches(recording, 5)


def test_waiting_for_a_loader_beside_the_loop_is_counted_once() -> None:
    """Steps of 20 ms that wait half of that for the other loader of a `zip` are twice as fast without, not four times."""
    found = compare(zipped(20, wait_ms=10), zipped(10.1, wait_ms=0.1))
    assert (found.outcome, found.basis) == ("faster", "epoch")
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(20 / 10.1, rel=0.02)
    assert "from 49.9 to 98.5" in found.sentence


@pytest.mark.parametrize("swap", [False, True])
def test_a_run_that_saw_no_other_loader_is_compared_by_its_steps(swap: bool) -> None:
    """It may have ended before its first validation, which is no mend; the reader is told."""
    runs = validated(10, waiting=0.9), validated(0, waiting=0)
    found = compare(*(runs[::-1] if swap else runs))
    assert (found.outcome, found.basis) == ("same", "steady")
    assert "other-loader-unseen" in ids(found)


ANEW = make_recording(
    {}, rungs=(), blocks=(), loader=make_loader(source="train.py:90"), created="2025-12-31T00:00:00+0000",
    starts=tuple(
        dataclasses.replace(make_start(construct_ms=180, first_ms=60, batches=1), created_ns=number * 250 * MS)
        for number in range(20)
    ),
)  # fmt: skip
"""A loop that makes a new iterator for every step of 250 ms."""


@pytest.mark.parametrize("swap", [False, True])
def test_a_loop_that_made_an_iterator_for_every_step_is_compared_by_its_whole_steps(swap: bool) -> None:
    """Its baseline counts every start already, so a mend by one iterator is faster by the ratio of the steps, and of an
    epoch: 250 ms against 25 ms and a start in a thousand."""
    found = compare(AFTER, ANEW) if swap else compare(ANEW, AFTER)
    assert (found.outcome, found.basis) == ("slower" if swap else "faster", "epoch")
    assert found.steady_ratio is not None
    assert found.ratio is not None
    assert found.steady_ratio.value == pytest.approx(1 / 10 if swap else 10, rel=0.02)
    assert found.ratio.value == pytest.approx(found.steady_ratio.value, rel=0.02)
    assert ("from 40 to 4" if swap else "from 4 to 40") in found.sentence
    assert compare(ANEW, ANEW).outcome == "same"


def test_only_a_run_without_a_baseline_is_named_as_lacking_it() -> None:
    """Where the other has no untouched blocks but a baseline, it is not to blame."""
    sentence = compare(ANEW, make_recording({}, blocks=(), rungs=())).sentence
    assert "Unresolved: the second run measured" in sentence


@pytest.mark.parametrize("swap", [False, True])
def test_a_run_without_figures_is_unresolved(swap: bool) -> None:
    """Without measured blocks on a side nothing is compared, and the sentence names the side."""
    empty = make_recording({}, blocks=(), rungs=())
    found = compare(BEFORE, empty) if swap else compare(empty, BEFORE)
    assert (found.outcome, found.ratio, found.is_real) == ("unresolved", None, False)
    assert ("the second run" if swap else "the first run") in found.sentence
    assert compare(empty, empty).outcome == "unresolved"


def test_json_follows_its_schema() -> None:
    """The JSON text names its schema, holds the answer, and has no value that JSON lacks."""
    data = json.loads(compare(BEFORE, AFTER).to_json())
    assert data["schema"] == "unstarve.comparison/1"
    assert data["outcome"] == "faster"
    assert data["ratio"]["low"] < data["ratio"]["value"] < data["ratio"]["high"]
    assert data["prediction"]["arrival"] == "within"
    assert {rung["id"] for rung in data["rungs"]} == set(STARVED)


def test_order_of_blocks_does_not_change_the_comparison() -> None:
    """Runs are compared by what their blocks say, in whatever order they stand."""
    shuffled = dataclasses.replace(AFTER, blocks=AFTER.blocks[::-1])
    found, expected = compare(BEFORE, shuffled).ratio, compare(BEFORE, AFTER).ratio
    assert found is not None
    assert expected is not None
    assert found.low == pytest.approx(expected.low)
