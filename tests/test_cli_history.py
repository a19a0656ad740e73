"""`history`, `compare`, `show` of a remembered run, and remembering itself: without torch."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from literals import DECODE, make_blocks, make_recording, make_stage

from unstarve import cli, store
from unstarve.judge import judge
from unstarve.recording import Recording

SLOW = make_recording({"none": 80, "host": 20, "knockout:decode": 25}, stages=(DECODE,))
FAST = make_recording(
    {"none": 25, "host": 20, "knockout:decode": 24},
    stages=(make_stage("decode", 1, kind="decode"),),
    created="2026-01-02T00:00:00+0000",
)
EMPTY = make_recording({}, blocks=(), rungs=())

Run = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def unstarve(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command line in this process, in a folder of its own; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["unstarve", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        said = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        return leaving.value.code, said.out, said.err

    return run


def remember(*recordings: Recording) -> list[int]:
    return [store.remember(each, judge(each), store.project_of(".")) for each in recordings]


def conclude(recording: Recording, output: cli.Output, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """What `run` does once the loop has been measured."""
    engine = types.SimpleNamespace(
        recording=lambda: recording,
        is_finished=True,
        is_following=False,
        why_alone="",
        loaders=(),
        most_batches=1,
        was_in_thread=False,
        target=None,
    )
    with pytest.raises(SystemExit) as leaving:
        cli._conclude(engine, cli._Ending(), output)
    said = capsys.readouterr()
    assert isinstance(leaving.value.code, int)
    return leaving.value.code, said.out, said.err


def make_output(**facts) -> cli.Output:
    values = {"json": None, "html": None, "save": None, "fail_above": None, "quiet": True, "project": "/p", **facts}
    return cli.Output(**values)


def test_the_last_two_runs_are_compared(unstarve: Run) -> None:
    """`compare last~1 last` answers on the first line and exits with 0."""
    remember(SLOW, FAST)
    code, out, _ = unstarve("compare", "last~1", "last")
    assert code == 0
    assert out.startswith(" FASTER  From 12.5 to 40")


def test_files_and_ids_mix(unstarve: Run) -> None:
    """A saved file and a run of the history can be compared with each other."""
    (number,) = remember(FAST)
    SLOW.save("slow.rec")
    code, out, _ = unstarve("compare", "slow.rec", number)
    assert (code, out.split()[0]) == (0, "FASTER")


def test_a_file_goes_before_an_id(unstarve: Run) -> None:
    """A file that is named like a run is taken for the file."""
    (number,) = remember(SLOW)
    FAST.save(str(number))
    _, out, _ = unstarve("show", number, "--json", "-")
    assert json.loads(out)["verdict"]["sentence"] == judge(FAST).verdict.sentence


def test_a_folder_that_is_named_like_a_run_hides_none(unstarve: Run) -> None:
    """Only files go before runs."""
    (number,) = remember(SLOW)
    for name in (str(number), "last"):
        Path(name).mkdir()
        code, out, _ = unstarve("show", name, "--json", "-")
        assert code == 0
        assert json.loads(out)["verdict"]["sentence"] == judge(SLOW).verdict.sentence


def test_comparison_as_json(unstarve: Run) -> None:
    """`--json -` gives nothing but JSON by its schema; `--json PATH` writes the same beside the text."""
    remember(SLOW, FAST)
    code, out, _ = unstarve("compare", "1", "2", "--json", "-")
    assert code == 0
    assert json.loads(out)["schema"] == "unstarve.comparison/1"
    _, text, _ = unstarve("compare", "1", "2", "--json", "c.json")
    assert json.loads(Path("c.json").read_text()) == json.loads(out)
    assert "Written: JSON c.json." in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "last", "last"), "no run of"),
        (("compare", "no-such-file", "x"), "no such file"),
        (("show", "3"), "no run 3"),
        (("compare", "only-one"), "AFTER"),
        (("history", "--limit", "0"), "--limit"),
        (("history", "--json", "no/such/folder.json"), "does not exist"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(unstarve: Run, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, nothing on stdout, and the message says what is missing."""
    code, out, err = unstarve(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_report_is_not_compared(unstarve: Run) -> None:
    """A file that is no recording is a usage error that says what it is."""
    judge(SLOW).to_json("report.json")
    code, _, err = unstarve("compare", "report.json", "report.json")
    assert code == 2
    assert "It is a report" in err


def test_nothing_to_compare_is_no_verdict(unstarve: Run) -> None:
    """A recording without untouched steps gives exit code 4 and the reason."""
    SLOW.save("slow.rec")
    EMPTY.save("empty.rec")
    code, out, _ = unstarve("compare", "slow.rec", "empty.rec")
    assert code == 4
    assert "The second run measured no untouched steps" in out


def test_a_remembered_run_is_shown(unstarve: Run) -> None:
    """`show last` draws the report of the newest run, with JSON on demand."""
    remember(FAST, SLOW)
    code, out, _ = unstarve("show", "last", "--json", "-")
    assert code == 0
    assert json.loads(out)["verdict"]["sentence"] == judge(SLOW).verdict.sentence


def test_history_lists_this_project_or_all(unstarve: Run) -> None:
    """Runs of this project, or with `--all` of every one; the last line is the file."""
    remember(SLOW)
    store.remember(FAST, judge(FAST), "/elsewhere")
    code, out, _ = unstarve("history")
    assert code == 0
    assert out.splitlines()[0].startswith("1 run of ")
    assert out.splitlines()[-1] == str(store.location())
    assert unstarve("history", "--all")[1].startswith("2 runs of all projects")
    assert unstarve("history", "--all", "--limit", "1")[1].startswith("1 run of all projects")


def test_history_as_json(unstarve: Run) -> None:
    """The list as JSON names its schema, the file and, for each run, what the table shows."""
    remember(SLOW)
    data = json.loads(unstarve("history", "--json", "-")[1])
    assert data["schema"] == "unstarve.history/1"
    assert data["location"] == str(store.location())
    assert data["runs"][0]["bound"] == "input"
    assert data["runs"][0]["baseline"]["low"] < 12.5 < data["runs"][0]["baseline"]["high"]


def test_a_history_of_another_version_is_a_usage_error(unstarve: Run) -> None:
    """Exit code 2 and what to do."""
    remember(SLOW)
    with sqlite3.connect(store.location()) as database:
        database.execute("PRAGMA user_version = 9")
    code, _, err = unstarve("history")
    assert code == 2
    assert "newer release" in err


def test_a_verdict_is_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that reached a verdict is in the history, and the report's last lines say under which id."""
    code, out, _ = conclude(SLOW, make_output(), capsys)
    assert code == 0
    assert store.recording(1) == SLOW
    assert "unstarve show 1" in out.splitlines()[-2]
    assert "unstarve compare 1 last" in out.splitlines()[-1]


def test_json_on_stdout_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Remembering adds nothing to a stdout that holds JSON."""
    _, out, _ = conclude(SLOW, make_output(json="-"), capsys)
    assert json.loads(out)["schema"] == "unstarve.report/1"
    assert len(store.runs()) == 1


def test_runs_without_verdict_and_unwanted_ones_are_not_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    """No verdict, or `--no-history`: the history does not even come into being."""
    assert conclude(EMPTY, make_output(), capsys)[0] == 4
    assert conclude(SLOW, make_output(project=None), capsys)[0] == 0
    assert not store.location().exists()


def test_a_broken_history_costs_no_diagnosis(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The report and its exit code are as ever; stderr warns and says where the recording was saved instead."""
    store.location().write_bytes(b"rubbish" * 100)
    code, out, err = conclude(SLOW, make_output(fail_above=5), capsys)
    assert code == 1
    assert out.startswith(" INPUT-BOUND")
    assert "not in the history" in err
    kept = Path(err.split("Its recording is in ")[1].split(".json")[0] + ".json")
    assert json.loads(kept.read_text())["command"] == SLOW.command
    kept.unlink()
    _, _, err = conclude(SLOW, make_output(save=str(tmp_path / "r.rec")), capsys)
    assert "Its recording is in" not in err


def test_the_gate_rests_on_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A headroom that may be none fails no gate, though the loop was seen to wait; nor does more than what is sure of one."""
    noisy = make_blocks({"none": 40, "host": 20}, body_ms=20, jitter=0.3)
    doubtful = dataclasses.replace(make_recording({"none": 40, "host": 20}), blocks=noisy)
    assert judge(doubtful).verdict.bound == "input"
    assert conclude(doubtful, make_output(fail_above=5), capsys)[0] == 0
    sure = judge(SLOW).headroom
    assert sure is not None
    least = 100 * (1 - 1 / sure.low)
    assert [conclude(SLOW, make_output(fail_above=least + more), capsys)[0] for more in (-0.1, 0.1)] == [1, 0]


def test_whatever_the_history_raises_is_only_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Even an error that nobody thought of does not reach the user as a failure."""

    def fail(*_: object) -> int:
        raise RuntimeError("the unforeseen")

    monkeypatch.setattr(store, "remember", fail)
    code, out, err = conclude(SLOW, make_output(save=str(tmp_path / "r.rec")), capsys)
    assert (code, out.startswith(" INPUT-BOUND")) == (0, True)
    assert "the unforeseen" in err


def test_comparing_and_listing_load_no_torch(tmp_path: Path) -> None:
    """`compare` and `history` work where torch is not installed: it is never imported."""
    SLOW.save(tmp_path / "a.rec")
    FAST.save(tmp_path / "b.rec")
    code = (
        "import sys; sys.modules['torch'] = None; from unstarve.cli import main; sys.argv = ['unstarve', *{0}]; main()"
    )
    for arguments in (["compare", "a.rec", "b.rec"], ["history"]):
        command = [sys.executable, "-c", code.format(arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
