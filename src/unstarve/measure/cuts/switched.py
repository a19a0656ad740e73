"""The `switched` variant of a generator function, which cannot be exchanged while it runs.

It is the whole function, in which the runtime can have any unit of a loop that yields run, timed or skipped, from one
turn of the loop to the next.
"""

from __future__ import annotations

import ast
import copy
import functools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from unstarve.measure.cuts.compiling import (
    assign_loaded,
    bind,
    compiled_definition,
    leading_releases,
    map_units,
    parse_expression,
    redirect,
    runtime_call,
    tell,
)
from unstarve.measure.cuts.normalise import has_work, innermost_iterable, is_pin, is_release, is_silent
from unstarve.measure.cuts.split import (
    Unit,
    Unsplittable,
    normalised,
    simple_statements,
    unit_of,
    why_whole,
)
from unstarve.measure.cuts.tree import (
    RUNTIME,
    blocks_of,
    captured_names,
    has_yield,
    is_temporary,
    live_before,
    loaded_names,
    map_blocks,
    root_names,
    stored_names,
    walk_function,
    walk_scope,
)


@dataclass(frozen=True)
class Statement:
    """One unit of a switched generator: a simple statement, or what a loop that yields gets from its iterable."""

    unit: Unit
    """The unit; a loop stands for one draw from its iterable."""
    loop: int | None
    """The innermost loop that yields around it, a loop being its own; None outside of such loops."""
    can_skip: bool
    """Whether its results are plain locals of one turn of the loop, so that a snapshot can replace them."""
    outputs: tuple[str, ...]
    """Locals of the turn that it assigns, or that it writes into."""
    carried: tuple[str, ...]
    """Locals that the rest of the turn reads, if everything of the turn up to here was skipped."""
    foreign: tuple[str, ...]
    """Locals that it reads and that outlive the turn: files, iterators, buffers."""


@dataclass(frozen=True)
class Switched:
    """A generator function with a switch at each statement."""

    function: types.FunctionType
    """The function itself."""
    statements: tuple[Statement, ...]
    """In the order of the source, by number."""
    filename: str
    """Source file."""
    code: types.CodeType = field(repr=False)
    """Its compiled variant."""
    node: ast.FunctionDef = field(repr=False, compare=False)
    """Its normalised definition; statements carry `_number`."""
    known: dict[Any, Any] = field(repr=False, compare=False)
    """What was worked out about this code so far."""

    def bind(self, runtime: Any) -> types.FunctionType:
        """The variant that talks to `runtime`."""
        return bind(self.function, self.code, runtime)


def switched(function: types.FunctionType) -> Switched:
    """The generator function with a switch at each of its statements; compiled once.

    Raises:
        Unsplittable: no source, or not of what runs; no generator; code that looks at its own frame or is sent values.
    """
    made = _switched(function.__code__.co_filename, function.__code__)
    if isinstance(made, str):
        raise Unsplittable(made)
    statements, *variant = made
    return Switched(function, statements, function.__code__.co_filename, *variant)


@functools.lru_cache(maxsize=256)
def _switched(filename: str, code: types.CodeType) -> Any:
    """Fields of `Switched` that do not depend on the function's cells, or why there are none."""
    try:
        switcher = _Switcher(normalised(filename, code, is_generator=True), code)
        node = copy.deepcopy(switcher.node)
        return switcher.statements, compiled_definition(code, switcher.definition(), filename), node, {}
    except Exception as error:
        return why_whole(error)


class _Switcher:
    """Builds the `switched` variant of a generator.

    What a loop that yields does in a turn is there twice, as it was and with switches, and the former runs while the runtime
    is off, so that nothing but a test in each turn is added; another test follows each such loop inside it, since the runtime
    may be switched while that runs. A `yield from` becomes a loop first.
    """

    def __init__(self, definition: ast.FunctionDef, code: types.CodeType) -> None:
        self.node = definition
        self._captured = captured_names(definition)
        self._cells = {*code.co_cellvars, *code.co_freevars}
        self._reads = [
            item for item in ast.walk(definition) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)
        ]
        self._local = {*code.co_varnames, *code.co_cellvars} - definition._hidden  # type: ignore[attr-defined]
        self._first = code.co_varnames[: min(1, code.co_argcount)]
        self._statements: list[Statement] = []
        definition.body = _map_yields_from(definition.body)
        self._number(definition.body, None, 0)
        self.statements = tuple(self._statements)

    def _number(self, statements: Sequence[Any], loop: Any, depth: int, *, is_guard: bool = False) -> None:
        """Number statements; those of handlers and the like (`is_guard`) are timed and never skipped."""
        for node in statements:
            if _is_loop(node):
                if any(map(has_yield, node.orelse)):
                    raise Unsplittable("it yields in the else of a loop")
                node._depth = depth  # type: ignore[union-attr]
                self._add(node, node)
                self._number(node.body, node, depth + 1)
            elif isinstance(node, (ast.If, ast.With, ast.Try)):
                for block in blocks_of(node):
                    is_other = isinstance(node, ast.Try) and block is not node.body
                    self._number(block, loop, depth, is_guard=is_guard or is_other)
            elif isinstance(node, _SIMPLE) and not is_silent(node) and not _is_yield(node):
                self._add(node, loop, is_guard=is_guard)

    def _add(self, node: Any, loop: Any, *, is_guard: bool = False) -> None:
        number = len(self._statements)
        unit = unit_of(node, number)
        turn = turn_names(loop, self._captured) if loop is not None else set()
        outputs = _written_names(node.target if node is loop and isinstance(node, ast.For) else node) & turn
        read = loaded_names([node.iter if isinstance(node, ast.For) else node] if node is loop else [node])
        local = {name for name in read if name in self._local or is_temporary(name)}
        can_skip = loop is not None and not is_guard and _is_switchable(loop) and _only_writes(node, loop, turn)
        self._statements.append(
            Statement(
                unit=unit,
                loop=None if loop is None else loop._number,
                can_skip=can_skip,
                outputs=tuple(sorted(outputs | (local & turn))) if node is not loop else tuple(sorted(outputs)),
                carried=tuple(sorted(self._carried(loop, node, turn))) if can_skip else (),
                foreign=tuple(sorted(local - turn - set(self._first))),
            )
        )

    def _carried(self, loop: Any, last: Any, turn: set[str]) -> set[str]:
        """Names of the turn that anything but the skippable statements up to `last` reads."""
        skipped = set() if last is loop else _skippable_until(loop.body, last, turn)
        kept = [node for node in _own_nodes(loop) if id(node) not in skipped]
        tests = [loop.test] if isinstance(loop, ast.While) else []
        return loaded_names([*kept, *tests]) & turn

    def definition(self) -> ast.FunctionDef:
        self.node.body = self._block(self.node.body)
        return ast.fix_missing_locations(self.node)

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements with switches."""
        return map_units(statements, self._statement)

    def _statement(self, node: Any, pins: list[ast.stmt], releases: list[ast.stmt]) -> list[ast.stmt]:
        if _is_loop(node):
            return [*pins, self._loop(node), *releases]
        number = getattr(node, "_number", None)
        if number is None:
            map_blocks(node, self._block)
            return [*pins, node, *releases]
        statement = self._statements[number]
        redirect(node, "bound")
        run = [*pins, node, *releases, tell(node, "ends", number)]
        test = runtime_call(node, "starts", [parse_expression(repr(number), node), parse_expression("locals()", node)])
        if not statement.can_skip:
            return [ast.copy_location(ast.Expr(test), node), *run]
        return [ast.copy_location(ast.If(test, run, self._loaded(node, statement)), node)]

    def _loaded(self, node: ast.stmt, statement: Statement) -> list[ast.stmt]:
        names = sorted({*statement.outputs, *statement.carried, *_written_names(node)})
        return _load_at(node, statement.unit.number, names) or [ast.copy_location(ast.Pass(), node)]

    def _loop(self, node: Any) -> ast.stmt:
        number = node._number
        before: list[ast.stmt] = []
        take: list[ast.stmt] = []
        if isinstance(node, ast.For):
            item = f"{RUNTIME}_item{number}"
            take = [ast.Assign([node.target], ast.Name(item, ast.Load())), _forget(item)]
            holder = innermost_iterable(node)
            source = node.iter if holder is None else holder.args[0]
            if isinstance(source, ast.Name) and is_temporary(source.id):  # nobody reads it again
                before = [_forget(source.id)]
            self._draw_from_runtime(node, number)
            node.target = ast.Name(item, ast.Store())
        turn = self._turn(node, copy.deepcopy(take))
        node.body = [*before, *self._switched(node, node.body, turn, take)]
        return ast.fix_missing_locations(node)

    def _switched(
        self, where: ast.stmt, statements: list[Any], on: Sequence[ast.stmt] = (), off: Sequence[ast.stmt] = ()
    ) -> list[ast.stmt]:
        """The statements, those between loops that yield once with switches, after `on`, and once as they were, after `off`."""
        first = next((place for place, node in enumerate(statements) if _holds_loop(node)), len(statements))
        plain, rest = statements[:first], statements[first:]
        result: list[ast.stmt] = []
        if plain or on:
            body = [*on, *self._block(copy.deepcopy(plain))] or [ast.Pass()]
            is_on = parse_expression(f"{RUNTIME}.stream.is_on", where)
            result.append(ast.copy_location(ast.If(is_on, body, [*off, *plain]), where))
        if not rest:
            return result
        holder, *after = rest
        releases = leading_releases(after)
        if _is_loop(holder):
            holder = self._loop(holder)
        else:
            map_blocks(holder, lambda block: self._switched(holder, block))
        return [*result, holder, *releases, *self._switched(where, after[len(releases) :])]

    def _turn(self, node: Any, take: list[ast.stmt]) -> list[ast.stmt]:
        """The start of a turn of a loop: what it runs over gives its item, or a snapshot stands for it."""
        statement = self._statements[node._number]
        test = runtime_call(node, "turns", [parse_expression(repr(node._number), node)])
        run = [*take, tell(node, "turned", node._number)]
        instead = _load_at(node, node._number, sorted({*statement.outputs, *statement.carried})) or [ast.Pass()]
        return [ast.copy_location(ast.If(test, run, instead), node)]

    def _draw_from_runtime(self, node: ast.For, number: int) -> None:
        """Have the runtime draw what the loop runs over, and look into what is counted or sliced by `enumerate` and the
        like: turns that are served draw nothing, so they are not counted either."""
        holder = innermost_iterable(node)
        inner = node.iter if holder is None else holder.args[0]
        number_node = parse_expression(repr(number), node)
        is_own = parse_expression(repr(self._is_only_here(inner, node)), node)
        adopted = runtime_call(node, "adopt", [number_node, inner, is_own])
        if holder is None:
            node.iter = adopted
        else:
            holder.args[0] = adopted
        node.iter = runtime_call(node, "source", [copy.deepcopy(number_node), node.iter])

    def _is_only_here(self, iterable: ast.expr, loop: ast.For) -> bool:
        """Whether the iterable is a local that is read nowhere else, and bound anew for each time that the loop runs."""
        if not isinstance(iterable, ast.Name):
            return False
        if is_temporary(iterable.id):
            return True
        is_inner = loop._depth > 0  # type: ignore[attr-defined]
        uses = sum(isinstance(item, ast.Name) and item.id == iterable.id for item in self._reads)
        return iterable.id in self._local and iterable.id not in self._cells and uses == 1 and not is_inner


def _forget(name: str) -> ast.stmt:
    """What holds on to a value no longer, so that it dies when it would without us."""
    return ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))


_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Delete, ast.For, ast.While, ast.Assert)


def _load_at(where: ast.stmt, number: int, names: Sequence[str]) -> list[ast.stmt]:
    """`a, b = _unstarve.load(number, ("a", "b"), locals())`, or nothing for no names."""
    if not names:
        return []
    return [assign_loaded(where, names, (repr(number), repr(tuple(names)), "locals()"))]


def _is_loop(node: ast.stmt) -> bool:
    """Whether the statement is a loop that yields."""
    return isinstance(node, (ast.For, ast.While)) and has_yield(node)


def _holds_loop(node: ast.stmt) -> bool:
    """Whether the statement is a loop that yields, or holds one in a block."""
    return _is_loop(node) or any(_holds_loop(inner) for block in blocks_of(node) for inner in block)


def _map_yields_from(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements with `yield from x` spelt out as a loop."""
    result: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.YieldFrom):
            name = f"{RUNTIME}_each"
            body = ast.Expr(ast.Yield(ast.Name(name, ast.Load())))
            loop = ast.For(ast.Name(name, ast.Store()), node.value.value, [body], [])
            loop._text = node._text  # type: ignore[attr-defined]
            node = ast.fix_missing_locations(ast.copy_location(loop, node))
        elif isinstance(node, (ast.For, ast.While)):
            node.body = _map_yields_from(node.body)
        else:
            map_blocks(node, _map_yields_from)
        result.append(node)
    return result


def _is_yield(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, (ast.Yield, ast.YieldFrom))


def _written_names(node: ast.AST) -> set[str]:
    """Names that a statement binds, or whose items or attributes it assigns."""
    stores = (ast.Subscript, ast.Attribute)
    targets = [item for item in walk_scope(node) if isinstance(item, stores) and isinstance(item.ctx, ast.Store)]
    return stored_names([node]) | root_names(targets)


def turn_names(loop: Any, captured: set[str]) -> set[str]:
    """Names that live for one turn of the loop: bound in it, before they are read."""
    bound = stored_names([*loop.body, *([loop.target] if isinstance(loop, ast.For) else [])])
    early = live_before(loop.body, set(), captured) & bound
    first = stored_names([loop.target]) if isinstance(loop, ast.For) else set()
    inner = [item for node in loop.body for item in walk_scope(node) if isinstance(item, (ast.For, ast.While))]
    theirs = {name for node in inner if isinstance(node, ast.For) for name in stored_names([node.target])}
    return bound - (early - first - theirs) - captured


def _is_switchable(loop: Any) -> bool:
    """Whether turns of the loop can be served: what decides on the next turn must not depend on what is skipped, and a
    turn must end with its sample: one that yields in a loop of its own would go on after serving has ended."""
    has_inner = any(isinstance(item, (ast.For, ast.While)) and has_yield(item) for item in walk_body(loop))
    return not has_inner and (isinstance(loop, ast.For) or not has_work(loop.test))


def walk_body(loop: Any) -> Iterator[ast.AST]:
    """Nodes of the loop's body, without those inside functions and lambdas nested in it."""
    return (item for node in loop.body for item in (node, *walk_function(node)))


def _only_writes(node: Any, loop: Any, turn: set[str]) -> bool:
    """Whether all that the statement assigns are names of the turn, or parts of what they name."""
    if node is loop:
        return isinstance(node, ast.For)
    return isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)) and _written_names(node) <= turn


def _own_nodes(loop: Any) -> Iterator[ast.AST]:
    """Simple statements and tests of the loop's body, in blocks and inner loops too."""
    waiting: list[Any] = list(loop.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.If, ast.While)):
            yield node.test
        elif isinstance(node, ast.With):
            yield from node.items
        elif isinstance(node, ast.For):
            yield node.iter
        if isinstance(node, (ast.If, ast.While, ast.With, ast.For, ast.Try)):
            waiting += [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            waiting += [item for handler in getattr(node, "handlers", []) for item in handler.body]
        elif not is_release(node):
            yield node


def _skippable_until(statements: Sequence[Any], last: Any, turn: set[str]) -> set[int]:
    """Identities of the statements up to `last`, in the order of the source, that a cut after it skips."""
    found: set[int] = set()
    for node in statements:
        if isinstance(node, (ast.If, ast.With, ast.Try)):
            inner = [*node.body, *(node.orelse if isinstance(node, ast.If) else [])]
            found |= _skippable_until(inner, last, turn)
            if any(item is last for item in simple_statements(inner)):
                return found
        elif is_pin(node):
            found.add(id(node))
        elif isinstance(node, _SIMPLE) and not isinstance(node, (ast.For, ast.While)) and not _is_yield(node):
            found |= {id(node)} if _written_names(node) <= turn else set()
        if node is last:
            return found
    return found
