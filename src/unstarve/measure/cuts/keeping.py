"""What the rest of a sample keeps: what values from a stage are put into, set as, or handed on to behind it.

A stage that is served alone gives the values of another sample, which a cache of the user's must not get. Here is told
from the source where they go; whether that outlives the sample is asked of the objects themselves, at run time.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from unstarve.measure.cuts.split import Address, Split, remembered
from unstarve.measure.cuts.switched import Switched, turn_names, walk_body
from unstarve.measure.cuts.tree import (
    RUNTIME,
    arguments_of,
    captured_names,
    dotted,
    last_name,
    root_names,
    root_of,
    targets_of,
    walk_scope,
)
from unstarve.measure.cuts.variants import rest_after

Store = tuple[str, str | None, str | None]
"""What a value is put into: the name of an object; the attribute of it whose element it is, if it is one; and the local that
stands for this element, if one does."""

Holder = tuple[str, str | None]
"""The name of an object that something is put into, or with an attribute of the own object, what that names."""

Hand = tuple[str, frozenset[int | str]]
"""A method of the first argument, and which of the arguments that it is called with are meant, by number or name."""

_TAKING_IN = frozenset(
    ("append", "appendleft", "extend", "insert", "add", "update", "setdefault", "set", "put", "push", "write",
     "__setitem__")
)  # fmt: skip

_TAKING_KEYS = frozenset(("setdefault", "set", "put", "__setitem__"))
"""Of these, the methods that get a key with each value."""

_QUEUEING = frozenset(("append", "appendleft", "extend", "insert", "add", "push"))
"""Methods by which something waits for a later turn, and is found again by no key."""

_COPYING = frozenset(("copy", "deepcopy", "dict", "list", "set", "clone"))
"""Functions and methods that give a copy of their object or argument."""


def stores_after(parts: Split, address: Address, names: frozenset[str]) -> frozenset[Store]:
    """What values that come from these locals, or from the call that the unit leads through, are put into by what follows
    the unit; what attributes of the own object are set to says `sets_after`."""
    return remembered(parts.known, ("stores", address, names), lambda: _stores(parts, address, names))


def _stores(parts: Split, address: Address, names: frozenset[str]) -> frozenset[Store]:
    own, puts = _own_names(parts.node), _puts(rest_after(parts, address), set(names), parts)
    found = root_names(put for put in puts if _is_part(put, own))
    deep = root_names(put for put in puts if len([*_walk_chain(put)]) > 1)
    return frozenset(origin for name in found for origin in _origins(parts.node, name, name in deep))


def sets_after(parts: Split, address: Address, names: frozenset[str]) -> frozenset[str]:
    """Attributes of the function's first argument that what follows the unit sets to such values."""
    return remembered(parts.known, ("sets", address, names), lambda: _sets(parts, address, names))


def _sets(parts: Split, address: Address, names: frozenset[str]) -> frozenset[str]:
    own = _own_names(parts.node)
    attributes = (_own_attribute(put, own) for put in _puts(rest_after(parts, address), set(names), parts))
    return frozenset(attribute for attribute in attributes if attribute is not None)


def hands_after(parts: Split, address: Address, names: frozenset[str]) -> frozenset[Hand]:
    """What gets values that come from these locals, or from the call that the unit leads through, after the unit."""
    return remembered(
        parts.known, ("hands", address, names), lambda: _hands(rest_after(parts, address), set(names), parts)
    )


def hands_within(parts: Split, names: frozenset[str]) -> frozenset[Hand]:
    """What gets values that come from these arguments of the function."""
    return remembered(parts.known, ("hands", names), lambda: _hands(parts.node.body, set(names), parts))


def stores_within(parts: Split, names: frozenset[str]) -> frozenset[Holder]:
    """What outlives the function and gets, under a key, values that come from these arguments; see `stores_in_turn`."""
    return remembered(parts.known, ("stores", names), lambda: _stores_within(parts, set(names)))


def _stores_within(parts: Split, names: set[str]) -> frozenset[Holder]:
    own = _own_names(parts.node)
    code = parts.function.__code__
    local = {*code.co_varnames, *code.co_cellvars} - own
    puts = [put for put in _puts(parts.node.body, names, parts) if _has_key(put)]
    return frozenset(holder for put in puts for holder in _holders(put, own) if holder[0] not in local)


def stores_in_turn(parts: Switched, number: int, names: frozenset[str]) -> frozenset[Holder]:
    """What outlives a turn of the statement's loop and gets, under a key, values that come from these locals in what follows
    the statement in the turn: names of objects, or with an attribute where it is that of the first argument."""
    return remembered(parts.known, ("stores", number, names), lambda: _stores_in_turn(parts, number, set(names)))


def _stores_in_turn(parts: Switched, number: int, names: set[str]) -> frozenset[Holder]:
    loop = next(
        node for node in ast.walk(parts.node) if getattr(node, "_number", None) == parts.statements[number].loop
    )
    own = _own_names(parts.node)
    turn = turn_names(loop, captured_names(parts.node))
    found: set[Holder] = set()
    for put in _puts(_following(loop, number), names, parts):
        is_queue = isinstance(put, ast.Attribute) and isinstance(put.ctx, ast.Load) and put.attr in _QUEUEING
        if _is_part(put, own) and not is_queue:
            found.update(holder for holder in _holders(put, own) if holder[0] not in turn)
    return frozenset(found)


# --- Where values go --------------------------------------------------------------------------------------------------


def _hands(statements: Iterable[ast.AST], names: set[str], parts: Split) -> frozenset[Hand]:
    own = _own_names(parts.node)
    _puts(statements, names, parts)
    found: set[Hand] = set()
    calls = [item for node in statements for item in walk_scope(node) if isinstance(item, ast.Call)]
    for call in calls:
        method = _own_attribute(getattr(call.func, "_pinned", call.func), own)
        given: list[tuple[int | str, ast.expr]] = [
            *enumerate(call.args),
            *((item.arg, item.value) for item in call.keywords if item.arg is not None),
        ]
        meant = frozenset(place for place, value in given if _comes_from(value, names))
        if method is not None and meant:
            found.add((method, meant))
    return frozenset(found)


def _following(loop: Any, number: int) -> list[ast.AST]:
    """The statements of a turn that come after the one of this number, in the order of the source."""
    if loop._number == number:
        return list(loop.body)
    statements = [node for node in walk_body(loop) if isinstance(node, ast.stmt)]
    place = next(place for place, node in enumerate(statements) if getattr(node, "_number", None) == number)
    inside = {id(node) for node in ast.walk(statements[place])}
    return [node for node in statements[place:] if id(node) not in inside]


def _holders(put: ast.expr, own: set[str]) -> Iterator[Holder]:
    """The name that the target begins with, and the attribute if it is one of the `own` object."""
    root = root_of(put)
    if isinstance(root, ast.Name):
        attributes = (_own_attribute(node, own) for node in _walk_chain(put))
        yield root.id, next((name for name in attributes if name is not None), None)


def _puts(statements: Iterable[ast.AST], names: set[str], parts: Split | Switched) -> list[ast.expr]:
    """What the statements assign values that come from these names to, or put them into; `names` grows by what else holds
    such values."""
    items = [item for statement in statements for item in walk_scope(statement)]
    own = _own_names(parts.node)
    modules = {name for name, item in parts.function.__globals__.items() if isinstance(item, types.ModuleType)}
    while True:  # what is made from them in a later turn of a loop, too
        before = len(names)
        puts = [target for item in items for target in _put_into(item, names, own, modules)]
        names |= root_names(puts) - own
        if len(names) == before:
            return puts


def _put_into(node: ast.AST, names: set[str], own: set[str], modules: set[str]) -> list[ast.expr]:
    """What the node assigns, or has an object take in, if its value comes from these names; neither functions of modules,
    such as `torch.add(x, y)`, nor methods of the `own` object count, whose inside is not seen here."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [item for target in targets for item in targets_of(target)] if _comes_from(node.value, names) else []
    if isinstance(node, ast.For):
        return list(targets_of(node.target)) if _comes_from(node.iter, names) else []
    if isinstance(node, ast.Call):
        function = getattr(node.func, "_pinned", node.func)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(function, ast.Attribute) and _takes_in(function.attr):
            if last_name(root_of(function)) in modules or _own_attribute(function, own) is not None:
                return []
            return [function] if any(_comes_from(item, names) for item in given) else []
    return []


def _comes_from(node: ast.AST | None, names: set[str]) -> bool:
    """Whether the value is made from these names, or by the call that a variant goes on in."""
    items = [] if node is None else list(ast.walk(node))
    is_resumed = any(isinstance(item, ast.Attribute) and dotted(item) == f"{RUNTIME}.resume" for item in items)
    return is_resumed or any(isinstance(item, ast.Name) and item.id in names for item in items)


# --- What values are put into -----------------------------------------------------------------------------------------


def _own_names(definition: ast.FunctionDef) -> set[str]:
    """The name of the first argument, which stands for the object that the function is a method of."""
    return {argument.arg for argument in arguments_of(definition)[:1]}


def _own_attribute(node: ast.expr, own: set[str]) -> str | None:
    """The attribute of the `own` object that the node names, if it does."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in own:
        return node.attr
    return None


def _is_part(put: ast.expr, own: set[str]) -> bool:
    """Whether it is an item or attribute of some object, but no attribute of the `own` one."""
    return put is not root_of(put) and _own_attribute(put, own) is None


def _takes_in(method: str) -> bool:
    """Whether a method of this name puts its arguments into its object; torch ends the names of such with `_`."""
    return method in _TAKING_IN or (method.endswith("_") and not method.endswith("__"))


def _has_key(put: ast.expr) -> bool:
    """Whether it is an element found by more than its place, such as `[i]`, and not a part of a buffer, such as `[:n]`."""
    if isinstance(put, ast.Subscript):
        items = put.slice.elts if isinstance(put.slice, ast.Tuple) else [put.slice]
        return not all(isinstance(item, (ast.Slice, ast.Constant)) for item in items)
    return isinstance(put, ast.Attribute) and isinstance(put.ctx, ast.Load) and put.attr in _TAKING_KEYS


def _origins(definition: ast.FunctionDef, name: str, is_deep: bool) -> set[Store]:
    """The name, and the objects that it stands for a part of: `x = self.cache` and `x = self.records[i]`. What is put into
    a part of it (`is_deep`) is put into a copy of it, too."""
    found: set[Store] = {(name, None, None)}
    for block in _every_block(definition):
        for position, node in enumerate(block):
            if _assigns(node, name) and (is_deep or not _is_copied(block[position + 1 :], name)):
                chain = [*_walk_chain(node.value)]  # type: ignore[attr-defined]
                owner = chain[-1].value if chain and isinstance(chain[-1], ast.Attribute) else None
                if isinstance(owner, ast.Name):
                    is_element = any(isinstance(item, ast.Subscript) for item in chain)
                    attribute = chain[-1].attr if is_element else None  # type: ignore[attr-defined]
                    found.add((owner.id, attribute, name if is_element and len(chain) == 2 and not is_deep else None))
    return found


def _every_block(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements in the node."""
    for item in ast.walk(node):
        for _, value in ast.iter_fields(item):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)


def _is_copied(statements: Sequence[ast.stmt], name: str) -> bool:
    """Whether the name is bound to a copy of what it stands for before anything is put into that."""
    for node in statements:
        if _assigns(node, name):
            return _is_new(node.value)  # type: ignore[attr-defined]
        chains = (item for item in ast.walk(node) if isinstance(item, (ast.Subscript, ast.Attribute)))
        mine = (item for item in chains if isinstance(root := root_of(item), ast.Name) and root.id == name)
        if any(isinstance(item.ctx, ast.Store) or _takes_in(getattr(item, "attr", "")) for item in mine):
            return False
    return False


def _is_new(node: ast.expr) -> bool:
    """Whether the expression gives an object that nobody else knows."""
    displays = (ast.BinOp, ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
    return isinstance(node, displays) or (isinstance(node, ast.Call) and last_name(node.func) in _COPYING)


def _walk_chain(node: ast.expr) -> Iterator[ast.expr]:
    """The node and what it is an attribute or an item of."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        yield node
        node = node.value
