"""Literal recordings, from which judging is tested without torch, and what is looked up in reports."""

from __future__ import annotations

import dataclasses

from test_payload import IMAGE

from unstarve.judge import judge
from unstarve.recording import Block, BodyLine, Loader, Recording, Rung, Settings, SlowLine, Stage, Start
from unstarve.report import Culprit, Report

MS = 1_000_000

LABELS = {
    "device": ("batch cached on the device", "device", 0),
    "host": ("batch cached on the host", "host", 10),
    "collated": ("collated batch cached in the worker", "collated", 20),
    "samples": ("processed sample cached", "samples", 30),
    "raw": ("raw sample cached", "cut", 80),
    "bytes": ("bytes cached, decode runs", "cut", 85),
    "none": ("nothing cached", "none", 90),
}


def make_rung(name: str) -> Rung:
    """A rung by its usual name; anything else stands beside the ladder."""
    if name in LABELS:
        label, kind, order = LABELS[name]
        return Rung(id=name, label=label, kind=kind, order=order)
    kind = name.partition(":")[0]
    return Rung(id=name, label=name, kind=kind, after=name.partition(":")[2], order=-1)


def make_blocks(periods_ms: dict[str, float], *, body_ms: float, jitter: float = 0.01, **facts) -> tuple[Block, ...]:
    """Four rounds of blocks of eight steps, where a step takes the given time, waiting for whatever exceeds the body."""
    blocks = []
    for number in range(4):
        for position, (rung, period) in enumerate(periods_ms.items()):
            factor = 1 + jitter * (((number * 7 + position * 3) % 5) - 2) / 2
            step = int(period * factor * MS)
            wait = max(0, step - int(body_ms * MS))
            cached = rung in ("host", "device")
            blocks.append(
                Block(
                    rung=rung,
                    round=number,
                    start_ns=0,
                    end_ns=8 * step,
                    waits_ns=(wait,) * 8,
                    bodies_ns=(step - wait,) * 8,
                    fetches_ns=() if cached else (2 * step,) * 8,
                    fetches_cpu_ns=() if cached else (2 * step,) * 8,
                    **facts,
                )
            )
    return tuple(blocks)


def make_recording(
    periods_ms: dict[str, float], *, body_ms: float = 20, stages: tuple[Stage, ...] = (), **facts
) -> Recording:
    """A recording of a loader with two workers on two cores."""
    values = {
        "command": "unstarve run train.py",
        "created": "2026-01-01T00:00:00+0000",
        "loader": Loader(
            number=0, name="DataLoader(Toy)", length=1000, batch_size=8, num_workers=2, source="train.py:90"
        ),
        "rungs": tuple(make_rung(name) for name in periods_ms),
        "blocks": make_blocks(periods_ms, body_ms=body_ms),
        "stages": stages,
        "starts": (make_start(batches=300),),
        "steps_total": 200,
        "environment": {"cores_available": 2.0},
        **facts,
    }
    return Recording(**values)


def with_fetches(recording: Recording, fetch_ms: float, cpu_ms: float = 2.0) -> Recording:
    """The same where a worker needs so long for each batch of the untouched loop."""
    blocks = tuple(
        dataclasses.replace(
            block, fetches_ns=(int(fetch_ms * MS),) * 8, fetches_cpu_ns=(int(cpu_ms * MS),) * 8, delays_ns=(0,) * 8
        )
        if block.rung == "none"
        else block
        for block in recording.blocks
    )
    return dataclasses.replace(recording, blocks=blocks)


def make_start(*, construct_ms: float = 20, first_ms: float = 50, batches: int = 300, loader: int = 0) -> Start:
    return Start(
        loader=loader,
        created_ns=0,
        construct_ns=int(construct_ms * MS),
        first_wait_ns=int(first_ms * MS),
        batches=batches,
        wait_ns=int(first_ms * MS),
        ended_ns=int((construct_ms + first_ms) * MS) + batches * 20 * MS,
    )


def make_stage(ident: str, ms: float, *, cpu: float = 1.0, **facts) -> Stage:
    values = {"kind": "code", "name": ident, "source": "train.py:41", "text": f"x = {ident}(x)", **facts}
    count = 10
    return Stage(
        id=ident, samples=count, wall_ns=(int(ms * MS),) * count, cpu_ns=(int(ms * cpu * MS),) * count, **values
    )


DECODE = make_stage("decode", 10, kind="decode")

CROP = make_stage("crop", 1, kind="transform", source="train.py:50")

STARVED = {"none": 80.0, "samples": 22.0, "host": 20.0}

LOADER = Loader(number=0, name="DataLoader(Toy)", length=1000, batch_size=8, num_workers=2, source="train.py:90")


def tried(own: int, trials: dict[Settings, float], periods: dict[str, float] | None = None, **facts) -> Recording:
    """A recording of a loader with so many workers, in which other settings were tried."""
    periods = dict(periods or STARVED)
    names = {f"trial:{settings}": settings for settings in trials}
    periods |= {f"trial:{settings}": period for settings, period in trials.items()}
    recording = make_recording(periods, loader=dataclasses.replace(LOADER, num_workers=own), **facts)
    rungs = tuple(dataclasses.replace(rung, settings=names.get(rung.id)) for rung in recording.rungs)
    return dataclasses.replace(recording, rungs=rungs)


def kinds(report: Report) -> list[str]:
    return [culprit.kind for culprit in report.verdict.culprits]


def blamed(report: Report, kind: str) -> Culprit:
    return next(culprit for culprit in report.verdict.culprits if culprit.kind == kind)


def with_idle_cores(recording: Recording) -> Recording:
    """The recording on a machine with so many cores that the throughput law expects a lot of more workers."""
    blocks = tuple(
        dataclasses.replace(block, fetches_ns=(60 * MS,) * 8, fetches_cpu_ns=(60 * MS,) * 8)
        for block in recording.blocks
    )
    return dataclasses.replace(recording, blocks=blocks, environment={"cores_available": 8.0})


MIB = 2**20

WASTEFUL = dataclasses.replace(IMAGE, dtype="float64", min=0, max=255, is_integral=True)

COPY_BOUND = {"none": 30.2, "samples": 30.1, "host": 30.0, "device": 20.0}


def copy_bound(fetch_ms: float = 10, **facts) -> Recording:
    """A loop that copies batches for 10 of its 30 ms, and whose two workers need so long for one."""
    return with_fetches(make_recording(COPY_BOUND, body_ms=30, has_device=True, **facts), fetch_ms)


def leaner(report: Report) -> list:
    return [item for item in report.remedies if item.id.startswith("payload:")]


FED = {"none": 20.1, "host": 20.0, "device": 20.0}

VALID = Loader(number=1, name="DataLoader(Valid)", length=50, batch_size=8, num_workers=0, source="train.py:95")


def after(first: Start, other: Start, span: int) -> Start:
    """The other iterator as one that lasts so long after the first has ended."""
    return dataclasses.replace(other, created_ns=first.ended_ns, ended_ns=first.ended_ns + span)


def with_validation(
    wait_fraction: float, *, seconds: float = 10.0, workers: int = 0, busy: float | None = None
) -> Report:
    """A fed training loop whose epochs of 20 s end with a validation of so many seconds, partly spent on waiting, and of that
    a share on a core."""
    span = int(seconds * 1000 * MS)
    first = make_start(batches=1000)
    wait = int(wait_fraction * span)
    cpu = None if busy is None else int(busy * wait)
    valid = after(first, dataclasses.replace(make_start(loader=1, batches=50), wait_ns=wait, wait_cpu_ns=cpu), span)
    other = dataclasses.replace(VALID, num_workers=workers)
    starts = (first, valid)
    return judge(make_recording(FED, starts=starts, loaders=(LOADER, other)))


def moving(text: str, share: float, *, cpu: float = 0.0, has_device: bool = False) -> Report:
    line = BodyLine(
        source="train.py:56",
        text=text,
        wall_fraction=0.0,
        cpu_fraction=0.0,
        busy_inclusive=cpu,
        wall_inclusive=share,
    )
    return judge(with_fetches(make_recording({"none": 20.1, "host": 20.0}, body=(line,), has_device=has_device), 10))


def zipped(wait_ms: float) -> Start:
    """The second loader of a `zip` of 1000 steps, which is waited for so long in each of them."""
    return dataclasses.replace(
        make_start(loader=1, batches=1000, construct_ms=0, first_ms=0),
        created_ns=1, ended_ns=19_000 * MS, wait_ns=int(1000 * wait_ms * MS), beside=1000,
    )  # fmt: skip


def started(fetch_ms: float, *, construct_ms: float = 100, first_ms: float = 4000, **facts) -> Report:
    """The report on a loop of 40 steps an epoch whose workers need so long for a batch, and for the first of an epoch."""
    loader = dataclasses.replace(LOADER, **{"length": 40, "num_workers": 8, **facts})
    starts = (make_start(construct_ms=construct_ms, first_ms=first_ms, batches=40),) * 3
    recording = make_recording({"none": 502.0, "host": 500.0}, body_ms=500, loader=loader, starts=starts)
    return judge(with_fetches(recording, fetch_ms))


def begun_in_steps(
    count: int, *, sampler_ms: float, wait_ms: float, closed_ms: int = 0, num_workers: int = 0, length: int = 50
) -> Report:
    """The report on a loop whose steps of 20 ms each make an iterator over another loader for one batch."""
    other = dataclasses.replace(
        make_start(loader=1, batches=1, construct_ms=1, first_ms=int(wait_ms)),
        wait_ns=int(wait_ms * MS), sampler_ns=int(sampler_ms * MS), closed_ns=closed_ms * MS, beside=1,
    )  # fmt: skip
    ours = dataclasses.replace(make_start(batches=100), created_ns=0)
    others = tuple(dataclasses.replace(other, created_ns=i * 20 * MS, ended_ns=(i + 1) * 20 * MS) for i in range(count))
    valid = dataclasses.replace(VALID, num_workers=num_workers, length=length)
    return judge(with_fetches(make_recording(FED, starts=(ours, *others), loaders=(LOADER, valid)), 10))


def with_late(slow_ms: int, *, cpu_share: float = 0.0, usual_ms: int = 20) -> Report:
    """The report on a starved loop of two workers, of whose batches one in eight takes so long, in one line of its own."""
    late = (
        SlowLine(source="train.py:33", text="self.open(shard)", wall_ns=900, cpu_ns=int(900 * cpu_share)),
        SlowLine(source="train.py:40", text="parse(row)", wall_ns=100, cpu_ns=100),
    )
    recording = make_recording({"none": 30.0, "host": 20.0}, late=late)
    blocks = tuple(
        dataclasses.replace(
            block, fetches_ns=(*(usual_ms * MS,) * 7, slow_ms * MS), fetches_cpu_ns=(5 * MS,) * 8, delays_ns=(0,) * 8
        )
        if block.rung == "none"
        else block
        for block in recording.blocks
    )
    return judge(dataclasses.replace(recording, blocks=blocks))
