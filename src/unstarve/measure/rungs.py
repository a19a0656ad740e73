"""The rungs, controls and trials that any loop may get; those of a loop's own stages are made in `plan`."""

from __future__ import annotations

from unstarve.recording import Rung, Settings

NONE = Rung(id="none", label="nothing cached", kind="none", order=90)
RAW = Rung(id="raw", label="raw sample cached", kind="cut", order=80)
BYTES = Rung(id="bytes", label="bytes cached, decode runs", kind="cut", order=85)
SAMPLES = Rung(id="samples", label="processed sample cached", kind="samples", order=30)
COLLATED = Rung(id="collated", label="collated batch cached in the worker", kind="collated", order=20)
HOST = Rung(id="host", label="batch cached on the host", kind="host", order=10)
DEVICE = Rung(id="device", label="batch cached on the device", kind="device", order=0)
NO_COLLATE = Rung(id="knockout:collate", label="collate for free", kind="knockout", after="collate", order=-1)
NO_TRANSPORT = Rung(id="knockout:ipc", label="transport for free", kind="knockout", after="ipc", order=-1)
ONE_THREAD = Rung(id="trial:threads", label="torch on one thread in the loop", kind="trial", order=-1)
WORKER_THREADS = Rung(id="trial:worker-threads", label="libraries on one thread in the workers", kind="trial", order=-1)
ONE_CORE = Rung(id="trial:one-core", label="each worker's threads on one core", kind="trial", order=-1)
AFFINITY = Rung(id="trial:affinity", label="workers on all cores", kind="trial", order=-1)
COLLECTOR_OFF = Rung(id="trial:collector", label="garbage collector off", kind="trial", order=-1)
LEAN = Rung(id="trial:lean-batch", label="a leaner batch", kind="trial", order=-1)
NO_LOADING = Rung(id="control:sampler", label="sampler alone", kind="control", after="sampler", order=-1)
AHEAD = Rung(id="control:side-stream", label="batch on the host, copied on a side stream", kind="control", order=-1)
BUSY = Rung(id="control:busy", label="batch cached, workers busy", kind="control", order=-1)


def trial(settings: Settings) -> Rung:
    """The rung under which the loader has other settings."""
    return Rung(id=f"trial:{settings}", label=str(settings), kind="trial", order=-1, settings=settings)
