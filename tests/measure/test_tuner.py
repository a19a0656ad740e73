"""The search among loader settings, on modelled pipelines: no torch worker, no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from scripted import Bench, Pipeline

from unstarve.law import Loop
from unstarve.measure import tuner
from unstarve.measure.program import Options
from unstarve.recording import Settings
from unstarve.tuning import FINAL

BUDGET_S = 40.0
CPU_BOUND = Pipeline(Loop(step_s=0.01, fetch_s=0.08, cpu_s=0.08, cores=8, main_cores=0.5), Settings(num_workers=2))
PIPELINES = {
    "cpu-bound": CPU_BOUND,
    "wait-bound": Pipeline(Loop(step_s=0.02, fetch_s=0.2, cpu_s=0.01, cores=4), Settings(num_workers=2)),
    "step-bound": Pipeline(Loop(step_s=0.05, fetch_s=0.02, cpu_s=0.02, cores=4), Settings(num_workers=2)),
    "no workers": Pipeline(Loop(step_s=0.03, fetch_s=0.06, cpu_s=0.06, cores=4), Settings(num_workers=0)),
    "too many workers": Pipeline(Loop(step_s=0.02, fetch_s=0.06, cpu_s=0.06, cores=4), Settings(num_workers=16)),
    "slow rare batches": Pipeline(
        Loop(step_s=0.02, fetch_s=0.05, cpu_s=0.01, cores=4), Settings(num_workers=4), stalls=0.4
    ),
    "dear transport": Pipeline(
        Loop(step_s=0.004, fetch_s=0.006, cpu_s=0.006, cores=4), Settings(num_workers=2), receiving_s=0.015
    ),
    "tiny samples": Pipeline(
        Loop(step_s=0.0006, fetch_s=0.0002, cpu_s=0.0002, cores=4), Settings(num_workers=4), receiving_s=0.0006
    ),
}


TWO_FAULTS = replace(PIPELINES["slow rare batches"], stalls=0.3, bursts=0.15)


def search(bench: Bench, budget_s: float = BUDGET_S) -> Settings:
    """The settings that the whole search settles on."""
    assert bench.drive(tuner.program(bench, Options(budget_s=budget_s)))
    final = [rung.settings for rung in bench.planned if rung.id == FINAL]
    return final[0] if final and final[0] is not None else bench.settings


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", PIPELINES)
def test_the_search_finds_settings_close_to_the_best(name: str, seed: int) -> None:
    """Its choice reaches 95 % of what the best of a whole grid would, at a quarter of the grid's trials or less."""
    pipeline = PIPELINES[name]
    bench = Bench(pipeline, seed=seed)
    chosen = search(bench)
    grid = pipeline.grid(bench.most_workers)
    assert pipeline.rate(chosen) >= 0.95 * max(map(pipeline.rate, grid))
    assert len(bench.started) <= len(grid) / 4


@dataclass(frozen=True)
class OneByOne(Pipeline):
    """A loop that loses a share of its time to order, however far ahead batches are ordered."""

    lost: float = 0.0
    """That share."""

    def rate(self, settings: Settings) -> float:
        return super().rate(settings) * (1 - self.lost if settings.in_order else 1.0)


@pytest.mark.parametrize(("lost", "is_worth_it"), [(0.04, False), (0.085, True)])
def test_order_is_given_up_for_what_it_must_gain_and_no_more(lost: float, is_worth_it: bool) -> None:
    """What keeps the order is not also forgiven the little by which settings may differ and still be as good."""
    pipeline = OneByOne(CPU_BOUND.loop, CPU_BOUND.own, lost=lost)
    chosen = search(Bench(pipeline, noise=0.003))
    assert chosen.in_order is not is_worth_it
    assert pipeline.rate(chosen) >= 0.95 * max(map(pipeline.rate, pipeline.grid(16)))


@pytest.mark.parametrize("name", PIPELINES)
def test_the_search_stays_within_its_space(name: str) -> None:
    """Nothing is tried that an exhaustive grid over the space would not have, which has each settings once."""
    bench = Bench(PIPELINES[name])
    search(bench)
    grid = tuner.space(bench.settings, most_workers=bench.most_workers, can_reorder=True)
    assert set(bench.started) <= set(grid)
    assert len(grid) == len(set(grid))


@pytest.mark.parametrize(("can_reorder", "count"), [(True, 1 + 2 + 3 * 4), (False, 1 + 4 * 2)])
def test_the_space_leaves_out_what_means_nothing(can_reorder: bool, count: int) -> None:
    """Without workers nothing is ordered ahead, a single worker has but one order, and torch may know no other."""
    grid = tuner.space(Settings(num_workers=2), most_workers=4, can_reorder=can_reorder)
    assert len(grid) == count
    assert {settings.num_workers for settings in grid} == {0, 1, 2, 3, 4}
    assert len({settings for settings in grid if settings.num_workers == 1}) == 2


@pytest.mark.parametrize("receiving_s", [0.015, 0.005])
def test_no_workers_are_tried_behind_all_others(receiving_s: float) -> None:
    """The data set may open its files in the loop's own process then, from which all workers are forked; also where some
    workers are better than none, and changes of theirs are tried."""
    bench = Bench(replace(PIPELINES["dear transport"], receiving_s=receiving_s))
    search(bench)
    counts = [settings.num_workers for settings in bench.started]
    assert 0 in counts
    assert counts.index(0) == len(counts) - 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_changes_that_help_singly_are_tried_together(seed: int) -> None:
    """Where both more batches ahead and any order help, the search settles on both, after a trial of both."""
    bench = Bench(TWO_FAULTS, seed=seed)
    chosen = search(bench)
    assert not chosen.in_order
    assert chosen.prefetch_factor == 4
    assert f"trial:{chosen}" in {block.rung for block in bench.blocks}


@pytest.mark.parametrize("name", PIPELINES)
def test_nothing_is_tried_twice(name: str) -> None:
    """Workers start once for each settings, and no settings get two blocks in a round; the script's own need no trial."""
    bench = Bench(PIPELINES[name])
    search(bench)
    assert set(bench.started.values()) <= {1}
    assert bench.settings not in bench.started
    assert max(Counter((block.rung, block.round) for block in bench.blocks).values()) == 1


@pytest.mark.parametrize("name", PIPELINES)
def test_losers_are_dismissed(name: str) -> None:
    """At the end the script's own workers are at work, and none rest but the winner's."""
    bench = Bench(PIPELINES[name])
    chosen = search(bench)
    assert bench.used is None
    assert set(bench.resting) <= {chosen}


@pytest.mark.parametrize("budget_s", [3.0, 10.0, 40.0, 200.0])
@pytest.mark.parametrize("name", ["cpu-bound", "too many workers"])
def test_the_budget_bounds_the_search(name: str, budget_s: float) -> None:
    """It ends about when its time is over, with blocks of the script's own settings at the least."""
    bench = Bench(PIPELINES[name])
    search(bench, budget_s)
    assert bench.now_ns / 1e9 < 1.4 * budget_s + 2
    assert sum(block.rung == "none" for block in bench.blocks) >= 2


def test_each_stage_is_interleaved_with_the_scripts_own_settings() -> None:
    """Every round in which something is tried has a block of the script's own settings to be paired with."""
    bench = Bench(CPU_BOUND)
    search(bench)
    own = {block.round for block in bench.blocks if block.rung == "none"}
    assert {block.round for block in bench.blocks} == own


def test_settings_whose_workers_cannot_start_are_passed_over() -> None:
    """The search goes on without them, and settles on something that works."""
    refused = {Settings(num_workers=count) for count in (7, 8, 9)}
    bench = Bench(CPU_BOUND, refused=set(refused))
    chosen = search(bench)
    assert chosen not in refused
    assert CPU_BOUND.rate(chosen) > CPU_BOUND.rate(CPU_BOUND.own)
    assert not {rung.settings for rung in bench.planned} & refused


def test_where_nothing_can_be_tried_the_script_keeps_its_settings() -> None:
    """If no other workers can be had, the search ends with the script's own and without a final comparison."""

    class Alone(Bench):
        def use(self, settings: Settings | None) -> bool:
            return settings is None

    bench = Alone(CPU_BOUND)
    assert search(bench) == CPU_BOUND.own
    assert {block.rung for block in bench.blocks} == {"host", "none"}


def test_a_trial_that_dies_is_not_measured_on_the_scripts_own_workers() -> None:
    """When workers on trial fail and the script's own step in, their steps are not taken for the trial's."""
    dying = Settings(num_workers=8)
    bench = Bench(CPU_BOUND, dying={dying})
    chosen = search(bench)
    assert dying in bench.started
    assert chosen != dying
    assert not [block for block in bench.blocks if block.rung == f"trial:{dying}"]


def test_a_winner_that_dies_in_the_final_ends_the_search() -> None:
    """The final needs both sides; where the winner's workers fail there, the search ends without an error."""

    class Fading(Bench):
        def block(self, block) -> None:
            super().block(block)
            if block.rung == FINAL:
                self.refused.add(self.used)

    bench = Fading(CPU_BOUND, noise=0.3)
    search(bench)
    assert sum(block.rung == FINAL for block in bench.blocks) == 1


def test_an_iterable_that_is_no_loader_is_not_tuned() -> None:
    """Where there are no settings to change, nothing is tried."""
    bench = Bench(CPU_BOUND)
    bench.has_fleet = False
    assert search(bench) == CPU_BOUND.own
    assert not bench.started
    assert [note.id for note in bench.notes] == ["no-settings"]


@pytest.mark.parametrize(("name", "most", "is_told"), [("cpu-bound", 3, True), ("cpu-bound", 16, False), ("step-bound", 3, False), ("no workers", 0, True)])  # fmt: skip
def test_a_limit_is_told_where_more_workers_were_worth_trying(name: str, most: int, is_told: bool) -> None:
    """What keeps workers from being tried is of interest only where the law expects something of them."""
    bench = Bench(PIPELINES[name], most_workers=most, why_no_more_workers="there is no room")
    search(bench)
    assert max((settings.num_workers for settings in bench.started), default=0) <= most
    assert [note.sentence.endswith("were not tried: there is no room.") for note in bench.notes] == [True] * is_told
