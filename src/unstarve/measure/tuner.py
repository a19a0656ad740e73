"""Which loader settings to try in the loop, and for how long: another program on the bench of `experiment`.

Stages, each interleaved in rounds: numbers of workers that the throughput law proposes; single changes to the best of
them (batches ordered further ahead, any order, one thread a worker, pinning); all changes that helped, at once; no workers
at all, where these may be as fast; and the winner against the script's own settings. After every round of a stage the
slower half leaves (successive halving: K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and
hyperparameter optimization", AISTATS 2016).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from unstarve import estimate, law
from unstarve.measure.experiment import Experiment
from unstarve.measure.program import Bench, Give, Options, Program, Step
from unstarve.measure.rungs import HOST, NONE, trial
from unstarve.recording import Note, Settings
from unstarve.tuning import AGAIN, FINAL

ROUNDS = (2, 2, 1, 2, 6)
"""Rounds of the stages at most."""

NARROW = 0.08
"""Width of the winner's interval, as a share of its gain, that is narrow enough."""

ORDER = 1.07
"""What delivery in any order must gain over what keeps the order: the run can no longer be repeated exactly."""

CLOSE = 0.03
"""Settings within this of the best count as equally good; then the cheaper ones are preferred."""


def program(bench: Bench, options: Options) -> Program:
    """The whole search on one loader."""
    return _Tuner(bench, options).run()


def space(own: Settings, *, most_workers: int, can_reorder: bool) -> list[Settings]:
    """All numbers of workers, batches ahead and orders that a search may come to from the script's own settings."""
    bases = [own, *(_with_workers(own, count) for count in range(most_workers + 1))]
    found = dict.fromkeys(bases)
    for base in bases:
        single = _single_changes(base, can_reorder)
        both = [replace(single[0], in_order=single[1].in_order)] if len(single) > 1 else []
        found |= dict.fromkeys(single + both)
    return list(found)


def _with_workers(own: Settings, count: int) -> Settings:
    return replace(own, num_workers=count, prefetch_factor=2)


def _single_changes(base: Settings, can_reorder: bool) -> list[Settings]:
    """Batches ordered further ahead, and the other order of delivery, where these mean anything."""
    if not base.num_workers:
        return []
    found = [replace(base, prefetch_factor=4 if base.prefetch_factor < 4 else 2 * base.prefetch_factor)]
    if can_reorder and base.num_workers > 1:
        found.append(replace(base, in_order=not base.in_order))
    return found


class _Tuner:
    def __init__(self, bench: Bench, options: Options) -> None:
        self._bench = bench
        self._lab = Experiment(bench, options)
        self._own = bench.settings
        self._round = 0
        self._threads = 1

    def run(self) -> Program:
        yield from self._lab.warm_up()
        if not self._bench.has_fleet:  # no loader, no settings
            sentence = (
                "No settings were tried: the loader makes its iterator itself, so they cannot be changed in the loop."
            )
            self._bench.note(Note(id="no-settings", sentence=sentence))
            return
        self._bench.collect_batches(fewest=True)
        self._threads = yield from self._lab.ask_workers()
        if self._bench.has_batches:
            self._lab.add(HOST, "host", {})
        self._lab.add(NONE, "loader", {"mode": "run"})
        yield from self._round_of([])
        yield from self._round_of([])
        counts = self._worker_counts()
        nobody = [settings for settings in counts if not settings.num_workers and settings != self._own]
        base = yield from self._stage([each for each in counts if each not in nobody], ROUNDS[0], 0.45)
        best = yield from self._stage([base, *self._changes(base)], ROUNDS[1], 0.75)
        combined = self._combined(base)
        if combined not in (base, best):
            best = yield from self._stage([best, combined], ROUNDS[2], 0.9)
        if nobody:  # the data set may open its files here now, which is nothing to fork workers from
            best = yield from self._stage([best, *nobody], ROUNDS[3], 0.95)
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
            if self._is_over(share):
                break
            yield from self._round_of(alive, share)
            alive = self._dismiss(alive, [*self._faster_half(alive), self._best([self._own, *candidates])])
        best = self._best([self._own, *candidates])
        self._dismiss(alive, [best])
        return best

    def _round_of(self, alive: Sequence[Settings], share: float = 1.0) -> Program:
        number, self._round = self._round, self._round + 1
        if number == 0 and self._bench.has_batches:
            yield from self._lab.block(HOST.id, number)
        yield from self._lab.block(NONE.id, number)
        for settings in alive:
            if self._is_over(share):
                return
            rung = trial(settings)
            self._lab.add(rung, "loader", _order(settings))
            yield from self._lab.block(rung.id, number)

    def _is_over(self, share: float) -> bool:
        return self._lab.elapsed_s() > share * self._lab.budget_s

    def _settle(self, best: Settings) -> Program:
        """The winner against the script's own settings, on fresh blocks: the best of many looks too good."""
        rung = replace(trial(best), id=FINAL, label=f"{best}{AGAIN}")
        self._lab.add(rung, "loader", _order(best))
        for number in range(self._round, self._round + ROUNDS[4]):
            yield from self._lab.block(NONE.id, number)
            yield from self._lab.block(FINAL, number)
            if rung not in self._lab.planned:  # its workers failed
                return
            gain = estimate.contrast(self._lab.blocks, rung.id, NONE.id)
            is_clear = gain is not None and (gain.high - gain.low) / gain.value < NARROW
            if (is_clear and number > self._round) or self._is_over(1.0):
                return

    # Candidates ----------------------------------------------------------------------------------

    def _worker_counts(self) -> list[Settings]:
        """What the law proposes, the most first."""
        own = self._own.num_workers
        loop = law.of_blocks(self._lab.blocks, own, self._bench.cores)
        rates = estimate.rates(self._lab.blocks)
        rate = rates[NONE.id].value if NONE.id in rates else loop.rate(own)
        most, reason = self._bench.most_workers, self._bench.why_no_more_workers
        if reason is not None and most < loop.enough_workers():
            which = f"More workers than {most}" if most else "Worker processes"
            self._bench.note(Note(id="few-workers", sentence=f"{which} were not tried: {reason}."))
        counts = law.worker_counts(loop, own, rate=rate, most=most)
        return [_with_workers(self._own, count) for count in reversed(counts)]

    def _changes(self, best: Settings) -> list[Settings]:
        if not best.num_workers:
            return []
        found = _single_changes(best, self._bench.can_reorder)
        if self._threads > 1:
            found.append(replace(best, worker_threads=1))
        if self._bench.can_pin:
            found.append(replace(best, pin_memory=not best.pin_memory))
        return found

    def _combined(self, base: Settings) -> Settings:
        """The best number of workers with every single change that was shown to help."""
        rates = self._rates()
        changed = base
        for settings in self._changes(base):
            needed = ORDER if self._costs_order(settings) else 1 + CLOSE
            if base in rates and rates.get(settings, 0.0) >= rates[base] * needed:
                different = {
                    name: getattr(settings, name) for name in _CHANGED if getattr(settings, name) != getattr(base, name)
                }
                changed = replace(changed, **different)
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
        """The fastest of the candidates, or a cheaper one that is as good; any order only where it gains enough."""
        rates = {settings: rate for settings, rate in self._rates().items() if settings in candidates}
        ordered = self._cheapest({s: rate for s, rate in rates.items() if not self._costs_order(s)})
        return self._cheapest(rates) if max(rates.values()) >= ORDER * rates[ordered] else ordered

    def _cheapest(self, rates: Mapping[Settings, float]) -> Settings:
        """The cheapest of those that are about as fast as the fastest."""
        top = max(rates.values())
        return min((s for s, rate in rates.items() if rate >= top * (1 - CLOSE)), key=lambda s: _price(s, self._own))

    def _costs_order(self, settings: Settings) -> bool:
        return self._own.in_order and not settings.in_order

    def _faster_half(self, alive: Sequence[Settings]) -> list[Settings]:
        rates = self._rates()
        ranked = sorted(alive, key=lambda settings: -rates.get(settings, 0.0))
        return ranked[: math.ceil(len(ranked) / 2)]

    def _dismiss(self, alive: Sequence[Settings], kept: Sequence[Settings]) -> list[Settings]:
        """End the workers of all but the kept; returns these."""
        self._bench.use(None)  # nobody can be dismissed while at work
        for settings in alive:
            if settings not in kept:
                self._bench.dismiss(settings)
        return [settings for settings in alive if settings in kept]


_CHANGED = ("prefetch_factor", "in_order", "worker_threads", "pin_memory")
"""What is changed beside the number of workers."""


def _price(settings: Settings, own: Settings) -> tuple[int, int, int]:
    """What the settings cost beside time: processes, memory for batches ahead, differences from the script."""
    changes = sum(getattr(settings, name) != getattr(own, name) for name in _CHANGED)
    return settings.num_workers, settings.prefetch_factor, changes


def _order(settings: Settings) -> dict[str, object]:
    order: dict[str, object] = {"mode": "run"}
    if settings.worker_threads is not None:
        order["worker_threads"] = settings.worker_threads
    return order


__all__ = ["program", "space"]
