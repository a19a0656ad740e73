"""The inner side of bench/peers.py: runs a case's script, unedited, with a peer around its loop.

    python bench/peer_child.py watch|profile|cache|traceml OUT SECONDS train.py

`DataLoader.__iter__` is the only seam: batches pass through it until SECONDS after the first iterator was asked for, then
the script is stopped by SystemExit, through its own clean-up.

- `watch`: writes OUT when the loop starts, for a sampling profiler to attach from outside.
- `profile`: every loader gets no workers, and cProfile runs from the first iterator on, so that set-up is not in it.
- `cache`: half the time as it is, then the loader is SPDL's CacheDataLoader; writes the steps per second of both.
- `traceml`: TraceML times every batch and has its `trace_step` around the loop's body, from the first batches on.

loadtune asks a workload file for a dataset and a function that makes one step, so it loads this file instead of running
it: the script runs in a thread, its loop is handed the batches of loadtune's loader, and one turn of it is the step.
"""

import cProfile
import inspect
import itertools
import json
import os
import queue
import runpy
import sys
import threading
import time
from pathlib import Path

CACHED = 5  # batches that CacheDataLoader keeps
SKIPPED = 3  # first batches that no rate counts: the workers' start
PATIENCE_S = 60  # how long a step of the script may take under loadtune


def patch(through):
    """Let every iterator of a DataLoader be `through(loader, original)`; `original(loader)` makes the usual one."""
    from torch.utils.data import DataLoader

    original = DataLoader.__iter__
    DataLoader.__iter__ = lambda loader: through(loader, original)


def without_workers():
    """Make every DataLoader load in the main process, whatever its script asks for."""
    from torch.utils.data import DataLoader

    original = DataLoader.__init__
    signature = inspect.signature(original)
    of_workers = ("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")

    def init(self, *args, **kwargs):
        arguments = signature.bind(self, *args, **kwargs).arguments
        kept = {name: value for name, value in arguments.items() if name not in ("self", *of_workers)}
        original(self, **{**kept.pop("kwargs", {}), **kept})

    DataLoader.__init__ = init


def run_script(script):
    """Run `script` as __main__, with its folder first on the path; SystemExit is an ordinary end."""
    sys.argv = [str(script)]
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


class Deadline:
    """Ends the script `seconds` after the first look at it."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.started = None

    def elapsed(self):
        if self.started is None:
            self.started = time.monotonic()
        return time.monotonic() - self.started

    def check(self):
        if self.elapsed() > self.seconds:
            raise SystemExit(0)

    def batches(self, iterator):
        """Yield from `iterator` until the time is over."""
        self.elapsed()
        for batch in iterator:
            self.check()
            yield batch


def watch(out, seconds, script):
    deadline = Deadline(seconds)

    def through(loader, original):
        Path(out).touch()
        return deadline.batches(original(loader))

    patch(through)
    run_script(script)


def profile(out, seconds, script):
    deadline, profiler = Deadline(seconds), cProfile.Profile()

    def through(loader, original):
        if deadline.started is None:
            profiler.enable()
        return deadline.batches(original(loader))

    without_workers()
    patch(through)
    try:
        run_script(script)
    finally:
        profiler.disable()
        profiler.dump_stats(out)


def cache(out, seconds, script):
    """Write {"live": steps/s, "cached": steps/s} of the first loader that the script iterates; None without a rate."""
    from spdl.dataloader import CacheDataLoader

    deadline, stamps, first = Deadline(seconds), {"live": [], "cached": []}, []

    def through(loader, original):
        first[:] = first or [id(loader)]
        if id(loader) != first[0]:
            return deadline.batches(original(loader))
        return deadline.batches(live_then_cached(iter(original(loader))))

    def live_then_cached(iterator):
        while deadline.elapsed() < seconds / 2:
            batch = next(iterator, None)
            if batch is None:
                return
            stamps["live"].append(time.monotonic())
            yield batch
        replayed = CacheDataLoader(Remaining(iterator), num_caches=CACHED, return_caches_after=CACHED)
        for number, batch in enumerate(replayed):
            if number >= CACHED:
                stamps["cached"].append(time.monotonic())
            yield batch

    patch(through)
    try:
        run_script(script)
    finally:
        Path(out).write_text(json.dumps({phase: rate(times[SKIPPED:]) for phase, times in stamps.items()}))


class Remaining:
    """What is left of an iterator, as the iterable that CacheDataLoader asks for."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self.iterator


def rate(times):
    """Return the steps per second between the first and the last of `times`, None of fewer than two."""
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None


def traceml(_, seconds, script):
    import torch
    import traceml_ai as tracer

    tracer.init(mode="manual")
    deadline, model, first = Deadline(seconds), torch.nn.Identity(), []

    def through(loader, original):
        begun = bool(first)
        first[:] = first or [id(loader)]
        iterator = iter(original(loader))
        return deadline.batches(traced(iterator, 0 if begun else SKIPPED) if id(loader) == first[0] else iterator)

    def traced(iterator, skipped):
        yield from itertools.islice(iterator, skipped)
        for batch in tracer.wrap_dataloader_fetch(iterator):
            with tracer.trace_step(model):
                yield batch

    patch(through)
    run_script(script)


class Handoff:
    """Hands batches to a loop that runs in another thread, one at a time."""

    def __init__(self):
        self.loader = None
        self.batches = queue.Queue(1)
        self.asked = threading.Semaphore(0)

    def through(self, loader, original):
        if threading.current_thread() is threading.main_thread():
            return original(loader)
        if self.loader is None:
            self.loader = loader
        return self.received() if loader is self.loader else original(loader)

    def received(self):
        while True:
            self.asked.release()
            yield self.batches.get()

    def wait(self):
        """Wait until the loop asks for a batch."""
        if not self.asked.acquire(timeout=PATIENCE_S):
            raise RuntimeError("the script's loop asked for no batch")

    def step(self, model, optimizer, batch, device):
        self.batches.put(batch)
        self.wait()


def get_workload():
    """Return loadtune's description of the script that PEER_SCRIPT names."""
    import torch
    from loadtune import Workload

    handoff = Handoff()
    patch(handoff.through)
    threading.Thread(target=run_script, args=(os.environ["PEER_SCRIPT"],), daemon=True).start()
    handoff.wait()
    loader = handoff.loader
    return Workload(
        name="case",
        make_dataset=lambda: loader.dataset,
        make_model=lambda: torch.nn.Linear(1, 1),
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        train_step=handoff.step,
        collate_fn=loader.collate_fn,
        default_batch_size=loader.batch_size or len(next(iter(loader.batch_sampler))),
    )


def main():
    mode, out, seconds, script = sys.argv[1:5]
    modes = {"watch": watch, "profile": profile, "cache": cache, "traceml": traceml}
    modes[mode](out, float(seconds), Path(script).resolve())


if __name__ == "__main__":
    main()
