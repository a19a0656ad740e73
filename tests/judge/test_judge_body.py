"""Copies, waits for the device and work of the host in the loop body."""

from __future__ import annotations

import dataclasses

import pytest
from literals import (
    FED,
    LOADER,
    WASTEFUL,
    blamed,
    copy_bound,
    kinds,
    make_blocks,
    make_recording,
    make_stage,
    moving,
    with_fetches,
)
from test_payload import LABELS

from unstarve.judge import judge
from unstarve.recording import BodyLine
from unstarve.report import Report


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
