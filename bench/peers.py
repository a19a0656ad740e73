"""Run peers side by side with unstarve on cases of the fault bench, scored by the rule of bench/score.py.

    pip install "unstarve[demo,peers]"
    python bench/peers.py                                 # all peers that are there; writes docs/peers.md
    python bench/peers.py --cases ST01,H01 --peers py-spy,SPDL
    python bench/peers.py --raw peers.json                # keep what was run, run only what is missing

A peer runs on the case's train.py as it is (bench/peer_child.py has the seam), its output is read as well as a careful
user would read it (bench/peer_readings.py) into a dict like the tool's JSON verdict, and that dict is scored. What a
peer does not claim is neither right nor wrong. A peer that is not installed is left out, with the reason.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import pstats
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from peer_readings import read_cprofile, read_loadtune, read_py_spy, read_spdl, read_traceml, workers_of
from score import (
    CASES,
    as_mark,
    diagnose,
    is_false_conviction,
    load_json,
    markdown_table,
    run_command,
    score,
    source_line,
)

PAGE = CASES.parent.parent / "docs" / "peers.md"
CHILD = CASES.parent / "peer_child.py"
BUDGET_S = 20  # unstarve's budget, and the longest that any peer is watched or let run
WATCH_S = 6  # how long a profiler and TraceML look at the running loop; SPDL at each of its two forms

CHOSEN = (
    *("ST01", "H01", "TR01", "WK01", "IP01", "SY01", "H04", "V01", "CO01", "SA01", "DE01", "H07"),
    *("FM01", "PH01", "TH01", "WS01", "H10", "NG01", "ST17", "SY09", "H13", "TH09", "TR11", "V12"),
)
"""The first case of every family, the last of five large ones, and every third healthy control of the first thirteen, so
mixed that any first part of the list holds several families and controls."""


class DidNotRun(Exception):
    """A peer gave no output on a case; the message is the reason."""


def ask_unstarve(case, folder):
    report, _, errors = diagnose(case, BUDGET_S)
    if report is None:
        raise DidNotRun(last_line(errors))
    return {"verdict": report["verdict"]}


def ask_cprofile(case, folder):
    out = folder / "profile"
    run_child("profile", case, out)
    try:
        return read_cprofile(pstats.Stats(str(out)).stats, str(CASES / case), lines_of)
    except (OSError, TypeError) as error:
        raise DidNotRun(str(error)) from error


def ask_py_spy(case, folder):
    ready, out = folder / "ready", folder / "stacks"
    command = [sys.executable, str(CHILD), "watch", str(ready), str(WATCH_S + 2), str(CASES / case / "train.py")]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(command, env=case_environment(), start_new_session=True, **silent)
    try:
        limit = time.monotonic() + 60
        while not ready.exists() and child.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        if not ready.exists():
            raise DidNotRun("the script's loop did not start")
        options = ["--subprocesses", "--idle", "--full-filenames", "--format", "raw", "--rate", "50"]
        record = [program("py-spy"), "record", "--pid", str(child.pid), "--duration", str(WATCH_S), *options]
        _, _, errors = run_command([*record, "--output", str(out)], WATCH_S + 30)
        child.wait(timeout=30)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if not out.is_file():
        raise DidNotRun(last_line(errors))
    return read_py_spy(out.read_text(), str(CASES / case), text_at)


def ask_spdl(case, folder):
    out = folder / "rates.json"
    run_child("cache", case, out, 2 * WATCH_S)
    return read_spdl(load_json(out))


def ask_traceml(case, folder):
    script = CASES / case / "train.py"
    passed = ["traceml", str(folder / "unused"), str(WATCH_S), str(script)]
    options = ["--mode", "summary", "--logs-dir", str(folder), "--run-name", "run"]
    command = [program("traceml"), "run", *options, str(CHILD), "--args", *passed]
    _, output, errors = run_command(command, BUDGET_S + 40, case_environment())
    summary = next(folder.rglob("final_summary.json"), None)
    if summary is None:
        raise DidNotRun(last_line(errors) or last_line(output))
    return read_traceml(load_json(summary))


def ask_loadtune(case, folder):
    """Let `loadtune tune` run for the budget; what it printed until then counts."""
    script = CASES / case / "train.py"
    workers = workers_of(script.read_text())
    options = ["--no-plots", "--workers", str(workers), "--steps", "20", "--warmup", "5"]
    command = [program("loadtune"), "tune", str(CHILD), *options, "--out", str(folder / "report.md")]
    environment = {**case_environment(), "PEER_SCRIPT": str(script), "PYTHONUNBUFFERED": "1"}
    _, output, errors = run_command(command, BUDGET_S + 10, environment, cwd=folder)
    if "data wait" not in output:
        raise DidNotRun(last_line(output.strip()) or last_line(errors) or "nothing printed within the budget")
    return read_loadtune(output, workers)


@dataclass(frozen=True)
class Peer:
    """A tool to compare: `probe` is code that fails where it is not installed, `package` its name for pip."""

    ask: Callable
    package: str | None
    probe: str
    reading: str


PEERS = {
    "unstarve": Peer(ask_unstarve, "unstarve", "import unstarve", f"`unstarve run --budget {BUDGET_S}`"),
    "cProfile": Peer(
        ask_cprofile,
        None,
        "import cProfile",
        "every loader without workers, profiled from the first batch on; the call that most time of the user's functions"
        " goes into; sleeping in the loop's body is the device",
    ),
    "py-spy": Peer(
        ask_py_spy,
        "py-spy",
        "import importlib.metadata as m; m.version('py-spy')",
        "`py-spy record --subprocesses --idle` attached when the loop starts; the user's line with most samples, without"
        " imports, waiting for queues, and sleeping in the loop's body; the loader's own machinery (transport, collation)"
        " if it has more samples than all those lines",
    ),
    "SPDL": Peer(
        ask_spdl,
        "spdl-core",
        "from spdl.dataloader import CacheDataLoader",
        "`CacheDataLoader` around the first loader after half the time; input-bound if the loop gets 1.1 times as fast",
    ),
    "TraceML": Peer(
        ask_traceml,
        "traceml-ai",
        "import traceml_ai",
        "`traceml run --mode summary` with its timers around fetching and the loop's body, from the fourth batch on; the status of its step time",
    ),
    "loadtune": Peer(
        ask_loadtune,
        "loadtune",
        "import loadtune",
        "`loadtune tune`, its workload made of the script's dataset, collate function and loop body (own"
        " samplers are not part of a workload); input-bound by its own rule; 'too few workers' where a trial with more won",
    ),
}


# --- running -----------------------------------------------------------------------------------------------------


def case_environment():
    return {name: value for name, value in os.environ.items() if name != "CASE_STEPS"}


def run_child(mode, case, out, seconds=WATCH_S):
    """Run a case below bench/peer_child.py; raises DidNotRun if it left no output."""
    command = [sys.executable, str(CHILD), mode, str(out), str(seconds), str(CASES / case / "train.py")]
    code, _, errors = run_command(command, seconds + 60, case_environment())
    if code != 0:
        raise DidNotRun(last_line(errors) if code is not None else "it did not end")


def program(name):
    """Return the path of a peer's command, of this Python's environment first."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or name


def last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")[:200]


@cache
def lines_of(path):
    try:
        return Path(path).read_text().splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        return []


def text_at(path, line):
    lines = lines_of(path)
    return lines[line - 1] if 0 < line <= len(lines) else ""


def why_missing(peer):
    """Return why a peer cannot be run here, None if it can."""
    _, _, errors = run_command([sys.executable, "-c", peer.probe], 120)
    return last_line(errors) or None


def version_of(peer):
    try:
        return importlib.metadata.version(peer.package) if peer.package else platform.python_version()
    except importlib.metadata.PackageNotFoundError:
        return "-"


def ask(name, case):
    """Return what a peer said of a case: its report, or why there is none, the seconds it took, the load before it."""
    started, load = time.monotonic(), os.getloadavg()[0]
    report = failure = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = PEERS[name].ask(case, Path(folder))
        except (DidNotRun, subprocess.TimeoutExpired, OSError) as error:
            failure = str(error) or type(error).__name__
    return {"report": report, "failure": failure, "seconds": time.monotonic() - started, "load": load}


# --- scoring: pure -----------------------------------------------------------------------------------------------


def claimed_marks(expected, report, text):
    """Return bound, kind, line: True, False, or None where the case does not ask or the peer does not claim.

    `report` is None where the peer gave nothing; `text` is the source line that its first culprit points to.
    """
    if report is None:
        return dict.fromkeys(("bound", "kind", "line"))
    marks = score(expected, report, text)
    found = (report["verdict"].get("culprits") or [{}])[0]
    asked = expected["culprit"] is not None
    return {
        "bound": marks["bound"] if report["verdict"].get("bound") else None,
        "kind": marks["kind"] if asked and found.get("kind") else None,
        "line": marks["line"] if asked and found.get("source") else None,
    }


def convicts(expected, report):
    """Return whether a peer's own verdict finds guilt where there is none; None where it states no verdict."""
    if report is None or not report["verdict"].get("bound"):
        return None
    return is_false_conviction(expected, report)


def cell(row):
    """Return what a peer said of a case, each claim with its mark."""
    if row["report"] is None:
        return "did not run"
    said = row["report"]["verdict"]
    found = (said.get("culprits") or [{}])[0]
    values = {"bound": said.get("bound"), "kind": found.get("kind"), "line": place(found.get("source"))}
    claims = [f"{value} {as_mark(row['marks'][mark])}" for mark, value in values.items() if value]
    return ", ".join(claims) or "·"


def place(source):
    """Return 'file.py:12' of a culprit's source, None without a line."""
    found = re.search(r"([^/]+):(\d+)$", source or "")
    return found and found[0]


def shares(rows, mark, asked):
    """Return 'right/claimed' of the cases that ask for `mark`."""
    counted = [row["marks"][mark] for row in rows if row["case"] in asked and row["marks"][mark] is not None]
    return f"{sum(counted)}/{len(counted)}" if counted else "·"


def summary_table(rows, expectations, versions):
    """Return the Markdown table with one line a peer."""
    guilty = {case for case, expected in expectations.items() if expected["culprit"]}
    lined = {case for case in guilty if expectations[case]["culprit"].get("line")}
    healthy = {case for case in expectations if case.startswith("H")}
    head = [
        "tool",
        "version",
        "ran",
        f"bound, of {len(expectations)}",
        f"kind, of {len(guilty)}",
        f"line, of {len(lined)}",
    ]
    head += [f"healthy convicted, of {len(healthy)}", "seconds, median and max"]
    body = []
    for name, version in versions.items():
        mine = [row for row in rows if row["peer"] == name]
        if not mine:
            continue
        convicted = [row["convicts"] for row in mine if row["case"] in healthy and row["convicts"] is not None]
        seconds = [row["seconds"] for row in mine]
        body.append(
            [
                name,
                version,
                f"{sum(row['report'] is not None for row in mine)}/{len(mine)}",
                shares(mine, "bound", expectations),
                shares(mine, "kind", guilty),
                shares(mine, "line", lined),
                f"{sum(convicted)}/{len(convicted)}" if convicted else "·",
                f"{statistics.median(seconds):.0f}, {max(seconds):.0f}",
            ]
        )
    return markdown_table(head, body)


def case_table(rows, expectations, names):
    """Return the Markdown table with one line a case and one column a peer."""
    said = {(row["case"], row["peer"]): cell(row) for row in rows}
    body = []
    for case, expected in expectations.items():
        culprit = expected["culprit"] or {"kind": ["nobody"]}
        truth = f"{'/'.join(expected['bound'])}: {'/'.join(culprit['kind'])}"
        body.append([f"{case} {expected['title']}", truth, *(said.get((case, name), "-") for name in names)])
    return markdown_table(["case", "truth", *names], body)


def page_of(rows, expectations, versions, missing, facts):
    """Return the text of docs/peers.md; `facts` are the command, date, Python, torch and machine."""
    names = [name for name in versions if any(row["peer"] == name for row in rows)]
    readings = "\n".join(f"- **{name}**: {PEERS[name].reading}." for name in names)
    left_out = "\n".join(f"- **{name}** was left out: {reason}" for name, reason in missing.items())
    failures = "\n".join(
        f"- {row['peer']} on {row['case']}: `{row['failure']}`" for row in rows if row["report"] is None
    )
    return (
        f"""# Side by side

{len(expectations)} cases of the [fault bench](../bench/README.md), each tool on the same unedited scripts, scored by the same rule
(`bench/score.py`). `bench/peers.py` has a fixed list of {len(CHOSEN)} cases: the first of every family, the last of five large
families, five healthy controls; {len(set(expectations) & set(CHOSEN))} of them were run for this page.

Made by `{facts["command"]}` on {facts["date"]}; Python {facts["python"]}, torch {facts["torch"]}, {facts["machine"]}.
{conditions(rows)}

## What was right

Right/claimed. What a tool does not claim is not counted as wrong: a profiler shows where time goes and states no
verdict, a tool that only tells input-bound from compute-bound names no culprit. *bound*: is the loop bound by its input,
its start or its step; *kind*: what sort of thing is guilty; *line*: does the named source line belong to the cause.

{summary_table(rows, expectations, versions)}

## How each was run and read

Each tool was let run for at most {BUDGET_S} s beside its own start and the script's; profilers and TraceML
looked at the running loop for {WATCH_S} s, SPDL for that long as it is and as long with its cache. A kind is read from what the named line does and where the loader calls it.

{readings}
{left_out}

The bench's device is a sleep, which is no module's forward pass and no kernel: what TraceML then calls residual time is
read as the loop's body, and counts as no conviction. What these tools show beside a verdict, such as flame graphs,
memory, or ranks, is not compared, nor are gains: loadtune measures those of its settings, unstarve that of a culprit.

## Case by case

A claim is followed by its mark: yes, NO, or · where the case does not ask. A lone · claims nothing.

{case_table(rows, expectations, names)}

{"## Did not run" if failures else ""}

{failures}
""".rstrip()
        + "\n"
    )


def conditions(rows):
    """Return the sentence about what else the machine did."""
    loads = [row["load"] for row in rows]
    median, most = statistics.median(loads), max(loads)
    return (
        f"The load average before a run was {median:.1f} in the median and {most:.1f} at most; 1 to 2 is this script itself."
        " What is above comes from other work on the machine, which slows every loop and its workers, healthy ones too."
    )


# --- the command -------------------------------------------------------------------------------------------------


def scored(result, case, name, expected):
    """Return the row of a result: what was said and its marks."""
    report = result["report"]
    found = ((report or {"verdict": {}})["verdict"].get("culprits") or [{}])[0]
    marks = claimed_marks(expected, report, source_line(found.get("source"), case))
    return {**result, "case": case, "peer": name, "marks": marks, "convicts": convicts(expected, report)}


def the_facts(command):
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "machine": f"{os.cpu_count()} CPUs ({platform.machine()})",
    }


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="comma-separated ids (a fixed list by default)")
    parser.add_argument("--peers", help=f"comma-separated, of {', '.join(PEERS)} (all by default)")
    parser.add_argument(
        "--raw", type=Path, help="JSON file that keeps what each peer said; what is in it is not run again"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write")
    return parser.parse_args(arguments)


def choose(asked, known, noun):
    """Return the comma-separated names that were asked for, all `known` ones without; ends on an unknown name."""
    names = asked.split(",") if asked else list(known)
    if unknown := set(names) - set(known):
        sys.exit(f"no such {noun}: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return names


def main(arguments=None):
    options = parse_options(arguments)
    every = sorted(path.parent.name for path in CASES.glob("*/expect.json"))
    cases = choose(options.cases, every, "case") if options.cases else list(CHOSEN)
    names = choose(options.peers, PEERS, "peer")
    missing = {name: reason for name in names if (reason := why_missing(PEERS[name]))}
    names = [name for name in names if name not in missing]
    for name, reason in missing.items():
        print(f"{name} is left out: {reason}", flush=True)
    command = shlex.join(["python", "bench/peers.py", *(sys.argv[1:] if arguments is None else arguments)])
    versions = {name: version_of(PEERS[name]) for name in names}
    raw, rows, expectations = load_json(options.raw), [], {}
    for case in cases:
        expectations[case] = load_json(CASES / case / "expect.json")
        for name in names:
            key = f"{case} {name}"
            if key not in raw:
                raw[key] = ask(name, case)
                if options.raw:
                    options.raw.write_text(json.dumps(raw, indent=1) + "\n")
            rows.append(scored(raw[key], case, name, expectations[case]))
            print(
                f"{case} {name}: {cell(rows[-1])} {rows[-1]['failure'] or ''} {rows[-1]['seconds']:.0f} s", flush=True
            )
        # After every case, so that a run that is stopped leaves a page of the cases it finished.
        options.page.write_text(page_of(rows, expectations, versions, missing, the_facts(command)))


if __name__ == "__main__":
    main()
