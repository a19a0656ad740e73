"""The history: what is remembered comes back, and what is wrong with the file is said clearly."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import sqlite3
from pathlib import Path

import pytest
from literals import DECODE, make_recording

from unstarve import store
from unstarve.errors import FormatError, UsageError
from unstarve.judge import judge
from unstarve.recording import Recording

RECORDING = make_recording({"none": 80, "host": 20, "knockout:decode": 25}, stages=(DECODE,))


def remember(recording: Recording = RECORDING, project: str = "/project") -> int:
    return store.remember(recording, judge(recording), project)


def test_a_run_comes_back_as_it_was() -> None:
    """The recording is identical, and the line of the list says what its report says."""
    number, report = remember(), judge(RECORDING)
    assert store.recording(number) == RECORDING
    (run,) = store.runs()
    assert (run.id, run.project, run.command) == (number, "/project", "unstarve run train.py")
    assert (run.bound, run.sentence) == ("input", report.verdict.sentence)
    assert run.baseline is not None
    assert report.baseline is not None
    assert (run.baseline.value, run.baseline.low) == (report.baseline.value, report.baseline.low)


def test_runs_are_listed_newest_first_by_project() -> None:
    """A project sees its own runs only, in reverse order, and as many as asked for."""
    numbers = [remember(project=project) for project in ("/a", "/b", "/a", "/a")]
    assert [run.id for run in store.runs("/a")] == [numbers[3], numbers[2], numbers[0]]
    assert [run.id for run in store.runs("/a", 2)] == [numbers[3], numbers[2]]
    assert [run.id for run in store.runs()] == numbers[::-1]
    assert store.runs("/c") == ()


def test_without_history_there_are_no_runs_and_no_file(own_history: Path) -> None:
    """Reading makes nothing."""
    assert store.runs() == ()
    assert list(own_history.iterdir()) == []


def test_references_name_runs() -> None:
    """An id means any project's run; `last` and `last~N` count back in this project; a file name is none of them."""
    first = make_recording({"none": 40, "host": 20})
    number = remember(first)
    remember()
    remember(make_recording({"none": 99, "host": 20}), project="/other")
    assert store.named("last", "/project") == RECORDING
    assert store.named("last~1", "/project") == first
    assert store.named(str(number), "/other") == first
    assert store.named("run.json", "/project") is None
    assert store.named("last~", "/project") is None


@pytest.mark.parametrize(("reference", "said"), [("last~2", "only 1 run"), ("17", "no run 17")])
def test_runs_that_are_not_there_are_usage_errors(reference: str, said: str) -> None:
    """Asking for a run that does not exist says how many there are, or which id is missing."""
    remember()
    with pytest.raises(UsageError, match=said):
        store.named(reference, "/project")


def test_the_location_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """UNSTARVE_HOME decides; without it the platform's folder for user data does, in a folder of our own."""
    monkeypatch.setenv("UNSTARVE_HOME", str(tmp_path / "a?b c#%41"))
    remember()
    assert (tmp_path / "a?b c#%41" / "history.db").is_file()
    assert len(store.runs()) == 1
    monkeypatch.delenv("UNSTARVE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert store.location().name == "history.db"
    assert "unstarve" in store.location().parts[-2]


def test_a_project_is_the_work_tree_or_the_folder(tmp_path: Path) -> None:
    """Below a `.git` folder or file its place counts, elsewhere the folder itself."""
    inner = tmp_path / "tree" / "src" / "deep"
    inner.mkdir(parents=True)
    assert store.project_of(inner) == str(inner.resolve())
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere")
    assert store.project_of(inner) == str((tmp_path / "tree").resolve())


def test_undecodable_arguments_are_kept() -> None:
    """A command with bytes that are no UTF-8 can be remembered; its recording is unchanged."""
    recording = make_recording({"none": 80, "host": 20}, command="unstarve run \udcff.py")
    number = remember(recording, project="/\udcff")
    assert store.recording(number) == recording
    assert len(store.runs("/\udcff")) == 1


# The file


@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (2, "a newer")])
def test_another_version_is_refused_both_ways(version: int, age: str) -> None:
    """A history of another format is neither read nor written, and the message says which release made it."""
    remember()
    with sqlite3.connect(store.location()) as database:
        database.execute(f"PRAGMA user_version = {version}")
    for action in (store.runs, remember, lambda: store.recording(1)):
        with pytest.raises(FormatError, match=f"format {version}, expected 1: {age} release"):
            action()


@pytest.mark.parametrize("mark", ["CREATE TABLE theirs (x)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"])
def test_a_foreign_database_is_left_alone(mark: str) -> None:
    """A database that another program filled or marked is refused and not written to."""
    with sqlite3.connect(store.location()) as database:
        database.execute(mark)
    before = store.location().read_bytes()
    for action in (store.runs, remember):
        with pytest.raises(FormatError, match="not a history of unstarve"):
            action()
    assert store.location().read_bytes() == before


def test_a_corrupt_file_is_a_format_error_and_is_kept() -> None:
    """What is no database is refused with advice, and stays byte for byte."""
    rubbish = b"not a database, and longer than its header would be" * 40
    store.location().write_bytes(rubbish)
    for action in (store.runs, remember):
        with pytest.raises(FormatError, match="damaged"):
            action()
    assert store.location().read_bytes() == rubbish


def test_a_damaged_recording_is_a_format_error() -> None:
    """A recording whose bytes were changed is not understood, and the others still are."""
    broken, whole = remember(), remember()
    with sqlite3.connect(store.location()) as database:
        database.execute("UPDATE runs SET recording = x'00ff' WHERE id = ?", (broken,))
    with pytest.raises(FormatError, match=f"run {broken} .* is damaged"):
        store.recording(broken)
    assert store.recording(whole) == RECORDING


def test_a_locked_file_is_a_usage_error_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process holds the lock a write gives up after its patience; afterwards all is as it was."""
    remember()
    monkeypatch.setattr(store, "PATIENCE_S", 0.05)
    holder = sqlite3.connect(store.location(), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    for action in (store.runs, remember):
        with pytest.raises(UsageError, match="locked"):
            action()
    holder.execute("ROLLBACK")
    holder.close()
    assert remember() == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_history_can_be_read(own_history: Path) -> None:
    """Where nothing may be written the list still works, and remembering is a usage error."""
    remember()
    store.location().chmod(0o400)
    own_history.chmod(0o500)
    try:
        assert len(store.runs()) == 1
        with pytest.raises(UsageError, match="readonly"):
            remember()
    finally:
        own_history.chmod(0o700)


def test_a_folder_that_cannot_be_made_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home below a file cannot exist; the message names the place."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSTARVE_HOME", str(tmp_path / "file" / "home"))
    assert store.runs() == ()
    with pytest.raises(UsageError, match="cannot be written"):
        remember()


def test_a_failed_write_leaves_no_half_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """If adding the row fails, the file is not even marked as ours, and the next run begins it properly."""
    with monkeypatch.context() as patch:
        patch.setattr(store, "_COLUMNS", store._COLUMNS.replace("project", "no_such_column"))
        with pytest.raises(UsageError):
            remember()
    assert store.runs() == ()
    assert remember() == 1


def test_concurrent_writers_lose_nothing() -> None:
    """Runs that end at the same moment, in several processes, on a history that does not exist yet, are all kept."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
        numbers = [each for some in pool.map(_remember_several, range(4)) for each in some]
    assert sorted(numbers) == list(range(1, 41))
    assert {run.id for run in store.runs()} == set(numbers)


def _remember_several(_: int) -> list[int]:
    return [remember() for _ in range(10)]
