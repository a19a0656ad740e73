"""Reports written out as literals: the toy pipeline, the least a report can be, and one with hostile names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from unstarve.report import (
    BodyTime,
    Caveat,
    Culprit,
    Estimate,
    Limit,
    Remedy,
    Report,
    RungResult,
    StageResult,
    Verdict,
    WallTime,
)

DILATION = 'dilated = convolve2d(mask, kernel, mode="same") > 0'
HOSTILE = (
    "[red]x[/red]",
    "two\nlines\tand a tab",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07\x00\x9b2J",
    "界" * 150,
    "👩‍💻❤️🎉" * 60,
    "n" * 300,
    "<script>alert(1)</script>",
    "\u202egnitrevni\u202c $x^2$ {{ 7191 * 7 }} {% raw %}",
)


def estimate(value: float, low: float, high: float, steps: int | None = None) -> Estimate:
    return Estimate(value=value, low=low, high=high, steps=steps)


def _rung(id: str, label: str, after: str | None, rate: Estimate, kind: str = "cut") -> RungResult:
    return RungResult(id=id, label=label, after=after, steps_per_s=rate, kind=kind)


def _stage(
    id: str,
    kind: str,
    name: str,
    source: str | None,
    parent: str | None,
    wall_ms: float | None,
    cpu_ms: float | None,
    share: float | None,
    gain: Estimate | None = None,
    gain_source: str | None = None,
) -> StageResult:
    return StageResult(
        id=id,
        kind=kind,
        name=name,
        source=source,
        parent=parent,
        wall_s_per_sample=None if wall_ms is None else wall_ms / 1e3,
        cpu_s_per_sample=None if cpu_ms is None else cpu_ms / 1e3,
        share=share,
        gain_if_free=gain,
        gain_source=gain_source,
        text=name if kind == "code" else None,
    )


RUNGS = (
    _rung("device", "batch cached on the device", None, estimate(3.45, 3.41, 3.49, 24), "device"),
    _rung("host", "batch cached on the host", None, estimate(3.33, 3.29, 3.37, 24), "host"),
    _rung("collated", "collated batch cached in the worker", "collate", estimate(3.30, 3.25, 3.35, 24), "collated"),
    _rung("samples", "finished samples cached", "5", estimate(3.23, 3.17, 3.29, 24), "samples"),
    _rung("after:4", "cached after RGBToYUV", "4", estimate(3.22, 3.16, 3.28, 24)),
    _rung("after:3", "cached after RandomMask", "3", estimate(3.17, 3.10, 3.24, 24)),
    _rung("after:2", "cached after RandomCrop", "2", estimate(1.96, 1.90, 2.02, 24)),
    _rung("after:1", "cached after ToTensor", "1", estimate(1.93, 1.86, 2.00, 24)),
    _rung("raw", "raw sample cached", "0", estimate(1.72, 1.68, 1.76, 24)),
    _rung("none", "nothing cached", None, estimate(0.89, 0.87, 0.91, 48), "none"),
    _rung("knockout:3", "RandomMask alone free", "3", estimate(1.25, 1.20, 1.31, 24), "knockout"),
    _rung("knockout:0", "reading alone free", "0", estimate(1.72, 1.67, 1.76, 24), "knockout"),
    _rung("busy", "batch cached, workers still busy", None, estimate(3.39, 3.30, 3.46, 12), "control"),
    _rung("token", "workers return a token", None, estimate(0.90, 0.88, 0.93, 12), "control"),
)

READING_GAIN = estimate(1.93, 1.88, 1.98)
MASK_GAIN = estimate(1.41, 1.35, 1.47)
STAGES = (
    _stage("get", "code", "ToyDataset.__getitem__", "train.py:30", None, 12.4, 12.2, 1.0),
    _stage("0", "read", "image = make_image(index)", "train.py:33", "get", 5.60, 5.52, 0.452, READING_GAIN, "knockout"),
    _stage("1", "transform", "ToTensor", "train.py:71", "get", 1.40, 1.38, 0.113, estimate(1.12, 1.07, 1.17), "ladder"),
    _stage("2", "transform", "RandomCrop", "train.py:72", "get", 0.09, 0.09, 0.007),
    _stage("3", "transform", "RandomMask", "train.py:73", "get", 3.93, 3.90, 0.317, MASK_GAIN, "knockout"),
    _stage("3.0", "code", "mask = np.random.random((h, w)) < self.ratio", "train.py:46", "3", 0.36, 0.36, 0.029),
    _stage("3.1", "code", DILATION, "train.py:48", "3", 2.70, 2.69, 0.218, estimate(1.28, 1.22, 1.34), "knockout"),
    _stage("3.2", "code", "image[..., dilated] = 0", "train.py:49", "3", 0.81, 0.80, 0.065),
    _stage("3.3", "code", "h, w = image.shape[-2:]", "train.py:45", "3", 0.02, 0.02, 0.002),
    _stage("3.4", "code", "return image", "train.py:50", "3", 0.001, 0.001, 0.0001),
    _stage("4", "transform", "RGBToYUV", "train.py:74", "get", 0.18, 0.18, 0.0145),
    _stage("5", "transform", "Scale", "train.py:75", "get", 0.06, 0.06, 0.005),
    _stage("collate", "collate", "default_collate", None, None, 0.31, 0.30, 0.024),
    _stage("ipc", "ipc", "worker to main process", None, None, None, None, None, estimate(1.01, 0.98, 1.04), "ladder"),
)  # fmt: skip

READING = Culprit(
    stage="0",
    kind="read",
    name="make_image",
    source="train.py:33",
    resource="cpu",
    gain=READING_GAIN,
    text="image = make_image(index)",
    path=("ToyDataset.__getitem__", "image = make_image(index)"),
    evidence="The rate falls from 1.72 (1.68–1.76) to 0.89 (0.87–0.91) steps/s when raw samples are made afresh; "
    "knocked out alone it gives 1.72 (1.67–1.76).",
)
MASK = Culprit(
    stage="3.1",
    kind="code",
    name=DILATION,
    source="train.py:48",
    resource="cpu",
    gain=estimate(1.28, 1.22, 1.34),
    text=DILATION,
    path=("ToyDataset.__getitem__", "RandomMask", DILATION),
    evidence="2.70 ms of 3.93 ms that RandomMask spends on a sample (n 96); the worker's CPU is busy throughout.",
)
REMEDIES = (
    Remedy(
        id="smaller-source",
        advice="Let make_image produce only the 256x256 crop that is used.",
        predicted_gain=estimate(1.88, 1.70, 1.98),
    ),
    Remedy(
        id="or-of-shifts",
        advice="Replace the convolution by an OR of shifted arrays; the result is bit-identical.",
        patch=f"@@ train.py:48 @@\n-        {DILATION}\n+        dilated = mask.copy()\n"
        "+        dilated[1:] |= mask[:-1]\n+        dilated[:-1] |= mask[1:]\n"
        "+        dilated[:, 1:] |= mask[:, :-1]\n+        dilated[:, :-1] |= mask[:, 1:]\n",
        predicted_gain=estimate(1.27, 1.21, 1.33),
        measured_gain=estimate(1.26, 1.22, 1.30),
    ),
    Remedy(
        id="workers",
        advice="Set num_workers=8; the four cores are not all used.",
        measured_gain=estimate(1.07, 1.02, 1.12),
    ),
)
CAVEATS = (
    Caveat(id="short", sentence="Two rounds only: the budget of 60 s ran out.", about="ladder"),
    Caveat(id="overlap", sentence="Device and host rungs share a stream; overlap was not tried.", about="host"),
    Caveat(id="hidden", sentence="Gains do not add up: mend the first, then measure again.", about="verdict"),
    Caveat(id="random", sentence="The mask's random draw was served from a pool of 32.", about="3.1"),
    Caveat(id="first-touch", sentence="Page faults of the first touch are counted here.", about="1"),
)
TOY = Report(
    verdict=Verdict(
        bound="input",
        sentence="Input-bound: the loop reaches 0.89 (0.87–0.91) of a possible 3.45 (3.41–3.49) steps/s. "
        "make_image costs most (×1.93 if free), then the dilation in RandomMask (×1.28).",
        culprits=(READING, MASK),
    ),
    baseline=estimate(0.89, 0.87, 0.91, 48),
    ceiling=estimate(3.45, 3.41, 3.49, 24),
    headroom=estimate(3.88, 3.76, 4.00),
    time=WallTime(steady=0.84, start=0.11, other_loaders=0.03, other=0.02),
    rungs=RUNGS,
    stages=STAGES,
    limit=Limit(binding="cores", explanation="4 workers fill 3.9 of 4 cores at 17.5 ms per sample (n 96)."),
    remedies=REMEDIES,
    caveats=CAVEATS,
    environment={
        "device": "NVIDIA A10G",
        "cpu": "AMD EPYC 7R32",
        "cores": 4,
        "memory_gib": 15.5,
        "python": "3.11.4",
        "torch": "2.6.0",
        "loader": {"batch_size": 256, "num_workers": 4, "pin_memory": True, "start_method": "fork"},
    },
    command="train.py --epochs 3",
)
STEPPING = replace(
    TOY,
    verdict=Verdict(bound="step", sentence="Step-bound: feeding the loop faster would gain nothing."),
    rungs=(),
    stages=(),
    remedies=(),
    caveats=(),
    limit=None,
    body=(
        BodyTime(source="/home/me/train.py:56", text="out = model(batch)", share=0.55, depth=0, spent="in torch"),
        BodyTime(
            source="/home/me/train.py:57", text="metric.update(out, target)", share=0.4, depth=0, spent="computing"
        ),
        BodyTime(source="/home/me/metric.py:9", text="self.n[i, j] += 1", share=0.38, depth=1, spent="computing"),
    ),
)
MINIMAL = Report(
    verdict=Verdict(bound="unresolved", sentence="Unresolved: only 3 steps were measured, at least 8 are needed."),
    baseline=None,
    ceiling=None,
    time=WallTime(steady=0.0, start=0.0, other_loaders=0.0),
)


def hostile_report(name: str) -> Report:
    """The toy report with `name` wherever a name of the user's can stand."""
    culprits = tuple(
        replace(culprit, name=name, text=name, source=f"{name}.py:1", path=(name, name), evidence=name)
        for culprit in (*TOY.verdict.culprits, replace(MASK, kind="step-host"))
    )
    return replace(
        TOY,
        verdict=replace(TOY.verdict, sentence=f"Input-bound: {name}", culprits=culprits),
        rungs=tuple(replace(rung, label=name) for rung in RUNGS),
        stages=tuple(replace(stage, name=name, text=name, source=f"{name}:9") for stage in STAGES),
        limit=Limit(binding=name, explanation=name),
        body=tuple(replace(line, text=name, source=f"{name}.py:1") for line in STEPPING.body),
        remedies=tuple(replace(remedy, advice=name, patch=f"-{name}\n+{name}") for remedy in REMEDIES),
        caveats=tuple(replace(caveat, sentence=name) for caveat in CAVEATS),
        environment={name: name, "nested": {name: [name, 1.5, True, None]}},
        command=name,
    )


@pytest.fixture
def toy() -> Report:
    return TOY


@pytest.fixture
def stepping() -> Report:
    return STEPPING


@pytest.fixture
def minimal() -> Report:
    return MINIMAL


@pytest.fixture(params=HOSTILE, ids=range(len(HOSTILE)))
def hostile(request: pytest.FixtureRequest) -> Report:
    return hostile_report(request.param)


@pytest.fixture
def named() -> Callable[[str], Report]:
    """Makes the toy report with one name in every place."""
    return hostile_report


@pytest.fixture(params=HOSTILE, ids=range(len(HOSTILE)))
def hostile_name(request: pytest.FixtureRequest) -> str:
    """Each of the hostile names."""
    return request.param
