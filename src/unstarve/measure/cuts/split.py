"""Splitting a Python function at its statements, so that it can be watched, resumed or stubbed at any of them.

A function's source is found and checked, or refused with the reason; its body is *normalised* (see `normalise`); and the
simple statements that come out are the *units*, numbered in the order of the source. What is compiled from there is in
`variants`, and in `switched` for generators.

An *address* names a unit from the outside in: unit numbers, and inside a loop over callables the number of the
iteration. Which function stands behind a call is known only when it is called, so addresses cross calls at run time.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import linecache
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from unstarve import syntax
from unstarve.measure.counters import OWN_READS
from unstarve.measure.cuts.normalise import Normaliser, is_silent
from unstarve.measure.cuts.tree import (
    blocks_of,
    dotted,
    last_name,
    loaded_names,
    stored_names,
    target_names,
    walk_function,
)

Address = tuple[int, ...]
"""Path to a unit: unit numbers, iterations of unrolled loops, and again unit numbers inside the functions called."""

ANY_ITERATION = -1
"""Stands in an address for all iterations of a loop that is not over callables."""

FIRST_CHOICE = -2
"""Stands in an address for the first of several callables among which each sample chooses; the next are smaller."""

FRAME_READERS = frozenset(("locals", "eval", "exec", "_getframe", "currentframe"))
"""Functions through which code sees or changes its own frame."""

FUTURES = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


class Unsplittable(Exception):
    """A function that cannot be split; the message says why."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One normalised simple statement, or one loop."""

    number: int
    """Position in the function, in the order of the source."""
    line: int
    """Line in the source file."""
    text: str
    """The statement or call as it stands in the source, on one line."""
    is_loop: bool
    """Whether it is a `for` or `while` statement."""
    outputs: tuple[str, ...]
    """Locals that it assigns; what else it may change in place is found out when it runs."""
    callee: str | None
    """Name of the function it calls, as written."""


@dataclass(frozen=True)
class Split:
    """A function taken apart."""

    function: types.FunctionType
    """The function itself."""
    node: ast.FunctionDef
    """Its normalised definition; units carry `_number`."""
    units: tuple[Unit, ...]
    """In the order of the source; those of loop bodies are numbered inside their loop and not listed here."""
    bodies: dict[int, tuple[Unit, ...]]
    """For each loop, the units of its body."""
    filename: str
    """Source file."""
    known: dict[Any, Any] = field(repr=False, compare=False)
    """What was worked out about this code so far: compiled variants, live locals. Shared by functions of equal code."""


def split(function: Any) -> Split:
    """`function` taken apart at its statements; the same for the same function.

    Raises:
        Unsplittable: no source, or not of what runs; a generator or coroutine; code that looks at its own frame.
    """
    if type(function) is not types.FunctionType:  # nor a proxy that claims to be one
        raise Unsplittable(f"{type(function).__name__} is not a Python function")
    # keyed by code and not by function: a cached closure would keep the values that it closes over alive
    anatomy = _anatomy(function.__code__.co_filename, function.__code__)
    if isinstance(anatomy, str):
        raise Unsplittable(anatomy)
    return Split(function, *anatomy)


def why_whole(error: Exception) -> str:
    """Why a function stays a whole. What else than a refusal of ours is raised, such as by source that compiles only in
    a notebook or by an expression nested too deep, must not reach the program that is watched."""
    is_refusal = isinstance(error, Unsplittable)
    return str(error) if is_refusal else f"it cannot be taken apart ({type(error).__name__}: {error})"


@functools.lru_cache(maxsize=1024)
def _anatomy(filename: str, code: types.CodeType) -> Any:
    """Fields of `Split` after the first, or why there are none."""
    try:
        definition = normalised(filename, code)
        units, bodies = _number(definition)
    except Exception as error:
        return why_whole(error)
    return definition, units, bodies, filename, {}


def remembered(known: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """What is known about a code under this key, made if need be."""
    if key not in known:
        known[key] = make()
    return known[key]


# --- Reading the source -----------------------------------------------------------------------------------------------


def normalised(filename: str, code: types.CodeType, *, is_generator: bool = False) -> ast.FunctionDef:
    """The function's definition with nested calls as statements of their own, to be changed at will.

    Raises:
        Unsplittable: it is of a kind that cannot be taken apart.
    """
    found, owner = _definition(code)
    definition = copy.deepcopy(found)
    _refuse(definition, is_generator=is_generator)
    source = "".join(linecache.getlines(filename))
    Normaliser(source, code, hoists_iterables=is_generator).function(definition)
    if owner is not None:
        _mangle(definition, owner)
    return definition


def _definition(code: types.CodeType) -> tuple[ast.FunctionDef, str | None]:
    """The function's definition, and the name of the class around it, which private names depend on."""
    tree, source = _parse(code.co_filename)
    for node, owner in _functions(tree, None):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if node.name == code.co_name and first == code.co_firstlineno:
            if isinstance(node, ast.AsyncFunctionDef):
                raise Unsplittable("it is a coroutine")
            _check_same(code, source)
            return node, owner
    raise Unsplittable(f"its definition was not found in {code.co_filename}")


def _functions(node: ast.AST, owner: str | None) -> Iterator[tuple[Any, str | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child, owner
        yield from _functions(child, child.name if isinstance(child, ast.ClassDef) else owner)


@functools.lru_cache(maxsize=256)
def _parse(filename: str) -> tuple[ast.Module, str]:
    with OWN_READS.counting():  # a statement may be timed whose call is being looked at
        source = "".join(linecache.getlines(filename))
    if not source:
        raise Unsplittable("its source is not available")
    try:
        return syntax.parsed(source), source
    except SyntaxError as error:
        raise Unsplittable(f"its source cannot be parsed ({error})") from None


def _check_same(code: types.CodeType, source: str) -> None:
    """Refuse a function whose file was edited after it was loaded, or that an import hook has rewritten."""
    compiled = _compiled(code.co_filename, source, code.co_flags & FUTURES)
    if not any(_is_same(code, other) for other in compiled.get((code.co_name, code.co_firstlineno), ())):
        raise Unsplittable("its source is not what runs: the file was edited meanwhile, or rewritten on import")


@functools.lru_cache(maxsize=64)
def _compiled(filename: str, source: str, flags: int) -> dict[tuple[str, int], list[types.CodeType]]:
    found: dict[tuple[str, int], list[types.CodeType]] = {}
    waiting = [syntax.compiled(source, filename, flags)]
    while waiting:
        code = waiting.pop()
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return found


def _is_same(left: types.CodeType, right: types.CodeType) -> bool:
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    if any(getattr(left, name) != getattr(right, name) for name in names):
        return False
    pairs = zip(left.co_consts, right.co_consts, strict=False)
    return len(left.co_consts) == len(right.co_consts) and all(_is_same_constant(a, b) for a, b in pairs)


def _is_same_constant(left: Any, right: Any) -> bool:
    if isinstance(left, types.CodeType) and isinstance(right, types.CodeType):
        return _is_same(left, right)
    if isinstance(left, frozenset):
        return left == right
    return type(left) is type(right) and repr(left) == repr(right)  # repr tells 0.0 from -0.0


def _refuse(node: ast.FunctionDef, *, is_generator: bool = False) -> None:
    for item in ast.walk(node):
        if isinstance(item, (ast.AsyncFor, ast.AsyncWith)) or (isinstance(item, ast.comprehension) and item.is_async):
            raise Unsplittable("it is a generator or coroutine")
        if isinstance(item, ast.Nonlocal):
            raise Unsplittable("it rebinds variables of an enclosing function")
        if isinstance(item, ast.Global):
            raise Unsplittable("it rebinds global variables")
        if isinstance(item, ast.Call):
            _refuse_frame_reader(item)
    if any(name.id == "locals" for name in ast.walk(node) if isinstance(name, ast.Name)):
        raise Unsplittable("it uses the name locals")
    if is_generator:
        _refuse_sent_values(node)
    elif any(isinstance(item, (ast.Yield, ast.YieldFrom, ast.Await)) for item in walk_function(node)):
        raise Unsplittable("it is a generator or coroutine")


def _refuse_sent_values(node: ast.FunctionDef) -> None:
    """Refuse a generator that does more than to yield: what comes back from a yield is lost on the way."""
    statements = [item.value for item in walk_function(node) if isinstance(item, ast.Expr)]
    yields = [item for item in walk_function(node) if isinstance(item, (ast.Yield, ast.YieldFrom))]
    if not yields or not all(item in statements for item in yields):
        raise Unsplittable("it is no generator that only yields")
    if any(isinstance(item, ast.Return) and item.value is not None for item in walk_function(node)):
        raise Unsplittable("it is a generator that returns a value")


def _refuse_frame_reader(call: ast.Call) -> None:
    name = last_name(call.func)
    if name in FRAME_READERS and (isinstance(call.func, ast.Name) or name[0] == "_" or name == "currentframe"):
        raise Unsplittable(f"it calls {name}()")
    if name in ("vars", "dir") and isinstance(call.func, ast.Name) and not call.args:
        raise Unsplittable(f"it calls {name}()")


_NAME_FIELDS = ("id", "attr", "arg", "name", "asname", "rest")


def _mangle(definition: ast.FunctionDef, owner: str) -> None:
    """Spell private names out, as the compiler does inside a class: variants are compiled outside of it."""
    prefix = "_" + owner.lstrip("_")
    waiting: list[ast.AST] = [*ast.iter_child_nodes(definition)]
    while waiting and prefix != "_":
        node = waiting.pop()
        if isinstance(node, ast.keyword):  # the one kind of name that stays as it is
            waiting.append(node.value)
            continue
        for name in _NAME_FIELDS:
            value = getattr(node, name, None)
            if isinstance(value, str) and value.startswith("__") and not value.endswith("__") and "." not in value:
                setattr(node, name, prefix + value)
        if not isinstance(node, ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


# --- Numbering --------------------------------------------------------------------------------------------------------


def _number(definition: ast.FunctionDef) -> tuple[tuple[Unit, ...], dict[int, tuple[Unit, ...]]]:
    bodies: dict[int, tuple[Unit, ...]] = {}
    units: list[Unit] = []
    for statement in simple_statements(definition.body):
        unit = unit_of(statement, len(units))
        units.append(unit)
        if unit.is_loop:
            inner = [unit_of(item, number) for number, item in enumerate(simple_statements(statement.body))]  # type: ignore[attr-defined]
            bodies[unit.number] = tuple(inner)
    return tuple(units), bodies


def simple_statements(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements and loops in the order of the source; blocks other than loops are looked into."""
    for statement in statements:
        if isinstance(statement, (ast.If, ast.With, ast.Try)):
            yield from (item for block in blocks_of(statement) for item in simple_statements(block))
        elif not isinstance(statement, _NO_UNITS) and not is_silent(statement):
            yield statement


_NO_UNITS = (ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom)


def unit_of(statement: ast.stmt, number: int) -> Unit:
    """The statement as the unit of this number, which the statement carries from now on."""
    statement._number = number  # type: ignore[attr-defined]
    call = main_call(statement)
    line = call.lineno if call is not None else statement.lineno
    return Unit(
        number=number,
        line=line,
        text=getattr(statement, "_text", ""),
        is_loop=isinstance(statement, (ast.For, ast.While)),
        outputs=tuple(sorted(stored_names([statement]))),
        callee=dotted(call.func) if isinstance(call, ast.Call) else None,
    )


def main_call(statement: ast.stmt) -> ast.expr | None:
    """The one call or subscript that a unit consists of, if it does."""
    value = getattr(statement, "value", None)
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)) and isinstance(value, (ast.Call, ast.Subscript)):
        return value
    return None


# --- Loops over callables ---------------------------------------------------------------------------------------------


def is_container(parts: Split) -> bool:
    """Whether the function runs a loop over callables that it calls by itself: a chain of transforms."""
    return bool(remembered(parts.known, "container", lambda: any(map(calls_its_target, _loops(parts.node)))))


def chain_targets(code: types.CodeType) -> set[str]:
    """What the loops of the function of this code run over, by name, as far as they may run over callables."""
    anatomy = _anatomy(code.co_filename, code)
    loops = [] if isinstance(anatomy, str) else [node for node in _loops(anatomy[0]) if is_callable_loop(node)]
    return {name for node in loops for name in target_names(node.target)}


def _loops(definition: ast.FunctionDef) -> Iterator[ast.For]:
    """The function's loops that can be looked into, in blocks too."""
    return (node for node in simple_statements(definition.body) if isinstance(node, ast.For))


def is_callable_loop(node: ast.stmt) -> bool:
    """Whether the statement may be a chain of transforms: `for t in ...:` where the body calls `t`, or hands `t` on."""
    return calls_its_target(node) or _hands_on_its_target(node)


def calls_its_target(node: ast.stmt) -> bool:
    """Whether the statement is `for t in ...:` with calls of `t` in its body."""
    if not isinstance(node, ast.For) or node.orelse or _leaves_early(node):
        return False
    return not set(target_names(node.target)).isdisjoint(
        item.func.id for item in ast.walk(node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)
    )


def _hands_on_its_target(node: ast.stmt) -> bool:
    """Whether the statement is `for t in ...:` with `x = apply(t, x)` in its body; what `t` is shows when it runs."""
    if not isinstance(node, ast.For) or node.orelse or _leaves_early(node):
        return False
    targets, carried = set(target_names(node.target)), stored_names(node.body)
    calls = (item.value for item in ast.walk(node) if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call))
    given = (loaded_names([*call.args, *call.keywords]) for call in calls)
    return any(names & targets and names & carried - targets for names in given)


def _leaves_early(node: ast.For) -> bool:
    return any(isinstance(item, (ast.Break, ast.Continue)) for item in ast.walk(node))
