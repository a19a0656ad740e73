"""Which loader settings to try in the loop, and for how long: another program on the bench of `experiment`.

Three stages, each interleaved in rounds: numbers of workers that the throughput law proposes; single changes to the
best of them (batches ordered further ahead, any order, one thread a worker, pinning); and the winner against the
script's own settings. After every round of a stage the slower half leaves (successive halving: K. Jamieson and
A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

from unstarve import estimate, law
from unstarve.measure.experiment import HOST, NONE, Bench, Experiment, Give, Options, Program, Step, trial
from unstarve.recording import Settings
from unstarve.tuning import FINAL

ROUNDS = (2, 2, 6)
"""Rounds of the three stages at most."""

NARROW = 0.08
"""Width of the winner's interval, as a share of its gain, that is narrow enough."""

CLOSE = 0.03
"""Settings within this of the best count as equally good; then the cheaper ones are preferred."""


def program(bench: Bench, options: Options) -> Program:
    """The whole search on one loader."""
    return _Tuner(bench, options).run()


class _Tuner:
    def __init__(self, bench: Bench, options: Options) -> None:
        self._bench = bench
        self._lab = Experiment(bench, options)
        self._own = bench.settings
        self._round = 0
        self._threads = 1

    def run(self) -> Program:
        yield from self._lab.warm_up()
        self._bench.collect_batches(fewest=True)
        self._threads = yield from self._lab.ask_workers()
        if self._bench.has_batches:
            self._lab.add(HOST, "host", {})
        self._lab.add(NONE, "loader", {"mode": "run"})
        yield from self._round_of([])
        yield from self._round_of([])
        best = yield from self._stage(self._worker_counts(), ROUNDS[0], 0.45)
        best = yield from self._stage([best, *self._changes(best)], ROUNDS[1], 0.75)
        best = self._combined(best)
        if best != self._own:
            yield from self._settle(best)
        self._bench.use(None)

    # Stages --------------------------------------------------------------------------------------

    def _stage(
        self, candidates: Sequence[Settings], rounds: int, share: float
    ) -> Generator[Give, Step | None, Settings]:
        """Try the candidates for some rounds, or until this share of the budget is spent; returns the best."""
        alive = [settings for settings in dict.fromkeys(candidates) if settings != self._own]
        for _ in range(rounds):
            yield from self._round_of(alive, share)
            alive = self._faster_half(alive)
        return self._best([self._own, *candidates])

    def _round_of(self, alive: Sequence[Settings], share: float = 1.0) -> Program:
        number, self._round = self._round, self._round + 1
        if number == 0 and self._bench.has_batches:
            yield from self._lab.block(HOST.id, number)
        yield from self._lab.block(NONE.id, number)
        for settings in alive:
            if self._lab.elapsed_s() > share * self._lab.budget_s:
                return
            rung = trial(settings)
            self._lab.add(rung, "loader", _order(settings))
            yield from self._lab.block(rung.id, number)

    def _settle(self, best: Settings) -> Program:
        """The winner against the script's own settings, on fresh blocks: the best of many looks too good."""
        rung = replace(trial(best), id=FINAL, label=f"{best}, again")
        self._lab.add(rung, "loader", _order(best))
        for number in range(self._round, self._round + ROUNDS[2]):
            yield from self._lab.block(NONE.id, number)
            yield from self._lab.block(FINAL, number)
            gain = estimate.contrast(self._lab.blocks, rung.id, NONE.id)
            is_clear = gain is not None and (gain.high - gain.low) / gain.value < NARROW
            if (is_clear and number > self._round) or self._lab.elapsed_s() > self._lab.budget_s:
                return

    # Candidates ----------------------------------------------------------------------------------

    def _worker_counts(self) -> list[Settings]:
        loop = law.of_blocks(self._lab.blocks, self._own.num_workers, self._bench.cores)
        counts = law.worker_counts(loop, self._own.num_workers, most=self._bench.most_workers)
        return [replace(self._own, num_workers=count, prefetch_factor=2) for count in counts]

    def _changes(self, best: Settings) -> list[Settings]:
        if not best.num_workers:
            return []
        found = [replace(best, prefetch_factor=4 if best.prefetch_factor < 4 else 2 * best.prefetch_factor)]
        if self._bench.can_reorder and best.num_workers > 1:
            found.append(replace(best, in_order=not best.in_order))
        if self._threads > 1:
            found.append(replace(best, worker_threads=1))
        if self._bench.can_pin:
            found.append(replace(best, pin_memory=not best.pin_memory))
        return found

    def _combined(self, best: Settings) -> Settings:
        """The best number of workers with every single change that was shown to help."""
        base = self._rates().get(best)
        changed = best
        for settings, rate in self._rates().items():
            if base is None or settings.num_workers != best.num_workers or rate < base * (1 + CLOSE):
                continue
            for name in ("prefetch_factor", "in_order", "worker_threads", "pin_memory"):
                if getattr(settings, name) != getattr(best, name):
                    changed = replace(changed, **{name: getattr(settings, name)})
        return changed

    def _rates(self) -> dict[Settings, float]:
        """Speed of everything tried, relative to the script's own settings in the same rounds."""
        found = {self._own: 1.0}
        for rung in self._lab.planned:
            gain = estimate.contrast(self._lab.blocks, rung.id, NONE.id) if rung.settings is not None else None
            if gain is not None and rung.settings is not None and rung.id != FINAL:
                found[rung.settings] = gain.value
        return found

    def _best(self, candidates: Sequence[Settings]) -> Settings:
        """The fastest of the candidates, or a cheaper one that is as good."""
        rates = {settings: rate for settings, rate in self._rates().items() if settings in candidates}
        top = max(rates.values())
        return min((s for s, rate in rates.items() if rate >= top * (1 - CLOSE)), key=lambda s: _price(s, self._own))

    def _faster_half(self, alive: list[Settings]) -> list[Settings]:
        rates = self._rates()
        ranked = sorted(alive, key=lambda settings: -rates.get(settings, 0.0))
        kept = ranked[: math.ceil(len(ranked) / 2)]
        self._bench.use(None)  # nobody can be dismissed while at work
        for settings in ranked[len(kept) :]:
            self._bench.dismiss(settings)
        return kept


def _price(settings: Settings, own: Settings) -> tuple[int, int, int]:
    """What the settings cost beside time: processes, memory for batches ahead, differences from the script."""
    changes = sum(
        getattr(settings, name) != getattr(own, name) for name in ("in_order", "worker_threads", "pin_memory")
    )
    return settings.num_workers, settings.prefetch_factor, changes


def _order(settings: Settings) -> dict[str, object]:
    order: dict[str, object] = {"mode": "run"}
    if settings.worker_threads is not None:
        order["worker_threads"] = settings.worker_threads
    return order


__all__ = ["program"]
