"""What the renderers share: which parts of a report belong together, and how figures and text are written.

A renderer is a function `Report -> str`. What is chosen and how it is worded lives here; how it is drawn lives in
`terminal`, `page` and `plot`. Nothing here decides what a report claims, and nothing here knows rich or HTML.
"""

from __future__ import annotations

import dataclasses
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unstarve.report import (
    BodyTime,
    Caveat,
    Culprit,
    Estimate,
    Needs,
    Remedy,
    Report,
    RungResult,
    StageResult,
    Verdict,
    WallTime,
)

LADDER_KINDS = ("device", "host", "collated", "samples", "cut", "none")
_BESIDE = (("knockout", "If it alone were free"), ("trial", "Tried"), ("control", "Controls"))
MOST_FINDINGS = 3
CHEAP_SHARE = 0.02
NOTABLE_TIME = 0.05
FED = 1.1
"""A headroom below this is that of a loop which its input keeps up with."""

# A culprit that names no stage of the pipeline still has a place on the ladder: below the rung that spares its cost.
_DROP_BELOW = {"copy": "device", "pin": "host", "ipc": "host", "collate": "collated"}
_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_]")
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_SPACES = re.compile(r"\s+")

_Children = Mapping[str | None, list[StageResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One line of the stage tree: a stage, or several cheap siblings in one."""

    stage: StageResult | None
    """The stage; None for a line that sums up cheap ones."""
    guides: tuple[bool, ...]
    """For each level from the outermost down to this line: whether no sibling follows."""
    folded: int = 0
    """Stages summed up, children not counted."""
    folded_wall_s: float = 0.0
    """Their wall time per sample."""
    is_guilty: bool = False
    """Whether the verdict names this stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A claim with everything that belongs beside it."""

    culprit: Culprit
    """The claim and its evidence."""
    remedies: tuple[Remedy, ...]
    """What to do about it."""
    doubts: tuple[str, ...]
    """What weakens it."""


# Text


def printable(text: str, *, keep_lines: bool = False) -> str:
    """`text` without escape sequences, control, bidirectional and other invisible characters.

    White space becomes single spaces, so a name stays on one line; with `keep_lines` it is left alone, tabs expanded.
    """
    text = _ESCAPES.sub("", text)
    if keep_lines:
        return "\n".join(_visible(line.expandtabs(4)) for line in text.splitlines())
    return _visible(_SPACES.sub(" ", text)).strip()


def _visible(text: str) -> str:
    # Variation selectors make terminals disagree about the width of the character before them.
    return "".join(c for c in text if unicodedata.category(c) not in _INVISIBLE and not "\ufe00" <= c <= "\ufe0f")


def clip(text: str, most: int = 240) -> str:
    """`text`, cut to `most` characters with an ellipsis where it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


_WITH_LINES = ("patch", "diff", "snippet")


def cleaned(report: Report) -> Report:
    """`report` with every text made printable; patches keep their lines, `environment_items` sees to its own."""
    whole: Report = clean(report)
    return whole


def clean(value: Any, field: str = "") -> Any:
    """`value` with every text in it made printable, places near the working directory shortened."""
    if isinstance(value, str):
        return printable(_near(value) if field == "source" else value, keep_lines=field in _WITH_LINES)
    if isinstance(value, tuple):
        return tuple(clean(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return dataclasses.replace(value, **{name: clean(getattr(value, name), name) for name in names})
    return value


def _near(source: str) -> str:
    """A place below the working directory without the way to there; any other as it is."""
    here = os.path.join(os.getcwd(), "")
    return source[len(here) :] if source.startswith(here) else source


def in_spans(text: str) -> list[tuple[bool, str]]:
    """The parts of a sentence, each with whether it stands between backticks and is code."""
    return [(bool(number % 2), part) for number, part in enumerate(re.split(r"`([^`]+)`", text)) if part]


# Figures


def figure(value: float, like: float | None = None) -> str:
    """`value` with about three significant digits; with `like`, as many decimals as that figure gets."""
    size = abs(value if like is None else like)
    if size >= 0.1 or size == 0:
        return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
    return f"{value:.2g}"


def interval(estimate: Estimate) -> str:
    """The 95 % interval, such as `3.41–3.49`."""
    return f"{figure(estimate.low, estimate.value)}–{figure(estimate.high, estimate.value)}"


def ratio(estimate: Estimate) -> str:
    """A speed-up with its interval, such as `×1.93 (1.81–2.04)`; one that was computed says so."""
    return f"×{figure(estimate.value)} ({interval(estimate)}{', computed' if estimate.is_computed else ''})"


def rate(estimate: Estimate) -> str:
    """A rate with its interval and steps, such as `0.89 steps/s (0.87–0.91, n 48)`."""
    steps = "" if estimate.steps is None else f", n {estimate.steps}"
    return f"{figure(estimate.value)} steps/s ({interval(estimate)}{steps})"


def milliseconds(seconds: float | None) -> str:
    """A duration in milliseconds without its unit; empty where it is unknown."""
    return "" if seconds is None else figure(seconds * 1e3)


def percent(fraction: float | None) -> str:
    """A fraction as a whole percentage; empty where it is unknown."""
    if fraction is None:
        return ""
    return "<1 %" if 0 < fraction < 0.005 else f"{fraction:.0%}".replace("%", " %")


# Verdict


def badge(verdict: Verdict) -> str:
    """The verdict in a word, such as `INPUT-BOUND`."""
    return "UNRESOLVED" if verdict.bound == "unresolved" else f"{verdict.bound.upper()}-BOUND"


def answer(verdict: Verdict) -> str:
    """The verdict's sentence without the word that the badge already says."""
    word, colon, rest = verdict.sentence.partition(":")
    if not colon or word.strip().upper() != badge(verdict):
        return verdict.sentence
    rest = rest.strip()
    return rest[:1].upper() + rest[1:]


def good_news(report: Report) -> str:
    """A sentence for a loop that seems fed, where nothing was found to mend, with no more praise than is sure; empty for any
    other."""
    headroom, baseline = report.headroom, report.baseline
    if report.verdict.bound != "step" or report.verdict.culprits or report.remedies:
        return ""
    if headroom is None or baseline is None or headroom.value >= FED:
        return ""
    found = f"Nothing to mend was found{'' if baseline.steps is None else f' in {baseline.steps} steps'}"
    return f"{found}: your input keeps up with your loop. Well done!" if headroom.high < FED else f"{found}."


def beside_headroom(report: Report) -> str:
    """What to say beside the headroom where the first claim is larger: that it is about nothing which feeding the loader's
    batches from cache spares, such as a generator around it, another loader, the start of iterators or the loop body."""
    first = next(iter(report.verdict.culprits), None)
    if first is None or report.headroom is None or first.gain.value <= report.headroom.value:
        return ""
    if first.kind == "copy" and any(rung.id == "device" for rung in report.rungs):
        return ""
    is_beside = first.stage.startswith(("iterator", "loader:")) or report.verdict.bound in ("start", "step")
    return "of the loader's steady batches alone: the first claim is about something beside them" if is_beside else ""


def where(source: str | None, text: str | None) -> str:
    """A place in the user's code: `file:line` and the statement there, as far as they are known."""
    return "  ".join(part for part in (source, clip(text) if text else None) if part)


# Rungs


def ladder(rungs: tuple[RungResult, ...]) -> tuple[RungResult, ...]:
    """The rungs that form the ladder, in the order given."""
    return tuple(rung for rung in rungs if rung.kind in LADDER_KINDS)


def beside(rungs: tuple[RungResult, ...]) -> tuple[tuple[str, tuple[RungResult, ...]], ...]:
    """The rungs that stand beside the ladder, by sorts with their titles; sorts that have none are left out."""
    sorts = ((title, tuple(rung for rung in rungs if rung.kind == kind)) for kind, title in _BESIDE)
    return tuple((title, members) for title, members in sorts if members)


def top_rate(rungs: tuple[RungResult, ...]) -> float:
    """The rate at which a bar is full: the highest end of any interval."""
    return max((rung.steps_per_s.high for rung in rungs), default=0.0) or 1.0


def guilty_drops(report: Report) -> dict[str, Culprit]:
    """For each rung that lies just below a guilty drop, the first culprit that runs there and not on the rung above."""
    rungs = ladder(report.rungs)
    drops: dict[str, Culprit] = {}
    for culprit in report.verdict.culprits:
        above = _rung_that_spares(culprit, rungs, report.stages)
        if above is not None and above + 1 < len(rungs):
            drops.setdefault(rungs[above + 1].id, culprit)
    return drops


def _rung_that_spares(culprit: Culprit, rungs: tuple[RungResult, ...], stages: tuple[StageResult, ...]) -> int | None:
    """Position of the last rung that serves the culprit's output, or that of a stage around it, from cache."""
    for stage in _outwards(culprit.stage, stages):
        for position, rung in enumerate(rungs):
            if rung.after == stage:
                return position
    ids = [rung.id for rung in rungs]
    if culprit.kind == "read" and "bytes" in ids:
        return ids.index("bytes")
    kinds = [rung.kind for rung in rungs]
    kind = _DROP_BELOW.get(culprit.kind)
    return kinds.index(kind) if kind in kinds else None


def _outwards(stage: str, stages: tuple[StageResult, ...]) -> tuple[str, ...]:
    """`stage` and the stages around it, innermost first."""
    parents = {item.id: item.parent for item in stages}
    chain: list[str] = []
    here: str | None = stage
    while here is not None and here not in chain:
        chain.append(here)
        here = parents.get(here)
    return tuple(chain)


# Stages


def stage_rows(report: Report) -> tuple[StageRow, ...]:
    """The stages as lines of a tree; siblings that cost and gain next to nothing share one line."""
    known = {stage.id for stage in report.stages}
    children: dict[str | None, list[StageResult]] = {}
    for stage in report.stages:
        children.setdefault(stage.parent if stage.parent in known else None, []).append(stage)
    guilty = frozenset(culprit.stage for culprit in report.verdict.culprits)
    return tuple(_rows(None, (), children, guilty))


def _rows(parent: str | None, guides: tuple[bool, ...], children: _Children, guilty: frozenset[str]) -> list[StageRow]:
    siblings = children.get(parent, [])
    cheap = [stage for stage in siblings if _is_cheap(stage, children, guilty)]
    if len(cheap) < 2:
        cheap = []
    kept = [stage for stage in siblings if stage not in cheap]
    rows: list[StageRow] = []
    for stage in kept:
        here = (*guides, stage is kept[-1] and not cheap)
        rows.append(StageRow(stage=stage, guides=here, is_guilty=stage.id in guilty))
        rows.extend(_rows(stage.id, here, children, guilty))
    if cheap:
        wall_s = sum(stage.wall_s_per_sample or 0.0 for stage in cheap)
        rows.append(StageRow(stage=None, guides=(*guides, True), folded=len(cheap), folded_wall_s=wall_s))
    return rows


def _is_cheap(stage: StageResult, children: _Children, guilty: frozenset[str]) -> bool:
    """Whether neither the stage nor anything in it is worth a line of its own."""
    is_small = stage.share is not None and stage.share < CHEAP_SHARE
    gains = stage.gain_if_free is not None and stage.gain_if_free.low > 1
    if not is_small or gains or stage.id in guilty:
        return False
    return all(_is_cheap(child, children, guilty) for child in children.get(stage.id, []))


# Loop body


def body(report: Report) -> tuple[BodyTime, ...]:
    """Where a step spends its time, if that is what there is to mend: where the loop itself sets the pace."""
    is_of_step = any(culprit.kind.startswith("step") for culprit in report.verdict.culprits)
    return report.body if report.verdict.bound == "step" or is_of_step else ()


# Findings and doubts


def findings(report: Report) -> tuple[Finding, ...]:
    """The first few culprits, each with its doubts and its first few remedies, those that were tried before others."""
    placed = doubts(report)
    culprits = report.verdict.culprits[:MOST_FINDINGS]
    owned = _owned(report)
    return tuple(
        Finding(
            culprit=culprit,
            remedies=owned[number][:MOST_FINDINGS],
            doubts=placed.get(f"finding {culprit.stage}", ()),
        )
        for number, culprit in enumerate(culprits)
    )


def other_remedies(report: Report) -> tuple[Remedy, ...]:
    """The remedies that speak of no culprit in particular, and those for which a culprit's finding has no room."""
    shown = [remedy for finding in findings(report) for remedy in finding.remedies]
    return _tried_first(remedy for remedy in report.remedies if remedy not in shown)


def _owned(report: Report) -> list[tuple[Remedy, ...]]:
    """For each of the first few culprits the remedies that are about it."""
    culprits = report.verdict.culprits[:MOST_FINDINGS]
    owners = [_owner(remedy, culprits) for remedy in report.remedies]
    pairs = list(zip(report.remedies, owners, strict=True))
    return [_tried_first(remedy for remedy, owner in pairs if owner == number) for number in range(len(culprits))]


def _tried_first(remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """The remedies with a measured gain before those whose gain is computed or not known, else in their order."""
    return tuple(sorted(remedies, key=lambda remedy: remedy.measured_gain is None))


def promises(report: Report, remedy: Remedy) -> list[tuple[str, Estimate]]:
    """What the remedy brings, as far as it is known, each with a word before it.

    A prediction that is the gain of a culprit which cost nothing any more is the most that making it cheaper can bring.
    """
    bounds = [culprit.gain for culprit in report.verdict.culprits if culprit.kind != "workers"]
    predicted = "predicted at most" if remedy.predicted_gain in bounds else "predicted"
    gains = ((predicted, remedy.predicted_gain), ("measured", remedy.measured_gain))
    return [(word, gain) for word, gain in gains if gain is not None]


def _owner(remedy: Remedy, culprits: tuple[Culprit, ...]) -> int | None:
    """Number of the culprit that the remedy is about, else of the first whose name, statement or place it mentions; a sole
    culprit gets them all."""
    if len(culprits) == 1:
        return 0
    for number, culprit in enumerate(culprits):
        if remedy.about == culprit.stage:
            return number
    said = f"{remedy.id}\n{remedy.advice}\n{remedy.patch or ''}"
    for number, culprit in enumerate(culprits):
        if any(mark and _mentions(said, mark) for mark in (culprit.name, culprit.source, culprit.text)):
            return number
    return None


def _mentions(said: str, mark: str) -> bool:
    """Whether `mark` occurs in `said`, and not as a part of a longer word (`train.py:4` in `train.py:48`)."""
    return re.search(rf"(?<!\w){re.escape(mark)}(?!\w)", said) is not None


def doubts(report: Report) -> dict[str, tuple[str, ...]]:
    """The caveats by the place where they are printed: `verdict`, `ladder`, `stages` or `finding <stage>`."""
    placed: dict[str, tuple[str, ...]] = {}
    for caveat in report.caveats:
        place, sentence = _placed(caveat, report)
        placed[place] = (*placed.get(place, ()), sentence)
    return placed


def _placed(caveat: Caveat, report: Report) -> tuple[str, str]:
    if caveat.about in ("verdict", "ladder", "stages"):
        return caveat.about, caveat.sentence
    if any(culprit.stage == caveat.about for culprit in report.verdict.culprits[:MOST_FINDINGS]):
        return f"finding {caveat.about}", caveat.sentence
    for place, names in (
        ("ladder", {rung.id: rung.label for rung in report.rungs}),
        ("stages", {stage.id: stage.name for stage in report.stages}),
    ):
        if caveat.about in names:
            return place, f"{clip(names[caveat.about], 80)}: {caveat.sentence}"
    return "verdict", caveat.sentence


# The rest


def wall_parts(time: WallTime) -> tuple[tuple[str, float], ...]:
    """The account of an epoch's wall time, if it holds more than the steady state; else nothing."""
    if max(time.start, time.other_loaders, time.other) <= NOTABLE_TIME:
        return ()
    parts = (
        ("steady", time.steady),
        ("iterator starts", time.start),
        ("other loaders", time.other_loaders),
        ("elsewhere", time.other),
    )
    return tuple(part for part in parts if part[1] > 0)


def environment_items(report: Report) -> tuple[tuple[str, str], ...]:
    """The command and the environment as pairs of texts; last what is long and tells least, since the line may be cut."""
    settings = {"command": report.command or None, **report.environment}
    settings = {key: value for key, value in settings.items() if key != "platform"} | {
        "platform": settings.get("platform")
    }
    return tuple((_key(key), clip(_setting(value))) for key, value in settings.items() if value is not None)


def _key(key: Any) -> str:
    return clip(printable(str(key)).replace("_", " "), 40)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_key(key)} {_setting(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_setting(item) for item in value)
    return figure(value) if isinstance(value, float) else printable(str("unknown" if value is None else value))


def needs(report: Report) -> list[tuple[str, str]]:
    """What feeding the ceiling would take, as labels and sentences; nothing where the loop is fed already."""
    found, bound = report.needs, report.verdict.bound
    if found is None:
        return []
    lines = []
    if bound == "input":
        lines.append(("Needs", _at_the_ceiling(report, found)))
    if bound in ("input", "step") and found.feeds:
        table = ", ".join(f"{feed.workers} → {figure(feed.step_ms)} ms" for feed in found.feeds)
        lines.append(("Feeds", f"the shortest step that so many workers could feed here: {table}."))
    if found.epoch_price is not None and found.epoch_price_at_ceiling is not None:
        prices = (
            f"an epoch costs {figure(found.epoch_price)} now and {figure(found.epoch_price_at_ceiling)} at the ceiling."
        )
        lines.append(("Price", prices))
    return lines


def _at_the_ceiling(report: Report, found: Needs) -> str:
    available = report.environment.get("cores_available")
    have = f" ({figure(float(available))} here)" if available is not None else ""
    parts = [f"{figure(found.cores)} cores{have}", f"{found.workers} worker{'' if found.workers == 1 else 's'}"]
    if found.read_mb_per_s is not None and found.read_mb_per_s_now is not None:
        parts.append(f"reads of {figure(found.read_mb_per_s)} MB/s ({figure(found.read_mb_per_s_now)} now)")
    goal = "at the ceiling" if found.steps_per_s is None else f"to feed {figure(found.steps_per_s)} steps/s"
    return f"{goal} the pipeline as it is would take {', '.join(parts)}."
