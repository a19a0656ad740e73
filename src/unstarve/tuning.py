"""What trying loader settings found, and the change to the script that follows. Pure; no torch, no clock."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import io
import json
import linecache
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstarve import estimate, law, syntax
from unstarve.recording import Block, Recording, Rung, Settings
from unstarve.remedies.settings import WITHOUT_WORKERS, changed_arguments, limited_threads
from unstarve.report import Caveat, Estimate

SCHEMA = "unstarve.tuning/1"

FINAL = "trial:final"
"""Rung of the winner's last stage, whose blocks no choice was based on."""

AGAIN = ", again"
"""How its label ends."""

WORTH = 1.02
"""Settings that gain less are not worth a change of the script."""

AS_GOOD = 0.97
"""Fewer workers whose interval stays above this are as good."""

UNTRIED = ("few-workers", "no-main-guard", "no-settings", "trial-failed")
"""Notes of settings that could not be tried."""

SHORT = 1.05
"""Epochs that are too short for so much of a gain are worth a word."""

START_SHARE = 0.03
"""Keeping workers over epochs is advised from this share of an epoch on that goes into starting them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Settings that the loop ran under."""

    settings: Settings
    """The settings."""
    label: str
    """How a person reads them."""
    steps_per_s: Estimate
    """Steps of the loop per second."""
    gain: Estimate | None
    """Speed-up against the script's own settings, paired by round, for epochs of the loader's length; None for these
    themselves."""
    rounds: int
    """Blocks measured."""
    is_own: bool = False
    """Whether they are the script's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The answer to: which loader settings are best for this loop?"""

    sentence: str
    """The answer in a sentence or two."""
    own: Settings
    """The script's settings."""
    best: Settings
    """The settings to use: the script's own where no others are worth it."""
    gain: Estimate | None
    """Speed-up of the loop by the best settings, measured after the choice, for epochs of the loader's length; None where
    there is nothing to change."""
    tried: tuple[Tried, ...]
    """Everything tried, the largest gain first."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments to change in the `DataLoader(...)` call."""
    source: str | None = None
    """`file:line` of that call."""
    diff: str | None = None
    """The same as a unified diff of the script, where the call was found and can be edited."""
    snippet: str | None = None
    """Code that the call's arguments do not cover."""
    headroom: Estimate | None = None
    """Speed-up if input cost nothing at all; no settings can gain more."""
    caveats: tuple[Caveat, ...] = ()
    """Doubts."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Machine and versions."""
    command: str = ""
    """What was run."""
    loader: str = ""
    """Class of the loader and of its dataset."""
    steps: int = 0
    """Steps of the loop in all."""
    seconds: float = 0.0
    """Wall time in all."""

    @property
    def is_change(self) -> bool:
        """Whether there is anything to change."""
        return bool(self.arguments) or self.snippet is not None

    def to_json(self, path: str | Path | None = None) -> str:
        """The result as a JSON text by the schema `unstarve.tuning/1`; also written to `path` where one is given."""
        text = json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=1, ensure_ascii=False, allow_nan=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text


def judge(recording: Recording) -> Tuning | None:
    """What the recording of a search says; None where it has not both the script's own settings and others."""
    loader = recording.loader
    rates = estimate.rates(recording.blocks)
    rungs = {rung.id: rung for rung in recording.rungs if rung.settings is not None and rung.id in rates}
    if loader is None or "none" not in rates or not rungs:
        return None
    own = loader.settings
    tried = [Tried(settings=own, label=str(own), steps_per_s=rates["none"], gain=None, rounds=_rounds(recording, "none"), is_own=True)]  # fmt: skip
    for ident, rung in rungs.items():
        assert rung.settings is not None
        tried.append(
            Tried(
                settings=rung.settings, label=rung.label, steps_per_s=rates[ident],
                gain=_over_epochs(recording, rung, rates["none"]), rounds=_rounds(recording, ident),
            )
        )  # fmt: skip
    tried.sort(key=lambda item: -(item.gain.value if item.gain is not None else 1.0))
    final = rungs.get(FINAL)
    gain = _over_epochs(recording, final, rates["none"]) if final is not None else None
    best = own
    if final is not None and final.settings is not None and gain is not None and _is_better(own, final.settings, gain):
        best = final.settings
    lost = final.settings if final is not None and gain is not None and best == own else None
    promising = next((item for item in tried if _is_faster(item.gain) and item.settings != lost), None)
    arguments = changed_arguments(loader, best)
    keeps, share = _should_keep_workers(recording, best)
    if keeps:
        arguments["persistent_workers"] = True
    headroom = estimate.contrast(recording.blocks, "host", "none")
    sentence = _sentence(recording, best, gain, headroom, promising, lost)
    if keeps and best == own:
        sentence = f"Keep {own}, and add persistent_workers=True.{_keep_sentence(share)} {sentence}"
    elif keeps:
        sentence += _keep_sentence(share)
    return Tuning(
        sentence=sentence,
        own=own,
        best=best,
        gain=gain if best != own else None,
        tried=tuple(tried),
        arguments=arguments,
        source=loader.source,
        diff=diff(loader.source, arguments) if arguments else None,
        snippet=None if best.worker_threads is None else limited_threads(best.worker_threads),
        headroom=headroom,
        caveats=_doubts(recording, best, headroom, gain if best != own else None)
        + _doubt_epochs(recording, rungs.values(), rates["none"]),
        environment=dict(recording.environment),
        command=recording.command,
        loader=loader.name,
        steps=recording.steps_total,
        seconds=round(recording.span_ns / 1e9, 1),
    )


def _over_epochs(recording: Recording, rung: Rung, rate: Estimate) -> Estimate | None:
    """What the rung's settings gain over epochs as long as the loader's. Workers ran ahead from one epoch to the next when
    they were tried; in the script each epoch begins with nothing ready, and ends with workers that have no more to do.

    Args:
        recording: the search.
        rung: what was tried.
        rate: steps per second under the script's own settings.
    """
    gain, loader = estimate.contrast(recording.blocks, rung.id, "none"), recording.loader
    if gain is None or loader is None or not loader.length or rung.settings is None:
        return gain
    own, other = (
        rate.value * law.idle_s(_blocks(recording, ident), workers=count, batches=loader.length) / loader.length
        for ident, count in (("none", loader.num_workers), (rung.id, rung.settings.num_workers))
    )
    value, low, high = ((1 + own) / (1 / each + other) for each in (gain.value, gain.low, gain.high))
    return dataclasses.replace(gain, value=value, low=low, high=high)


def _blocks(recording: Recording, rung: str) -> list[Block]:
    return [block for block in recording.blocks if block.rung == rung]


def _rounds(recording: Recording, rung: str) -> int:
    return len(_blocks(recording, rung))


def _is_better(own: Settings, best: Settings, gain: Estimate) -> bool:
    """Faster beyond doubt, or as fast with fewer workers."""
    return _is_faster(gain) or (best.num_workers < own.num_workers and gain.low > AS_GOOD)


def _is_faster(gain: Estimate | None) -> bool:
    return gain is not None and gain.value >= WORTH and gain.low > 1.0


def _should_keep_workers(recording: Recording, best: Settings) -> tuple[bool, float]:
    """Whether starting workers anew takes a good part of an epoch that kept ones would spare, and which part."""
    loader = recording.loader
    assert loader is not None
    natural = [start for start in recording.starts_of(loader) if start.natural]
    if loader.persistent_workers or not best.num_workers or not loader.num_workers or not natural or not loader.length:
        return False, 0.0
    period = 1 / estimate.rates(recording.blocks)["none"].value
    costs = law.start_costs(recording, batches=loader.length)
    spared = estimate.mean([cost.setup_s for cost in costs])
    share = spared / (estimate.mean([cost.total_s for cost in costs]) + loader.length * period)
    return share > START_SHARE, share


def _sentence(
    recording: Recording, best: Settings, gain: Estimate | None, headroom: Estimate | None, promising: Tried | None,
    lost: Settings | None,
) -> str:  # fmt: skip
    assert recording.loader is not None
    own = recording.loader.settings
    if best != own and gain is not None and _is_faster(gain):
        return f"With {best} instead of {own} the loop runs {gain.value:.2f} times as fast."
    if best != own and gain is not None:
        return f"With {best} instead of {own} the loop is as fast: {gain.value:.2f} times ({gain.low:.2f}–{gain.high:.2f})."
    if promising is not None and promising.gain is not None and lost is not None:
        return (
            f"With {lost}, which looked best, the loop was not faster than with {own} when they were measured again. With "
            f"{promising.label} it seemed to run {promising.gain.value:.2f} times as fast, which was not measured again: a "
            "larger --budget may tell."
        )
    if promising is not None and promising.gain is not None:
        return (
            f"With {promising.label} instead of {own} the loop seemed to run {promising.gain.value:.2f} times as fast, "
            "but the search ended before that was confirmed: more steps or a larger --budget may do it."
        )
    room = ""
    if headroom is not None and headroom.value < 1.05:
        room = " The loop is not held back by its input, so no settings could."
    elif headroom is not None:
        is_all = not any(note.id in UNTRIED for note in recording.notes)
        why = "but not for want of settings" if is_all else "and some settings could not be tried"
        room = f" Input costs a factor of {headroom.value:.2f}, {why}: see `unstarve run`."
    return f"Nothing that was tried is better than {own}, the script's own.{room}"


def _keep_sentence(share: float) -> str:
    return f" Keeping the workers over epochs would save the {share:.0%} of an epoch that starting them takes."


def _doubts(
    recording: Recording, best: Settings, headroom: Estimate | None, gain: Estimate | None
) -> tuple[Caveat, ...]:
    found = [Caveat(id=note.id, sentence=note.sentence) for note in recording.notes]
    if not best.in_order:
        sentence = "Batches in any order make a run depend on the workers' timing: it cannot be repeated exactly."
        found.append(Caveat(id="order", sentence=sentence))
    if gain is not None and gain.value > WORTH and headroom is not None and gain.value > 1.1 * headroom.value:
        sentence = (
            f"Fed from cache the loop gained only {headroom.value:.2f}, less than the settings did: the machine's "
            "speed changed meanwhile."
        )
        found.append(Caveat(id="evidence-disagrees", sentence=sentence))
    rounds = _rounds(recording, FINAL)
    if gain is not None and rounds < 3:
        sentence = (
            f"The winner was compared in {rounds} round{'s' if rounds != 1 else ''} only; a larger --budget tells more."
        )
        found.append(Caveat(id="few-rounds", sentence=sentence))
    return tuple(found)


def _doubt_epochs(recording: Recording, rungs: Iterable[Rung], rate: Estimate) -> tuple[Caveat, ...]:
    """Do epochs end too soon for what the fastest settings gained in steps that ran on from one to the next?"""
    pairs = (
        (estimate.contrast(recording.blocks, rung.id, "none"), _over_epochs(recording, rung, rate)) for rung in rungs
    )
    gains = [(steady.value, left.value) for steady, left in pairs if steady is not None and left is not None]
    steady, left = max(gains, default=(1.0, 1.0))
    if steady < WORTH or steady < SHORT * left or recording.loader is None:
        return ()
    sentence = (
        f"An epoch has only {recording.loader.length} batches, and begins with none ready: of ×{steady:.2f}, measured in "
        f"steps that ran on from epoch to epoch, ×{left:.2f} is left. Gains are computed for epochs as they are."
    )
    return (Caveat(id="short-epochs", sentence=sentence),)


# --- The script's line ------------------------------------------------------------------------------------------------


def diff(source: str | None, arguments: Mapping[str, Any]) -> str | None:
    """The change of the `DataLoader(...)` call at `file:line` as a unified diff; None where it cannot be edited."""
    if source is None:
        return None
    filename, _, number = source.rpartition(":")
    lines = linecache.getlines(filename)
    try:
        tree = syntax.parsed("".join(lines))
    except SyntaxError:
        return None
    names = _names_of_loaders(tree)
    call = _call_at(tree, int(number), names)
    if call is None or not _is_plain(call):
        return None
    given = {keyword.arg for keyword in call.keywords}
    if not (arguments.keys() <= given or _takes_all(call, names)):
        return None
    changed = _lines(_edited("".join(lines), call, arguments))
    name = Path(filename).name
    return "".join(difflib.unified_diff(lines, changed, f"a/{name}", f"b/{name}", n=1)) or None


def _names_of_loaders(tree: ast.Module) -> set[str]:
    """Names under which the script has `DataLoader`."""
    imports = (alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names)
    return {"DataLoader", *(alias.asname for alias in imports if alias.name == "DataLoader" and alias.asname)}


def _takes_all(call: ast.Call, names: Collection[str]) -> bool:
    """Whether the call surely takes every argument of a `DataLoader`, as `super().__init__` below one does; a library's
    factory, or a class with an `__init__` of its own, may refuse some."""
    return _name(call) in (*names, "__init__")


def _call_at(tree: ast.Module, number: int, names: Collection[str]) -> ast.Call | None:
    """The one call around the line that makes a loader, judged by its name or by arguments that only loaders take; None
    where there is none, or several that are equally likely."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= number <= (node.end_lineno or node.lineno)
    ]
    makers: tuple[Callable[[ast.Call], bool], ...] = (lambda call: _name(call) in names, *_MAKERS)
    for is_maker in makers:
        found = [call for call in calls if is_maker(call)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _is_plain(call: ast.Call) -> bool:
    """Whether all arguments can be seen, and none that may be changed is given by its position."""
    is_spread = any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(argument, ast.Starred) for argument in call.args
    )
    return not is_spread and len(call.args) <= 5


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


_MAKERS: tuple[Callable[[ast.Call], bool], ...] = (
    lambda call: any(keyword.arg == "num_workers" for keyword in call.keywords),
    lambda call: _name(call).endswith("Loader"),
)
"""What tells a call that makes a loader where none is a `DataLoader` by its name, the surest sign first."""


def _edited(text: str, call: ast.Call, arguments: Mapping[str, Any]) -> str:
    """The text with the call's keyword arguments changed, and new ones added behind the last argument."""
    present = {keyword.arg: keyword.value for keyword in call.keywords}
    if arguments.get("num_workers") == 0:
        arguments = {name: value for name, value in WITHOUT_WORKERS.items() if name in present} | dict(arguments)
    edits = [(_span(text, present[name]), repr(value)) for name, value in arguments.items() if name in present]
    added = "".join(f", {name}={value!r}" for name, value in arguments.items() if name not in present)
    last = max([*call.args, *present.values()], key=lambda node: (node.end_lineno, node.end_col_offset), default=None)
    if added and last is not None:
        end = _behind_brackets(text, _span(text, last)[1], _span(text, call)[1] - 1)
        edits.append(((end, end), added))
    for (begin, end), new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _behind_brackets(text: str, begin: int, end: int) -> int:
    """Where an argument that is followed by nothing but brackets of its own, commas and comments ends; the tree leaves
    out the brackets around an expression."""
    brackets = [match.end() for match in re.finditer(r"#.*|\)", text[begin:end]) if match[0] == ")"]
    return begin + (brackets[-1] if brackets else 0)


def _lines(text: str) -> list[str]:
    """The lines as the parser counts them: other than `str.splitlines` it breaks at no form feed or the like."""
    return io.StringIO(text).readlines()


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Where the expression stands, in characters; the tree counts columns in bytes."""
    lines = _lines(text)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
