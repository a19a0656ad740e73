"""Does a pipeline of 40 stages reach its verdict in about as many steps of the loop as one of 5?

    python benchmarks/bench_search.py [--runs 4] [--form compose|inline]

Both pipelines do the same work for a sample. One stage in the middle takes half of it; the others share the rest
evenly, so that each of 4 is dear enough to be a suspect of its own and none of 39 is. They are written as a Compose of
transforms, and as statements of `__getitem__`. Two workers, and a step that sleeps a third of the time that the workers
need for a batch on two free cores.

Counted are the batches handed to the loop from the script's first, in two ways: until the experiment ends by itself, as
a user sees it, and until the report on the blocks so far is for the first time one that names the guilty stage first,
with a gain whose interval excludes none, and goes on to do so with every block that follows. The latter is judged after
the run, from what was recorded. Batches made under an order that is over are thrown away before the loop sees them and
are not counted; the seconds contain them.

A short run and a long one make a pair, in an order drawn by lot. Bound, for both counts: the long pipeline takes at
most 2.5 times the steps of the short one. A run that does not name the guilty stage fails. Where the budget ended a run,
as it does on a busy machine, its steps say how fast the loop was and not what was needed: that count stays `undecided`.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _common import describe_machine, geometric_mean, judge, leave, show
from torch.utils.data import DataLoader

from unstarve.errors import Finished
from unstarve.judge import judge as judge_recording
from unstarve.measure.blocks import DEFAULT_BUDGET_S
from unstarve.measure.engine import Engine
from unstarve.measure.program import Options
from unstarve.recording import Recording
from unstarve.report import Report

BOUND = 2.5
SHORT, LONG = 5, 40
SAMPLE_S, GUILTY_SHARE = 0.005, 0.5
BATCH_SIZE, WORKERS, STEP_S = 8, 2, 0.007

PREAMBLE = '''
import hashlib

import torch
from torch.utils.data import Dataset
from torchvision.transforms import Compose


def work(image, amount):
    """Another image, and so many turns of a hash."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", amount)
    return image + 1


class Innocent:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, image):
        return work(image, self.amount)


class Guilty:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, image):
        return work(image, self.amount)


class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        image = torch.zeros(3, 16, 16)
'''
"""Beginning of a generated module; the statements of `__getitem__` follow."""


@functools.cache
def amount_of_sample() -> int:
    """Turns of the hash that take `SAMPLE_S` of CPU time here."""
    turns = 50_000
    began = time.thread_time()
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", turns)
    return round(turns * SAMPLE_S / (time.thread_time() - began))


def source_of(form: str, stages: int) -> tuple[str, str]:
    """A module with a pipeline of so many stages, and the line of it that makes or is the guilty one."""
    guilty = stages // 2
    whole = amount_of_sample()
    others = round(whole * (1 - GUILTY_SHARE) / (stages - 1))
    costs = [round(whole * GUILTY_SHARE) if position == guilty else others for position in range(stages)]
    if form == "inline":
        lines = [f"        image = work(image, {amount})" for amount in costs]
        return "\n".join([PREAMBLE.rstrip("\n"), *lines, "        return image, index % 10\n"]), lines[guilty]
    lines = [f"    {'Guilty' if n == guilty else 'Innocent'}({amount})," for n, amount in enumerate(costs)]
    body = [PREAMBLE.rstrip("\n"), "        image = TRANSFORM(image)", "        return image, index % 10\n\n"]
    return "\n".join([*body, "TRANSFORM = Compose([", *lines, "])\n"]), lines[guilty]


def make_pipeline(form: str, stages: int, folder: Path) -> tuple[DataLoader, Callable[[Any], bool]]:
    """A loader over the pipeline, whose module is written to `folder`, and whether a culprit is its guilty stage."""
    text, guilty_line = source_of(form, stages)
    name = f"{form}_{stages}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    dataset = importlib.import_module(name).Data()
    place = f"{path}:{1 + text.splitlines().index(guilty_line)}"

    def is_guilty(culprit: Any) -> bool:
        return culprit.source == place if form == "inline" else culprit.name == "Guilty"

    return DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=WORKERS, drop_last=True), is_guilty


@dataclass(slots=True)
class Diary:
    """Steps and seconds at the end of every measured block; told of the engine's progress."""

    began: float = field(default_factory=time.perf_counter)
    entries: list[tuple[int, float]] = field(default_factory=list)

    def __call__(self, engine: Engine, text: str) -> None:
        """Make an entry for a block that has just been measured."""
        if len(engine.blocks) > len(self.entries):
            self.entries.append((engine.steps_total, time.perf_counter() - self.began))


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What one run took."""

    named: int
    """Steps until the guilty stage was named for good; 0 if it never was."""
    named_s: float
    """Seconds until then."""
    ended: int
    """Steps until the experiment ended."""
    ended_s: float
    """Seconds until then."""
    stages: int
    """Stages of the dataset that the tool told apart, those that contain others left out."""
    rungs: int
    """Rungs that it measured."""
    rounds: int
    """Rounds that it measured, the last one perhaps in part."""

    @property
    def is_out_of_time(self) -> bool:
        """Whether the experiment ended because its budget was spent."""
        return self.ended_s >= DEFAULT_BUDGET_S


def count(form: str, stages: int, folder: Path) -> Count:
    """Run the tool on the pipeline to the end of its experiment."""
    loader, is_guilty = make_pipeline(form, stages, folder)
    diary = Diary()
    engine = Engine(Options(), on_progress=diary)
    try:
        for _ in engine.iterate(loader, DataLoader.__iter__):
            time.sleep(STEP_S)
    except Finished:
        pass
    finally:
        engine.close()
    ended_s = time.perf_counter() - diary.began
    recording = engine.recording()
    first = first_for_good(recording, is_guilty)
    named, named_s = diary.entries[first] if first is not None else (0, 0.0)
    parents = {stage.parent for stage in recording.stages}
    leaves = [stage for stage in recording.stages if stage.id not in parents and stage.kind not in ("collate", "ipc")]
    return Count(
        named=named, named_s=named_s, ended=engine.steps_total, ended_s=ended_s, stages=len(leaves),
        rungs=len(recording.rungs), rounds=1 + max(block.round for block in recording.blocks),
    )  # fmt: skip


def first_for_good(recording: Recording, is_guilty: Callable[[Any], bool]) -> int | None:
    """Number of the block from which on every report names the guilty stage; None if the last one does not."""
    found = None
    for last in reversed(range(len(recording.blocks))):
        if not names(report_until(recording, last), is_guilty):
            break
        found = last
    return found


def report_until(recording: Recording, last: int) -> Report:
    """The report if the experiment had ended with this block."""
    blocks = recording.blocks[: last + 1]
    measured = {block.rung for block in blocks}
    rungs = tuple(rung for rung in recording.rungs if rung.id in measured)
    return judge_recording(replace(recording, blocks=blocks, rungs=rungs))


def names(report: Report, is_guilty: Callable[[Any], bool]) -> bool:
    """Whether the report calls the loop starved, puts the guilty stage first, and is sure that mending it gains."""
    culprits = report.verdict.culprits
    return report.verdict.bound == "input" and bool(culprits) and is_guilty(culprits[0]) and culprits[0].gain.low > 1


def compare(form: str, runs: int, folder: Path) -> list[str]:
    """Measure and print one way of writing the pipelines; its verdicts."""
    lots = random.Random(0)
    pairs: list[dict[int, Count]] = []
    for _ in range(runs):
        pairs.append({stages: count(form, stages, folder) for stages in lots.sample((SHORT, LONG), 2)})
        print(f"{form}: {pairs[-1]}", file=sys.stderr)
    print(f"{form}: n = {runs} pairs of runs")
    for stages in (SHORT, LONG):
        counts = [pair[stages] for pair in pairs]
        named = ", ".join(f"{c.named} ({c.named_s:.0f} s)" if c.named else "never" for c in counts)
        ended = ", ".join(f"{c.ended} ({c.ended_s:.0f} s)" for c in counts)
        told = ", ".join(f"{c.stages}/{c.rungs}/{c.rounds}" for c in counts)
        print(f"  {stages:2} stages: guilty one named after {named} steps; ended after {ended}")
        print(f"             stages told apart / rungs / rounds: {told}")
    verdicts = []
    if all(c.named for pair in pairs for c in pair.values()):
        verdicts.append(report(f"until the guilty one is named, {LONG} over {SHORT}", pairs, lambda c: c.named))
    else:
        print("  the guilty stage was not named in every run: FAILS")
        verdicts.append("FAILS")
    verdict = report(f"until the experiment ends,     {LONG} over {SHORT}", pairs, lambda c: c.ended)
    late = sum(c.is_out_of_time for pair in pairs for c in pair.values())
    if late:
        print(f"    the budget ended {late} of {2 * runs} runs: undecided")
        verdict = "undecided"
    return [*verdicts, verdict]


def report(title: str, pairs: list[dict[int, Count]], steps: Callable[[Count], int]) -> str:
    """Print the ratio of steps; the verdict on it."""
    ratio = geometric_mean([steps(pair[LONG]) / steps(pair[SHORT]) for pair in pairs])
    verdict = judge(ratio, BOUND)
    print(f"  {title}: {show(ratio, '.2f')}, n = {ratio.n}; bound {BOUND}: {verdict}")
    return verdict


def main() -> None:
    """Count, print, leave with 1 if a bound fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--form", choices=("compose", "inline"))
    arguments = parser.parse_args()
    print(f"Steps of the loop to a verdict, {SHORT} and {LONG} stages. {describe_machine()}.")
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        forms = (arguments.form,) if arguments.form else ("compose", "inline")
        verdicts = list(itertools.chain(*(compare(form, arguments.runs, Path(folder)) for form in forms)))
    leave(verdicts)


if __name__ == "__main__":
    main()
