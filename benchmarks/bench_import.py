"""What `import unstarve` costs, and whether `unstarve show` works where torch cannot be imported.

    python benchmarks/bench_import.py [--pairs 15]

Bare and importing interpreters start in turns; the difference is taken within each pair. Wall time includes whatever
else the machine does, so the CPU time of the children is printed beside it. Torch is kept out by a `sitecustomize` that
makes its import fail, for whatever `show` imports too.

Bounds: no torch among the loaded modules; less than 80 ms more than a bare interpreter; `show` exits with 0.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from _common import judge, leave, median, show

from unstarve.recording import Block, Loader, Recording, Rung

BOUND_MS = 80.0
BLOCK_TORCH = "import sys\nsys.modules['torch'] = None\n"
PROGRAM = "import sys, unstarve; sys.exit(any(name.split('.')[0] == 'torch' for name in sys.modules))"


@dataclass(frozen=True, slots=True)
class Cost:
    """One interpreter, from start to end."""

    wall_ms: float
    """Wall time."""
    cpu_ms: float
    """User and system time."""


def run(program: str) -> Cost:
    """The cost of an interpreter that runs `program`; raises `CalledProcessError` unless it exits with 0."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall * 1e3, cpu * 1e3)


def report_import(pairs: int) -> list[str]:
    """Measure and print what the import costs, and whether it loads torch."""
    try:
        run(PROGRAM)  # and files are read into the page cache
    except subprocess.CalledProcessError:
        print("import unstarve loads torch: FAILS")
        return ["FAILS"]
    costs = [(run("pass"), run("import unstarve")) for _ in range(pairs)]
    wall = median([ours.wall_ms - bare.wall_ms for bare, ours in costs])
    cpu = median([ours.cpu_ms - bare.cpu_ms for bare, ours in costs])
    bare = median([bare.wall_ms for bare, _ in costs])
    verdict = judge(wall, BOUND_MS)
    print("import unstarve loads no torch: holds")
    print(f"import unstarve beyond a bare interpreter ({show(bare, '.0f', 'ms')}), n = {pairs} pairs:")
    print(f"  wall time {show(wall, '.1f', 'ms')}, bound {BOUND_MS:.0f} ms: {verdict}")
    print(f"  CPU time  {show(cpu, '.1f', 'ms')}")
    return [verdict]


def make_recording() -> Recording:
    """A small recording with a verdict."""
    paces = {"host": 25_000_000, "none": 100_000_000}
    blocks = tuple(
        Block(
            rung=rung, round=number, start_ns=0, end_ns=8 * pace, waits_ns=(pace - 20_000_000,) * 8,
            bodies_ns=(20_000_000,) * 8,
        )
        for number in range(3)
        for rung, pace in paces.items()
    )  # fmt: skip
    rungs = (
        Rung(id="host", label="batch cached on the host", kind="host", order=10),
        Rung(id="none", label="nothing cached", kind="none", order=90),
    )
    loader = Loader(number=0, name="DataLoader(Example)", num_workers=2, batch_size=16)
    return Recording(
        command="example", created="2026-01-01T00:00:00+0000", loader=loader, loaders=(loader,), rungs=rungs,
        blocks=blocks,
    )  # fmt: skip


def report_show() -> str:
    """Run `unstarve show` without torch, as text, page and JSON."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(BLOCK_TORCH)
        recording, page, data = (str(Path(folder, name)) for name in ("recording.json", "page.html", "report.json"))
        make_recording().save(recording)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        blocked = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True)
        command = [sys.executable, "-m", "unstarve", "show", recording, "--html", page, "--json", data]
        shown = subprocess.run(command, env=environment, capture_output=True, text=True)
        is_well = blocked.returncode != 0 and shown.returncode == 0 and "input-bound" in shown.stdout.lower()
        is_well = is_well and Path(page).stat().st_size > 0 and Path(data).stat().st_size > 0
    print(f"unstarve show without torch, as text, page and JSON: {'holds' if is_well else 'FAILS'}")
    if not is_well:
        print(f"  exit code {shown.returncode}; {shown.stderr.strip()[-500:]}")
    return "holds" if is_well else "FAILS"


def main() -> None:
    """Measure, print, leave with 1 if a bound fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    leave([*report_import(arguments.pairs), report_show()])


if __name__ == "__main__":
    main()
