"""Score unstarve against the fault bench: does it name the cause that is known to be true?

    python bench/score.py                          # the whole bench, once
    python bench/score.py --cases ST01,TR07 --no-gain
    python bench/score.py --runs 3 --ratios /tmp/ratios.json
    python bench/score.py --measure-only           # on a quiet machine: the true gains

Every case is a folder with `train.py` (the fault), `fixed.py` (the same script without it) and `expect.json`
(the verdict that is right). The tool sees train.py only. Its predicted gain is compared with the measured ratio of
fixed.py to train.py, from interleaved pairs of short runs. Scoring is pure functions on dicts; running is below them.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BENCH = Path(__file__).resolve().parent
CASES = BENCH / "cases"
MARKS = ("bound", "kind", "first_kind", "name", "line", "resource", "must_not")
# A sleeping step is the loop's own limit whatever it is called: naming it on a step-bound case convicts nobody.
HARMLESS_KINDS = ("step-device", "step-host")


# --- scoring: pure -----------------------------------------------------------------------------------------------


def score(expected, report, source_text=None):
    """Return the marks of one report: True, False, or None where the case does not ask.

    `report` is the parsed `--json` file, or None where the tool gave none; `source_text` is the text of the
    source line that the first culprit points to. `first_kind` is the kind the case lists first, the ideal one;
    `kind` accepts every listed kind.
    """
    verdict = (report or {}).get("verdict") or {}
    bound_ok = verdict.get("bound") in expected["bound"]
    culprits = verdict.get("culprits") or []
    culprit = expected["culprit"]
    marks = {"bound": bound_ok, "must_not": must_not_ok(expected.get("must_not"), culprits)}
    if culprit is None:
        innocent = bool(report) and all(found.get("kind") in HARMLESS_KINDS for found in culprits)
        nothing_asked = dict.fromkeys(("name", "line", "resource"))
        return {**marks, "kind": innocent, "first_kind": innocent, **nothing_asked}
    found = culprits[0] if culprits else {}
    return {
        **marks,
        "kind": found.get("kind") in culprit["kind"],
        "first_kind": found.get("kind") == culprit["kind"][0],
        "name": matches(culprit.get("name"), found.get("name")),
        "line": matches(culprit.get("line"), source_text),
        "resource": found.get("resource") in culprit["resource"] if culprit.get("resource") else None,
    }


def matches(pattern, text):
    """Return whether `text` matches, ignoring case; None where no pattern is given."""
    if not pattern:
        return None
    return re.search(pattern, text or "", re.IGNORECASE) is not None


def must_not_ok(must_not, culprits):
    """Return whether no culprit, first or later, is one that the case calls innocent."""
    must_not = must_not or {}
    kinds, name = must_not.get("kind") or (), must_not.get("name")
    return not any(found.get("kind") in kinds or matches(name, found.get("name")) for found in culprits)


def is_right(marks):
    """Return whether bound, kind and line are right (where asked) and no innocent is named: all is well."""
    return all(marks[mark] in (True, None) for mark in ("bound", "kind", "line", "must_not"))


def reported_kind(report):
    """Return the first culprit's kind, 'none' without a culprit, or why there is no verdict."""
    if not report:
        return "failed"
    verdict = report.get("verdict") or {}
    if verdict.get("bound") == "unresolved":
        return "unresolved"
    culprits = verdict.get("culprits") or []
    return culprits[0].get("kind") or "none" if culprits else "none"


def expected_kind(expected):
    """Return the ideal kind of a case, 'none' where nobody is guilty."""
    return expected["culprit"]["kind"][0] if expected["culprit"] else "none"


def predicted_gain(report):
    """Return the first culprit's predicted speed-up, None without one."""
    culprits = ((report or {}).get("verdict") or {}).get("culprits") or []
    return (culprits[0].get("gain") or {}).get("value") if culprits else None


def gain_error(predicted, measured):
    """Return the relative error of a predicted speed-up, None where either is missing."""
    if predicted is None or not measured:
        return None
    return abs(predicted / measured - 1)


def is_false_conviction(expected, report):
    """Return whether the tool found guilt in a case that has none: a data verdict or a culprit outside the step."""
    if expected["culprit"] is not None:
        return False
    verdict = (report or {}).get("verdict") or {}
    culprits = verdict.get("culprits") or []
    return verdict.get("bound") in ("input", "start") or any(c.get("kind") not in HARMLESS_KINDS for c in culprits)


def quantile(values, fraction):
    """Return the nearest-rank quantile of `values`, None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def share(flags):
    """Return (number true, number that count); None does not count."""
    counted = [flag for flag in flags if flag is not None]
    return sum(counted), len(counted)


def summarise(rows):
    """Return the summary figures of scored rows as ordered label -> text."""
    guilty = [row for row in rows if row["guilty"]]
    healthy = [row for row in rows if row["id"].startswith("H")]
    errors = [row["gain_error"] for row in guilty if row["gain_error"] is not None]
    seconds = [row["seconds"] for row in rows]
    return {
        "right bound": as_share(row["marks"]["bound"] for row in rows),
        "right kind (faulty cases)": as_share(row["marks"]["kind"] for row in guilty),
        "ideal kind (faulty cases)": as_share(row["marks"]["first_kind"] for row in guilty),
        "right name (faulty cases)": as_share(row["marks"]["name"] for row in guilty),
        "right line (where asked)": as_share(row["marks"]["line"] for row in guilty),
        "right resource (where asked)": as_share(row["marks"]["resource"] for row in guilty),
        "innocent convicted (must_not)": as_share(not row["marks"]["must_not"] for row in rows),
        "bound, kind, line and must_not right": as_share(row["right"] for row in rows),
        "false convictions on healthy controls": as_share(row["false_conviction"] for row in healthy),
        "false convictions on all cases without a culprit": as_share(
            row["false_conviction"] for row in rows if not row["guilty"]
        ),
        "gain error, median and p90": f"{as_percent(quantile(errors, 0.5))}, {as_percent(quantile(errors, 0.9))}"
        f" (n={len(errors)})",
        "seconds, median and max": f"{quantile(seconds, 0.5):.0f}, {max(seconds):.0f}" if seconds else "-",
    }


def as_share(flags):
    right, counted = share(list(flags))
    return f"{right}/{counted} ({right / counted:.0%})" if counted else "-"


def as_percent(fraction):
    return "-" if fraction is None else f"{fraction:.0%}"


def as_mark(flag):
    return {True: "yes", False: "NO", None: "·"}[flag]


def as_number(value):
    return "-" if value is None else f"{value:.2f}"


def confusion(pairs):
    """Return a Markdown matrix of (expected kind, reported kind) pairs."""
    counts = Counter(pairs)
    rows, columns = (sorted({pair[side] for pair in counts}) for side in (0, 1))
    table = [[row, *(str(counts[row, column] or "·") for column in columns)] for row in rows]
    return markdown_table(["expected \\ reported", *columns], table)


def markdown_table(head, body):
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def case_table(rows):
    """Return the Markdown table of scored rows."""
    head = ["case", "title", "bound", *("kind", "name", "line", "resource", "must_not"), "gain", "measured", "s"]
    body = []
    for row in rows:
        marks = row["marks"]
        body.append(
            [
                row["id"],
                row["title"],
                f"{row['bound']} {as_mark(marks['bound'])}",
                f"{row['reported']} {as_mark(marks['kind'])}",
                f"{row['name']} {as_mark(marks['name'])}".replace("|", "\\|"),
                f"{row['source']} {as_mark(marks['line'])}",
                as_mark(marks["resource"]),
                as_mark(marks["must_not"]),
                as_number(row["predicted"]),
                as_number(row["measured"]),
                f"{row['seconds']:.0f}",
            ]
        )
    return markdown_table(head, body)


def results_page(rows, command):
    """Return the text of RESULTS.md."""
    summary = markdown_table(["figure", "value"], [[label, text] for label, text in summarise(rows).items()])
    matrix = confusion([(row["expected"], row["reported"]) for row in rows])
    return (
        f"# Fault bench\n\nMade by `{command}` on {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores.\n"
        f"'unresolved' and a run without a report count as wrong.\n\n## Summary\n\n{summary}\n\n"
        f"## Cases\n\nA mark follows what was reported: yes, NO, or · where the case does not ask. *gain* is what the"
        f" tool predicts for its first culprit, *measured* is fixed.py against train.py.\n\n{case_table(rows)}\n\n"
        f"## Kinds\n\n{matrix}\n"
    )


# --- running -----------------------------------------------------------------------------------------------------


def run_command(command, timeout_s, environment=None, cwd=None):
    """Run `command` in a session of its own; return (exit code or None after the time-out, stdout, stderr)."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # workers hold the pipes open otherwise
        output, errors = process.communicate()
        return None, output, errors
    return process.returncode, output, errors


def diagnose(case, budget_s=None, timeout_s=150):
    """Run the tool on a case; return (report or None, seconds, last lines of stderr)."""
    tool = shutil.which("unstarve", path=str(Path(sys.executable).parent)) or "unstarve"
    environment = {name: value for name, value in os.environ.items() if name != "CASE_STEPS"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "report.json")
        options = ["--json", str(out), "--quiet"] + (["--budget", str(budget_s)] if budget_s else [])
        started = time.monotonic()
        _, _, errors = run_command(
            [tool, "run", "--no-history", *options, str(CASES / case / "train.py")], timeout_s, environment
        )
        seconds = time.monotonic() - started
        try:
            report = json.loads(out.read_text())
        except (OSError, ValueError):
            report = None
    return report, seconds, errors[-2000:]


def source_line(source, case):
    """Return the text of the line a culprit points to ('train.py:41' or a full path), None where there is none."""
    path, _, number = (source or "").rpartition(":")
    if not path or not number.isdigit():
        return None
    path = Path(path) if Path(path).is_absolute() else CASES / case / Path(path).name
    if not path.is_file():
        return None
    lines = path.read_text().splitlines()
    return lines[int(number) - 1] if 0 < int(number) <= len(lines) else None


def speed(script, steps, timeout_s=120):
    """Return the steps per second that a script prints last when told to stop after `steps`."""
    environment = {**os.environ, "CASE_STEPS": str(steps)}
    code, output, errors = run_command([sys.executable, str(script)], timeout_s, environment)
    if code != 0:
        raise RuntimeError(f"{script} with CASE_STEPS={steps} ended with {code}: {errors[-1500:]}")
    return float(output.split()[-1])


def measure_ratio(case, steps, order):
    """Return the fixed/train speed ratio of a pair of runs in the given order."""
    speeds = {name: speed(CASES / case / f"{name}.py", steps) for name in order}
    return round(speeds["fixed"] / speeds["train"], 3)


def gain_range(ratios, tolerance=0.25):
    """Return the [low, high] that a case expects: the median ratio ± `tolerance`, wide enough for every ratio seen."""
    median = statistics.median(ratios)
    low, high = min(median * (1 - tolerance), min(ratios)), max(median * (1 + tolerance), max(ratios))
    return [round(low, 2), round(high, 2)]


def write_gain(case, cache):
    """Put the range of the measured ratios into the case's expect.json."""
    path = CASES / case / "expect.json"
    expected = {**load_json(path), "gain": gain_range(cache[case])}
    path.write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")
    print(f"{case}: measured {cache[case]}, gain {expected['gain']}", flush=True)


def load_json(path):
    return json.loads(path.read_text()) if path and path.is_file() else {}


def has_gain_to_measure(expected, options, cache):
    """Return whether the case's true gain is to be measured: nothing is predicted where nobody is guilty."""
    return not options.no_gain and expected["culprit"] is not None and expected["id"] not in cache


def note_ratio(expected, order, options, cache):
    """Measure a pair of runs of a case in the given order, and add its ratio to the cache."""
    case, steps = expected["id"], options.lengthen * expected.get("steps", 40)
    cache.setdefault(case, []).append(measure_ratio(case, steps, order))
    if options.ratios:
        options.ratios.write_text(json.dumps(cache, indent=1, sort_keys=True) + "\n")


def diagnose_between_pairs(case, expected, options, cache):
    """Diagnose one case, with a pair of runs before and one after it: a shared machine is faster in one minute than in the
    next, and a gain holds for the speed at which it was predicted."""
    if not has_gain_to_measure(expected, options, cache):
        return diagnose(case, options.budget)
    note_ratio(expected, ("train", "fixed"), options, cache)
    found = diagnose(case, options.budget)
    note_ratio(expected, ("fixed", "train"), options, cache)
    return found


def run_case(case, options, cache):
    """Diagnose one case once and return its scored row."""
    expected = load_json(CASES / case / "expect.json")
    report, seconds, errors = diagnose_between_pairs(case, expected, options, cache)
    if options.reports and report:
        options.reports.mkdir(parents=True, exist_ok=True)
        Path(options.reports, f"{case}.{time.time_ns()}.json").write_text(json.dumps(report, indent=1))
    verdict = (report or {}).get("verdict") or {}
    first = (verdict.get("culprits") or [{}])[0]
    marks = score(expected, report, source_line(first.get("source"), case))
    predicted = predicted_gain(report)
    measured = statistics.median(cache[case]) if expected["culprit"] and cache.get(case) else None
    row = {
        "id": case,
        "title": expected["title"],
        "guilty": expected["culprit"] is not None,
        "expected": expected_kind(expected),
        "reported": reported_kind(report),
        "bound": verdict.get("bound", "failed"),
        "name": first.get("name") or "",
        "source": Path(first.get("source") or "").name,
        "marks": marks,
        "right": is_right(marks),
        "false_conviction": is_false_conviction(expected, report),
        "predicted": predicted,
        "measured": measured,
        "gain_error": gain_error(predicted, measured),
        "seconds": seconds,
    }
    shown = ", ".join(f"{mark} {as_mark(marks[mark])}" for mark in MARKS)
    found = f"{row['bound']}, {row['reported']} {row['name']} {row['source']}"
    print(f"{case}: {found} [{shown}] {seconds:.0f} s", flush=True)
    if not report:
        print(f"  no report: {errors.strip()[-400:]}", flush=True)
    return row


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="comma-separated ids (all by default)")
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time; more than 1 disturbs the timing")
    parser.add_argument("--runs", type=int, default=1, help="diagnoses per case")
    parser.add_argument("--budget", type=float, help="the tool's --budget, seconds")
    measuring = parser.add_mutually_exclusive_group()
    measuring.add_argument("--no-gain", action="store_true", help="measure no gains; those in --ratios are used")
    measuring.add_argument("--measure-only", action="store_true", help="measure ratios into expect.json, no diagnosis")
    parser.add_argument("--lengthen", type=int, default=1, help="measure gains with so many times the case's steps")
    parser.add_argument("--ratios", type=Path, help="JSON file in which measured ratios are kept")
    parser.add_argument("--reports", type=Path, help="folder in which the tool's JSON reports are kept")
    parser.add_argument("--results", type=Path, default=BENCH / "RESULTS.md", help="page to write")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse_options(arguments)
    known = sorted(path.parent.name for path in CASES.glob("*/expect.json"))
    cases = options.cases.split(",") if options.cases else known
    if unknown := set(cases) - set(known):
        sys.exit(f"no such case: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    cache = load_json(options.ratios)
    if options.measure_only:
        for case in cases:
            expected = load_json(CASES / case / "expect.json")
            if has_gain_to_measure(expected, options, cache):
                for order in (("train", "fixed"), ("fixed", "train")) * 2:
                    note_ratio(expected, order, options, cache)
            if case in cache:
                write_gain(case, cache)
        return
    tasks = [case for case in cases for _ in range(options.runs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda case: run_case(case, options, cache), tasks))
    command = shlex.join(["python", "bench/score.py", *(sys.argv[1:] if arguments is None else arguments)])
    page = results_page(rows, command)
    options.results.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
