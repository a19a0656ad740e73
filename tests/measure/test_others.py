"""CPU time of processes that are none of ours."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from unstarve.measure import others
from unstarve.measure.others import CpuTime, OtherProcesses


def test_what_others_use_is_what_the_machine_uses_without_us() -> None:
    told = iter([CpuTime(10.0, 100.0, 7.0), CpuTime(20.0, 118.0, 10.0)])
    found = OtherProcesses(lambda: next(told))
    found.begin()
    found.end()
    assert found.cores == pytest.approx(1.5)


def test_where_nobody_counts_nothing_is_said() -> None:
    found = OtherProcesses(lambda: None)
    found.begin()
    found.end()
    assert found.cores == 0


@pytest.mark.live
def test_a_process_that_we_started_is_ours() -> None:
    """What a child computes counts as our own time, while it runs and when it has ended."""
    before = others.cpu_time()
    if before is None:
        pytest.skip("the cores here are not ours alone")
    code = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(5)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = others.cpu_time()
        child.kill()
    ended = others.cpu_time()
    assert running is not None
    assert ended is not None
    assert running.own_s - before.own_s > 0.4
    assert ended.own_s - before.own_s > 0.4
    assert time.monotonic() >= ended.at_s
