"""`unstarve tune` on real scripts: exit codes, messages, files."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from test_cli import traceback_of, unstarve, write

pytestmark = pytest.mark.live

LOOP = """
    if __name__ == "__main__":
        loader = DataLoader(Slow(0.005), batch_size=4, num_workers={workers})
        for epoch in range(100):
            for images, labels in loader:
                time.sleep(0.004)
        print("the end")
"""


def test_a_starved_script_gets_the_change_of_its_line(tmp_path: Path) -> None:
    """A loader that sleeps in the loop's own process is told to use workers: answer first, diff, JSON and recording."""
    script = write(tmp_path, LOOP.format(workers=0))
    done = unstarve("tune", "--quiet", "--budget", 7, "--json", "t.json", "--save", "t.rec", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].split()[0] == "CHANGE"
    assert "the end" not in done.stdout
    found = json.loads((tmp_path / "t.json").read_text())
    assert found["schema"] == "unstarve.tuning/1"
    assert found["own"]["num_workers"] == 0
    workers = found["best"]["num_workers"]
    assert workers > 1
    assert found["gain"]["low"] > 1
    assert found["arguments"]["persistent_workers"] is True
    assert found["source"].endswith("train.py:15")
    assert f"+    loader = DataLoader(Slow(0.005), batch_size=4, num_workers={workers}, " in found["diff"]
    assert "+    loader = DataLoader(" in done.stdout
    shown = unstarve("show", "t.rec", "--json", "-", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["schema"] == "unstarve.report/1"


def test_json_alone_on_stdout(tmp_path: Path) -> None:
    """With `--json -` stdout is the result and nothing else, whatever the search finds."""
    body = """
        if __name__ == "__main__":
            for images, labels in DataLoader(Slow(0.0001), batch_size=4, num_workers=1):
                time.sleep(0.01)
    """
    done = unstarve("tune", "--quiet", "--budget", 3, "--json", "-", write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["own"]["num_workers"] == 1
    assert len(found["tried"]) > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune",), "expected `unstarve tune SCRIPT"),
        (("tune", "missing.py"), "missing.py"),
        (("tune", "--budget", "0", "x.py"), "--budget"),
        (("tune", "--json", "nowhere/r.json", "x.py"), "nowhere"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_was_given(tmp_path: Path, arguments: tuple, message: str) -> None:
    """Bad input is refused before anything runs."""
    done = unstarve(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_scripts_own_failure_is_shown_unchanged(tmp_path: Path) -> None:
    """Exit code 3, and the traceback that Python prints."""
    script = write(tmp_path, "raise RuntimeError('broken script')")
    done = unstarve("tune", "--quiet", script, cwd=tmp_path)
    assert done.returncode == 3
    assert traceback_of(done.stderr)[-1] == "RuntimeError: broken script"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print('no loader here')", "iterated no DataLoader"),
        ("for batch in DataLoader(Slow(0.001, length=120), batch_size=4): time.sleep(0.001)", "too few"),
    ],
    ids=["no loader", "few steps"],
)
def test_no_verdict_says_why(tmp_path: Path, body: str, message: str) -> None:
    """Exit code 4 where nothing was tried: it is not claimed that nothing would be better."""
    done = unstarve("tune", "--quiet", "--budget", 4, write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 4, done.stdout
    assert message in done.stderr
    assert "Nothing that was tried" not in done.stdout


def test_workers_that_cannot_make_batches_are_named(tmp_path: Path) -> None:
    """A data set that works in the loop's own process only keeps its settings; why is said, and the loop went on."""
    body = """
        class Shy(Slow):
            def __getitem__(self, index):
                if torch.utils.data.get_worker_info() is not None:
                    raise RuntimeError("cannot work here")
                return super().__getitem__(index)
        if __name__ == "__main__":
            for batch in DataLoader(Shy(0.002), batch_size=4):
                time.sleep(0.001)
    """
    done = unstarve("tune", "--quiet", "--budget", 3, write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 4, done.stdout
    assert "RuntimeError: cannot work here" in done.stderr
    assert "was given up" in done.stderr


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            """
            for batch in DataLoader(Slow(0.002), batch_size=4):
                time.sleep(0.001)
            """,
            "without `if __name__ == '__main__':`",
        ),
        (
            """
            class Own(DataLoader):
                def __iter__(self):
                    yield from (torch.zeros(4) for _ in range(2000))
            for batch in Own(Slow(0.002), batch_size=4):
                time.sleep(0.001)
            """,
            "the loader makes its iterator itself",
        ),
    ],
    ids=["no guard", "own iterator"],
)
def test_it_is_said_why_nothing_could_be_tried(tmp_path: Path, body: str, message: str) -> None:
    """A larger budget would change nothing, and is not asked for."""
    text = textwrap.dedent(body)
    script = write(tmp_path, f"torch.multiprocessing.set_start_method('spawn')\n{text}")
    done = unstarve("tune", "--quiet", "--budget", 3, script, cwd=tmp_path)
    assert done.returncode == 4, done.stdout
    assert message in done.stderr
    assert "--budget" not in done.stderr
