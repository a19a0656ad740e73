"""Looks at what is running while a batch is late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from unstarve import errors
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.program import Options
from unstarve.measure.slow import Late, LateWatch, gathered

pytestmark = pytest.mark.live


def open_shard() -> None:
    time.sleep(0.3)


def seen(watch: LateWatch, seconds: float) -> tuple[Late, ...]:
    began = time.perf_counter_ns()
    watch.begin(began)
    if seconds > 0.2:
        open_shard()
    else:
        time.sleep(seconds)
    return watch.end(time.perf_counter_ns() - began)


def test_only_a_late_batch_is_looked_at() -> None:
    """Batches that take as long as usual tell nothing; one that takes far longer, and is not the first, tells its line, which
    waited."""
    watch = LateWatch()
    assert not any(seen(watch, 0.004) for _ in range(20))
    assert not seen(watch, 0.3)
    late = seen(watch, 0.3)
    assert late
    assert not seen(watch, 0.004)
    first = gathered(late)[0]
    assert first.text == "time.sleep(0.3)"
    assert 0.15e9 < first.wall_ns < 0.45e9
    assert first.cpu_ns < 0.3 * first.wall_ns


def test_what_runs_after_a_batch_that_failed_is_none_of_it() -> None:
    watch = LateWatch()
    assert not any(seen(watch, 0.004) for _ in range(20))
    seen(watch, 0.3)
    watch.begin(time.perf_counter_ns())
    watch.abandon()
    open_shard()
    assert not seen(watch, 0.004)


def test_lines_are_gathered_with_the_dearest_first() -> None:
    found = gathered([Late("a.py", 3, 10, 1), Late("a.py", 4, 50, 40), Late("a.py", 3, 30, 2)])
    assert [(line.source, line.wall_ns, line.cpu_ns) for line in found] == [("a.py:4", 50, 40), ("a.py:3", 40, 3)]


class Shards(IterableDataset):
    """Samples in shards, each of which takes long to open."""

    def __iter__(self) -> Iterator[Any]:
        assert get_worker_info() is not None
        while True:
            open_shard()
            for number in range(60):
                time.sleep(0.001)
                yield number


def test_what_happens_once_in_a_shard_is_seen_in_real_workers() -> None:
    engine = Engine(Options(budget_s=8))
    with installed(engine), pytest.raises(errors.Finished):
        while True:
            for _batch in DataLoader(Shards(), batch_size=4, num_workers=2):
                time.sleep(0.005)
    late = engine.recording().late
    assert late
    assert late[0].text == "time.sleep(0.3)"
