"""Intervals, verdicts and CPU clocks that the benchmarks share. A figure here is a comparison made within one run.

Intervals are Student's t on independent alternations (log-ratios where rates are compared), or a percentile bootstrap
where a few alternations may be far off. An absolute time says only what this machine was doing.
"""

from __future__ import annotations

import math
import os
import platform
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unstarve.estimate import student


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value with a 95 % interval."""

    value: float
    """The estimate."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    n: int
    """Independent observations behind it."""


def mean(figures: Sequence[float]) -> Figure:
    """Arithmetic mean with Student's t interval; assumes about normal, independent figures."""
    centre = statistics.fmean(figures)
    half = student(len(figures) - 1) * statistics.stdev(figures) / math.sqrt(len(figures))
    return Figure(value=centre, low=centre - half, high=centre + half, n=len(figures))


def geometric_mean(ratios: Sequence[float]) -> Figure:
    """Geometric mean with Student's t interval on the logarithms."""
    logs = mean([math.log(ratio) for ratio in ratios])
    return Figure(value=math.exp(logs.value), low=math.exp(logs.low), high=math.exp(logs.high), n=logs.n)


def median(figures: Sequence[float], *, draws: int = 4000, seed: int = 0) -> Figure:
    """Median with a percentile bootstrap interval (Efron and Tibshirani 1993, ch. 13): outliers hardly move it."""
    drawn = random.Random(seed)
    medians = sorted(statistics.median(drawn.choices(figures, k=len(figures))) for _ in range(draws))
    low, high = medians[int(0.025 * draws)], medians[int(0.975 * draws)]
    return Figure(value=statistics.median(figures), low=low, high=high, n=len(figures))


def show(figure: Figure, form: str = ".3f", unit: str = "") -> str:
    """`value [low to high] unit`."""
    text = f"{figure.value:{form}} [{figure.low:{form}} to {figure.high:{form}}]"
    return f"{text} {unit}".rstrip()


def judge(figure: Figure, bound: float) -> str:
    """Whether the figure stays at or below the bound: `holds`, `FAILS`, or `undecided` where the interval has both."""
    if figure.high <= bound:
        return "holds"
    return "FAILS" if figure.low > bound else "undecided"


def judge_least(figure: Figure, bound: float) -> str:
    """Whether the figure stays at or above the bound: `holds`, `FAILS`, or `undecided` where the interval has both."""
    if figure.low >= bound:
        return "holds"
    return "FAILS" if figure.high < bound else "undecided"


def leave(verdicts: Sequence[str]) -> None:
    """End the script; with code 1 only where a bound failed beyond its interval."""
    sys.exit(1 if "FAILS" in verdicts else 0)


def describe_machine() -> str:
    """One line on where the figures come from."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"Python {platform.python_version()}, torch {torch.__version__}, {cores} cores{load}"


def process_cpu_clock(pid: int) -> Callable[[], int]:
    """A clock of the CPU time, in ns, that process `pid` has used; 0 for ever where the platform has none."""
    import time

    if not sys.platform.startswith("linux"):
        return lambda: 0
    clock = (~pid << 3) | 2  # CPUCLOCK_SCHED, as `clock_getcpuclockid` of glibc makes it
    return lambda: time.clock_gettime_ns(clock)
