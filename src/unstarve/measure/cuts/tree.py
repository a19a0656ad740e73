"""What syntax trees say, of functions that were normalised or not: their blocks, and the names that they bind and read.

Nothing here knows of units or variants, or what evaluating an expression costs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

RUNTIME = "_unstarve"
"""Name under which compiled variants see the runtime; temporaries are called `_unstarve_0` and so on."""

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


# --- Blocks -----------------------------------------------------------------------------------------------------------


def blocks_of(node: Any) -> list[list[Any]]:
    """The blocks of a statement that is no loop, in the order of the source."""
    if not isinstance(node, (ast.If, ast.With, ast.Try)):
        return []
    handlers = [handler.body for handler in getattr(node, "handlers", [])]
    blocks = [node.body, *handlers, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
    return [block for block in blocks if block]


def map_blocks(node: Any, change: Callable[[list[ast.stmt]], list[ast.stmt]]) -> None:
    """Change the statement's blocks in place, unless it is a loop."""
    for block in blocks_of(node):
        block[:] = change(list(block)) or [ast.copy_location(ast.Pass(), node)]


def walk_function(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below `node`, without those inside functions and lambdas nested in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from walk_function(child)


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of `node` that live in the same scope: not inside nested functions, classes and comprehensions."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, COMPREHENSIONS):
        yield from (item.target for item in ast.walk(node) if isinstance(item, ast.NamedExpr))
        return
    for child in ast.iter_child_nodes(node):
        yield from walk_scope(child)


def has_yield(node: ast.AST) -> bool:
    """Whether something below the node, in the same function, yields."""
    return any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in walk_function(node))


# --- Parts of expressions ---------------------------------------------------------------------------------------------


def root_of(node: ast.expr) -> ast.expr:
    """What the node is an item or attribute of, in the end."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node


def root_names(nodes: Iterable[ast.expr]) -> set[str]:
    """What the nodes are items or attributes of, by name."""
    return {root.id for root in map(root_of, nodes) if isinstance(root, ast.Name)}


def last_name(node: ast.AST) -> str:
    """The name, or that of the attribute; empty for what has none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str | None:
    """The name and its attributes as written, also where the normaliser put a temporary in their place."""
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else node.attr
    if isinstance(node, ast.Name):
        return getattr(node, "_written", None) if is_temporary(node.id) else node.id
    return None


def targets_of(node: ast.expr) -> Iterator[ast.expr]:
    """What assigning to the node assigns to, one by one."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from targets_of(item)
    elif isinstance(node, ast.Starred):
        yield from targets_of(node.value)
    else:
        yield node


def target_names(target: ast.expr) -> list[str]:
    """Names that assigning to the target binds."""
    return [item.id for item in targets_of(target) if isinstance(item, ast.Name)]


def arguments_of(definition: ast.FunctionDef) -> list[ast.arg]:
    """All arguments of the function, those by place first."""
    arguments = definition.args
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [item for item in (arguments.vararg, arguments.kwarg) if item is not None]


# --- Names ------------------------------------------------------------------------------------------------------------


def is_temporary(name: str) -> bool:
    """Whether the normaliser made the name for a value that is used once."""
    return name.startswith(f"{RUNTIME}_")


def is_own_local(name: str) -> bool:
    """Whether the normaliser made the name: a temporary, or what a comprehension is gathered in."""
    return name.startswith(RUNTIME) and name[-1].isdigit()


def stored_names(statements: Iterable[ast.AST]) -> set[str]:
    """Names that the statements bind in the function's own scope."""
    return {name for statement in statements for node in walk_scope(statement) for name in _bound(node)}


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def loaded_names(statements: Iterable[ast.AST]) -> set[str]:
    """Names read anywhere in the statements, nested functions included."""
    found = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def captured_names(definition: ast.AST) -> set[str]:
    """Names that functions and comprehensions nested in the function read, at a time that is not in the source."""
    nested = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)
    return loaded_names(node for node in ast.walk(definition) if isinstance(node, nested) and node is not definition)


def live_before(statements: Sequence[ast.stmt], after: set[str], captured: set[str]) -> set[str]:
    """Names that may be read from the first statement on, given those that may be read after the last."""
    live = set(after)
    for node in reversed(statements):
        live = _live_through(node, live, captured)
    return live


def _live_through(node: ast.stmt, after: set[str], captured: set[str]) -> set[str]:
    if isinstance(node, (ast.Return, ast.Raise)):
        return loaded_names([node])
    if isinstance(node, ast.Assign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        certain = {name for target in targets for name in target_names(target)}
        return (after - (certain - captured)) | loaded_names([node])
    if isinstance(node, ast.If):
        branches = (live_before(block, after, captured) for block in (node.body, node.orelse))
        return set().union(loaded_names([node.test]), *branches)
    if isinstance(node, ast.With):
        return after | loaded_names(node.items) | live_before(node.body, after, captured)
    if isinstance(node, ast.Try):  # an exception may leave the body anywhere, so that it sets nothing for certain
        after = after | _loaded_before([*node.handlers, *node.orelse, *node.finalbody])
        return after | live_before(node.body, after, captured)
    return after | _loaded_before([node])


def _loaded_before(statements: Sequence[ast.AST]) -> set[str]:
    """Names read in the statements, but for locals of our own, which they set before."""
    return loaded_names(statements) - {name for name in stored_names(statements) if is_own_local(name)}
