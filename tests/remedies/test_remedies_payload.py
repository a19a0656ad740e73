"""What a batch need not carry."""

from __future__ import annotations

import dataclasses

import pytest
from literals import MIB, STARVED, WASTEFUL, copy_bound, kinds, leaner, make_recording, make_stage, tried
from test_payload import IMAGE, LABELS

from unstarve.judge import judge
from unstarve.payload import Change
from unstarve.recording import Recording, Settings


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


def test_a_batch_that_carries_too_much_is_told_where_copying_it_costs() -> None:
    """Bytes instead of doubles save seven eighths of the copy, with a predicted gain below that of no copy at all."""
    report = judge(copy_bound(payload=(WASTEFUL, LABELS)))
    remedy = leaner(report)[0]
    assert (remedy.id, remedy.about) == ("payload:uint8:batch[0]", "payload")
    assert "1 MiB of the batch's 1 MiB would become 0.125 MiB" in remedy.advice
    assert remedy.predicted_gain is not None
    assert remedy.predicted_gain.value == pytest.approx(30.2 / (30.2 - 7 / 8 * 10), rel=0.03)


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


@pytest.mark.parametrize(("kind", "is_pickled"), [("tensor", False), ("array", True), ("other", True)])
def test_what_is_pickled_is_told_from_what_goes_through_shared_memory(kind: str, is_pickled: bool) -> None:
    """A batch without tensors is not told to send fewer tensors."""
    payload = (dataclasses.replace(IMAGE, kind=kind), LABELS)
    stages = (make_stage("ipc", 0, kind="ipc"),)
    report = judge(make_recording({**STARVED, "knockout:ipc": 40.0}, stages=stages, payload=payload))
    (remedy,) = [remedy for remedy in report.remedies if remedy.id == "lighter-transport"]
    assert ("pickled" in remedy.advice) is is_pickled
    assert ("fewer and smaller tensors" in remedy.advice) is (not is_pickled)


@pytest.mark.parametrize(
    ("period_ms", "told"), [(60, "1.33 times as fast"), (160, "only 0.50 times as fast"), (None, "")]
)
def test_the_advice_on_transport_says_what_came_of_no_workers(period_ms: float | None, told: str) -> None:
    """Where there is nothing to send; nothing is said where that was not tried."""
    trials = {} if period_ms is None else {Settings(num_workers=0): period_ms}
    stages = (make_stage("ipc", 0, kind="ipc"),)
    report = judge(tried(2, trials, {**STARVED, "knockout:ipc": 40.0}, stages=stages, payload=(IMAGE, LABELS)))
    (remedy,) = [remedy for remedy in report.remedies if remedy.id == "lighter-transport"]
    assert ("num_workers=0 runs" in remedy.advice) is bool(told)
    assert told in remedy.advice
