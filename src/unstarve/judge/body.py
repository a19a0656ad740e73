"""What the loop body itself spends its time on: copies to the device, work of the host, waits for the device."""

from __future__ import annotations

import re

from unstarve import estimate
from unstarve.judge.evidence import WORTH, Evidence, waiting_of
from unstarve.judge.memory import collecting_share
from unstarve.judge.walltime import gain_of_shorter_body
from unstarve.recording import HALF, BodyLine
from unstarve.report import Culprit

LEADING_SHARE = 0.6
"""A line of the loop body with this share of the host's work, what it calls included, is to blame for it."""

IDLE_BELOW = 0.85
"""A device that computes less than this share of a fed step is held back by the host."""

ELSEWHERE = 0.3
"""Share of the body that must be spent on waiting elsewhere for a copy's own waiting to be its own."""

WAITING_SHARE = 0.15
"""Share of a fed step from which on a line that only waits is worth mending."""

_MOVES = re.compile(
    r"(^|[._])((copy|upload|transfer)(_\w+)?|to|cuda|cpu|to_device|device_put|put_batch|h2d|d2h)$", re.IGNORECASE
)
"""Names of calls that move batches between the host and a device."""

_HANDS_OUT = {
    "zip", "enumerate", "range", "reversed", "flatten", "ravel", "view", "reshape", "squeeze", "unbind", "split", "detach",
    "cpu", "to", "float", "long", "int",
}  # fmt: skip
"""Names of the calls in the head of a loop that gives items of tensors and computes nothing."""


def copy(evidence: Evidence) -> list[Culprit]:
    """The copy to the device, where cached batches on the host are slower than on the device."""
    fed = evidence.contrast("device", "host")
    is_fed = evidence.contrast("host", "none")
    if fed is None or is_fed is None or fed.low <= 1 + evidence.threshold / 2 or is_fed.value > fed.value:
        return []
    # a loop that waits for its workers goes on to wait for them, however soon the batch is on the device
    reach = 1 - min(0.9, waiting_of(evidence)) if is_fed.low > 1 + evidence.threshold else 1.0
    gain = estimate.of_part(fed, reach)
    most = gain_of_shorter_body(evidence, 1 / evidence.rates["host"].value - 1 / evidence.rates["device"].value)
    if most < gain.value:
        gain = estimate.computed(most, down=0.7, up=1.2)
    if gain.value < WORTH:
        return []
    return [
        Culprit(
            stage="copy", kind="copy", name="copy to the device", source=evidence.loader.source, resource="bandwidth",
            gain=gain, evidence=f"With batches already on the device the loop runs {fed.value:.2f} times as fast as from the host.",
        )
    ]  # fmt: skip


def own_copy(evidence: Evidence) -> list[Culprit]:
    """A call of the loop body that moves data, by its name, and waits: for devices that torch does not know, such as a
    library's own or a simulated one. While it waits, the step could go on if the copy overlapped with it.

    A copy may also wait for work that was launched on the device before. So it is blamed only where the body waits
    elsewhere too, which is where such work shows.
    """
    if evidence.recording.has_device:
        return []
    lines = [line for line in evidence.recording.body if line.wall_inclusive >= WAITING_SHARE and _moves_data(line)]
    waiting = [line for line in lines if line.rests > 0.8 * line.wall_inclusive]
    if not waiting:
        return []
    line = min(waiting, key=lambda line: (line.depth, -line.wall_inclusive))
    share = line.wall_inclusive
    if 1 - share - evidence.main_cpu_fraction(evidence.ceiling_id) < ELSEWHERE:
        return []
    gain = estimate.computed(_of_body(evidence, min(share, 1 - share)), down=0.5, up=1.2)
    if gain.value < WORTH:
        return []
    return [
        Culprit(
            stage="copy",
            kind="copy",
            name="copy that the loop body waits for",
            source=line.source,
            text=line.text,
            resource="bandwidth",
            gain=gain,
            evidence=(
                f"With batches from cache the loop body waits in this call for {share:.0%} of its time, without "
                "computing. Computed, not tried: as fast as if copy and rest of the step overlapped."
            ),
        )
    ]


def _moves_data(line: BodyLine) -> bool:
    return any(_MOVES.search(name) for name in _called(line.text))


def _called(text: str) -> list[str]:
    """Names that a line calls, dots included."""
    return re.findall(r"[\w.]+(?=\()", text)


def step_host(evidence: Evidence) -> list[Culprit]:
    """Work of the host in the loop body, where the body also waits for a device: the two take turns. Where there is one that
    does not tell how much it computes, they may also go on side by side, unless the host hardly rests."""
    if evidence.recording.device_busy is not None:
        return _idle_device(evidence, evidence.recording.device_busy)
    busy = evidence.main_cpu_fraction(evidence.ceiling_id)
    # a thread that waits for a device spins, which looks like work
    lines = [x for x in evidence.recording.body if x.cpu_fraction >= 0.05 and not x.is_torch and not x.waits_often]
    # collections happen in whatever line makes an object, and are a cause of their own
    host = sum(line.cpu_fraction for line in lines) - collecting_share(evidence, evidence.ceiling_id)
    working = busy - sum(line.cpu_fraction for line in evidence.recording.body if line.waits_often)
    if not lines or working < (IDLE_BELOW if evidence.recording.has_device else 0.2) or host < 0.15:
        return []
    hottest = _to_blame(evidence, host)
    share = max(hottest.cpu_fraction, hottest.cpu_inclusive)
    value = _of_body(evidence, host + _of_its_loop(evidence, hottest))
    if value < WORTH:
        return []
    sentence = (
        f"With batches from cache the loop's own thread is on a core {busy:.0%} of the time; this line, with what it "
        f"calls, takes {share:.0%} of the body, and computes on the host."
    )
    return [_host_culprit("host work in the loop body", hottest, "cpu", value, sentence)]


def _of_its_loop(evidence: Evidence, line: BodyLine) -> float:
    """What torch does for the loop around a line where that hands out the items of tensors: it goes with the line. A loop
    that runs over what a model computes does not."""
    source = f"{line.source.rpartition(':')[0]}:{line.loop}"
    heads = [x for x in evidence.recording.body if x.is_torch and line.loop and x.source == source]
    return sum(head.cpu_fraction for head in heads if _HANDS_OUT.issuperset(map(_last_name, _called(head.text))))


def _last_name(called: str) -> str:
    return called.rpartition(".")[2]


def _to_blame(evidence: Evidence, host: float) -> BodyLine:
    """The innermost line that, with what it calls, takes most of the host's work in the body."""
    lines = [line for line in evidence.recording.body if not line.is_torch]
    leading = [line for line in lines if line.cpu_inclusive >= LEADING_SHARE * host]
    if leading:
        return max(leading, key=lambda line: (line.depth, line.cpu_inclusive))
    return max(lines, key=lambda line: line.cpu_fraction)


def _idle_device(evidence: Evidence, busy: float) -> list[Culprit]:
    """The device itself told how much of a fed step it computes: the rest is the host's, or spent on waiting for it.

    The host does nothing else while it waits, so without its waits a step takes what is left of it, or what the device
    computes. Where that is most of the step still, the host's own work is to blame.
    """
    lines = [line for line in evidence.recording.body if line.wall_fraction or line.waits_often]
    if busy > IDLE_BELOW or not lines:
        return []
    waiting = [line for line in lines if line.waits_often]
    working = [line for line in lines if not line.waits_often]
    waited = min(1 - busy, sum(line.wall_fraction for line in waiting))
    sentence = f"Even with batches already on it the device computes only {busy:.0%} of the time."
    if waiting and (waited >= HALF * (1 - busy) or not working):
        line = max(waiting, key=lambda line: (round(line.wall_fraction, 1), line.syncs))
        name, resource, value = "waits for the device in the loop body", "device", _of_body(evidence, waited)
        total = sum(other.syncs for other in waiting)
        sentence += f" The loop body waits for it {total:.3g} times a step, {line.syncs:.3g} of them here."
    else:
        line = max(working, key=lambda line: line.cpu_fraction)
        name, resource, value = "host work in the loop body", "cpu", _of_body(evidence, 1 - busy)
        sentence += f" This line takes most of the rest ({line.cpu_fraction:.0%} of the body)."
    return [_host_culprit(name, line, resource, value, sentence)] if value >= WORTH else []


def _of_body(evidence: Evidence, part: float) -> float:
    """What the loop would gain without a part of its body fed from cache: no more than its workers leave."""
    less_s = part / evidence.rates[evidence.ceiling_id].value
    return min(1 / max(0.02, 1 - part), gain_of_shorter_body(evidence, less_s))


def _host_culprit(name: str, line: BodyLine, resource: str, value: float, evidence: str) -> Culprit:
    return Culprit(
        stage="step",
        kind="step-host",
        name=name,
        source=line.source,
        text=line.text,
        resource=resource,
        gain=estimate.computed(value, down=0.6, up=1.3),
        evidence=evidence,
    )
