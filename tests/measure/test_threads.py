"""Threads that work in a process, and limits on them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

from unstarve.measure import threads

needs_tasks = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the kernel does not list threads")


PROGRAM = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from unstarve.measure import threads

def burn():
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        sum(range(1000))

before = threads.working()
done = threading.Event()
threading.Thread(target=done.wait, daemon=True).start()
threading.Thread(target=lambda: (burn(), done.wait()), name="QueueFeederThread", daemon=True).start()
threading.Thread(target=lambda: (burn(), done.wait()), name="Thread-7 (_serve)", daemon=True).start()
with ThreadPoolExecutor(2) as pool:
    both = threading.Barrier(2)
    list(pool.map(lambda _: (both.wait(), burn()), range(2)))
    print(threads.working() - before)
    done.set()
"""


@needs_tasks
def test_threads_that_compute_are_counted_and_others_are_not() -> None:
    """Two that compute beside one that sleeps, and two of those with which torch sends batches and shares memory."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert done.stdout == "2\n", done.stderr


def test_a_limit_holds_for_torch_and_blas_until_it_is_lifted() -> None:
    """None gives back what each had, and without a limit nothing is touched."""
    own = torch.get_num_threads()
    torch.set_num_threads(2)
    pools = threads.in_pools()
    limit = threads.Limit()
    try:
        limit.set(None)
        assert torch.get_num_threads() == 2
        limit.set(1)
        assert (torch.get_num_threads(), threads.in_pools(), threads.most_allowed() >= 1) == (1, 1, True)
        limit.set(1)
        limit.set(None)
        assert (torch.get_num_threads(), threads.in_pools()) == (2, pools)
        torch.set_num_threads(1)  # the program's own change after the trial stays
        limit.set(None)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(own)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
@needs_tasks
def test_all_threads_of_the_process_are_bound() -> None:
    own = sorted(os.sched_getaffinity(0))
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        threads.set_affinity(own[:1])
        assert os.sched_getaffinity(other.native_id) == set(own[:1])
        assert os.sched_getaffinity(0) == set(own[:1])
    finally:
        threads.set_affinity(own)
        done.set()
        other.join()
