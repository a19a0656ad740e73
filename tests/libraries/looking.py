"""What the tool makes of a loader: the stages it finds, the one it suspects, and the cuts that can be served."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, _DatasetKind

from unstarve.judge.stages import named_part
from unstarve.measure import plan
from unstarve.measure.switchboard import Switchboard
from unstarve.measure.worker import COLLATE, Findings, Instruments, untagged
from unstarve.recording import Stage

DEPTH = 4
"""Levels looked into, as in a real run."""


@dataclass(frozen=True)
class Case:
    """A real data set with one stage that costs much more than the others."""

    library: str
    name: str
    make: Callable[..., Any]
    """Gives the data set, or a loader; gets a folder for its files."""
    guilty: str
    """The expensive stage, in the library's terms."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Look:
    """What was found."""

    stages: tuple[str, ...]
    """Names, in pipeline order."""
    guilty: str
    """The first suspect, or its part for which all of it is served; empty if there is none."""
    served: tuple[str, ...]
    """Stages whose values could be kept and served."""
    refused: tuple[str, ...]
    """Why others could not, or why the data set stays whole."""


def look(subject: Any) -> Look:
    """Take apart what `subject`, a data set or a loader, does for its samples."""
    loader = subject if isinstance(subject, DataLoader) else DataLoader(subject, batch_size=4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker
    gc.disable()  # a whole suite's objects take a second to look through, which would be some sample's
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    try:
        return _Looker(loader).look()
    finally:
        torch.set_num_threads(threads)
        gc.enable()


def _named(stage: Stage, stages: list[Stage]) -> str:
    """What the judge names for a stage that is served: of a choice or a loop the part that takes most of it."""
    part = named_part(stages, stage)
    return stage.name if part is None else part.name


class _Looker:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._board = Switchboard()
        create = _DatasetKind.create_fetcher
        fetcher = create(
            loader._dataset_kind, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
        )
        self._instruments = Instruments(self._board, 0).attach(fetcher)
        self._indices = self._endless()
        self._pass = 0

    def look(self) -> Look:
        opened: list[Any] = []
        for level in range(DEPTH + 1):
            findings = self._watch(samples=6, skip=2 if level == 0 else 0, opened=opened)
            costs = plan.merge([{a: cost for a, cost in findings.costs.items() if a[0] != COLLATE}])
            sample_ns = sum(findings.sample_wall_ns) / len(findings.sample_wall_ns)
            new = plan.to_open(costs, opened, sample_ns, DEPTH) if costs else []
            if not new:
                break
            opened += new
        nodes = plan.nodes(costs, sample_ns, type(self._loader.dataset).__name__)
        whole = (findings.why_whole,) if findings.why_whole else ()
        if not nodes:
            lines = plan.sampled_stages(findings.lines, findings.sample_wall_ns)
            return Look(tuple(line.name for line in lines), lines[0].name if lines else "", (), whole)
        suspects = plan.suspects(nodes, 1)
        served, refused = self._serve(nodes, opened)
        names = tuple(node.stage.name for node in nodes)
        guilty = _named(suspects[0].stage, [node.stage for node in nodes]) if suspects else ""
        return Look(names, guilty, served, (*whole, *refused))

    def _serve(self, nodes: list[plan.Node], opened: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Fill the cuts that a real run would, and serve each: the names of those that work, and why others do not."""
        wanted = {node.address: node.stage.name for node in plan.suspects(nodes, 4)}
        wanted |= {node.address: node.stage.name for node in plan.cuts_between(nodes, minimum=plan.SUSPECT_SHARE)}
        findings = self._watch(samples=0, skip=0, opened=opened, wanted=list(wanted), limit=4)
        refused = [f"{wanted[a]}: {reason}" for a, reason in findings.refused.items() if a in wanted]
        served = []
        for address, name in wanted.items():
            if findings.kept.get(address) and address not in findings.refused:
                failures = [self._order(mode, address) for mode in ("cut", "knockout")]
                refused += [f"{name}: {failure}" for failure in failures if failure]
                served += [name] if not any(failures) else []
        return tuple(served), tuple(refused)

    def _order(self, mode: str, address: Any) -> str | None:
        self._board.write({"mode": mode, "address": list(address)})
        telemetry = untagged(self._instruments.fetch(next(self._indices)))[1]
        assert telemetry is not None
        return telemetry.failure

    def _watch(self, *, samples: int, skip: int, opened: Any, wanted: Any = (), limit: int = 0) -> Findings:
        self._pass += 1
        order = {"mode": "watch", "pass": self._pass, "samples": samples, "skip": skip, "limit": limit, "aside": False}
        self._board.write({**order, "limit_bytes": 1 << 28, "opened": opened, "wanted": list(wanted)})
        for _ in range(100):
            batch, telemetry = untagged(self._instruments.fetch(next(self._indices)))
            if telemetry is None:
                batch.reraise()
            elif telemetry.findings is not None:
                return telemetry.findings
        raise AssertionError("watching does not come to an end")

    def _endless(self) -> Iterator[Any]:
        if self._loader._dataset_kind == _DatasetKind.Iterable:
            yield from itertools.repeat([None] * (self._loader.batch_size or 1))
        while True:
            yield from self._loader._index_sampler
