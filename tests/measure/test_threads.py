"""Threads that work in a process, and limits on them."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from unstarve.measure import threads

needs_tasks = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the kernel does not list threads")


def _burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


@needs_tasks
def test_threads_that_compute_are_counted_and_others_are_not() -> None:
    """Two that compute beside one that sleeps, and one that sends batches as torch's does."""
    before = threads.working()
    done = threading.Event()
    idle = threading.Thread(target=done.wait)
    sending = threading.Thread(target=lambda: (_burn(0.4), done.wait()), name="QueueFeederThread")
    with ThreadPoolExecutor(2) as pool:
        idle.start()
        sending.start()
        both = threading.Barrier(2)
        list(pool.map(lambda _: (both.wait(), _burn(0.4)), range(2)))
        try:
            assert threads.working() - before == 2
        finally:
            done.set()


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
