"""From what watching found to what is worth measuring: stages in the user's terms, and rungs. Pure, no clock."""

from __future__ import annotations

import ast
import linecache
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from unstarve import syntax
from unstarve.measure.cuts.observer import Cost
from unstarve.measure.cuts.resolving import is_library
from unstarve.measure.cuts.split import ANY_ITERATION, FIRST_CHOICE, Address
from unstarve.measure.listing import with_source
from unstarve.recording import BodyLine, Reordering, Rung, Stage

OPEN_SHARE = 0.10
"""A unit is looked into if it takes at least this fraction of a sample's time."""

SUSPECT_SHARE = 0.04
"""A stage is a suspect from this fraction of a sample's time on."""

LONGEST_NAME = 32
"""Characters of a stage's name in the label of a rung, which has a bar beside it."""

DOMINANT_SHARE = 0.6
"""A statement with this fraction of what contains it is to blame for it; so is the whole whose parts leave so much."""

REPEAT_SHARE = 0.8
"""A unit with this fraction of what contains it only repeats it."""

_READ = re.compile(
    r"(^|[._])(open(?!ing)|read(?!out|y)|read_bytes|read_text|read_file|fetch|download|get_object|fromfile|memmap|load_bytes|loadtxt"
    r"|read_csv|read_parquet|imread|seek|recv|request|urlopen)\w*$|(^|_)(read|fetch|download)_",
    re.IGNORECASE,
)
_DECODE = re.compile(
    r"decode|decompress|inflate|convert$|imdecode|frombuffer|frombytes|unpack|loads$|json\.load|pickle\.load|(?<!s)parse"
    r"|to_pil|Image\.open|loadtxt|genfromtxt|read_csv",
    re.IGNORECASE,
)
_DECODES_PATH = re.compile(r"imread|read_(image|video)|(sf|soundfile)\.read|(audio|librosa)\.load", re.IGNORECASE)
"""Calls that read a file by its path and decode it."""
_SOURCES = ("read", "decode")
"""Kinds of what makes a raw sample."""
_TRANSFORM = re.compile(r"transform|augment|(^|[._])tf$|(^|[._])aug$|preprocess|pipeline$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Node:
    """A stage with its address, while the tree is being built."""

    address: Address
    stage: Stage
    is_item: bool
    share: float
    is_leaf: bool
    is_source: bool = False


def merge(parts: Sequence[Mapping[Address, Cost]]) -> dict[Address, Cost]:
    """Costs of several workers as one."""
    return _merged(_settled(parts))


def _merged(parts: Sequence[Sequence[tuple[Address, Cost]]]) -> dict[Address, Cost]:
    merged: dict[Address, Cost] = {}
    for costs in parts:
        for address, cost in costs:
            if not cost.wall_ns:  # met only before figures were kept
                continue
            known = merged.get(address)
            if known is None:
                merged[address] = replace(
                    cost, wall_ns=list(cost.wall_ns), cpu_ns=list(cost.cpu_ns), delay_ns=list(cost.delay_ns)
                )
                continue
            known.wall_ns += cost.wall_ns
            known.cpu_ns += cost.cpu_ns
            known.delay_ns += cost.delay_ns
            known.read_bytes += cost.read_bytes
            known.read_calls += cost.read_calls
            known.read_samples += cost.read_samples
            known.reading_samples += cost.reading_samples
            known.storage_bytes += cost.storage_bytes
            known.faults += cost.faults
            known.why_whole = known.why_whole or cost.why_whole
    return merged


def unperturbed(passes: Sequence[Sequence[Mapping[Address, Cost]]]) -> dict[Address, Cost]:
    """Costs of several passes of several workers as one, each unit as it was before anything inside it was watched.

    A pass that looks into a unit slows it down, and taking the clocks' own cost off is never exact. So a unit keeps the
    times of the first pass that saw it, and what is inside gets the share of these that it had in its own first pass.
    Samples in which a unit did not run took no time in it. Counts are those of the latest pass that saw it, for as many
    samples as the times are of: passes differ in how many they have.
    """
    settled = _settled([costs for parts in passes for costs in parts])
    merged = []
    for parts in passes:
        merged.append(_merged(settled[: len(parts)]))
        settled = settled[len(parts) :]
    found: dict[Address, Cost] = {}
    for address in sorted({address for costs in merged for address in costs}, key=len):
        seen = next(costs for costs in merged if address in costs)
        latest = next(costs for costs in reversed(merged) if address in costs)
        parent = next((address[:n] for n in range(len(address) - 1, 0, -1) if address[:n] in found), None)
        cost, samples = seen[address], _samples(seen)
        counted, of = latest[address], _samples(latest)
        scale = 1.0
        if parent is not None and parent in seen and _mean(seen[parent].wall_ns) > 0:
            scale = _mean(found[parent].wall_ns) / (sum(seen[parent].wall_ns) / samples)
        found[address] = replace(
            counted,
            wall_ns=_scaled(cost.wall_ns, scale, samples),
            cpu_ns=_scaled(cost.cpu_ns, scale, samples),
            delay_ns=_scaled(cost.delay_ns, scale, samples),
            **{name: math.ceil(getattr(counted, name) * samples / of) for name in _COUNTS},
        )
    return found


_COUNTS = ("read_bytes", "read_calls", "read_samples", "reading_samples", "faults", "storage_bytes")


def _scaled(figures: Sequence[int], scale: float, samples: int) -> list[int]:
    """The figures times `scale`, and zeros for the rest of the samples."""
    return [int(figure * scale) for figure in figures] + [0] * (samples - len(figures))


def _settled(parts: Sequence[Mapping[Address, Cost]]) -> list[list[tuple[Address, Cost]]]:
    """The costs with their addresses; callables whose order varies are numbered by name, alike in all workers."""
    settled = [list(costs.items()) for costs in parts]
    mixed = {address for costs in parts for address, cost in costs.items() if cost.is_mixed}
    for loop in sorted(mixed, key=len, reverse=True):
        depth = len(loop)
        items = {
            address: cost.name
            for costs in settled
            for address, cost in costs
            if len(address) == depth + 1 and address[:depth] == loop and cost.is_item
        }
        names = sorted(set(items.values()))
        for costs in settled:
            own = {address: cost.name for address, cost in costs if address in items}
            for position, (address, cost) in enumerate(costs):
                name = own.get(address[: depth + 1])
                if name is not None:
                    number = FIRST_CHOICE - names.index(name)
                    costs[position] = ((*loop, number, *address[depth + 1 :]), cost)
    return settled


def to_open(costs: Mapping[Address, Cost], opened: Iterable[Address], sample_ns: float, depth: int) -> list[Address]:
    """Calls and loops of the user's that take a good part of a sample's time and were not looked into yet; at most `depth`
    calls deep."""
    known = set(opened)
    shared = _shared_helpers(costs)
    return [
        address
        for address, cost in costs.items()
        if (cost.can_enter or cost.is_loop)
        and address not in known
        and not _children(costs, address)
        and (cost.is_loop or _calls_around(address, known, costs) < depth)
        and (cost.is_loop or (cost.takes_data and cost.defined not in shared))
        and _mean(cost.wall_ns) * len(cost.wall_ns) >= OPEN_SHARE * sample_ns * _samples(costs)
    ]


def _shared_helpers(costs: Mapping[Address, Cost]) -> set[str]:
    """Functions called by several statements: their lines would not tell which of the statements is to blame."""
    seen: dict[str, Address] = {}
    shared = set()
    for address, cost in costs.items():
        if cost.defined is not None and not cost.is_item:
            if cost.defined in seen and not _is_item_of(seen[cost.defined], address):
                shared.add(cost.defined)
            seen[cost.defined] = address
    return shared


def _is_item_of(one: Address, other: Address) -> bool:
    return _starts_with(one, other) or _starts_with(other, one)


def _calls_around(address: Address, opened: set[Address], costs: Mapping[Address, Cost]) -> int:
    around = [address[:length] for length in range(1, len(address))]
    return sum(1 for outer in around if outer in opened and not (outer in costs and costs[outer].is_loop))


def _children(costs: Mapping[Address, Cost], address: Address) -> list[Address]:
    return [other for other in costs if len(other) > len(address) and _starts_with(other, address)]


def _samples(costs: Mapping[Address, Cost]) -> int:
    return max((len(cost.wall_ns) for cost in costs.values()), default=1)


def _mean(figures: Sequence[int]) -> float:
    return sum(figures) / len(figures) if figures else 0.0


def nodes(costs: Mapping[Address, Cost], sample_ns: float, owner: str = "") -> list[Node]:
    """The stages in pipeline order, wrappers that add nothing left out.

    Args:
        costs: units by address.
        sample_ns: mean wall time of a sample.
        owner: class of the data set, whose making is the user's line where all the code is a library's.
    """
    order = sorted(costs)
    total = max(1.0, sample_ns * _samples(costs))
    hidden = {address for address in order if _is_hidden(costs, address, total)}
    hidden -= _wholes(costs, hidden)
    ids = _ids(costs, [address for address in order if address not in hidden])
    found = []
    for address in order:
        if address in hidden:
            continue
        cost = costs[address]
        inner = [other for other in _children(costs, address) if other not in hidden]
        share = sum(cost.wall_ns) / total
        stage = _stage(cost, ids[address], _parent_id(address, ids), costs, address, owner)
        found.append(Node(address, stage, cost.is_item, share, not inner, cost.is_source))
    return found


def _is_hidden(costs: Mapping[Address, Cost], address: Address, total: float) -> bool:
    """Whether showing the unit would only repeat another: the loop around transforms, the call inside an iteration,
    a wrapping data set's call of the wrapped one; or whether it is a detail of a library's."""
    cost = costs[address]
    if cost.is_loop and any(costs[child].is_item for child in _children(costs, address)):
        return len(address) > 1 and address[:-1] in costs
    parent = costs.get(address[:-1])
    if parent is not None and parent.is_item and sum(cost.wall_ns) >= REPEAT_SHARE * sum(parent.wall_ns):
        return True
    is_small = sum(cost.wall_ns) < SUSPECT_SHARE * total
    if cost.is_item:
        return is_small and address[-1] < 0 and parent is not None and not parent.is_loop
    if not is_library(cost.source.rpartition(":")[0]):
        return False
    user = _user_of(costs, address)
    is_inside_item = user is not None and (costs[user].is_item or not _leads_on(costs, user))
    is_wrapper = bool(_children(costs, address)) and (user is not None or not cost.is_loop)
    return is_inside_item or is_wrapper or (is_small and len(address) > 1)


def _wholes(costs: Mapping[Address, Cost], hidden: AbstractSet[Address]) -> set[Address]:
    """Hidden units to be shown after all: what is shown in them can be served only with all of them, and no unit around them
    stands for them."""
    found = set()
    for whole in {knockable(address) for address in costs if address not in hidden} & hidden:
        around = next((whole[:n] for n in range(len(whole) - 1, 0, -1) if whole[:n] in costs.keys() - hidden), None)
        if around is None or sum(costs[whole].wall_ns) < REPEAT_SHARE * sum(costs[around].wall_ns):
            found.add(whole)
    return found


def _leads_on(costs: Mapping[Address, Cost], address: Address) -> bool:
    """Whether transforms or code of the user's lie below the unit."""
    below = (costs[child] for child in _children(costs, address))
    return any(cost.is_item or not is_library(cost.source.rpartition(":")[0]) for cost in below)


def _user_of(costs: Mapping[Address, Cost], address: Address) -> Address | None:
    """The innermost transform or statement of the user's around a unit of a library's; None for other units."""
    if costs[address].is_item or not is_library(costs[address].source.rpartition(":")[0]):
        return None
    for length in range(len(address) - 1, 0, -1):
        outer = costs.get(address[:length])
        if outer is not None and (outer.is_item or not is_library(outer.source.rpartition(":")[0])):
            return address[:length]
    return None


def _ids(costs: Mapping[Address, Cost], addresses: Sequence[Address]) -> dict[Address, str]:
    containers = {address[:-1] for address in addresses if costs[address].is_item}
    ids = {}
    for address in addresses:
        if costs[address].is_item and len(containers) == 1:
            ids[address] = f"transform:{_spelt(address[-1])}"
        elif costs[address].is_item:
            ids[address] = "transform:" + _dotted(address)
        elif len(containers) == 1 and any(_is_above(address, container) for container in containers):
            ids[address] = "transform" if _is_innermost(costs, address, addresses) else "code:" + _dotted(address)
        else:
            ids[address] = "code:" + _dotted(address)
    return ids


def _is_above(address: Address, container: Address) -> bool:
    return _starts_with(container, address)


def _is_innermost(costs: Mapping[Address, Cost], address: Address, addresses: Sequence[Address]) -> bool:
    inner = [other for other in addresses if len(other) > len(address) and _starts_with(other, address)]
    return all(
        costs[other].is_item or any(costs[other[:n]].is_item for n in range(1, len(other)) if other[:n] in costs)
        for other in inner
    )


def _dotted(address: Address) -> str:
    return ".".join(_spelt(number) for number in address)


def _spelt(number: int) -> str:
    if number == ANY_ITERATION:
        return "*"
    return str(number) if number >= 0 else f"~{FIRST_CHOICE - number}"


def _parent_id(address: Address, ids: Mapping[Address, str]) -> str | None:
    for length in range(len(address) - 1, 0, -1):
        if address[:length] in ids:
            return ids[address[:length]]
    return None


def _stage(
    cost: Cost, ident: str, parent: str | None, costs: Mapping[Address, Cost], address: Address, owner: str
) -> Stage:
    source, text = _place(cost, costs, address, owner)
    return Stage(
        id=ident,
        kind=kind_of(
            cost, inside_item=any(costs[address[:n]].is_item for n in range(1, len(address)) if address[:n] in costs)
        ),
        name=_name(cost, text),
        source=source,
        text=text,
        parent=parent,
        callee=cost.callee,
        why_whole=cost.why_whole,
        samples=len(cost.wall_ns),
        wall_ns=tuple(cost.wall_ns),
        cpu_ns=tuple(cost.cpu_ns),
        delay_ns=tuple(cost.delay_ns),
        read_bytes=cost.read_bytes,
        read_calls=cost.read_calls,
        reading_samples=cost.reading_samples,
        decodes=any(_DECODE.search(name) or _DECODES_PATH.search(name) for name in _called(cost.callee, text)),
        faults=cost.faults,
        storage_bytes=cost.storage_bytes,
        is_servable=knockable(address) == address,
    )


def _name(cost: Cost, text: str) -> str:
    if cost.label is not None:
        return f"{cost.label}: {cost.callee or text}"
    if cost.is_item or (cost.callee and not cost.callee.startswith("_unstarve")):
        return cost.name
    return text


def _place(cost: Cost, costs: Mapping[Address, Cost], address: Address, owner: str) -> tuple[str, str]:
    """`file:line` and text in the user's own code: the transform's own method, where it is built, or the caller."""
    filename = cost.source.rpartition(":")[0]
    if not cost.is_item and not is_library(filename):
        return cost.source, cost.text
    if cost.is_item and cost.defined is not None:
        return cost.defined, _line(cost.defined)
    siblings = {other.name for key, other in costs.items() if other.is_item and key[:-1] == address[:-1]}
    built = _where_built(cost.name, _user_files(costs), siblings)
    if built is not None:
        return built, _line(built)
    for length in range(len(address) - 1, 0, -1):
        outer = costs.get(address[:length])
        if outer is not None and not is_library(outer.source.rpartition(":")[0]):
            return outer.source, outer.text
    made = _where_built(owner, _user_files(costs))
    return (made, cost.text) if made is not None else (cost.source, cost.text)


def _line(source: str) -> str:
    filename, _, number = source.rpartition(":")
    return linecache.getline(filename, int(number)).strip()


def _user_files(costs: Mapping[Address, Cost]) -> list[str]:
    main = getattr(__import__("sys").modules.get("__main__"), "__file__", None)
    files = [cost.source.rpartition(":")[0] for cost in costs.values()] + ([os.path.abspath(main)] if main else [])
    return [name for name in dict.fromkeys(files) if not is_library(name)]


def _where_built(name: str, files: Sequence[str], siblings: AbstractSet[str] = frozenset()) -> str | None:
    """The line in the user's files that calls something of this name, such as `RandomCrop(256)`; of several the first of
    those in a list that agrees best with what the name's siblings are called."""
    places = []
    for filename in files:
        source = "".join(linecache.getlines(filename))
        try:
            tree = syntax.parsed(source)
        except SyntaxError:
            continue
        lists = {id(item): node.elts for node in ast.walk(tree) if isinstance(node, ast.List) for item in node.elts}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _last(node.func) == name:
                listed = {_last(item.func) for item in lists.get(id(node), ()) if isinstance(item, ast.Call)}
                places.append((len(listed ^ siblings), f"{filename}:{node.lineno}"))
    return min(places, key=lambda place: place[0])[1] if places else None


def _last(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def kind_of(cost: Cost, *, inside_item: bool = False) -> str:
    """The contract's kind for a unit: by what it did (bytes read, waiting) first, by what it is called second."""
    samples = max(1, sum(figure > 0 for figure in cost.wall_ns))  # that it ran in
    wall, cpu = sum(cost.wall_ns), sum(cost.cpu_ns)
    running = wall - sum(cost.delay_ns)
    waits = running > 0 and cpu < 0.5 * running and running / samples > 200_000
    called = cost.callee or ""
    if cost.is_item:
        return "transform"
    if waits and not inside_item:
        return "read"
    if _DECODE.search(called) and not waits:
        return "decode"
    if _READ.search(called) or 2 * cost.read_samples >= samples:
        return "read"
    if inside_item or _TRANSFORM.search(called):
        return "transform"
    return "code"


def may_read(stage: Stage) -> bool:
    """Whether the stage reads in most samples, by the kernel's count or, for what maps files, by what it calls."""
    is_reading = bool(stage.wall_ns) and 2 * stage.read_calls >= len(stage.wall_ns)
    return is_reading or any(_READ.search(name) for name in _called(stage.callee, stage.text or ""))


def _called(callee: str | None, text: str) -> list[str]:
    """Names that a statement calls, dots included."""
    return [*([callee] if callee else []), *re.findall(r"[\w.]+(?=\()", text)]


def suspects(found: Sequence[Node], limit: int) -> list[Node]:
    """The stages that take most of a sample's time and can be served alone, most expensive first.

    A transform of a chain is one suspect, and so is each stage that a generator draws from. Elsewhere the way leads
    down while one statement takes most of what contains it; where none does, the whole is the suspect, since mending
    any one of its parts would gain little. So is the whole where only the whole can be served, such as a loop of plain
    statements or a choice among transforms: what is measured of it says nothing of its parts.
    """
    tops = [node for node in found if not any(_is_below(node, other) for other in found)]
    blamed = [suspect for node in tops for suspect in _down(node, found)]
    wholes = {whole.address: whole for node in blamed if (whole := _served_with(node, found)) is not None}
    return sorted(wholes.values(), key=lambda node: -node.share)[:limit]


def _served_with(node: Node, found: Sequence[Node]) -> Node | None:
    """The innermost stage that can be served and holds this one, which may be itself."""
    end = knockable(node.address)
    around = [other for other in found if _starts_with(end, other.address)]
    return max(around, key=lambda other: len(other.address), default=None)


def around(node: Node, found: Sequence[Node]) -> Node | None:
    """The outermost stage that can be served and of which this one, inside it, takes most; None where there is none."""
    outer = [
        other
        for other in found
        if other.stage.is_servable and _is_below(node, other) and node.share >= DOMINANT_SHARE * other.share
    ]
    return min(outer, key=lambda other: len(other.address), default=None)


def _down(node: Node, found: Sequence[Node]) -> list[Node]:
    if node.share < SUSPECT_SHARE:
        return []
    below = [other for other in found if _is_below(other, node)]
    inner = [other for other in below if other.stage.parent == node.stage.id]
    has_items = any(other.is_item for other in below)
    if not inner or (node.is_item and not has_items):
        return [node]
    if has_items and node.share - sum(other.share for other in inner) >= DOMINANT_SHARE * node.share:
        return [node]  # what its own statement computes, such as an argument, and not what it calls
    if has_items or node.is_source or max(other.share for other in inner) >= DOMINANT_SHARE * node.share:
        return [suspect for other in inner for suspect in _down(other, found)] or [node]
    return [node]


def _is_below(node: Node, above: Node) -> bool:
    return node is not above and _starts_with(node.address, above.address)


def knockable(address: Address) -> Address:
    """The address at which a stage can be served alone: the loop or call itself where what runs in it varies."""
    return address[: next((place for place, number in enumerate(address) if number < 0), len(address))]


def raw_cut(costs: Mapping[Address, Cost], found: Sequence[Node]) -> Address | None:
    """The cut before the first transform: the unit that ends last before the first item starts; without a chain of
    transforms, the last unit that reads or decodes, if something expensive follows it and it does little else."""
    items = [address for address in sorted(costs) if costs[address].is_item]
    if items:
        first = items[0]
        ends = [address for address in sorted(costs) if address < first and not _starts_with(first, address)]
        before = [address for address in ends if _user_of(costs, address) is None]
        top = [address for address in before if not _is_inside_any(address, before)]
        return top[-1] if top else None
    readers = [node for node in found if node.is_leaf and node.stage.kind in _SOURCES]
    if not readers:
        return None
    last = knockable(readers[-1].address)
    others = [node for node in found if node.is_leaf and node.address > last]
    inside = sum(node.share for node in others if _starts_with(node.address, last) and node.stage.kind not in _SOURCES)
    after = sum(node.share for node in others if not _starts_with(node.address, last))
    return last if inside < SUSPECT_SHARE <= after else None


def _starts_with(address: Address, start: Address) -> bool:
    return address[: len(start)] == start


def _is_inside_any(address: Address, others: Sequence[Address]) -> bool:
    return any(len(other) < len(address) and _starts_with(address, other) for other in others)


def cuts_between(found: Sequence[Node], *, minimum: float) -> list[Node]:
    """Stages after which a rung is worth having: every transform, and every other leaf of at least `minimum` share."""
    return [
        node
        for node in found
        if (node.is_item or (node.is_leaf and not _has_item_above(node, found) and node.share >= minimum))
        and knockable(node.address) == node.address
    ]


def _has_item_above(node: Node, found: Sequence[Node]) -> bool:
    return any(other.is_item and _is_below(node, other) for other in found)


def cut_rung(node: Node, order: int) -> Rung:
    """The rung that serves what the stage makes."""
    name, line = node.stage.name, (node.stage.source or "?").rpartition(":")[2]
    what = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    if not node.is_item:
        what += f" (line {line})"  # calls of one name, and parts of one line, would not be told apart
    return Rung(id=cut_id(node), label=f"cached after {what}", kind="cut", after=node.stage.id, order=order)


def cut_id(node: Node) -> str:
    """The name of that rung."""
    return f"after:{node.stage.id}"


def knockout_rung(stage: Stage) -> Rung:
    """The rung that serves this stage alone."""
    return Rung(id=f"knockout:{stage.id}", label=f"{stage.name} for free", kind="knockout", after=stage.id, order=-1)


def reorder_rung(found: Reordering, costs: Mapping[Address, Cost], number: int) -> Rung:
    """The rung under which the workers run their transforms in this order, with its place in the user's files."""
    found = with_source(found, _user_files(costs))
    return Rung(id=f"trial:reorder:{number}", label=f"order: {found}", kind="trial", order=-1, reordering=found)


def collate_stages(costs: Mapping[Address, Cost], collate_ns: float, batch_size: int) -> list[Stage]:
    """Statements of the user's collate function, their cost shared out over the samples of a batch."""
    if not costs:
        return []
    found = []
    for node in nodes(costs, collate_ns):
        stage = node.stage
        found.append(
            replace(
                shared_out(stage, batch_size),
                id=f"collate:{stage.id}",
                parent="collate" if stage.parent is None else f"collate:{stage.parent}",
                kind="collate",
            )
        )
    return found


def shared_out(stage: Stage, samples: int) -> Stage:
    """The stage with what was seen of so many samples together shared out over them."""
    if samples == 1:
        return stage
    return replace(
        stage,
        wall_ns=tuple(wall // samples for wall in stage.wall_ns),
        cpu_ns=tuple(cpu // samples for cpu in stage.cpu_ns),
        delay_ns=tuple(delay // samples for delay in stage.delay_ns),
        read_bytes=stage.read_bytes // samples,
        read_calls=stage.read_calls / samples,
        faults=stage.faults // samples,
        storage_bytes=None if stage.storage_bytes is None else stage.storage_bytes // samples,
    )


def sampled_stages(lines: Sequence[BodyLine], walls: Sequence[int]) -> list[Stage]:
    """Stages of a data set that was only sampled: its expensive lines, each with its share of every sample's time."""
    return [
        Stage(
            id=f"line:{line.source.rpartition(':')[2]}",
            kind=_kind_of_line(line),
            name=line.text,
            source=_place_of_line(line),
            text=line.text,
            parent="code",
            samples=len(walls),
            wall_ns=tuple(int(wall * line.wall_fraction) for wall in walls),
            cpu_ns=tuple(int(wall * line.cpu_fraction) for wall in walls),
            decodes=any(_DECODE.search(name) for name in _called_in_line(line)),
        )
        for line in lines
    ]


def _place_of_line(line: BodyLine) -> str:
    """Where the user asked for a library's stage, such as `.decode("rgb")`; else the line itself."""
    if not is_library(line.source.rpartition(":")[0]):
        return line.source
    return _where_built(line.text.partition("(")[0], _user_files({})) or line.source


def _kind_of_line(line: BodyLine) -> str:
    called = _called_in_line(line)
    if line.cpu_fraction < 0.5 * line.wall_fraction or any(_READ.search(name) for name in called):
        return "read"
    if any(_DECODE.search(name) for name in called):
        return "decode"
    return "transform" if _TRANSFORM.search(" ".join(called)) else "code"


def _called_in_line(line: BodyLine) -> list[str]:
    is_stage = is_library(line.source.rpartition(":")[0])
    return re.findall(r"\w+" if is_stage else r"[\w.]+(?=\()", line.text)


def fixed_stage(ident: str, name: str, **figures: Any) -> Stage:
    """A stage that every loader has, such as `collate`."""
    return Stage(id=ident, kind=ident, name=name, **figures)
