"""The report's JSON is a contract."""

from __future__ import annotations

import json

import pytest
from literals import DECODE, make_recording

from unstarve.judge import judge
from unstarve.report import Culprit, Estimate, Verdict


def report_dict() -> dict:
    periods = {"none": 80, "samples": 22, "host": 20, "knockout:decode": 25}
    return json.loads(judge(make_recording(periods, stages=(DECODE,))).to_json())


def test_the_json_has_what_the_contract_promises() -> None:
    """Every key of the schema `unstarve.report/1` is there, nested as documented."""
    data = report_dict()
    assert data["schema"] == "unstarve.report/1"
    assert set(data) >= {
        "verdict", "baseline", "ceiling", "time", "epoch_steps_per_s", "rungs", "stages", "limit", "remedies", "caveats", "environment",
    }  # fmt: skip
    assert set(data["verdict"]) >= {"bound", "sentence", "culprits"}
    culprit = data["verdict"]["culprits"][0]
    assert set(culprit) >= {"stage", "kind", "name", "source", "resource", "gain"}
    assert set(culprit["gain"]) >= {"value", "low", "high"}
    for key in ("baseline", "ceiling"):
        assert set(data[key]["steps_per_s"]) >= {"value", "low", "high", "steps"}
    assert set(data["time"]) >= {"steady", "start", "other_loaders"}
    assert all(set(rung) >= {"id", "label", "after", "steps_per_s"} for rung in data["rungs"])
    assert all(
        set(stage)
        >= {"id", "kind", "name", "source", "parent", "wall_s_per_sample", "cpu_s_per_sample", "gain_if_free"}
        for stage in data["stages"]
    )
    assert set(data["limit"]) >= {"binding", "explanation"}


def test_the_account_of_time_sums_to_one() -> None:
    """The fractions of wall time are parts of a whole."""
    time = report_dict()["time"]
    assert sum(time.values()) == pytest.approx(1.0)


def test_the_ladder_runs_from_the_ceiling_to_the_baseline() -> None:
    """Rungs come fastest source first, and the ladder ends with nothing cached."""
    ids = [rung["id"] for rung in report_dict()["rungs"]]
    assert ids[:3] == ["host", "samples", "none"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Estimate(value=2.0, low=2.5, high=3.0),
        lambda: Verdict(bound="maybe", sentence=""),
        lambda: Culprit(
            stage="x", kind="guess", name="x", source=None, resource="cpu", gain=Estimate(value=1, low=1, high=1)
        ),
        lambda: Culprit(
            stage="x",
            kind="code",
            name="x",
            source=None,
            resource="cpu",
            gain=Estimate(value=1, low=1, high=1),
            cause="guess",
        ),
    ],
)
def test_values_outside_the_contract_are_refused(make) -> None:
    """An estimate outside its interval, an unknown bound, kind or cause cannot be constructed."""
    with pytest.raises(ValueError, match=r"expected one of|outside its interval"):
        make()
