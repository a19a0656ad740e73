"""Names that users give to regions of their own code."""

from __future__ import annotations

import time

import pytest

import unstarve
from unstarve import labels


def test_the_innermost_open_region_counts_and_ends() -> None:
    """Inside nested regions the inner name holds, afterwards the outer one, and none when all are closed."""
    assert labels.current() is None
    with unstarve.stage("outer"):
        with unstarve.stage("inner"):
            assert labels.current() == "inner"
        assert labels.current() == "outer"
    assert labels.current() is None


def test_a_region_ends_when_it_raises() -> None:
    """An exception passes through unchanged and closes the region."""
    with pytest.raises(KeyError, match="x"), unstarve.stage("broken"):
        raise KeyError("x")
    assert labels.current() is None


class Named:
    def __getitem__(self, index: int) -> int:
        with unstarve.stage("fetch from the archive"):
            time.sleep(0.002)
            value = index + 1
        return value * 2


def test_reports_use_the_name() -> None:
    """Statements inside a region carry its name into the stages of a report, and cuts inside it work."""
    pytest.importorskip("torch")
    from unstarve.measure import plan
    from unstarve.measure.cuts.observer import Observer
    from unstarve.measure.cuts.server import Server

    observer = Observer()
    assert observer.run(Named.__getitem__, (Named(), 3)) == 8
    names = {node.stage.name: node.address for node in plan.nodes(observer.costs, 2e6)}
    assert "fetch from the archive: time.sleep" in names
    address = names["fetch from the archive: time.sleep"]
    filler = Observer(wanted=[address], limit=1)
    filler.run(Named.__getitem__, (Named(), 3))
    assert Server(filler.pools[address], filler.chains[address], resume=True).run((Named(), 5)) == 8
