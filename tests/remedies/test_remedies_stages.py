"""What is advised for a stage, and another order of transforms."""

from __future__ import annotations

import dataclasses

import pytest
from literals import MS, STARVED, make_recording, make_stage

from unstarve.judge import judge
from unstarve.recording import Recording, Reordering


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


@pytest.mark.parametrize("kind", ["transform", "collate"])
def test_a_loop_is_told_to_be_replaced(kind: str) -> None:
    """Its head is no work that could be made cheaper: what it does for each item is, in the sample or in collation."""
    stage = make_stage(kind, 10, kind=kind, text="for j in range(0, w, 4):")
    report = judge(make_recording({**STARVED, f"knockout:{kind}": 40}, stages=(stage,)))
    advice = next(remedy.advice for remedy in report.remedies if remedy.id == f"cheaper:{kind}")
    assert advice.startswith("Replace the Python loop `for j in range(0, w, 4):` by code that works on whole arrays")


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
