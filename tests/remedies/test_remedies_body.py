"""What is advised for the copy to the device."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types

import pytest
from literals import LOADER, make_recording, moving, with_fetches

from unstarve.judge import judge
from unstarve.report import Remedy


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
