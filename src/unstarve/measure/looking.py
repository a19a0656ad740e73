"""Looks at a loop: what the code of its workers costs, with values kept at its cut points, and where its body spends its time."""

from __future__ import annotations

import linecache
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from unstarve import estimate
from unstarve.measure import plan
from unstarve.measure.blocks import LONGEST_BLOCK, Blocks
from unstarve.measure.cuda import DeviceProfile, SyncWatch
from unstarve.measure.cuts.split import Address
from unstarve.measure.heads import WHOLE, Repeats
from unstarve.measure.program import Bench, Give, Options, Program, Step
from unstarve.measure.reorder import Orders
from unstarve.measure.rungs import COLLATED, DEVICE, HOST, NO_LOADING, RAW, SAMPLES
from unstarve.measure.worker import COLLATE, Findings
from unstarve.recording import BodyLine, Head, Note, Stage

SAMPLED_S = 0.5
"""Seconds for which lines of the loop or of its sampler are sampled."""

WATCH_PATIENCE_S = 5.0
"""Workers that have not reported what they saw after so long, and after several batches each, are not waited for."""


Probe = TypeVar("Probe", SyncWatch, DeviceProfile)


class Looking(Blocks):
    """Blocks of a loop whose workers are looked into, so that rungs can be cut there."""

    def __init__(self, bench: Bench, options: Options) -> None:
        super().__init__(bench, options)
        self._pass = 0
        self._is_sampler_seen = False
        self._findings: list[Findings] = []
        self._fleet_findings: list[Findings] = []
        self._orders: Orders | None = None
        self._repeats: Repeats | None = None
        self._wanted: list[Address] = []
        self._opened: list[Address] = []
        self._addresses: dict[str, Address] = {}
        self._nodes: list[plan.Node] = []
        self._body_lines: list[BodyLine] = []

    def _take(self, findings: Findings | Orders | Repeats) -> None:
        if isinstance(findings, Orders):
            self._orders = findings
        elif isinstance(findings, Repeats):
            self._repeats = findings
        else:
            self._findings.append(findings)

    # The workers ---------------------------------------------------------------------------------

    def _look(self) -> Program:
        """Time samples, going deeper where the time goes, until statements or foreign calls are reached."""
        last = 2 * self._options.depth  # a loop in each call
        for level in range(last + 1):
            yield from self._watch(samples=6, skip=2 if level == 0 else 0, limit=0, wanted=[])
            costs = self._costs()
            call_ns = self._call_ns()
            if level == last or self.elapsed_s() > 0.4 * self.budget_s:
                break
            new = plan.to_open(costs, self._opened, call_ns, self._options.depth) if costs else []
            new += self._to_open_in_collate()
            if not new:
                break
            self._opened += new
        whole_ns = self._call_ns() + self._collation_ns() * self._made_together
        self._nodes = plan.nodes(self._costs(), whole_ns, self._bench.dataset_name)
        self._bench.stages(self._stages())
        self._bench.batch_size(self._batch_size)

    def _watch(
        self, *, samples: int, skip: int, limit: int, wanted: Sequence[Address], limit_bytes: int = 0
    ) -> Program:
        self._pass += 1
        first = len(self._findings)
        is_aside = self._is_slow and self._bench.has_batches and self._bench.workers > 0
        self._issue(
            {
                "mode": "watch", "pass": self._pass, "samples": samples, "skip": skip, "limit": limit,
                "limit_bytes": limit_bytes, "opened": self._opened, "wanted": list(wanted),
                "aside": is_aside,
            }
        )  # fmt: skip
        began = self._bench.clock_ns()
        most = 3 * max(1, self._bench.workers) + 16
        for position in range(100 * most):
            yield from self._give("loader")
            if len(self._findings) - first >= max(1, self._bench.workers):
                break
            is_late = self._bench.clock_ns() - began > WATCH_PATIENCE_S * 1e9
            if position + 1 >= most and (is_late or not is_aside):
                break
        self._fleet_findings = self._findings[first:]

    def _costs(self, *, of_collate: bool = False) -> dict[Address, Any]:
        """Costs by address, of all passes so far; those inside the collate function without their first number."""
        first = 1 if of_collate else 0
        passes: dict[int, list[dict[Address, Any]]] = {}
        for findings in self._findings:
            part = {a[first:]: cost for a, cost in findings.costs.items() if (a[0] == COLLATE) is of_collate}
            if part:
                passes.setdefault(findings.number, []).append(part)
        return plan.unperturbed([parts for _, parts in sorted(passes.items())])

    def _to_open_in_collate(self) -> list[Address]:
        if self._collate_share() < 0.1:
            return []
        opened = [address[1:] for address in self._opened if address[0] == COLLATE]
        costs = self._costs(of_collate=True)
        found = plan.to_open(costs, opened, self._collate_ns(), self._options.depth) if costs else []
        return [(COLLATE, *address) for address in found]

    def _collate_ns(self) -> float:
        return estimate.mean([wall for findings in self._first_collations() for wall in findings.collate_wall_ns])

    def _collation_ns(self) -> float:
        """A sample's part of collating its batch."""
        return self._collate_ns() / self._batch_size

    @property
    def _batch_size(self) -> int:
        """Samples in a batch on average, as the workers saw it."""
        return round(estimate.mean([f.batch_size for f in self._findings if f.batch_size])) or 1

    def _first_collations(self) -> list[Findings]:
        """What the first pass saw of collation: later ones look into it, and slow it down."""
        seen = [findings for findings in self._findings if findings.collate_wall_ns]
        return [findings for findings in seen if findings.number == seen[0].number]

    @property
    def _made_together(self) -> int:
        """Samples that one call of the data set makes, and that what was watched is of: a batch by `__getitems__`, else one."""
        return self._batch_size if any(findings.granularity == "batch" for findings in self._findings) else 1

    def _call_ns(self) -> float:
        """What one call of the data set takes."""
        return estimate.mean([wall for findings in self._findings for wall in findings.sample_wall_ns])

    def _sample_ns(self) -> float:
        """A sample's part of that."""
        return self._call_ns() / self._made_together

    def _stages(self) -> list[Stage]:
        together = self._made_together
        stages = [plan.shared_out(node.stage, together) for node in self._nodes]
        samples = [findings for findings in self._findings if findings.sample_wall_ns]
        walls = tuple(wall // together for findings in samples for wall in findings.sample_wall_ns)
        cpus = tuple(cpu // together for findings in samples for cpu in findings.sample_cpu_ns)
        reason = next((findings.why_whole for findings in self._findings if findings.why_whole), None)
        if not stages and walls:
            stages.append(
                plan.fixed_stage("code", "dataset", wall_ns=walls, cpu_ns=cpus, samples=len(walls), why_whole=reason)
            )
            lines = next((findings.lines for findings in reversed(self._findings) if findings.lines), ())
            stages += plan.sampled_stages(lines, walls)
        first = self._first_collations()
        collate_walls = tuple(wall for findings in first for wall in findings.collate_wall_ns)
        collate_cpus = tuple(cpu for findings in first for cpu in findings.collate_cpu_ns)
        size = self._batch_size
        if collate_walls:
            collate = plan.fixed_stage(
                "collate", self._bench.collate_name, source=self._bench.collate_source, samples=len(collate_walls),
                wall_ns=collate_walls, cpu_ns=collate_cpus,
            )  # fmt: skip
            stages.append(plan.shared_out(collate, size))
            stages += plan.collate_stages(self._costs(of_collate=True), self._collate_ns(), size)
        if self._bench.workers:
            stages.append(plan.fixed_stage("ipc", "transport from the workers"))
        return stages

    def ask_workers(self) -> Generator[Give, Step | None, int]:
        """The most threads that a library uses in one of the workers; 1 where nobody can be asked."""
        if self._bench.has_fleet and self._bench.workers:
            yield from self._watch(samples=1, skip=0, limit=0, wanted=[])
        return max((threads_of(findings.environment) for findings in self._findings), default=1)

    # Filling -------------------------------------------------------------------------------------

    def _choose_cuts(self) -> None:
        cuts = plan.cuts_between(self._nodes, minimum=plan.SUSPECT_SHARE)
        self._addresses = {node.stage.id: node.address for node in cuts}
        for node in plan.suspects(self._nodes, 4):
            self._addresses[node.stage.id] = node.address
        raw = plan.raw_cut(self._costs(), self._nodes)
        if raw is not None:
            self._addresses["raw"] = raw
        self._wanted = list(dict.fromkeys(self._addresses.values()))

    def _fill(self) -> Program:
        """Fill the pools of the present workers; again for every new fleet."""
        if self._filled_fleet == self._bench.fleet:
            return
        limit_bytes = self._bench.pool_bytes // max(1, len(self._wanted) + 2)
        for _ in range(3):
            fleet = self._bench.fleet
            yield from self._watch(samples=0, skip=0, limit=16, wanted=self._wanted, limit_bytes=limit_bytes)
            if fleet == self._bench.fleet:
                break
        self._filled_fleet = self._bench.fleet
        self._note_refusals()

    def _note_refusals(self) -> None:
        refused = {address: reason for findings in self._fleet_findings for address, reason in findings.refused.items()}
        kept: dict[Address, int] = {}
        for findings in self._fleet_findings:
            for address, count in findings.kept.items():
                kept[address] = min(kept.get(address, count), count)
        names = {node.stage.id: node.stage.name for node in self._nodes}
        for ident, address in list(self._addresses.items()):
            if address in refused or not kept.get(address):
                reason = refused.get(address, "it is not reached by every sample, or what follows it fails")
                self._bench.note(
                    Note(id="cut-refused", sentence=f"No rung after “{names.get(ident, ident)}”: {reason}.")
                )
                del self._addresses[ident]
        for address, rung in (((-1,), SAMPLES), ((-2,), COLLATED)):
            if not kept.get(address):
                self._failed.add(rung.id)
                reason = refused.get(address, "no value could be kept")
                self._bench.note(Note(id="cut-refused", sentence=f"No rung “{rung.label}”: {reason}."))

    def _collate_share(self) -> float:
        whole = self._sample_ns() * self._batch_size
        return self._collate_ns() / whole if whole else 0.0

    def _chain(self) -> list[plan.Node]:
        """The stages after which values are kept, in pipeline order."""
        cuts = plan.cuts_between(self._nodes, minimum=plan.SUSPECT_SHARE)
        return [node for node in cuts if node.stage.id in self._addresses]

    @property
    def _one_workers_bytes(self) -> int:
        """Memory for values that only one of the workers keeps."""
        return self._bench.pool_bytes * max(1, self._bench.workers)

    def _heads(self) -> list[Head]:
        """The heads of the pipeline as the worker saw them, the shortest first."""
        raw = self._addresses.get("raw")
        ends: list[tuple[str, Address, str | None]] = []
        for node in self._chain():
            address = self._addresses[node.stage.id]
            ends.append((RAW.id if address == raw else plan.cut_id(node), address, node.stage.id))
        if raw is not None and all(address != raw for _, address, _ in ends):
            after = next((node.stage.id for node in self._nodes if node.address == raw), None)
            ends.append((RAW.id, raw, after))
        seen = self._repeats.found if self._repeats is not None else {}
        return [
            Head(
                rung=rung,
                after=after,
                is_repeatable=seen[address].is_repeatable,
                samples=seen[address].samples,
                bytes_per_sample=seen[address].content_bytes,
                is_seeded=seen[address].is_seeded,
            )
            for rung, address, after in [*sorted(ends, key=lambda end: end[1]), (SAMPLES.id, WHOLE, None)]
            if address in seen
        ]

    # The loop and its sampler --------------------------------------------------------------------

    def _sample_body(self) -> Program:
        """See which lines of the loop body take its time and wait for the device, over unmeasured steps from cache."""
        if HOST.id not in self._rungs:
            return
        source = "device" if DEVICE.id in self._rungs else "host"
        sampler, watch = self._bench.body_sampler(), self._started(self._bench.sync_watch())
        sampler.start()
        try:
            steps = yield from self._feed(source, most=400, seconds=SAMPLED_S)
        finally:
            lines = sampler.stop()
            if watch is not None:
                watch.stop()
        self._body_lines = with_syncs(lines, watch.places if watch is not None else {}, steps)
        self._bench.body(self._body_lines)
        if source == "device":
            yield from self._profile_device()
        self._bench.audit()

    def _feed(self, source: str, *, most: int, seconds: float) -> Generator[Give, Step | None, int]:
        """Some steps from cache, at least two, until the whole ones have taken so many seconds; how many. What lies between
        epochs is none of them, and may take much longer."""
        began, looped_ns, steps = self._bench.clock_ns(), 0, 0
        while steps < most and (steps < 2 or looped_ns < seconds * 1e9):
            step = yield from self._give(source)
            looped_ns += step.wait_ns + step.body_ns if step.is_whole else 0
            steps += 1
            if steps >= 2 and self._bench.clock_ns() - began > LONGEST_BLOCK * 1e9:
                break
        return steps

    def _look_at_sampler(self) -> Program:
        """See once which lines of the sampler take its time, if it costs the loop something, over unmeasured steps in which
        nothing is made."""
        if self._is_sampler_seen or self._ratio(HOST.id, NO_LOADING.id) <= 1 + self._options.threshold / 2:
            return
        self._is_sampler_seen = True
        self._issue({"mode": "idle"})
        began = self._bench.clock_ns()
        watch = self._bench.sampler_watch()
        watch.start()
        try:
            while self._bench.clock_ns() - began < SAMPLED_S * 1e9:
                yield from self._give("loader")
        finally:
            self._bench.sampler_lines(watch.stop())

    def _profile_device(self) -> Program:
        """See how much of a step fed from the device the device computes."""
        yield from self._give("device")
        profile = self._started(self._bench.device_profile())
        if profile is None:
            return
        try:
            yield from self._feed("device", most=50, seconds=0.3)
        finally:
            busy = self._stopped(profile)
        if busy:
            self._bench.device_busy(busy)

    def _started(self, probe: Probe | None) -> Probe | None:
        """The probe, at work; None where it cannot work: then it steps aside."""
        try:
            if probe is not None:
                probe.start()
        except Exception as error:
            self._bench.note(Note(id="probe-failed", sentence=f"{type(probe).__name__} could not start: {error}."))
            return None
        return probe

    def _stopped(self, probe: DeviceProfile) -> float | None:
        try:
            return probe.stop()
        except Exception as error:
            self._bench.note(Note(id="probe-failed", sentence=f"{type(probe).__name__} failed: {error}."))
            return None


def with_syncs(lines: Sequence[BodyLine], places: Mapping[tuple[str, int], int], steps: int) -> list[BodyLine]:
    """The lines with how often each waited for the device in a step; lines that only wait are added."""
    counts = {f"{filename}:{number}": count / steps for (filename, number), count in places.items()}
    found = [replace(line, syncs=counts.pop(line.source, 0.0)) for line in lines]
    for source, count in counts.items():
        filename, _, number = source.rpartition(":")
        text = linecache.getline(filename, int(number)).strip()
        found.append(BodyLine(source=source, text=text, wall_fraction=0.0, cpu_fraction=0.0, syncs=count))
    return found


def threads_of(facts: Mapping[str, Any]) -> int:
    """The most threads that a library with a setting for it may use in a worker.

    Those of BLAS and OpenMP count where threads work, and not so many that they must be somebody else's.
    """
    own, in_pools, working = (facts.get(name, 0) for name in ("threads", "pool_threads", "working_threads"))
    return max(1, own, in_pools if 0 < working <= 2 * in_pools else 0)
