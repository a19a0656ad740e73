"""The command line on real scripts: exit codes, messages, files, and the user's run left as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from unstarve import cli

pytestmark = pytest.mark.live

DATA = """
    import time, torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    class Slow(Dataset):
        def __init__(self, wait_s=0.006, length=4000):
            self.wait_s, self.length = wait_s, length
        def __len__(self):
            return self.length
        def __getitem__(self, index):
            time.sleep(self.wait_s)
            return torch.rand(4), index
"""


def write(folder: Path, body: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(DATA) + textwrap.dedent(body))
    return path


def unstarve(*arguments: object, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unstarve", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout)


LOOP = """
    if __name__ == "__main__":
        loader = DataLoader(Slow(), batch_size=8, num_workers=2{options})
        for epoch in range(100):
            for images, labels in loader:
                time.sleep(0.004)
        print("the end")
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_script_with_its_dataset_in_main_is_diagnosed(tmp_path: Path, method: str) -> None:
    """Exit code 0, the answer first on stdout, JSON, page and recording written, the script stopped when done."""
    script = write(tmp_path, LOOP.format(options=f", multiprocessing_context={method!r}"))
    done = unstarve(
        "run", "--budget", 15, "--json", "r.json", "--save", "r.rec", "--html", "r.html", script, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "INPUT-BOUND" in done.stdout.splitlines()[0]
    assert "the end" not in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["schema"] == "unstarve.report/1"
    assert report["verdict"]["bound"] == "input"
    assert report["verdict"]["culprits"][0]["source"].endswith("train.py:11")
    assert (tmp_path / "r.html").read_text().lstrip().startswith("<!")
    shown = unstarve("show", "r.rec", "--json", "-", cwd=tmp_path)
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["verdict"]["sentence"] == report["verdict"]["sentence"]


def test_a_script_may_choose_how_processes_start_after_its_first_loop(tmp_path: Path) -> None:
    """Looking at a loader without workers does not settle the start method, as without us."""
    body = """
        if __name__ == "__main__":
            for batch in DataLoader(Slow(0, length=16), batch_size=8):
                pass
            torch.multiprocessing.set_start_method("spawn")
            print("chosen")
    """
    done = unstarve("watch", write(tmp_path, body), cwd=tmp_path)
    assert "chosen" in done.stdout, done.stderr


def test_the_gate_fails_a_starved_loop(tmp_path: Path) -> None:
    """`--fail-above` exits with 1 when input costs more, and says how much."""
    script = write(tmp_path, LOOP.format(options=""))
    done = unstarve("run", "--budget", 10, "--quiet", "--fail-above", 10, script, cwd=tmp_path)
    assert done.returncode == 1
    assert "of the loop's time" in done.stderr


def test_a_script_whose_thread_fetches_ahead_is_stopped(tmp_path: Path) -> None:
    """Exit code 0, the verdict, and the script ended in its loop as by Ctrl-C, with what it does then and no word more."""
    body = """
        import queue, threading

        def pump(loader, batches):
            for batch in loader:
                batches.put(batch)
            batches.put(None)

        if __name__ == "__main__":
            try:
                while True:
                    batches = queue.Queue(2)
                    loader = DataLoader(Slow(length=400), batch_size=4, num_workers=1)
                    threading.Thread(target=pump, args=(loader, batches)).start()
                    while (batch := batches.get()) is not None:
                        time.sleep(0.004)
            finally:
                print("put away")
    """
    done = unstarve("run", "--budget", 6, "--quiet", write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("put away")
    assert "INPUT-BOUND" in done.stdout
    assert not done.stderr


def test_continue_lets_the_script_end_by_itself(tmp_path: Path) -> None:
    """With `--continue` the script runs on after the diagnosis, over all its epochs, and ends as it would."""
    body = """
        if __name__ == "__main__":
            loader = DataLoader(Slow(0.001, length=160), batch_size=4, num_workers=2)
            counts = []
            for epoch in range(30):
                counts.append(sum(1 for batch in loader))
            print("counts", set(counts), len(counts))
    """
    done = unstarve("run", "--budget", 3, "--quiet", "--continue", write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "counts {40} 30" in done.stdout


def test_the_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    """`sys.argv`, `__name__`, `__file__`, `sys.path[0]` and the working directory are as under `python script.py`."""
    body = """
        import os, sys
        print(sys.argv, __name__, __file__, sys.path[0], os.getcwd(), sys.modules["__main__"].Slow is Slow, __spec__)
    """
    (tmp_path / "inner").mkdir()
    script = write(tmp_path / "inner", body)
    relative = os.path.join("inner", "train.py")
    plain = subprocess.run([sys.executable, relative, "--a", "-h"], cwd=tmp_path, capture_output=True, text=True)
    ours = unstarve("run", relative, "--a", "-h", cwd=tmp_path)
    assert script.is_file()
    assert ours.stdout == plain.stdout
    assert ours.returncode == 4


def test_a_module_runs_with_relative_imports(tmp_path: Path) -> None:
    """`-m package.module` resolves relative imports and spawns workers that find the data set."""
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    write(package, "", name="data.py")
    (package / "train.py").write_text(
        textwrap.dedent(
            """
            import time
            from .data import DataLoader, Slow
            if __name__ == "__main__":
                for batch in DataLoader(Slow(), batch_size=8, num_workers=1, multiprocessing_context="spawn"):
                    time.sleep(0.004)
            """
        )
    )
    done = unstarve("run", "--budget", 12, "--json", "r.json", "-m", "trainer.train", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["verdict"]["bound"] == "input"


@pytest.mark.parametrize("command", ["run", "tune", "watch"])
@pytest.mark.parametrize("own", [("--quiet", "-m", "train"), ("-mtrain",), ("--json", "-m", "-m", "train")])
def test_what_follows_a_module_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, own: tuple[str, ...]
) -> None:
    """Options that are called as ours are, `--` and `-h` too: Python's own end with the module."""
    given: list[str] = []

    def note(module: str, arguments: tuple[str, ...]) -> None:
        given.extend([module, *arguments])
        raise cli.UsageError("seen")

    theirs = ["--save", "model.pt", "-momentum", "0.9", "--quiet", "--new", "--rank", "-h", "--", "x", "-m", "other"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unstarve.script.from_module", note)
    with pytest.raises(cli.UsageError, match="seen"):
        cli.cli([command, *own, *theirs], standalone_mode=False)
    assert given == ["train", *theirs]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--quiet", "-m"), "-m"),
        (("run",), "No script given"),
        (("run", "missing.py"), "missing.py"),
        (("run", "python", "train.py"), "leave out 'python'"),
        (("watch", "--fulll", "train.py"), "no such option"),
        (("run", "-m", "no.such.module"), "no.such.module"),
        (("run", "--budget", "soon", "x.py"), "soon"),
        (("run", "--json", "nowhere/r.json", "x.py"), "nowhere"),
        (("show", "missing.rec"), "missing.rec"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_was_given(tmp_path: Path, arguments: tuple, message: str) -> None:
    """Bad input is refused before anything runs, with what was given in the message."""
    done = unstarve(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_option_behind_the_scripts_name_is_told_of(tmp_path: Path) -> None:
    """It is the script's; whoever meant ours is told, unless the script knows it."""
    for body, is_told in (("", True), ("print('--html')", False)):
        done = unstarve("watch", write(tmp_path, body), "--html", "out.html", cwd=tmp_path)
        assert ("--html went to the script" in done.stderr) is is_told
        assert done.returncode == 4


def traceback_of(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.startswith("unstarve:") and "Warning" not in line]
    return lines[next((i for i, line in enumerate(lines) if line.startswith("Traceback") or "File" in line), 0) :]


@pytest.mark.parametrize(
    "body",
    [
        "raise RuntimeError('broken script')",
        "def f(:",
        """
        class Bad(Slow):
            def __getitem__(self, index):
                if index == 40:
                    raise KeyError("sample 40")
                return super().__getitem__(index)
        if __name__ == "__main__":
            for batch in DataLoader(Bad(), batch_size=8, num_workers=0):
                pass
        """,
        """
        class Bad(Slow):
            def __getitem__(self, index):
                if index == 40:
                    raise ValueError("sample 40")
                return super().__getitem__(index)
        if __name__ == "__main__":
            for batch in DataLoader(Bad(), batch_size=8, num_workers=2):
                pass
        """,
    ],
    ids=["script", "syntax", "dataset", "worker"],
)
def test_the_scripts_own_failure_is_shown_unchanged(tmp_path: Path, body: str) -> None:
    """Exit code 3, and the traceback is the one that Python prints."""
    script = write(tmp_path, body)
    plain = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    ours = unstarve("run", "--quiet", script, cwd=tmp_path)
    assert ours.returncode == 3
    assert traceback_of(ours.stderr) == traceback_of(plain.stderr)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("print('no loader here')", 4, "iterated no DataLoader"),
        ("for batch in DataLoader(Slow(length=24), batch_size=8): pass", 4, "too few"),
        ("for batch in DataLoader(Slow(length=24), batch_size=8): time.sleep(0.01)", 4, "too few"),
        ("for batch in DataLoader(torch.utils.data.TensorDataset(torch.zeros(0, 2))): pass", 4, "empty"),
        ("import sys; sys.exit(5)", 3, "exit code 5"),
        ("import sys; sys.exit('bad thing')", 3, "bad thing"),
        ("import sys; sys.exit(0)", 4, "iterated no DataLoader"),
    ],
)
def test_no_verdict_says_why(tmp_path: Path, body: str, code: int, message: str) -> None:
    """Without a verdict the exit code is 4, or 3 where the script failed, and the message says how to go on."""
    done = unstarve("run", "--quiet", write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_worker_is_the_scripts_failure(tmp_path: Path) -> None:
    """A worker that dies gives the loader's own error, exit code 3, and nothing is left running."""
    body = """
        import os
        class Dying(Slow):
            def __getitem__(self, index):
                if index == 64:
                    os._exit(7)
                return super().__getitem__(index)
        if __name__ == "__main__":
            for batch in DataLoader(Dying(), batch_size=8, num_workers=2):
                pass
    """
    done = unstarve("run", "--quiet", write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 3
    assert "exited unexpectedly" in done.stderr


def test_a_hanging_worker_ends_with_a_message(tmp_path: Path) -> None:
    """A worker that hangs ends the run after the patience, with exit code 4 and a hint."""
    body = """
        if __name__ == "__main__":
            for batch in DataLoader(Slow(600), batch_size=2, num_workers=1):
                pass
    """
    done = unstarve("run", "--quiet", "--patience", 2, write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 4
    assert "no batch arrived within 2 s" in done.stderr


def test_batches_without_tensors_are_served_too(tmp_path: Path) -> None:
    """A loader of strings and lists is diagnosed like any other."""
    body = """
        class Words(Slow):
            def __getitem__(self, index):
                return [super().__getitem__(index)[1], f"word {index}"]
        if __name__ == "__main__":
            loader = DataLoader(Words(), batch_size=8, num_workers=2, collate_fn=lambda samples: samples)
            for epoch in range(100):
                for batch in loader:
                    batch.pop()
                    time.sleep(0.004)
    """
    done = unstarve("run", "--quiet", "--budget", 6, write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_endless_stream_is_diagnosed(tmp_path: Path) -> None:
    """In an infinite iterable data set the line that waits is found by serving it alone from cache."""
    body = """
        class Stream(IterableDataset):
            def __iter__(self):
                while True:
                    time.sleep(0.006)
                    yield torch.rand(3)
        if __name__ == "__main__":
            for batch in DataLoader(Stream(), batch_size=8, num_workers=2):
                time.sleep(0.004)
    """
    done = unstarve("run", "--quiet", "--budget", 10, "--json", "r.json", write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["verdict"]["bound"] == "input"
    waiting = next(c for c in report["verdict"]["culprits"] if c["kind"] != "workers")
    assert waiting["text"] == "time.sleep(0.006)"
    assert f"knockout:{waiting['stage']}" in {rung["id"] for rung in report["rungs"]}
    assert "outer-rungs-only" not in {caveat["id"] for caveat in report["caveats"]}


def test_simulating_the_step_needs_no_training_loop(tmp_path: Path) -> None:
    """`--simulate-step` pulls the script's loader against a simulated accelerator instead of the script's own loop."""
    script = write(tmp_path, LOOP.format(options="").replace("time.sleep(0.004)", "raise AssertionError"))
    done = unstarve("run", "--quiet", "--budget", 8, "--simulate-step", 20, "--json", "r.json", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["ceiling"]["steps_per_s"]["value"] == pytest.approx(50, rel=0.3)
    assert {"device", "host"} <= {rung["id"] for rung in report["rungs"]}


def test_watching_runs_the_script_to_its_end(tmp_path: Path) -> None:
    """`watch` changes nothing, lets the script end, and accounts for its time."""
    body = """
        if __name__ == "__main__":
            for batch in DataLoader(Slow(0.002, length=160), batch_size=8, num_workers=1):
                time.sleep(0.002)
            print("the end")
    """
    done = unstarve("watch", "--save", "w.rec", write(tmp_path, body), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the end" in done.stdout
    assert "Watched, not tried" in done.stdout
    again = unstarve("show", "w.rec", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "Watched, not tried" in again.stdout
