"""Splitting a Python function at its statements, so that it can be watched, resumed or stubbed at any of them.

A function's body is first *normalised*: calls nested in a statement move to statements of their own, in the order in
which Python evaluates them, so that `return self.tf(self.load(i)), y` becomes a load, a transform and a return. The
normalised simple statements are the *units*, numbered in the order of the source. From there three *variants* can be
compiled, with the user's file name and line numbers, so that tracebacks read as if nothing had happened:

- `watched`: the whole function, telling a runtime when each unit starts and ends and letting it enter calls;
- `resumed`: only what follows a unit, with the live locals loaded from the runtime;
- `stubbed`: the whole function with one unit's results loaded from the runtime instead of computed.

An *address* names a unit from the outside in: unit numbers, and inside a loop over callables the number of the
iteration. Which function stands behind a call is known only when it is called, so addresses cross calls at run time.
"""

from __future__ import annotations

import ast
import copy
import functools
import linecache
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Address = tuple[int, ...]
"""Path to a unit: unit numbers, iterations of unrolled loops, and again unit numbers inside the functions called."""

ANY_ITERATION = -1
"""Stands in an address for all iterations of a loop that is not over callables."""

_READERS = ("open", "File", "ZipFile", "TarFile", "fdopen", "memory_map")
_FORBIDDEN_CALLS = {"locals", "eval", "exec", "vars", "dir", "globals"}


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
    """Locals that it assigns, or may change in place."""
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


# --- Reading the source -----------------------------------------------------------------------------------------------


def split(function: Any) -> Split:
    """`function` taken apart at its statements; the same object for the same function.

    Raises:
        Unsplittable: no source, a generator or coroutine, decorated, or code that looks at its own frame.
    """
    if not isinstance(function, types.FunctionType):
        raise Unsplittable(f"{type(function).__name__} is not a Python function")
    return _split(function)


@functools.lru_cache(maxsize=512)
def _split(function: types.FunctionType) -> Split:
    definition = copy.deepcopy(_definition(function))
    _refuse(function, definition)
    source = "".join(linecache.getlines(function.__code__.co_filename))
    _Normaliser(source).function(definition)
    units, bodies = _number(definition)
    return Split(function, definition, units, bodies, function.__code__.co_filename)


def _definition(function: types.FunctionType) -> ast.FunctionDef:
    code = function.__code__
    tree = _parse(code.co_filename)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                if isinstance(node, ast.AsyncFunctionDef):
                    raise Unsplittable("it is a coroutine")
                return node
    raise Unsplittable(f"its definition was not found in {code.co_filename}")


@functools.lru_cache(maxsize=256)
def _parse(filename: str) -> ast.Module:
    source = "".join(linecache.getlines(filename))
    if not source:
        raise Unsplittable("its source is not available")
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise Unsplittable(f"its source cannot be parsed ({error})") from None


def _refuse(function: types.FunctionType, node: ast.FunctionDef) -> None:
    if hasattr(function, "__wrapped__"):
        raise Unsplittable("it is wrapped by a decorator")
    plain = {"staticmethod", "classmethod", "override", "abstractmethod"}
    for decorator in node.decorator_list:
        if _last_name(decorator) not in plain:
            raise Unsplittable(f"it is decorated with {ast.unparse(decorator)}")
    for item in ast.walk(node):
        if isinstance(item, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            raise Unsplittable("it is a generator or coroutine")
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id in _FORBIDDEN_CALLS:
            raise Unsplittable(f"it calls {item.func.id}()")
        if isinstance(item, ast.Nonlocal):
            raise Unsplittable("it rebinds variables of an enclosing function")


def _last_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


# --- Normalising ------------------------------------------------------------------------------------------------------


class _Normaliser:
    """Moves nested calls and subscripts of a function's statements to statements of their own."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._count = 0

    def function(self, node: ast.FunctionDef) -> None:
        node.decorator_list = []
        node.returns = None
        for argument in _arguments(node):
            argument.annotation = None
        body = node.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:] or [ast.copy_location(ast.Pass(), body[0])]
        node.body = self._block(body)

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        node._text = self._text(node)  # type: ignore[attr-defined]
        before: list[ast.stmt] = []
        if isinstance(node, ast.If):
            node.test = self._hoisted(node.test, before, keep_top=False)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        elif isinstance(node, ast.With):
            return self._with(node)
        elif isinstance(node, ast.Try):
            node.body = self._block(node.body)
        elif isinstance(node, (ast.For, ast.While)):
            node.body = self._block(node.body)
        elif isinstance(node, ast.Return) and node.value is not None:
            node.value = self._hoisted(node.value, before, keep_top=False, hoist_arithmetic=True)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) and node.value is not None:
            node.value = self._hoisted(node.value, before, keep_top=True)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            node.value = self._hoisted(node.value, before, keep_top=False)
        return [*before, node]

    def _with(self, node: ast.With) -> list[ast.stmt]:
        before: list[ast.stmt] = []
        first, rest = node.items[0], node.items[1:]
        first.context_expr = self._hoisted(first.context_expr, before, keep_top=False)
        if rest:
            inner = ast.copy_location(ast.With(items=rest, body=node.body), node)
            inner._text = node._text  # type: ignore[attr-defined]
            node.items, node.body = [first], self._with(inner)
        else:
            node.body = self._block(node.body)
        return [*before, node]

    def _hoisted(
        self, node: ast.expr, before: list[ast.stmt], *, keep_top: bool, hoist_arithmetic: bool = False
    ) -> ast.expr:
        if any(isinstance(item, (ast.NamedExpr, ast.Starred)) for item in ast.walk(node)):
            return node if keep_top else self._temporary(node, before) if _has_work(node) else node
        if not _has_work(node):
            return node
        if isinstance(node, (ast.BinOp, ast.Compare, ast.UnaryOp)) and hoist_arithmetic:
            self._children(node, before)
            return self._temporary(node, before)
        return self._expression(node, before, is_top=keep_top)

    def _expression(self, node: ast.expr, before: list[ast.stmt], *, is_top: bool = False) -> ast.expr:
        """`node` with all work inside it moved to `before`; the node itself too unless `is_top`."""
        if isinstance(node, _OPAQUE):
            return node if is_top else self._temporary(node, before)
        if isinstance(node, ast.BoolOp):
            node.values[0] = self._inner(node.values[0], before)
            return node if is_top else self._temporary(node, before)
        if isinstance(node, ast.IfExp):
            node.test = self._inner(node.test, before)
            return node if is_top else self._temporary(node, before)
        self._children(node, before)
        if is_top or isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.keyword)):
            return node
        return self._temporary(node, before)

    def _children(self, node: ast.expr, before: list[ast.stmt]) -> None:
        """Move the work of the node's operands; operands evaluated earlier are pinned first, to keep the order."""
        slots = list(_operands(node))
        work = [_has_work(get()) for get, _ in slots]
        for position, (get, put) in enumerate(slots):
            if work[position]:
                put(self._inner(get(), before))
            elif any(work[position + 1 :]) and not _is_fixed(get()):
                put(self._temporary(get(), before))

    def _inner(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        return self._expression(node, before) if _has_work(node) else node

    def _temporary(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        name = f"_unstarve_{self._count}"
        self._count += 1
        target = ast.copy_location(ast.Name(name, ast.Store()), node)
        assignment = ast.copy_location(ast.Assign([target], node), node)
        assignment._text = self._text(node)  # type: ignore[attr-defined]
        before.append(assignment)
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def _text(self, node: ast.AST) -> str:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1  # type: ignore[attr-defined]
        if isinstance(node, (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)):
            last = first
        lines = [line.strip() for line in self._lines[first : last + 1]]
        return " ".join(lines)[:200]


_OPAQUE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.JoinedStr)


def _has_work(node: ast.AST) -> bool:
    """Whether evaluating `node` may cost something: a call, a subscript of an object, a comprehension."""
    if isinstance(node, ast.Lambda):
        return False
    if isinstance(node, (ast.Call, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return True
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Constant):
        return True
    return any(_has_work(child) for child in ast.iter_child_nodes(node))


def _is_fixed(node: ast.expr) -> bool:
    return isinstance(node, (ast.Constant, ast.Name, ast.Lambda))


_Slot = tuple[Callable[[], ast.expr], Callable[[ast.expr], None]]


def _operands(node: ast.expr) -> Iterator[_Slot]:
    """Getters and setters of the node's operands in the order of evaluation."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield _attribute_slot(node.func, "value")
        else:
            yield _attribute_slot(node, "func")
        yield from _list_slots(node.args)
        for keyword in node.keywords:
            yield _attribute_slot(keyword, "value")
    elif isinstance(node, ast.Compare):
        yield _attribute_slot(node, "left")
        if len(node.comparators) == 1:
            yield from _list_slots(node.comparators)
    elif isinstance(node, ast.Dict):
        for position, key in enumerate(node.keys):
            if key is not None:
                yield _item_slot(node.keys, position)
            yield _item_slot(node.values, position)
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        yield from _list_slots(node.elts)
    else:
        for name in ("value", "left", "right", "operand", "slice", "lower", "upper", "step"):
            if isinstance(getattr(node, name, None), ast.expr):
                yield _attribute_slot(node, name)


def _attribute_slot(owner: Any, name: str) -> _Slot:
    return (lambda: getattr(owner, name)), (lambda new: setattr(owner, name, new))


def _item_slot(items: list[Any], position: int) -> _Slot:
    return (lambda: items[position]), (lambda new: items.__setitem__(position, new))


def _list_slots(items: list[ast.expr]) -> Iterator[_Slot]:
    for position in range(len(items)):
        yield _item_slot(items, position)


# --- Numbering --------------------------------------------------------------------------------------------------------


def _number(definition: ast.FunctionDef) -> tuple[tuple[Unit, ...], dict[int, tuple[Unit, ...]]]:
    parameters = {argument.arg for argument in _arguments(definition)}
    names = parameters | _stored_names(definition.body)
    bodies: dict[int, tuple[Unit, ...]] = {}
    units = []
    for statement in _simple(definition.body):
        unit = _unit(statement, len(units), names)
        units.append(unit)
        if unit.is_loop:
            inner = [_unit(item, number, names) for number, item in enumerate(_simple(statement.body))]  # type: ignore[attr-defined]
            bodies[unit.number] = tuple(inner)
    return tuple(units), bodies


def _simple(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements and loops in the order of the source; blocks other than loops are looked into."""
    for statement in statements:
        if isinstance(statement, ast.If):
            yield from _simple(statement.body)
            yield from _simple(statement.orelse)
        elif isinstance(statement, (ast.With, ast.Try)):
            yield from _simple(statement.body)
        elif not isinstance(statement, (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Import, ast.ImportFrom)):
            yield statement


def _unit(statement: ast.stmt, number: int, names: set[str]) -> Unit:
    statement._number = number  # type: ignore[attr-defined]
    call = _main_call(statement)
    line = call.lineno if call is not None else statement.lineno
    return Unit(
        number=number,
        line=line,
        text=getattr(statement, "_text", ""),
        is_loop=isinstance(statement, (ast.For, ast.While)),
        outputs=tuple(sorted(_changed(statement) & names - {"self"})),
        callee=_callee_name(call),
    )


def _main_call(statement: ast.stmt) -> ast.expr | None:
    """The one call or subscript that a unit consists of, if it does."""
    value = getattr(statement, "value", None)
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)) and isinstance(value, (ast.Call, ast.Subscript)):
        return value
    return None


def _callee_name(call: ast.expr | None) -> str | None:
    if isinstance(call, ast.Call):
        return _dotted(call.func)
    return None


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner and not inner.startswith("_unstarve") else node.attr
    return node.id if isinstance(node, ast.Name) else None


def _changed(statement: ast.stmt) -> set[str]:
    """Names that the statement assigns or may change in place."""
    changed = _stored_names([statement])
    for node in ast.walk(statement):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            changed.add(_root_name(node))
    if isinstance(statement, ast.Expr):
        changed |= _loaded_names([statement])
    return changed - {""}


def _root_name(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _stored_names(statements: Iterable[ast.stmt]) -> set[str]:
    found = set()
    for statement in statements:
        for node in _walk_scope(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).split(".")[0])
            elif isinstance(node, ast.ExceptHandler) and node.name:
                found.add(node.name)
    return found


def _walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of `node` that live in the same scope: not inside nested functions, classes and comprehensions."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.comprehension) or isinstance(node, _OPAQUE[1:5]):
            yield from (item for item in ast.walk(child) if isinstance(item, ast.NamedExpr))
        else:
            yield from _walk_scope(child)


def _loaded_names(statements: Iterable[ast.AST]) -> set[str]:
    """Names read anywhere in the statements, nested functions included."""
    return {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del))
    } | {
        node.target.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }


def _arguments(definition: ast.FunctionDef) -> list[ast.arg]:
    arguments = definition.args
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [item for item in (arguments.vararg, arguments.kwarg) if item is not None]


# --- Variants ---------------------------------------------------------------------------------------------------------

RUNTIME = "_unstarve"
"""Name under which compiled variants see the runtime."""


def watched(parts: Split, opened: frozenset[int] = frozenset()) -> Callable[[Any], types.FunctionType]:
    """The whole function, reporting each unit to the runtime: `enter`, `leave`, `call`, and `iteration` in loops.

    Loops over callables are always looked into; other loops only if `opened` has their number, since watching every
    statement of a long loop costs more than the loop.
    """
    return _cached(parts, ("watched", opened), lambda: _Watcher(parts, opened).definition())


def resumed(parts: Split, address: Address) -> tuple[Callable[[Any], types.FunctionType], int]:
    """What follows the unit at `address`, and how many numbers of the address lie inside this function.

    If the address goes on into a function that the unit calls, the unit is included and its call is replaced by the
    runtime's `resume`.

    Raises:
        Unsplittable: the unit stands where resuming is not safe, such as inside a loop that is not over callables.
    """
    used = _own_length(parts, address)
    return _cached(parts, ("resumed", address), lambda: _Resumer(parts, address, used).definition()), used


def stubbed(parts: Split, address: Address) -> tuple[Callable[[Any], types.FunctionType], int]:
    """The whole function with the outputs of the unit at `address` loaded from the runtime; see `resumed`."""
    used = _own_length(parts, address)
    return _cached(parts, ("stubbed", address), lambda: _Stubber(parts, address, used).definition()), used


def live_after(parts: Split, address: Address) -> tuple[str, ...]:
    """Locals that `resumed(parts, address)` reads before it sets them, so that must be carried across."""
    used = _own_length(parts, address)
    return _Resumer(parts, address, used).live()


def outputs_at(parts: Split, address: Address) -> tuple[str, ...]:
    """Locals that the unit or iteration at `address` sets or may change in place, and that are read afterwards."""
    return tuple(name for name in _outputs(parts, address) if name in live_after(parts, address))


def _outputs(parts: Split, address: Address) -> tuple[str, ...]:
    number, inner = address[0], address[1:]
    if number not in parts.bodies or not inner:
        return parts.units[number].outputs
    body = parts.bodies[number]
    if len(inner) >= 2:
        return body[inner[1]].outputs
    return tuple(sorted({name for unit in body for name in unit.outputs}))


def unit_at(parts: Split, address: Address) -> tuple[Unit, int]:
    """The innermost unit of this function on the way of `address`, and how many numbers of the address lead to it."""
    used = _own_length(parts, address)
    if used <= 2:
        return parts.units[address[0]], used
    return parts.bodies[address[0]][address[2]], used


def _own_length(parts: Split, address: Address) -> int:
    """How many numbers of `address` lie inside this function: 1 for a unit, 2 for an iteration, 3 for a unit in it."""
    return min(len(address), 3) if address[0] in parts.bodies else 1


def _cached(parts: Split, key: Any, make: Callable[[], ast.FunctionDef]) -> Callable[[Any], types.FunctionType]:
    cache = _factories(parts.function)
    if key not in cache:
        cache[key] = _compile(parts, make())
    return cache[key]


@functools.lru_cache(maxsize=512)
def _factories(function: types.FunctionType) -> dict[Any, Any]:
    return {}


class _Watcher:
    """Builds the `watched` variant."""

    def __init__(self, parts: Split, opened: frozenset[int]) -> None:
        self._parts, self._opened = parts, opened

    def definition(self) -> ast.FunctionDef:
        node = copy.deepcopy(self._parts.node)
        node.body = self._block(node.body)
        return node

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if not hasattr(node, "_number"):
            if not isinstance(node, (ast.For, ast.While)):
                _map_blocks(node, self._block)
            return [node]
        if isinstance(node, ast.Return):
            return [node]
        number, stored = node._number, _stored_names([node])
        if isinstance(node, (ast.For, ast.While)):
            if is_callable_loop(node) or number in self._opened:
                self._loop(node)
        else:
            _redirect(node, "call")
        return [_tell_locals(node, "enter", number, set()), node, _tell_locals(node, "leave", number, stored)]

    def _loop(self, node: Any) -> None:
        by_item = is_callable_loop(node)
        stored = _stored_names(node.body)
        body = self._block(node.body)
        if isinstance(node, ast.For):
            node.iter = _runtime_call(node, "each", [node.iter])
        node.body = [_tell(node, "iteration", by_item), *body, _tell_locals(node, "iterated", 0, stored)]


class _Resumer:
    """Builds the `resumed` variant."""

    def __init__(self, parts: Split, address: Address, used: int) -> None:
        self._parts, self._address, self._used = parts, address, used
        self._descends = len(address) > used

    def definition(self) -> ast.FunctionDef:
        node = copy.deepcopy(self._parts.node)
        body = self._after(node.body)
        names = self.live()
        node.body = [*_load(node.body[0], names), *body] or [ast.copy_location(ast.Pass(), node)]
        return node

    def live(self) -> tuple[str, ...]:
        node = copy.deepcopy(self._parts.node)
        body = self._after(node.body)
        parameters = {argument.arg for argument in _arguments(node)}
        local = parameters | _stored_names(self._parts.node.body)
        read = _read_before_set(body) & local
        if _calls_super(body) and node.args.args:
            read.add(node.args.args[0].arg)
        return tuple(sorted(read - {RUNTIME}))

    def _after(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        for position, node in enumerate(statements):
            rest = statements[position + 1 :]
            if getattr(node, "_number", None) == self._address[0]:
                return [*self._rest_of(node), *rest]
            if _contains(node, self._address[0]):
                return [*self._inside(node), *rest]
        raise Unsplittable(f"unit {self._address[0]} was not found")

    def _inside(self, node: Any) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            in_body = any(_contains(item, self._address[0]) for item in node.body)
            return self._after(node.body if in_body else node.orelse)
        if isinstance(node, ast.Try):
            return [_with_body(node, self._after(node.body))]
        if isinstance(node, ast.With):
            return self._inside_with(node)
        raise Unsplittable(f"a cut inside {type(node).__name__.lower()} is not safe")

    def _inside_with(self, node: ast.With) -> list[ast.stmt]:
        rest = self._after(node.body)
        item = node.items[0]
        reader = _opens_file(self._parts, item.context_expr)
        uses = item.optional_vars is not None and _stored_names([node]) & _loaded_names(rest) & {
            name.id for name in ast.walk(item.optional_vars) if isinstance(name, ast.Name)
        }
        if reader and not uses:
            return rest
        if reader:
            raise Unsplittable("the rest of the block still reads from the file that it opens")
        return [_with_body(node, rest)]

    def _rest_of(self, node: Any) -> list[ast.stmt]:
        if isinstance(node, (ast.For, ast.While)) and len(self._address) > 1:
            return self._rest_of_loop(node)
        return [_redirect(node, "resume")] if self._descends else []

    def _rest_of_loop(self, node: Any) -> list[ast.stmt]:
        iteration, inner = self._address[1], self._address[2:3]
        if iteration == ANY_ITERATION or not is_callable_loop(node):
            raise Unsplittable("a cut inside a loop is safe only if the loop runs over callables")
        sequence = f"_unstarve_s{node._number}"
        make = ast.Assign([ast.Name(sequence, ast.Store())], _runtime_call(node, "sequence", [node.iter]))
        whole = copy.deepcopy(node)
        whole.iter = _parse_expression(f"{sequence}[{iteration + 1}:]", node)
        current: list[ast.stmt] = []
        if inner:
            set_target = ast.Assign([copy.deepcopy(node.target)], _parse_expression(f"{sequence}[{iteration}]", node))
            number = inner[0]
            current = [set_target, *_tail_of_body(node.body, number, descends=self._descends)]
        return [ast.fix_missing_locations(ast.copy_location(item, node)) for item in (make, *current, whole)]


def _tail_of_body(body: list[ast.stmt], number: int, *, descends: bool) -> list[ast.stmt]:
    for position, node in enumerate(body):
        rest = body[position + 1 :]
        if getattr(node, "_number", None) == number:
            return [*([_redirect(node, "resume")] if descends else []), *rest]
        if isinstance(node, ast.If) and _contains(node, number):
            in_body = any(_contains(item, number) for item in node.body)
            return [*_tail_of_body(node.body if in_body else node.orelse, number, descends=descends), *rest]
    raise Unsplittable("a cut inside a nested block of a loop is not safe")


class _Stubber:
    """Builds the `stubbed` variant."""

    def __init__(self, parts: Split, address: Address, used: int) -> None:
        self._parts, self._address, self._used = parts, address, used
        self._descends = len(address) > used

    def definition(self) -> ast.FunctionDef:
        node = copy.deepcopy(self._parts.node)
        node.body = self._block(node.body)
        return node

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, node: Any) -> list[ast.stmt]:
        number = getattr(node, "_number", None)
        if number is None:
            if not isinstance(node, (ast.For, ast.While)):
                _map_blocks(node, self._block)
            return [node]
        if number != self._address[0]:
            return [node]
        if self._used > 1:
            return self._loop(node)
        return [_redirect(node, "descend")] if self._descends else self._served(node, outputs_at(self._parts, self._address))

    def _loop(self, node: Any) -> list[ast.stmt]:
        if self._address[1] == ANY_ITERATION or not is_callable_loop(node):
            raise Unsplittable("one iteration can be served only in a loop over callables")
        counter = f"_unstarve_i{node._number}"
        target = ast.Tuple([ast.Name(counter, ast.Store()), node.target], ast.Store())
        names = outputs_at(self._parts, self._address[: self._used])
        special = copy.deepcopy(node.body)
        if self._used == 2 and not self._descends:
            special = self._served(node, names)
        else:
            special = _replace_in_body(special, self._address[2], lambda item: self._replacement(item, names))
        test = _parse_expression(f"{counter} == {self._address[1]}", node)
        node.target, node.iter = target, _runtime_call(node, "enumerate", [node.iter])
        node.body = [ast.copy_location(ast.If(test, special, node.body), node)]
        return [ast.fix_missing_locations(node)]

    def _replacement(self, node: ast.stmt, names: Sequence[str]) -> list[ast.stmt]:
        return [_redirect(node, "descend")] if self._descends else self._served(node, names)

    def _served(self, node: ast.stmt, names: Sequence[str]) -> list[ast.stmt]:
        return _load(node, names) or [ast.copy_location(ast.Pass(), node)]


def _replace_in_body(body: list[ast.stmt], number: int, make: Callable[[ast.stmt], list[ast.stmt]]) -> list[ast.stmt]:
    result: list[ast.stmt] = []
    for node in body:
        if getattr(node, "_number", None) == number:
            result += make(node)
            continue
        if not hasattr(node, "_number"):
            _map_blocks(node, lambda inner: _replace_in_body(inner, number, make))
        result.append(node)
    return result


# --- Small syntax helpers ---------------------------------------------------------------------------------------------


def _map_blocks(node: Any, change: Callable[[list[ast.stmt]], list[ast.stmt]]) -> None:
    if isinstance(node, (ast.If, ast.With, ast.Try)):
        node.body = change(node.body) or [ast.copy_location(ast.Pass(), node)]
    if isinstance(node, ast.If) and node.orelse:
        node.orelse = change(node.orelse)


def _with_body(node: Any, body: list[ast.stmt]) -> Any:
    changed = copy.copy(node)
    changed.body = body or [ast.copy_location(ast.Pass(), node)]
    return changed


def _calls_super(statements: Iterable[ast.stmt]) -> bool:
    return "super" in _loaded_names(statements)


def _contains(node: ast.stmt, number: int) -> bool:
    if getattr(node, "_number", None) == number:
        return True
    if isinstance(node, ast.If):
        return any(_contains(item, number) for item in (*node.body, *node.orelse))
    if isinstance(node, (ast.With, ast.Try)):
        return any(_contains(item, number) for item in node.body)
    return False


def is_callable_loop(node: ast.stmt) -> bool:
    """Whether the statement is `for t in ...:` with calls of `t` in its body: a chain of transforms."""
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or node.orelse or _leaves_early(node):
        return False
    called = {item.func.id for item in ast.walk(node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)}
    return node.target.id in called


def _leaves_early(node: ast.For) -> bool:
    return any(isinstance(item, (ast.Break, ast.Continue)) for item in ast.walk(node))


def _opens_file(parts: Split, context: ast.expr) -> bool:
    """Whether a with statement's context is a file just opened: then a resumed block need not open it again."""
    if isinstance(context, ast.Name):
        for node in ast.walk(parts.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if node.targets[0].id == context.id and isinstance(node.value, ast.Call):
                    return _last_name(node.value.func) in _READERS
    return isinstance(context, ast.Call) and _last_name(context.func) in _READERS


def _read_before_set(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that may be read before the statements certainly set them (an over-estimate inside blocks)."""
    read: set[str] = set()
    certain: set[str] = set()
    for node in statements:
        read |= _loaded_names([node]) - certain
        if isinstance(node, (ast.Assign, ast.AnnAssign)) or (isinstance(node, ast.With)):
            certain |= _stored_names([node] if not isinstance(node, ast.With) else [])
    return read


def _runtime_call(where: ast.AST, method: str, arguments: list[ast.expr]) -> ast.expr:
    call = ast.Call(ast.Attribute(ast.Name(RUNTIME, ast.Load()), method, ast.Load()), arguments, [])
    return ast.fix_missing_locations(ast.copy_location(call, where))


def _tell(where: ast.stmt, method: str, *numbers: int) -> ast.stmt:
    call = _runtime_call(where, method, [ast.Constant(number) for number in numbers])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), where))


def _tell_locals(where: ast.stmt, method: str, number: int, stored: set[str]) -> ast.stmt:
    names = ast.Tuple([ast.Constant(name) for name in sorted(stored)], ast.Load())
    call = _runtime_call(where, method, [ast.Constant(number), names, _parse_expression("locals()", where)])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), where))


def _parse_expression(text: str, where: ast.AST) -> ast.expr:
    node = ast.parse(text, mode="eval").body
    for item in ast.walk(node):
        ast.copy_location(item, where)
    return node


def _load(where: ast.stmt, names: Sequence[str]) -> list[ast.stmt]:
    """`a, b = _unstarve.load(("a", "b"))`, or nothing for no names."""
    if not names:
        return []
    target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
    wanted = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
    assignment = ast.Assign([target], _runtime_call(where, "load", [wanted]))
    return [ast.fix_missing_locations(ast.copy_location(assignment, where))]


def _redirect(node: Any, method: str) -> Any:
    """The statement with its call `f(a)` turned into `_unstarve.<method>(f, a)`, or `_unstarve.resume()`."""
    call = _main_call(node)
    if call is None:
        if method != "call":
            raise Unsplittable("the statement is not a single call")
        return node
    if isinstance(call, ast.Subscript):
        new: ast.expr = _runtime_call(call, method, [_parse_expression("'__getitem__'", call), call.value, call.slice])
        if isinstance(call.slice, (ast.Slice, ast.Tuple)):
            return node if method == "call" else _unsafe()
    elif isinstance(call.func, ast.Name) and call.func.id == "super":
        return node
    else:
        new = ast.Call(
            ast.Attribute(ast.Name(RUNTIME, ast.Load()), method, ast.Load()), [call.func, *call.args], call.keywords
        )
    if method == "resume":
        new = _runtime_call(call, "resume", [])
    node.value = ast.fix_missing_locations(ast.copy_location(new, call))
    return node


def _unsafe() -> Any:
    raise Unsplittable("the statement's subscript is a slice")


# --- Compiling --------------------------------------------------------------------------------------------------------


def _compile(parts: Split, definition: ast.FunctionDef) -> Callable[[Any], types.FunctionType]:
    """A function of the runtime that makes the variant, closed over the original's cells and the runtime."""
    function = parts.function
    free = [name for name in function.__code__.co_freevars if name != "__class__"]
    owner = _owner(function)
    inner: ast.stmt = definition
    if owner is not None:
        inner = ast.ClassDef(name=owner, bases=[], keywords=[], body=[definition], decorator_list=[])
        if hasattr(ast, "TypeVar"):
            inner.type_params = []
    cells = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in (*free, RUNTIME)]
    outer = ast.parse("def _unstarve_outer(): pass").body[0]
    outer.body = [*cells, inner]  # type: ignore[attr-defined]
    module = ast.Module([outer], [])
    ast.copy_location(outer, definition)
    ast.fix_missing_locations(module)
    code = _find_code(compile(module, parts.filename, "exec", dont_inherit=True), definition.name)
    if code is None:
        raise Unsplittable("its variant could not be compiled")
    known = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def make(runtime: Any) -> types.FunctionType:
        cells = {**known, RUNTIME: types.CellType(runtime)}
        closure = tuple(cells[name] for name in code.co_freevars)
        variant = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        variant.__kwdefaults__ = function.__kwdefaults__
        return variant

    return make


def _owner(function: types.FunctionType) -> str | None:
    """Name of the class in whose body the function stands, which private names and `super()` depend on."""
    parts = function.__qualname__.split(".")
    return parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else None


def _find_code(code: types.CodeType, name: str) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name:
                return constant
            found = _find_code(constant, name)
            if found is not None:
                return found
    return None
