"""Settings that helped when they were tried."""

from __future__ import annotations

import ast
import builtins
import dis
import types

import pytest
from literals import STARVED, kinds, make_recording, tried

from unstarve.judge import judge
from unstarve.recording import Settings


def test_the_remedy_is_what_was_tried() -> None:
    """Where a number of workers was tried, no other is advised, and its measured gain stands beside it."""
    report = judge(tried(0, {Settings(num_workers=6): 30}))
    remedy = next(item for item in report.remedies if item.id == "workers")
    assert remedy.patch == "DataLoader(..., num_workers=6, persistent_workers=True)"
    assert remedy.measured_gain is not None
    assert remedy.measured_gain.value == pytest.approx(80 / 30, rel=0.02)
    assert remedy.predicted_gain is None
    assert remedy.about == "workers"


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


@pytest.mark.parametrize("period", [78, 90])
def test_settings_that_gained_little_are_no_remedy(period: float) -> None:
    """Under five percent, or a loss, nothing is advised."""
    assert "workers" not in {item.id for item in judge(tried(4, {Settings(num_workers=6): period})).remedies}


def test_settings_that_no_argument_makes_are_no_remedy() -> None:
    """Threads of the workers are not an argument of the loader, so there is no call to show."""
    report = judge(tried(2, {Settings(num_workers=2, worker_threads=1): 40}))
    assert not [item for item in report.remedies if (item.patch or "").startswith("DataLoader(..., )")]
    assert "workers" not in {item.id for item in report.remedies}


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
