"""Sampling the thread that runs the user's code."""

from __future__ import annotations

import time
import zlib

import pytest

from unstarve.measure.body import BodySampler

pytestmark = pytest.mark.live

DATA = bytes(200_000)


def parse() -> int:
    return sum(number % 7 for number in range(20_000))


def check() -> int:
    return zlib.crc32(DATA)  # lets go of the interpreter, in which other threads wait for their turn


def test_a_line_that_lets_others_run_is_not_blamed_for_the_one_before_it() -> None:
    """Python code that never lets go takes most of the time, and gets most of the blame."""
    sampler = BodySampler(0.0005)
    spent = {"parse": 0.0, "check": 0.0}
    sampler.start()
    end = time.perf_counter() + 1.0
    while time.perf_counter() < end:
        began = time.perf_counter()
        parse()
        between = time.perf_counter()
        check()
        spent["parse"] += between - began
        spent["check"] += time.perf_counter() - between
    lines = sampler.stop()
    share = spent["parse"] / sum(spent.values())
    assert share > 0.8
    found = sum(line.wall_fraction for line in lines if "range(20_000)" in line.text)
    assert found > 0.8 * share
