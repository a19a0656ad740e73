"""Settings that were tried in the loop: the loader's arguments, and threads and cores of its processes."""

from __future__ import annotations

from typing import Any

from unstarve import estimate
from unstarve.recording import Loader, Recording, Settings
from unstarve.remedies.facts import is_worth, loader_of
from unstarve.report import Culprit, Estimate, Remedy, Report

WITHOUT_WORKERS: dict[str, Any] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""Arguments that a `DataLoader` takes with workers only, and their values without."""


def tried_settings(recording: Recording) -> dict[str, Remedy]:
    """Loader settings that were tried in the loop and made it faster: of each kind those that gained most."""
    worth = [(settings, gain) for settings, gain in trials(recording) if is_worth(gain)]
    found: dict[str, Remedy] = {}
    for settings, gain in sorted(worth, key=lambda item: -item[1].value):
        remedy = tried_remedy(loader_of(recording), settings, gain)
        if remedy is not None:
            found.setdefault(remedy.id, remedy)
    return found


def trials(recording: Recording) -> list[tuple[Settings, Estimate]]:
    """Loader settings that were tried in the loop, with what they gained."""
    gains = [(rung.settings, estimate.contrast(recording.blocks, rung.id, "none")) for rung in recording.rungs]
    return [(settings, gain) for settings, gain in gains if settings is not None and gain is not None]


def changed_arguments(loader: Loader, settings: Settings) -> dict[str, Any]:
    """What to change in the call: the settings, and what must follow from there being workers or none."""
    own = loader.settings
    arguments = settings.changes(own)
    if settings.num_workers and not own.num_workers:
        arguments["persistent_workers"] = True  # or every epoch would begin with starting them
    if own.num_workers and not settings.num_workers:
        known = {"prefetch_factor": own.prefetch_factor != 2, "persistent_workers": loader.persistent_workers}
        arguments |= {name: WITHOUT_WORKERS[name] for name, is_given in known.items() if is_given}
    return arguments


def tried_remedy(loader: Loader, settings: Settings, gain: Estimate) -> Remedy | None:
    """The change to these settings; None where no argument of the loader makes it."""
    arguments = changed_arguments(loader, settings)
    if not arguments:
        return None
    patch = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return Remedy(
        id="out-of-order" if "in_order" in arguments else "workers",
        advice=f"Give the loader {settings}; `unstarve tune` looks for the best settings.",
        patch=f"DataLoader(..., {patch})",
        measured_gain=gain,
        about="loader",
    )


def limited_threads(count: int) -> str:
    """Code that gives the libraries in each worker so many threads, as the trial did."""
    return in_each_worker(
        "import contextlib",
        "import threadpoolctl",
        "import torch",
        f"torch.set_num_threads({count})",
        "with contextlib.suppress(ImportError):",
        "    import cv2",
        f"    cv2.setNumThreads({count if count > 1 else 0})",
        f"threadpoolctl.threadpool_limits({count})  # BLAS and OpenMP",
    )


def in_each_worker(*lines: str) -> str:
    """Code that runs the lines at the start of each worker; they import what they use, whatever the script does."""
    body = "\n    ".join(lines)
    call = "DataLoader(..., worker_init_fn=worker_init_fn)  # call your own from it, if there is one"
    return f"def worker_init_fn(worker_id):\n    {body}\n{call}"


_SETTINGS = {
    "trial:threads": (
        "Threads of torch in the loop's process and the workers fight for the cores: give torch fewer threads.",
        "import torch\ntorch.set_num_threads(1)  # or OMP_NUM_THREADS=1",
    ),
    "trial:worker-threads": (
        "Libraries in the workers use several threads each: one thread a worker is enough.",
        limited_threads(1),
    ),
    "trial:one-core": (
        "A library in the workers works in threads of its own, which get in each other's way: give it one thread a worker "
        "by its own setting, or bind each worker to one core.",
        in_each_worker(
            "import os",
            "cores = sorted(os.sched_getaffinity(0))",
            "os.sched_setaffinity(0, {cores[worker_id % len(cores)]})",
        ),
    ),
    "trial:affinity": (
        "Something narrowed the workers' affinity mask (the job's launcher, taskset, an import): ask for more cores, or "
        "widen it again in worker_init_fn.",
        in_each_worker("import os", "os.sched_setaffinity(0, range(os.cpu_count()))"),
    ),
}


def setting(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For threads and cores, of which another setting was tried and made the loop faster."""
    if culprit.stage not in _SETTINGS:
        return None
    advice, patch = _SETTINGS[culprit.stage]
    return Remedy(id=culprit.stage, advice=advice, patch=patch, measured_gain=culprit.gain, about=culprit.stage)


def fewer_workers(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """For workers that take the loop body's cores."""
    if culprit.stage != "cpu":
        return None
    return Remedy(
        id="leave-cores-to-the-step",
        advice="The workers take cores from the loop body: use fewer workers, or make the transforms cheaper.",
        predicted_gain=culprit.gain,
        about=culprit.stage,
    )
