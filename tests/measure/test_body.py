"""Sampling the thread that runs the user's code."""

from __future__ import annotations

import gc
import sys
import time
import zlib
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from unstarve.measure import body
from unstarve.measure.body import BodySampler
from unstarve.measure.memory import COLLECTOR

pytestmark = pytest.mark.live

DATA = bytes(200_000)


def parse() -> int:
    return sum(number % 7 for number in range(20_000))


def check() -> int:
    return zlib.crc32(DATA)  # lets go of the interpreter, in which other threads wait for their turn


def function(filename: Path | str, text: str, **names: Any) -> Any:
    """A function `f` of the file with this name."""
    exec(compile(text, str(filename), "exec"), names)
    return names["f"]


def test_lines_beyond_our_own_code_lead_nowhere(tmp_path: Path) -> None:
    """The console script that starts us lies outside the package, and is no line of the loop's."""
    innermost = function(tmp_path / "train.py", "def f():\n    return look()", look=lambda: sys._getframe(1))
    loop = function(tmp_path / "train.py", "\n\ndef f():\n    return inner()", inner=innermost)
    ours = function(body.__file__, "def f():\n    return loop()", loop=loop)
    frame: FrameType = function(tmp_path / "unstarve", "def f():\n    return main()", main=ours)()
    train = str(tmp_path / "train.py")
    assert body._user_lines(body._stack(frame)) == [(train, 4), (train, 2)]


def test_a_users_folder_named_torch_is_not_torch(tmp_path: Path) -> None:
    """Time counts as torch's only in the files of the torch that is imported."""
    is_in = [
        body._is_in_torch(function(file, "def f():\n    return look()", look=lambda: sys._getframe(1))())
        for file in (tmp_path / "torch" / "train.py", Path(torch.__file__).parent / "functional.py")
    ]
    assert is_in == [False, True]


def test_threads_without_clocks_are_sampled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every system can tell the CPU time of another thread."""
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)
    sampler = BodySampler(0.0005)
    sampler.start()
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        parse()
    lines = sampler.stop()
    assert any("range(20_000)" in line.text and line.cpu_fraction > 0 for line in lines)


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


def test_a_line_that_collects_garbage_is_charged_for_it(tmp_path: Path) -> None:
    """Our clock of collections runs where the line lets go of the interpreter, and hides it from no one."""
    heap = [[number] for number in range(300_000)]
    text = "def f():\n    for _ in range(8):\n        collect()\n        sleep(0.01)\n"
    COLLECTOR.start()
    sampler = BodySampler()
    try:
        sampler.start()
        function(tmp_path / "train.py", text, collect=gc.collect, sleep=time.sleep)()
        lines = {line.source.rpartition(":")[2]: line for line in sampler.stop()}
    finally:
        COLLECTOR.stop()
    assert len(heap) == 300_000
    assert "4" not in lines or lines["3"].cpu_fraction > 2 * lines["4"].cpu_fraction


def test_a_line_that_only_calls_torch_is_as_deep_as_any(tmp_path: Path) -> None:
    """Functions of the user's around a line are counted wherever it leads."""
    inner = function(
        tmp_path / "train.py", "def f():\n    return exp(x)", exp=torch.nn.functional.softplus, x=torch.ones(10**7)
    )
    sampler = BodySampler(0.0005)
    sampler.start()
    function(tmp_path / "train.py", "\n\n\ndef f():\n    for _ in range(5):\n        inner()", inner=inner)()
    depths = {line.source.rpartition(":")[2]: line.depth for line in sampler.stop() if "train.py" in line.source}
    assert depths["2"] == depths["6"] + 1


def test_a_line_is_told_with_the_loop_around_it(tmp_path: Path) -> None:
    """The innermost one of the same function: what the loop costs goes with the line that it is for."""
    text = "def f():\n    for _ in range(5):\n        if look:\n            look(\n                parse()\n            )\n"
    (tmp_path / "train.py").write_text(text)
    sampler = BodySampler(0.0005)
    sampler.start()
    function(tmp_path / "train.py", text, look=lambda _: None, parse=lambda: time.sleep(0.01))()
    assert {line.loop for line in sampler.stop() if line.source == f"{tmp_path / 'train.py'}:5"} == {2}


class Delayed:
    """A clock of a thread that gets a core for a quarter of the time only."""

    def read_ns(self) -> int:
        return time.perf_counter_ns() * 3 // 4


def test_a_line_is_charged_for_the_time_without_a_core(tmp_path: Path) -> None:
    """What a thread waits for a core is told from other waiting."""
    sampler = BodySampler(0.0005, delay=Delayed())
    sampler.start()
    function(tmp_path / "train.py", "def f():\n    for _ in range(50):\n        sleep(0.001)\n", sleep=time.sleep)()
    (line,) = (line for line in sampler.stop() if line.source == f"{tmp_path / 'train.py'}:3")
    assert line.delay_inclusive == pytest.approx(0.75 * line.wall_inclusive, rel=0.05)
    assert line.rests < 0.3 * line.wall_inclusive
