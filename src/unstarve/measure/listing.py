"""Where a chain of transforms is written down in the user's files, and the change that puts it into another order."""

from __future__ import annotations

import ast
import difflib
import itertools
import linecache
import os
from collections.abc import Sequence
from dataclasses import replace

from unstarve import syntax
from unstarve.recording import Reordering


def with_source(found: Reordering, files: Sequence[str]) -> Reordering:
    """The reordering with its place and its patch, if exactly one list in these files names its transforms."""
    places = [(filename, items) for filename in files for items in _listings(filename, found.names)]
    if len(places) != 1:
        return found
    filename, items = places[0]
    moved = items[found.moves[0][0]]
    return replace(found, source=f"{filename}:{moved.lineno}", patch=_patch(filename, items, found.order))


def _listings(filename: str, names: Sequence[str]) -> list[list[ast.expr]]:
    """The items of each list, tuple or call in the file whose items have these names."""
    try:
        tree = syntax.parsed("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        items = (
            node.elts if isinstance(node, (ast.List, ast.Tuple)) else node.args if isinstance(node, ast.Call) else []
        )
        if items and [_name(item) for item in items] == list(names):
            found.append(items)
    return found


def _name(item: ast.expr) -> str | None:
    """What a transform is called where it is listed, as `resolving.item_name` calls it when it runs."""
    if isinstance(item, ast.Call):
        called = _name(item.func)
        return _name(item.args[0]) if called == "partial" and item.args else called
    if isinstance(item, ast.Lambda):
        return "<lambda>"
    return item.attr if isinstance(item, ast.Attribute) else item.id if isinstance(item, ast.Name) else None


def _patch(filename: str, items: Sequence[ast.expr], order: Sequence[int]) -> str | None:
    """The file's change as a unified diff; None where comments stand between items that share lines."""
    text = "".join(linecache.getlines(filename)).encode()
    edited = _with_lines_moved(text, items, order) or _with_items_moved(text, items, order)
    if edited is None:
        return None
    name = os.path.basename(filename)
    lines = difflib.unified_diff(
        text.decode().split("\n"), edited.decode().split("\n"), f"a/{name}", f"b/{name}", n=1, lineterm=""
    )
    return "\n".join(lines)


def _with_lines_moved(text: bytes, items: Sequence[ast.expr], order: Sequence[int]) -> bytes | None:
    """The text with the lines of each item, comments behind and above it included, in the other order; None where an item
    shares a line with something else, or no comma follows it."""
    lines = text.split(b"\n")
    spans = [(item.lineno - 1, item.end_lineno or 0) for item in items]
    begins = [spans[0][0], *(end for _, end in spans[:-1])]
    heads = [lines[item.lineno - 1][: item.col_offset] for item in items]
    tails = [lines[end - 1][item.end_col_offset :] for item, (_, end) in zip(items, spans, strict=True)]
    is_alone = not any(head.strip() for head in heads) and all(tail.lstrip().startswith(b",") for tail in tails)
    if not is_alone or any(tail.lstrip()[1:].lstrip()[:1] not in (b"", b"#") for tail in tails):
        return None
    groups = [lines[begin:end] for begin, (_, end) in zip(begins, spans, strict=True)]
    moved = [line for number in order for line in groups[number]]
    return b"\n".join([*lines[: spans[0][0]], *moved, *lines[spans[-1][1] :]])


def _with_items_moved(text: bytes, items: Sequence[ast.expr], order: Sequence[int]) -> bytes | None:
    """The text with the items in the other order, and what stands between them where it was."""
    spans = [_span(text, item) for item in items]
    between = [text[end:begin] for (_, end), (begin, _) in itertools.pairwise(spans)]
    if any(b"#" in gap for gap in between):
        return None
    parts = [text[slice(*spans[number])] for number in order]
    mixed = b"".join(part + gap for part, gap in zip(parts, [*between, b""], strict=True))
    return text[: spans[0][0]] + mixed + text[spans[-1][1] :]


def _span(text: bytes, item: ast.expr) -> tuple[int, int]:
    """Where the item stands, in bytes, as the tree counts columns."""
    assert item.end_lineno is not None
    assert item.end_col_offset is not None
    lines = text.split(b"\n")

    def offset(line: int, column: int) -> int:
        return sum(len(other) + 1 for other in lines[: line - 1]) + column

    return offset(item.lineno, item.col_offset), offset(item.end_lineno, item.end_col_offset)
