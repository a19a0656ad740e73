"""Splitting a Python function at its statements, so that it can be watched, resumed or stubbed at any of them.

A function's body is first *normalised*: calls nested in a statement move to statements of their own, in the order in
which Python evaluates them, so that `return self.tf(self.load(i)), y` becomes a load, a transform and a return. The
normalised simple statements are the *units*, numbered in the order of the source. From there three *variants* can be
compiled, with the user's file name and line numbers, so that tracebacks read as if nothing had happened:

- `watched`: the whole function, telling a runtime when each unit starts and ends and letting it enter calls;
- `resumed`: only what follows a unit, with the live locals loaded from the runtime;
- `stubbed`: the whole function with one unit's results loaded from the runtime instead of computed;
- `switched`: for generators, which cannot be exchanged while they run: the whole function, in which the runtime can have
  any unit of a loop that yields run, timed or skipped, from one turn of the loop to the next.

An *address* names a unit from the outside in: unit numbers, and inside a loop over callables the number of the
iteration. Which function stands behind a call is known only when it is called, so addresses cross calls at run time.

One liberty is taken with Python's order: in `module.function(argument())` the function is looked up after its argument
is evaluated, where it hangs on a global name; functions of modules do not change in between.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import linecache
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from unstarve import syntax

Address = tuple[int, ...]
"""Path to a unit: unit numbers, iterations of unrolled loops, and again unit numbers inside the functions called."""

ANY_ITERATION = -1
"""Stands in an address for all iterations of a loop that is not over callables."""

FIRST_CHOICE = -2
"""Stands in an address for the first of several callables among which each sample chooses; the next are smaller."""

RUNTIME = "_unstarve"
"""Name under which compiled variants see the runtime; temporaries are called `_unstarve_0` and so on."""

_READERS = frozenset(("open", "File", "ZipFile", "TarFile", "TiffFile", "fdopen", "memory_map", "begin", "closing"))
"""Context managers that give access to data: once the data are cached, the block need not be entered again."""

_REPEATABLE = frozenset(
    ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "errstate", "catch_warnings",
     "suppress", "record_function", "nullcontext", "stage", "ctx_factory")
)  # fmt: skip
"""Context managers that can be made and entered afresh for the rest of a block, without changing what it does; the last
is what `@torch.no_grad()` and its like call theirs."""

_CHEAP = frozenset(("isinstance", "issubclass", "len", "type", "hasattr", "callable", "id", "range", "bool"))
"""Builtins that are no stages; `super()` is the other one."""

_FRAME_READERS = frozenset(("locals", "eval", "exec", "_getframe", "currentframe"))
"""Functions through which code sees or changes its own frame."""

_CALLER_READERS = _FRAME_READERS | {"super", "globals", "vars", "dir"}
"""Functions that look at the frame which calls them, by name."""

_NAMESAKES = frozenset(("query", "evaluate", "getframe", "stack", "warn"))
"""The same of libraries: pandas' and numexpr's find the user's variables there. Methods of the user's may be called so."""

_FUTURES = functools.reduce(
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
        return _bind(self.function, self.code, runtime)


# --- Reading the source -----------------------------------------------------------------------------------------------


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
        switcher = _Switcher(_normalised(filename, code, is_generator=True), code)
        node = copy.deepcopy(switcher.node)
        return switcher.statements, _compiled_definition(code, switcher.definition(), filename), node, {}
    except Exception as error:
        return _why_whole(error)


def _why_whole(error: Exception) -> str:
    """Why a function stays a whole. What else than a refusal of ours is raised, such as by source that compiles only in
    a notebook or by an expression nested too deep, must not reach the program that is watched."""
    is_refusal = isinstance(error, Unsplittable)
    return str(error) if is_refusal else f"it cannot be taken apart ({type(error).__name__}: {error})"


def is_container(parts: Split) -> bool:
    """Whether the function runs a loop over callables that it calls by itself: a chain of transforms."""
    if "container" not in parts.known:
        parts.known["container"] = any(calls_its_target(node) for node in _loops(parts.node))
    return bool(parts.known["container"])


def chain_targets(code: types.CodeType) -> set[str]:
    """What the loops of the function of this code run over, by name, as far as they may run over callables."""
    anatomy = _anatomy(code.co_filename, code)
    loops = [] if isinstance(anatomy, str) else [node for node in _loops(anatomy[0]) if is_callable_loop(node)]
    return {name for node in loops for name in _names_of(node.target)}


def _loops(definition: ast.FunctionDef) -> Iterator[ast.For]:
    """The function's loops that can be looked into, in blocks too."""
    return (node for node in _simple(definition.body) if isinstance(node, ast.For))


@functools.lru_cache(maxsize=1024)
def _anatomy(filename: str, code: types.CodeType) -> Any:
    """Fields of `Split` after the first, or why there are none."""
    try:
        definition = _normalised(filename, code)
        units, bodies = _number(definition)
    except Exception as error:
        return _why_whole(error)
    return definition, units, bodies, filename, {}


def _normalised(filename: str, code: types.CodeType, *, is_generator: bool = False) -> ast.FunctionDef:
    """The function's definition with nested calls as statements of their own, to be changed at will.

    Raises:
        Unsplittable: it is of a kind that cannot be taken apart.
    """
    found, owner = _definition(code)
    definition = copy.deepcopy(found)
    _refuse(definition, is_generator=is_generator)
    source = "".join(linecache.getlines(filename))
    _Normaliser(source, code, hoists_iterables=is_generator).function(definition)
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
    source = "".join(linecache.getlines(filename))
    if not source:
        raise Unsplittable("its source is not available")
    try:
        return syntax.parsed(source), source
    except SyntaxError as error:
        raise Unsplittable(f"its source cannot be parsed ({error})") from None


def _check_same(code: types.CodeType, source: str) -> None:
    """Refuse a function whose file was edited after it was loaded, or that an import hook has rewritten."""
    compiled = _compiled(code.co_filename, source, code.co_flags & _FUTURES)
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
    elif any(isinstance(item, (ast.Yield, ast.YieldFrom, ast.Await)) for item in _walk_function(node)):
        raise Unsplittable("it is a generator or coroutine")


def _refuse_sent_values(node: ast.FunctionDef) -> None:
    """Refuse a generator that does more than to yield: what comes back from a yield is lost on the way."""
    statements = [item.value for item in _walk_function(node) if isinstance(item, ast.Expr)]
    yields = [item for item in _walk_function(node) if isinstance(item, (ast.Yield, ast.YieldFrom))]
    if not yields or not all(item in statements for item in yields):
        raise Unsplittable("it is no generator that only yields")
    if any(isinstance(item, ast.Return) and item.value is not None for item in _walk_function(node)):
        raise Unsplittable("it is a generator that returns a value")


def _refuse_frame_reader(call: ast.Call) -> None:
    name = _last_name(call.func)
    if name in _FRAME_READERS and (isinstance(call.func, ast.Name) or name[0] == "_" or name == "currentframe"):
        raise Unsplittable(f"it calls {name}()")
    if name in ("vars", "dir") and isinstance(call.func, ast.Name) and not call.args:
        raise Unsplittable(f"it calls {name}()")


def _walk_function(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below `node`, without those inside functions and lambdas nested in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _walk_function(child)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


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


# --- Normalising ------------------------------------------------------------------------------------------------------


class _Normaliser:
    """Moves nested calls and subscripts of a function's statements to statements of their own.

    Operands that Python evaluates before a call that moved are *pinned*: assigned to a temporary before it, without
    becoming units. A temporary is deleted after its one use, since some values are large and memory is reused.
    """

    def __init__(self, source: str, code: types.CodeType, *, hoists_iterables: bool = False) -> None:
        self._lines = source.split("\n")  # `splitlines` ends lines at form feeds too, and Python does not
        self._hoists_iterables = hoists_iterables
        self._cells = {*code.co_cellvars, *code.co_freevars}  # nested functions may rebind them
        self._local = set(code.co_varnames) - self._cells
        self._count = 0
        self._is_in_loop = False

    def function(self, node: ast.FunctionDef) -> None:
        node._hidden = _comprehension_names(node)  # type: ignore[attr-defined]
        self._local -= node._hidden  # type: ignore[attr-defined]
        node.decorator_list = []
        node.returns = None
        node.type_comment = None
        if hasattr(node, "type_params"):
            node.type_params = []
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
        if _is_alternative(node):
            return self._statement(_as_branches(node))
        before: list[ast.stmt] = []
        if isinstance(node, ast.If):
            in_place = isinstance(node.test, (ast.Compare, ast.UnaryOp)) and not _binds(node.test)
            node.test = self._hoisted(node.test, before, keep_top=in_place)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        elif isinstance(node, ast.With):
            return self._with(node)
        elif isinstance(node, (ast.For, ast.While)):
            if self._hoists_iterables and isinstance(node, ast.For):
                self._hoist_iterable(node, before)
            outer, self._is_in_loop = self._is_in_loop, True
            node.body = self._block(node.body)
            self._is_in_loop = outer
        elif isinstance(node, ast.Try):
            _map_blocks(node, self._block)
        elif isinstance(node, ast.Return) and node.value is not None:
            node.value = self._hoisted(node.value, before, keep_top=False)
            if _computes(node.value, has_units=bool(before)):
                node.value = self._temporary(node.value, before)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) and node.value is not None:
            node.value = self._hoisted(node.value, before, keep_top=True)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in self._local:
            node.value = self._hoisted(node.value, before, keep_top=False)
        return _releasing([*before, node])

    def _hoist_iterable(self, node: ast.For, before: list[ast.stmt]) -> None:
        """Move the work in what a loop that yields runs over; what only numbers or slices it stays in the loop."""
        if _has_yield(node):
            holder, name = _innermost_iterable(node)
            put = (lambda new: setattr(node, "iter", new)) if name is None else _item_slot(holder.args, 0)[1]
            put(self._hoisted(node.iter if name is None else holder.args[0], before, keep_top=False))

    def _with(self, node: ast.With) -> list[ast.stmt]:
        before: list[ast.stmt] = []
        first, rest = node.items[0], node.items[1:]
        node._again = _again(first.context_expr)  # type: ignore[attr-defined]
        if node._again != "repeat":  # type: ignore[attr-defined]
            first.context_expr = self._hoisted(first.context_expr, before, keep_top=False)
        if rest:
            inner = ast.copy_location(ast.With(items=rest, body=node.body), node)
            inner._text = node._text  # type: ignore[attr-defined]
            node.items, node.body = [first], self._with(inner)
        else:
            node.body = self._block(node.body)
        return _releasing([*before, node])

    def _hoisted(self, node: ast.expr, before: list[ast.stmt], *, keep_top: bool) -> ast.expr:
        if not _has_work(node):
            return node
        if _binds(node):
            return node if keep_top else self._temporary(node, before)
        return self._expression(node, before, is_top=keep_top)

    def _expression(self, node: ast.expr, before: list[ast.stmt], *, is_top: bool = False) -> ast.expr:
        """`node` with all work inside it moved to `before`; the node itself too unless `is_top`."""
        if isinstance(node, ast.ListComp) and not self._is_in_loop and _can_unroll(node):
            return self._unrolled(node, before)
        if isinstance(node, ast.Starred):
            node.value = self._inner(node.value, before)
            return self._unpacked(node, before)
        if isinstance(node, ast.BoolOp):
            node.values[0] = self._inner(node.values[0], before)
        elif isinstance(node, ast.IfExp):
            node.test = self._inner(node.test, before)
        elif not isinstance(node, _OPAQUE) and not _merges(node):
            self._children(node, before)
            is_top = is_top or isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Attribute, ast.Slice))
        return node if is_top else self._temporary(node, before)

    def _unrolled(self, node: ast.ListComp, before: list[ast.stmt]) -> ast.expr:
        """A list comprehension as the loop that it stands for, so that what it calls can be looked into."""
        generator = node.generators[0]
        renamed = _Renamer({name: self._fresh() for name in _target_names(generator.target)})
        result = self._fresh()
        append = ast.Attribute(ast.Name(result, ast.Load()), "append", ast.Load())
        statement: ast.stmt = ast.copy_location(ast.Expr(ast.Call(append, [renamed.visit(node.elt)], [])), node.elt)
        for test in reversed(generator.ifs):
            statement = ast.copy_location(ast.If(renamed.visit(test), [statement], []), test)
        loop = ast.copy_location(ast.For(renamed.visit(generator.target), generator.iter, [statement], []), node)
        start = ast.copy_location(ast.Assign([ast.Name(result, ast.Store())], ast.List([], ast.Load())), node)
        start._text, start._is_pin = self._text(node), True  # type: ignore[attr-defined]
        before += [ast.fix_missing_locations(start), *self._statement(ast.fix_missing_locations(loop))]
        whole = self._temporary(ast.copy_location(ast.Name(result, ast.Load()), node), before, is_pin=True)
        deletion = ast.copy_location(ast.Delete([ast.Name(result, ast.Del())]), node)
        deletion._is_release = True  # type: ignore[attr-defined]
        before.append(ast.fix_missing_locations(deletion))
        return whole

    def _fresh(self) -> str:
        """A local of our own that outlives its first use, unlike temporaries."""
        name = f"{RUNTIME}{self._count}"
        self._count += 1
        self._local.add(name)
        return name

    def _children(self, node: ast.expr, before: list[ast.stmt]) -> None:
        """Move the work of the node's operands; operands evaluated earlier are pinned first, to keep the order."""
        slots = list(_operands(node))
        work = [_has_work(get()) for get, _ in slots]
        for position, (get, put) in enumerate(slots):
            is_callee = isinstance(node, ast.Call) and position == 0
            if work[position]:
                put(self._inner(get(), before))
            if any(work[position + 1 :]) and not self._is_fixed(get(), is_callee):
                put(self._pinned(get(), before))

    def _inner(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        return self._expression(node, before) if _has_work(node) else node

    def _pinned(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """The operand evaluated at its turn."""
        if isinstance(node, ast.Starred):
            return self._unpacked(node, before)
        return self._temporary(node, before, is_pin=True)

    def _unpacked(self, node: ast.Starred, before: list[ast.stmt]) -> ast.expr:
        """The items unpacked at their turn, by a unit: what they come from may be lazy, and do its work only here."""
        items = ast.copy_location(ast.Tuple([node], ast.Load()), node)
        return ast.copy_location(ast.Starred(self._temporary(items, before), ast.Load()), node)

    def _is_fixed(self, node: ast.expr, is_callee: bool) -> bool:
        """Whether it makes no difference if the operand is evaluated now or a little later."""
        if isinstance(node, ast.Name):
            return node.id in self._local or _is_temporary(node.id) or (is_callee and self._is_global(node))
        if isinstance(node, ast.Attribute):
            return is_callee and self._is_global(_root(node))
        if isinstance(node, ast.Starred):
            return isinstance(node.value, ast.Name) and _is_temporary(node.value.id)
        if isinstance(node, ast.Tuple):
            return all(self._is_fixed(item, False) for item in node.elts)
        return isinstance(node, (ast.Constant, ast.Lambda))

    def _is_global(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id not in {*self._local, *self._cells} and not _is_temporary(node.id)

    def _temporary(self, node: ast.expr, before: list[ast.stmt], *, is_pin: bool = False) -> ast.expr:
        name = f"{RUNTIME}_{self._count}"
        self._count += 1
        target = ast.copy_location(ast.Name(name, ast.Store()), node)
        assignment = ast.copy_location(ast.Assign([target], node), node)
        assignment._text = self._text(node)  # type: ignore[attr-defined]
        assignment._is_pin = is_pin  # type: ignore[attr-defined]
        before.append(assignment)
        loaded = ast.copy_location(ast.Name(name, ast.Load()), node)
        loaded._written = _dotted(node) if is_pin else None  # type: ignore[attr-defined]
        if is_pin and isinstance(node, ast.Attribute):
            loaded._pinned = node  # type: ignore[attr-defined]
        return loaded

    def _text(self, node: ast.AST) -> str:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1  # type: ignore[attr-defined]
        if isinstance(node, _BLOCKS):
            last = first
        lines = [line.strip() for line in self._lines[first : last + 1]]
        return " ".join(lines)[:200]


class _Renamer(ast.NodeTransformer):
    """Gives the variables of a comprehension names that the function around it does not have."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node


def _can_unroll(node: ast.ListComp) -> bool:
    """Whether the comprehension is a loop over one iterable with no scope inside it, in which names could clash."""
    scopes = (ast.Lambda, *_COMPREHENSIONS, ast.NamedExpr)
    inside = [item for item in ast.walk(node) if item is not node]
    is_plain = len(node.generators) == 1 and not any(isinstance(item, scopes) for item in inside)
    target = node.generators[0].target
    has_calls = any(isinstance(item, (ast.Call, ast.Subscript)) for item in ast.walk(node.elt))
    return is_plain and has_calls and isinstance(target, (ast.Name, ast.Tuple)) and _is_flat(target)


def _is_flat(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or all(isinstance(item, ast.Name) for item in target.elts)  # type: ignore[attr-defined]


def _target_names(target: ast.expr) -> list[str]:
    return [item.id for item in ast.walk(target) if isinstance(item, ast.Name)]


_BLOCKS = (
    ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Match,
    *([ast.TryStar] if hasattr(ast, "TryStar") else []),
)  # fmt: skip
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPAQUE = (ast.Lambda, *_COMPREHENSIONS, ast.JoinedStr, *([ast.TemplateStr] if hasattr(ast, "TemplateStr") else []))


def _is_alternative(node: ast.stmt) -> bool:
    """Whether the statement is of the form `x = f() if ... else g()`, whose calls are only made if need be."""
    if not isinstance(node, (ast.Assign, ast.Return, ast.Expr)) or not isinstance(node.value, ast.IfExp):
        return False
    return _has_work(node.value.body) or _has_work(node.value.orelse)


def _as_branches(node: Any) -> ast.stmt:
    """The statement as an `if` statement with one assignment in each branch."""
    branches = []
    for value in (node.value.body, node.value.orelse):
        branch = copy.copy(node)
        branch.value = value
        branches.append(branch)
    if isinstance(node, ast.Assign):
        branches[1].targets = copy.deepcopy(node.targets)
    return ast.copy_location(ast.If(node.value.test, [branches[0]], [branches[1]]), node)


def _releasing(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements, each simple one followed by the deletion of the temporaries that it was the one use of."""
    result: list[ast.stmt] = []
    for node in statements:
        result.append(node)
        names = sorted(name for name in _loaded_names([node]) if _is_temporary(name))
        if names and isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            deletion = ast.Delete([ast.Name(name, ast.Del()) for name in names])
            deletion._is_release = True  # type: ignore[attr-defined]
            result.append(ast.fix_missing_locations(ast.copy_location(deletion, node)))
    return result


def _is_temporary(name: str) -> bool:
    return name.startswith(f"{RUNTIME}_")


def _is_own_local(name: str) -> bool:
    """Whether the normaliser made the name: a temporary, or what a comprehension is gathered in."""
    return name.startswith(RUNTIME) and name[-1].isdigit()


def _again(context: ast.expr) -> str:
    """How the rest of a `with` block is resumed: without entering (`skip`), entering a new one (`repeat`), or not."""
    call = context.func if isinstance(context, ast.Call) else None
    if call is None:
        is_lock = isinstance(context, (ast.Name, ast.Attribute)) and "lock" in _last_name(context).lower()
        return "repeat" if is_lock else ""
    if _last_name(call) in _READERS:
        return "skip"
    arguments = [*context.args, *(keyword.value for keyword in context.keywords)]  # type: ignore[attr-defined]
    is_plain = not any(_has_work(argument) for argument in arguments)
    return "repeat" if _last_name(call) in _REPEATABLE and is_plain else ""


def _has_work(node: ast.AST) -> bool:
    """Whether evaluating `node` may cost something: a call, a subscript of an object, a comprehension."""
    if isinstance(node, ast.Lambda):
        return any(
            _has_work(default) for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None
        )
    if isinstance(node, ast.GeneratorExp):  # the work is done by what draws from it
        return _has_work(node.generators[0].iter)
    if isinstance(node, ast.Starred) and isinstance(node.value, ast.GeneratorExp):
        return True
    if (isinstance(node, ast.Call) and not _is_cheap(node)) or isinstance(node, _COMPREHENSIONS):
        return True
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Constant):
        return True
    return any(_has_work(child) for child in ast.iter_child_nodes(node))


def _binds(node: ast.AST) -> bool:
    """Whether the expression assigns to names, so that its parts must stay where they are."""
    return any(isinstance(item, ast.NamedExpr) for item in ast.walk(node))


def _computes(node: ast.expr, *, has_units: bool) -> bool:
    """Whether what is left of a returned value may cost something: arithmetic, or a property that is all there is."""
    kinds = (ast.BinOp, ast.Compare, *(() if has_units else (ast.Attribute,)))
    return any(isinstance(item, kinds) or _is_operation(item) for item in _walk_scope(node))


def _is_operation(node: ast.AST) -> bool:
    """Whether it is an operation on one value, and no negative number."""
    return isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant)


def _is_cheap(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Name):
        return False
    return call.func.id in _CHEAP or (call.func.id == "super" and not call.args)


def _merges(node: ast.expr) -> bool:
    """Whether `**mapping` is read before other operands are evaluated: then no operand can move."""
    if isinstance(node, ast.Dict):
        return any(key is None for key in node.keys[:-1])
    if isinstance(node, ast.Call):
        return any(keyword.arg is None for keyword in node.keywords[:-1])
    return False


_Slot = tuple[Callable[[], ast.expr], Callable[[ast.expr], None]]


def _operands(node: ast.expr) -> Iterator[_Slot]:
    """Getters and setters of the node's operands in the order of evaluation."""
    if isinstance(node, ast.Call):
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
    bodies: dict[int, tuple[Unit, ...]] = {}
    units: list[Unit] = []
    for statement in _simple(definition.body):
        unit = _unit(statement, len(units))
        units.append(unit)
        if unit.is_loop:
            inner = [_unit(item, number) for number, item in enumerate(_simple(statement.body))]  # type: ignore[attr-defined]
            bodies[unit.number] = tuple(inner)
    return tuple(units), bodies


def _simple(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements and loops in the order of the source; blocks other than loops are looked into."""
    for statement in statements:
        if isinstance(statement, (ast.If, ast.With, ast.Try)):
            yield from (item for block in _blocks(statement) for item in _simple(block))
        elif not isinstance(statement, _NO_UNITS) and not _is_silent(statement):
            yield statement


_NO_UNITS = (ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom)


def _is_silent(statement: ast.stmt) -> bool:
    return getattr(statement, "_is_pin", False) or _is_release(statement)


def _is_release(statement: ast.stmt) -> bool:
    return getattr(statement, "_is_release", False)


def _unit(statement: ast.stmt, number: int) -> Unit:
    statement._number = number  # type: ignore[attr-defined]
    call = _main_call(statement)
    line = call.lineno if call is not None else statement.lineno
    return Unit(
        number=number,
        line=line,
        text=getattr(statement, "_text", ""),
        is_loop=isinstance(statement, (ast.For, ast.While)),
        outputs=tuple(sorted(_stored_names([statement]))),
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
        return f"{inner}.{node.attr}" if inner else node.attr
    if isinstance(node, ast.Name):
        return getattr(node, "_written", None) if _is_temporary(node.id) else node.id
    return None


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node


# --- Names ------------------------------------------------------------------------------------------------------------


def _stored_names(statements: Iterable[ast.AST]) -> set[str]:
    """Names that the statements bind in the function's own scope."""
    return {name for statement in statements for node in _walk_scope(statement) for name in _bound(node)}


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of `node` that live in the same scope: not inside nested functions, classes and comprehensions."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, _COMPREHENSIONS):
        yield from (item.target for item in ast.walk(node) if isinstance(item, ast.NamedExpr))
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk_scope(child)


def _comprehension_names(definition: ast.FunctionDef) -> set[str]:
    """Names that only comprehensions bind: from Python 3.12 on they are among the function's variables all the same."""
    nodes = [node for node in ast.walk(definition) if isinstance(node, ast.comprehension)]
    bound = {name for node in nodes for name in _target_names(node.target)}
    return bound - _stored_names(definition.body) - {argument.arg for argument in _arguments(definition)}


def _loaded_names(statements: Iterable[ast.AST]) -> set[str]:
    """Names read anywhere in the statements, nested functions included."""
    found = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def _captured_names(definition: ast.AST) -> set[str]:
    """Names that functions and comprehensions nested in the function read, at a time that is not in the source."""
    nested = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)
    return _loaded_names(node for node in ast.walk(definition) if isinstance(node, nested) and node is not definition)


def _live_before(statements: Sequence[ast.stmt], after: set[str], captured: set[str]) -> set[str]:
    """Names that may be read from the first statement on, given those that may be read after the last."""
    live = set(after)
    for node in reversed(statements):
        live = _live_through(node, live, captured)
    return live


def _live_through(node: ast.stmt, after: set[str], captured: set[str]) -> set[str]:
    if isinstance(node, (ast.Return, ast.Raise)):
        return _loaded_names([node])
    if isinstance(node, ast.Assign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        certain = {item.id for target in targets for item in _targets(target) if isinstance(item, ast.Name)}
        return (after - (certain - captured)) | _loaded_names([node])
    if isinstance(node, ast.If):
        branches = (_live_before(block, after, captured) for block in (node.body, node.orelse))
        return set().union(_loaded_names([node.test]), *branches)
    if isinstance(node, ast.With):
        return after | _loaded_names(node.items) | _live_before(node.body, after, captured)
    if isinstance(node, ast.Try):  # an exception may leave the body anywhere, so that it sets nothing for certain
        after = after | _loaded_before([*node.handlers, *node.orelse, *node.finalbody])
        return after | _live_before(node.body, after, captured)
    return after | _loaded_before([node])


def _loaded_before(statements: Sequence[ast.AST]) -> set[str]:
    """Names read in the statements, but for locals of our own, which they set before."""
    return _loaded_names(statements) - {name for name in _stored_names(statements) if _is_own_local(name)}


def _targets(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _targets(item)
    elif isinstance(node, ast.Starred):
        yield from _targets(node.value)
    else:
        yield node


def _arguments(definition: ast.FunctionDef) -> list[ast.arg]:
    arguments = definition.args
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [item for item in (arguments.vararg, arguments.kwarg) if item is not None]


# --- Variants ---------------------------------------------------------------------------------------------------------

Factory = Callable[[Any], types.FunctionType]
"""Makes a variant that talks to the runtime given."""


def watched(parts: Split, opened: frozenset[int] = frozenset(), closed: frozenset[int] = frozenset()) -> Factory:
    """The whole function, reporting each unit to the runtime: `enter`, `leave`, `call`, and `iteration` in loops.

    Loops that look as if they ran over callables are looked into unless `closed` has their number; other loops only if
    `opened` has it, since watching every statement of a long loop costs more than the loop.
    """
    return _variant(parts, ("watched", opened, closed), lambda: _Watcher(parts, opened, closed).definition())


def resumed(parts: Split, address: Address) -> tuple[Factory, int]:
    """What follows the unit at `address`, and how many numbers of the address lie inside this function.

    If the address goes on into a function that the unit calls, the unit is included and its call is replaced by the
    runtime's `resume`.

    Raises:
        Unsplittable: the unit stands where resuming is not safe, such as inside a loop that is not over callables.
    """
    used = _own_length(parts, address)
    return _variant(parts, ("resumed", address), lambda: _Resumer(parts, address, used).definition()), used


def stubbed(parts: Split, address: Address) -> tuple[Factory, int]:
    """The whole function with what the unit at `address` gives or changes loaded from the runtime; see `resumed`."""
    used = _own_length(parts, address)
    return _variant(parts, ("stubbed", address), lambda: _Stubber(parts, address, used).definition()), used


def live_after(parts: Split, address: Address) -> tuple[str, ...]:
    """Locals that `resumed(parts, address)` may read before it sets them, so that must be carried across."""
    used = _own_length(parts, address)
    return _remembered(parts, ("live", address), lambda: _Resumer(parts, address, used).live())


def attributes_after(parts: Split, address: Address) -> frozenset[str]:
    """Names of the attributes that `resumed(parts, address)` reads."""
    used = _own_length(parts, address)
    return _remembered(parts, ("attributes", address), lambda: _Resumer(parts, address, used).attributes())


Store = tuple[str, str | None, str | None]
"""What a value is put into: the name of an object; the attribute of it whose element it is, if it is one; and the local that
stands for this element, if one does."""


def stores_after(parts: Split, address: Address, names: frozenset[str]) -> frozenset[Store]:
    """What values that come from these locals, or from the call that the unit leads through, are put into by what follows
    the unit; what attributes of the own object are set to says `sets_after`."""
    used = _own_length(parts, address)
    return _remembered(parts, ("stores", address, names), lambda: _Resumer(parts, address, used).stores(set(names)))


def sets_after(parts: Split, address: Address, names: frozenset[str]) -> frozenset[str]:
    """Attributes of the function's first argument that what follows the unit sets to such values."""
    used = _own_length(parts, address)
    return _remembered(parts, ("sets", address, names), lambda: _Resumer(parts, address, used).sets(set(names)))


Hand = tuple[str, frozenset[int | str]]
"""A method of the first argument, and which of the arguments that it is called with are meant, by number or name."""


def hands_after(parts: Split, address: Address, names: frozenset[str]) -> frozenset[Hand]:
    """What gets values that come from these locals, or from the call that the unit leads through, after the unit."""
    used = _own_length(parts, address)
    return _remembered(parts, ("hands", address, names), lambda: _Resumer(parts, address, used).hands(set(names)))


def hands_within(parts: Split, names: frozenset[str]) -> frozenset[Hand]:
    """What gets values that come from these arguments of the function."""
    return _remembered(parts, ("hands", names), lambda: _hands(parts.node.body, set(names), parts))


def stores_within(parts: Split, names: frozenset[str]) -> frozenset[tuple[str, str | None]]:
    """What outlives the function and gets, under a key, values that come from these arguments; see `stores_in_turn`."""
    return _remembered(parts, ("stores", names), lambda: _stores_within(parts, set(names)))


def _stores_within(parts: Split, names: set[str]) -> frozenset[tuple[str, str | None]]:
    own = _own_names(parts.node)
    code = parts.function.__code__
    local = {*code.co_varnames, *code.co_cellvars} - own
    puts = [put for put in _puts(parts.node.body, names, own, parts.function) if _has_key(put)]
    return frozenset(holder for put in puts for holder in _holders(put, own) if holder[0] not in local)


def _has_key(put: ast.expr) -> bool:
    """Whether it is an element found by more than its place, such as `[i]`, and not a part of a buffer, such as `[:n]`."""
    if isinstance(put, ast.Subscript):
        items = put.slice.elts if isinstance(put.slice, ast.Tuple) else [put.slice]
        return not all(isinstance(item, (ast.Slice, ast.Constant)) for item in items)
    return isinstance(put, ast.Attribute) and isinstance(put.ctx, ast.Load) and put.attr in _TAKING_KEYS


def _hands(statements: Iterable[ast.AST], names: set[str], parts: Split) -> frozenset[Hand]:
    own = _own_names(parts.node)
    _puts(statements, names, own, parts.function)
    found: set[Hand] = set()
    calls = [item for node in statements for item in _walk_scope(node) if isinstance(item, ast.Call)]
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


def _holders(put: ast.expr, own: set[str]) -> Iterator[tuple[str, str | None]]:
    """The name that the target begins with, and the attribute if it is one of the `own` object."""
    root = _root(put)
    if isinstance(root, ast.Name):
        attributes = (_own_attribute(node, own) for node in _walk_chain(put))
        yield root.id, next((name for name in attributes if name is not None), None)


def stores_in_turn(parts: Switched, number: int, names: frozenset[str]) -> frozenset[tuple[str, str | None]]:
    """What outlives a turn of the statement's loop and gets, under a key, values that come from these locals in what follows
    the statement in the turn: names of objects, or with an attribute where it is that of the first argument."""
    return _remembered(parts, ("stores", number, names), lambda: _stores_in_turn(parts, number, set(names)))


def _stores_in_turn(parts: Switched, number: int, names: set[str]) -> frozenset[tuple[str, str | None]]:
    loop = next(
        node for node in ast.walk(parts.node) if getattr(node, "_number", None) == parts.statements[number].loop
    )
    own = _own_names(parts.node)
    turn = _turn_names(loop, _captured_names(parts.node))
    found: set[tuple[str, str | None]] = set()
    for put in _puts(_following(loop, number), names, own, parts.function):
        root = _root(put)
        is_queue = isinstance(put, ast.Attribute) and isinstance(put.ctx, ast.Load) and put.attr in _QUEUEING
        is_part = put is not root and _own_attribute(put, own) is None
        if is_part and not is_queue:
            found.update(holder for holder in _holders(put, own) if holder[0] not in turn)
    return frozenset(found)


def _following(loop: Any, number: int) -> list[ast.AST]:
    """The statements of a turn that come after the one of this number, in the order of the source."""
    if loop._number == number:
        return list(loop.body)
    statements = [node for node in _walk_body(loop) if isinstance(node, ast.stmt)]
    place = next(place for place, node in enumerate(statements) if getattr(node, "_number", None) == number)
    inside = {id(node) for node in ast.walk(statements[place])}
    return [node for node in statements[place:] if id(node) not in inside]


_QUEUEING = frozenset(("append", "appendleft", "extend", "insert", "add", "push"))
"""Methods by which something waits for a later turn, and is found again by no key."""


def outputs_at(parts: Split, address: Address) -> tuple[str, ...]:
    """Locals that the unit or iteration at `address` assigns, and that may be read afterwards."""
    live = live_after(parts, address[: _own_length(parts, address)])
    return tuple(name for name in _outputs(parts, address) if name in live)


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


def _variant(parts: Split, key: Any, make: Callable[[], ast.FunctionDef]) -> Factory:
    code = _remembered(parts, key, lambda: _compile(parts, make()))
    return functools.partial(_bind, parts.function, code)


def _remembered(parts: Split | Switched, key: Any, make: Callable[[], Any]) -> Any:
    if key not in parts.known:
        parts.known[key] = make()
    return parts.known[key]


class _Watcher:
    """Builds the `watched` variant."""

    def __init__(self, parts: Split, opened: frozenset[int], closed: frozenset[int]) -> None:
        self._parts, self._opened, self._closed = parts, opened, closed

    def definition(self) -> ast.FunctionDef:
        node = copy.deepcopy(self._parts.node)
        node.body = self._block(node.body, depth=0)
        return node

    def _block(self, statements: Sequence[ast.stmt], depth: int) -> list[ast.stmt]:
        """The statements told about; `depth` is 1 in the body of a loop."""
        return _map_units(statements, lambda node, pins, releases: self._statement(node, pins, releases, depth))

    def _statement(self, node: ast.stmt, pins: list[ast.stmt], releases: list[ast.stmt], depth: int) -> list[ast.stmt]:
        number = getattr(node, "_number", None)
        if number is None or isinstance(node, ast.Return):
            _map_blocks(node, lambda block: self._block(block, depth))
            return [*pins, node, *releases]
        names = sorted(_stored_names([node]))
        if not isinstance(node, (ast.For, ast.While)):
            _redirect(node, "call")
        elif depth == 0 and (number in self._opened or (is_callable_loop(node) and number not in self._closed)):
            self._loop(node)
        enter, leave = _tell(node, "enter", number, depth), _tell(node, "leave", number, depth, names)
        pinned = [_tell(node, "pinned")] if pins else []
        return [enter, *pins, *pinned, node, *releases, leave]

    def _loop(self, node: Any) -> None:
        by_item = is_callable_loop(node)
        names = sorted(_stored_names(node.body))
        start, end = _tell(node, "iteration", by_item), _tell(node, "iterated", names)
        node.body = [start, *self._block(node.body, depth=1), end]
        if isinstance(node, ast.For):
            node.iter = _runtime_call(node, "each", [node.iter])


def _map_units(
    statements: Sequence[ast.stmt], make: Callable[[Any, list[ast.stmt], list[ast.stmt]], list[ast.stmt]]
) -> list[ast.stmt]:
    """What `make` gives for each statement, the pins before it and the releases after it, which count with their unit."""
    result: list[ast.stmt] = []
    pins: list[ast.stmt] = []
    for position, node in enumerate(statements):
        if getattr(node, "_is_pin", False) or (pins and _is_release(node)):
            pins.append(node)
        elif not _is_release(node):
            result += make(node, pins, _releases(statements[position + 1 :]))
            pins = []
    return result + pins


def _releases(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The deletions at the start of the statements."""
    count = next((position for position, node in enumerate(statements) if not _is_release(node)), len(statements))
    return list(statements[:count])


class _Resumer:
    """Builds the `resumed` variant."""

    def __init__(self, parts: Split, address: Address, used: int) -> None:
        self._parts, self._address, self._used = parts, address, used
        self._descends = len(address) > used

    def definition(self) -> ast.FunctionDef:
        names = live_after(self._parts, self._address)
        node, body = self._rest()
        self._parts.known.pop(("rest", self._address))
        node.body = [*_load(node, names), *body] or [ast.copy_location(ast.Pass(), node)]
        return _telling_what_is_caught(node)

    def live(self) -> tuple[str, ...]:
        node, body = self._rest()
        read = _live_before(body, set(), _captured_names(self._parts.node))
        if "super" in _loaded_names(body) and node.args.args:
            read.add(node.args.args[0].arg)
        code = self._parts.function.__code__
        local = {*code.co_varnames, *code.co_cellvars} - self._parts.node._hidden  # type: ignore[attr-defined]
        return tuple(sorted(name for name in read if name in local or _is_own_local(name)))

    def attributes(self) -> frozenset[str]:
        nodes = (item for statement in self._rest()[1] for item in ast.walk(statement))
        return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute))

    def stores(self, names: set[str]) -> frozenset[Store]:
        own, puts = _own_names(self._parts.node), self._puts(names)
        roots = {_root(put) for put in puts if _own_attribute(put, own) is None and put is not _root(put)}
        found = {root.id for root in roots if isinstance(root, ast.Name)}
        deep = {_last_name(_root(put)) for put in puts if len([*_walk_chain(put)]) > 1}
        return frozenset(origin for name in found for origin in _origins(self._parts.node, name, name in deep))

    def sets(self, names: set[str]) -> frozenset[str]:
        own = _own_names(self._parts.node)
        attributes = (_own_attribute(put, own) for put in self._puts(names))
        return frozenset(attribute for attribute in attributes if attribute is not None)

    def hands(self, names: set[str]) -> frozenset[Hand]:
        return _hands(self._rest()[1], names, self._parts)

    def _puts(self, names: set[str]) -> list[ast.expr]:
        return _puts(self._rest()[1], names, _own_names(self._parts.node), self._parts.function)

    def _rest(self) -> tuple[ast.FunctionDef, list[ast.stmt]]:
        # copying a long function takes milliseconds, and a worker waits for it at each cut
        return _remembered(self._parts, ("rest", self._address), self._made_rest)

    def _made_rest(self) -> tuple[ast.FunctionDef, list[ast.stmt]]:
        node = copy.deepcopy(self._parts.node)
        return node, self._after(node.body)

    def _after(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        for position, node in enumerate(statements):
            rest = statements[position + 1 :]
            if getattr(node, "_number", None) == self._address[0]:
                return [*self._rest_of(node), *rest[len(_releases(rest)) :]]
            if _contains(node, self._address[0]):
                return [*self._inside(node), *rest]
        raise Unsplittable("a cut in a handler, `else` or `finally` is not safe")

    def _inside(self, node: Any) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            in_body = any(_contains(item, self._address[0]) for item in node.body)
            return self._after(node.body if in_body else node.orelse)
        if isinstance(node, ast.Try):
            return [_with_body(node, self._after(node.body))]
        if isinstance(node, ast.With):
            return self._inside_with(node)
        raise Unsplittable(f"a cut inside {type(node).__name__.lower()} is not safe")

    def _inside_with(self, node: Any) -> list[ast.stmt]:
        rest = self._after(node.body)
        if node._again == "skip":
            return rest
        if node._again != "repeat":
            raise Unsplittable(f"the block of “{node._text}” cannot be entered in the middle")
        changed = _with_body(node, rest)
        changed.items = [ast.withitem(node.items[0].context_expr, None)]  # what `as` names may have been rebound since
        return [changed]

    def _rest_of(self, node: Any) -> list[ast.stmt]:
        if isinstance(node, (ast.For, ast.While)) and len(self._address) > 1:
            return self._rest_of_loop(node)
        _refuse_return(node)
        return [_redirect(node, "resume")] if self._descends else []

    def _rest_of_loop(self, node: Any) -> list[ast.stmt]:
        iteration, inner = self._address[1], self._address[2:3]
        if iteration < 0 or not is_callable_loop(node):
            raise Unsplittable("a cut inside a loop is safe only if the loop runs over callables")
        if not _is_repeatable(node.iter) or _loaded_names([node.iter]) & _stored_names(node.body):
            raise Unsplittable("what the loop runs over may be another the next time")
        sequence = f"{RUNTIME}_sequence"
        make = ast.Assign([ast.Name(sequence, ast.Store())], _runtime_call(node, "sequence", [node.iter]))
        whole = copy.deepcopy(node)
        whole.iter = _parse_expression(f"{sequence}[{iteration + 1}:]", node)
        current: list[ast.stmt] = []
        if inner:
            set_target = ast.Assign([copy.deepcopy(node.target)], _parse_expression(f"{sequence}[{iteration}]", node))
            is_rebound = not _names_of(node.target).isdisjoint(_stored_names(node.body))  # then it is loaded
            tail = _tail_of_body(node.body, inner[0], descends=self._descends)
            current = tail if is_rebound else [set_target, *tail]
        return [ast.fix_missing_locations(ast.copy_location(item, node)) for item in (make, *current, whole)]


def _puts(
    statements: Iterable[ast.AST], names: set[str], own: set[str], function: types.FunctionType
) -> list[ast.expr]:
    """What the statements assign values that come from these names to, or put them into; `names` grows by what else holds
    such values."""
    items = [item for statement in statements for item in _walk_scope(statement)]
    modules = {name for name, item in function.__globals__.items() if isinstance(item, types.ModuleType)}
    while True:  # what is made from them in a later turn of a loop, too
        before = len(names)
        puts = [target for item in items for target in _put_into(item, names, own, modules)]
        names |= {root.id for root in map(_root, puts) if isinstance(root, ast.Name)} - own
        if len(names) == before:
            return puts


def _put_into(node: ast.AST, names: set[str], own: set[str], modules: set[str]) -> list[ast.expr]:
    """What the node assigns, or has an object take in, if its value comes from these names; neither functions of modules,
    such as `torch.add(x, y)`, nor methods of the `own` object count, whose inside is not seen here."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [item for target in targets for item in _targets(target)] if _comes_from(node.value, names) else []
    if isinstance(node, ast.For):
        return list(_targets(node.target)) if _comes_from(node.iter, names) else []
    if isinstance(node, ast.Call):
        function = getattr(node.func, "_pinned", node.func)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(function, ast.Attribute) and _takes_in(function.attr):
            is_other = _last_name(_root(function)) in modules
            if is_other or (isinstance(function.value, ast.Name) and function.value.id in own):
                return []
            return [function] if any(_comes_from(item, names) for item in given) else []
    return []


def _own_names(definition: ast.FunctionDef) -> set[str]:
    """The name of the first argument, which stands for the object that the function is a method of."""
    return {argument.arg for argument in _arguments(definition)[:1]}


def _own_attribute(node: ast.expr, own: set[str]) -> str | None:
    """The attribute of the `own` object that the node names, if it does."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in own:
        return node.attr
    return None


def _comes_from(node: ast.AST | None, names: set[str]) -> bool:
    """Whether the value is made from these names, or by the call that a variant goes on in."""
    items = [] if node is None else list(ast.walk(node))
    is_resumed = any(isinstance(item, ast.Attribute) and _dotted(item) == f"{RUNTIME}.resume" for item in items)
    return is_resumed or any(isinstance(item, ast.Name) and item.id in names for item in items)


def _takes_in(method: str) -> bool:
    """Whether a method of this name puts its arguments into its object; torch ends the names of such with `_`."""
    return method in _TAKING_IN or (method.endswith("_") and not method.endswith("__"))


_TAKING_IN = frozenset(
    ("append", "appendleft", "extend", "insert", "add", "update", "setdefault", "set", "put", "push", "write",
     "__setitem__")
)  # fmt: skip


_TAKING_KEYS = frozenset(("setdefault", "set", "put", "__setitem__"))
"""Of these, the methods that get a key with each value."""


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
        mine = (item for item in chains if isinstance(root := _root(item), ast.Name) and root.id == name)
        if any(isinstance(item.ctx, ast.Store) or _takes_in(getattr(item, "attr", "")) for item in mine):
            return False
    return False


def _is_new(node: ast.expr) -> bool:
    """Whether the expression gives an object that nobody else knows."""
    displays = (ast.BinOp, ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
    return isinstance(node, displays) or (isinstance(node, ast.Call) and _last_name(node.func) in _COPYING)


_COPYING = frozenset(("copy", "deepcopy", "dict", "list", "set", "clone"))


def _walk_chain(node: ast.expr) -> Iterator[ast.expr]:
    """The node and what it is an attribute or an item of."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        yield node
        node = node.value


def _is_repeatable(node: ast.expr) -> bool:
    """Whether evaluating what a loop runs over again gives the same items: no work, or a plain view of such."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return not any(_has_work(item) for item in (node.value, node.slice))
    if isinstance(node, ast.Call) and not node.keywords:
        is_view = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and not node.args
        is_wrapper = isinstance(node.func, ast.Name) and node.func.id in _WRAPPERS
        return (is_view or is_wrapper) and not any(_has_work(item) for item in (*node.args, _root(node.func)))
    return not _has_work(node)


_VIEWS = frozenset(("values", "items", "children", "named_children"))
_WRAPPERS = frozenset(("enumerate", "zip", "reversed", "list", "tuple"))


def _tail_of_body(body: list[ast.stmt], number: int, *, descends: bool) -> list[ast.stmt]:
    for position, node in enumerate(body):
        rest = body[position + 1 :]
        if getattr(node, "_number", None) == number:
            _refuse_return(node)
            return [*([_redirect(node, "resume")] if descends else []), *rest[len(_releases(rest)) :]]
        if isinstance(node, ast.If) and _contains(node, number):
            in_body = any(_contains(item, number) for item in node.body)
            return [*_tail_of_body(node.body if in_body else node.orelse, number, descends=descends), *rest]
    raise Unsplittable("a cut inside a nested block of a loop is not safe")


def _refuse_return(node: ast.stmt) -> None:
    """Refuse to go on after a unit in which samples may end: only those that come through would be served."""
    if any(isinstance(item, ast.Return) for item in _walk_scope(node)):
        raise Unsplittable("the function may return inside it")


def _telling_what_is_caught(definition: ast.FunctionDef) -> ast.FunctionDef:
    """The definition with `_unstarve.caught()` where it handles whatever is raised, our doing included."""
    for item in list(_walk_function(definition)):
        if isinstance(item, ast.ExceptHandler) and _catches_all(item.type):
            call = ast.Expr(_runtime_call(item, "caught", []))
            item.body.insert(0, ast.fix_missing_locations(ast.copy_location(call, item)))
    return definition


def _catches_all(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(item is None or _last_name(item) in ("Exception", "BaseException") for item in kinds)


class _Stubber:
    """Builds the `stubbed` variant."""

    def __init__(self, parts: Split, address: Address, used: int) -> None:
        self._parts, self._address, self._used = parts, address, used
        self._descends = len(address) > used
        self._names = live_after(parts, address[:used])

    def definition(self) -> ast.FunctionDef:
        node = copy.deepcopy(self._parts.node)
        node.body = self._block(node.body)
        return _telling_what_is_caught(node)

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, node: Any) -> list[ast.stmt]:
        number = getattr(node, "_number", None)
        if number is None:
            _map_blocks(node, self._block)
            return [node]
        if number != self._address[0]:
            return [node]
        return self._loop(node) if self._used > 1 else self._replacement(node)

    def _loop(self, node: Any) -> list[ast.stmt]:
        if self._address[1] < 0 or not is_callable_loop(node):
            raise Unsplittable("one iteration can be served only in a loop over callables")
        counter = f"{RUNTIME}_count"
        special = copy.deepcopy(node.body)
        if self._used == 2:
            special = self._replacement(node)
        else:
            special = _replace_in_body(special, self._address[2], self._replacement)
        test = _parse_expression(f"{counter} == {self._address[1]}", node)
        node.target = ast.Tuple([ast.Name(counter, ast.Store()), node.target], ast.Store())
        node.iter = _runtime_call(node, "enumerate", [node.iter])
        node.body = [ast.copy_location(ast.If(test, special, node.body), node)]
        return [ast.fix_missing_locations(node)]

    def _replacement(self, node: ast.stmt) -> list[ast.stmt]:
        """What stands for the unit: the call it leads through, and then the locals from the runtime."""
        _refuse_return(node)
        if not self._descends:
            return _load(node, self._names, keep=True)
        assigned = _stored_names([node])  # results of the call, which is made
        return [_redirect(node, "descend"), *_load(node, [n for n in self._names if n not in assigned], keep=True)]


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


class _Switcher:
    """Builds the `switched` variant of a generator.

    Each loop that yields gets two bodies, one as it was and one with switches, and takes the former while the runtime is
    off, so that nothing but a test in each turn is added. A `yield from` becomes a loop first.
    """

    def __init__(self, definition: ast.FunctionDef, code: types.CodeType) -> None:
        self.node = definition
        self._captured = _captured_names(definition)
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
            if isinstance(node, (ast.For, ast.While)) and _has_yield(node):
                if depth == _DEEPEST_LOOP:
                    raise Unsplittable(f"more than {_DEEPEST_LOOP} loops that yield stand inside each other")
                if _has_yield_in(node.orelse):
                    raise Unsplittable("it yields in the else of a loop")
                node._depth = depth  # type: ignore[union-attr]
                self._add(node, node)
                self._number(node.body, node, depth + 1)
            elif isinstance(node, (ast.If, ast.With, ast.Try)):
                for block in _blocks(node):
                    is_other = isinstance(node, ast.Try) and block is not node.body
                    self._number(block, loop, depth, is_guard=is_guard or is_other)
            elif isinstance(node, _SIMPLE) and not _is_silent(node) and not _is_yield(node):
                self._add(node, loop, is_guard=is_guard)

    def _add(self, node: Any, loop: Any, *, is_guard: bool = False) -> None:
        number = len(self._statements)
        unit = _unit(node, number)
        turn = _turn_names(loop, self._captured) if loop is not None else set()
        outputs = _written_names(node.target if node is loop and isinstance(node, ast.For) else node) & turn
        read = _loaded_names([node.iter if isinstance(node, ast.For) else node] if node is loop else [node])
        local = {name for name in read if name in self._local or _is_temporary(name)}
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
        return _loaded_names([*kept, *tests]) & turn

    def definition(self) -> ast.FunctionDef:
        self.node.body = self._block(self.node.body)
        return ast.fix_missing_locations(self.node)

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements with switches."""
        return _map_units(statements, self._statement)

    def _statement(self, node: Any, pins: list[ast.stmt], releases: list[ast.stmt]) -> list[ast.stmt]:
        if isinstance(node, (ast.For, ast.While)) and _has_yield(node):
            return [*pins, self._loop(node), *releases]
        number = getattr(node, "_number", None)
        if number is None:
            _map_blocks(node, self._block)
            return [*pins, node, *releases]
        statement = self._statements[number]
        _redirect(node, "call")
        run = [*pins, node, *releases, _tell(node, "ends", number)]
        test = _runtime_call(
            node, "starts", [_parse_expression(repr(number), node), _parse_expression("locals()", node)]
        )
        if not statement.can_skip:
            return [ast.copy_location(ast.Expr(test), node), *run]
        return [ast.copy_location(ast.If(test, run, self._loaded(node, statement)), node)]

    def _loaded(self, node: ast.stmt, statement: Statement) -> list[ast.stmt]:
        names = sorted({*statement.outputs, *statement.carried, *_written_names(node)})
        return _load_at(node, statement.unit.number, names) or [ast.copy_location(ast.Pass(), node)]

    def _loop(self, node: Any) -> ast.stmt:
        number = node._number
        off, on = _plain_block(copy.deepcopy(node.body), self._loop), self._block(copy.deepcopy(node.body))
        is_on = _parse_expression(f"{RUNTIME}.stream.is_on", node)
        before: list[ast.stmt] = []
        if isinstance(node, ast.For):
            item = f"{RUNTIME}_item{number}"
            take = [ast.Assign([node.target], ast.Name(item, ast.Load())), _forget(item)]
            off, on = [*copy.deepcopy(take), *off], [*self._turn(node, take), *on]
            inner = _innermost_iterable(node)[0]
            source = node.iter if inner is None else inner.args[0]
            if isinstance(source, ast.Name) and _is_temporary(source.id):  # nobody reads it again
                before = [_forget(source.id)]
            self._draw_from_runtime(node, number)
            node.target = ast.Name(item, ast.Store())
        else:
            on = [*self._turn(node, []), *on]
        node.body = [*before, ast.copy_location(ast.If(is_on, on, off), node)]
        return ast.fix_missing_locations(node)

    def _turn(self, node: Any, take: list[ast.stmt]) -> list[ast.stmt]:
        """The start of a turn of a loop: what it runs over gives its item, or a snapshot stands for it."""
        statement = self._statements[node._number]
        test = _runtime_call(node, "turns", [_parse_expression(repr(node._number), node)])
        run = [*take, _tell(node, "turned", node._number)]
        instead = _load_at(node, node._number, sorted({*statement.outputs, *statement.carried})) or [ast.Pass()]
        return [ast.copy_location(ast.If(test, run, instead), node)]

    def _draw_from_runtime(self, node: ast.For, number: int) -> None:
        """Have the runtime draw what the loop runs over, and look into what is counted or sliced by `enumerate` and the
        like: turns that are served draw nothing, so they are not counted either."""
        holder, name = _innermost_iterable(node)
        inner = node.iter if name is None else holder.args[0]
        number_node = _parse_expression(repr(number), node)
        is_own = _parse_expression(repr(self._is_only_here(inner, node)), node)
        adopted = _runtime_call(node, "adopt", [number_node, inner, is_own])
        if name is None:
            node.iter = adopted
        else:
            holder.args[0] = adopted
        node.iter = _runtime_call(node, "source", [copy.deepcopy(number_node), node.iter])

    def _is_only_here(self, iterable: ast.expr, loop: ast.For) -> bool:
        """Whether the iterable is a local that is read nowhere else, and bound anew for each time that the loop runs."""
        if not isinstance(iterable, ast.Name):
            return False
        if _is_temporary(iterable.id):
            return True
        is_inner = loop._depth > 0  # type: ignore[attr-defined]
        uses = sum(isinstance(item, ast.Name) and item.id == iterable.id for item in self._reads)
        return iterable.id in self._local and iterable.id not in self._cells and uses == 1 and not is_inner


def _forget(name: str) -> ast.stmt:
    """What holds on to a value no longer, so that it dies when it would without us."""
    return ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))


_DEEPEST_LOOP = 3
"""Loops that yield, inside each other: each doubles the code."""

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Delete, ast.For, ast.While, ast.Assert)


def _load_at(where: ast.stmt, number: int, names: Sequence[str]) -> list[ast.stmt]:
    """`a, b = _unstarve.load(number, ("a", "b"), locals())`, or nothing for no names."""
    if not names:
        return []
    return [_assign_loaded(where, names, (repr(number), repr(tuple(names)), "locals()"))]


def _plain_block(statements: list[ast.stmt], loop: Callable[[Any], ast.stmt]) -> list[ast.stmt]:
    """The statements as they were, but for loops that yield, which are switched each."""
    result = []
    for node in statements:
        if isinstance(node, (ast.For, ast.While)) and _has_yield(node):
            node = loop(node)
        else:
            _map_blocks(node, lambda block: _plain_block(block, loop))
        result.append(node)
    return result


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
            _map_blocks(node, _map_yields_from)
        result.append(node)
    return result


def _innermost_iterable(node: ast.For) -> tuple[Any, str | None]:
    """The call whose first argument the loop runs over in the end, as in `enumerate(x)`, and its name; None for `x`."""
    holder: Any = None
    inner = node.iter
    while isinstance(inner, ast.Call) and _is_counter(inner.func) and inner.args:
        if isinstance(inner.args[0], ast.Starred):
            break
        holder, inner = inner, inner.args[0]
    return holder, None if holder is None else _last_name(holder.func)


def _is_counter(function: ast.expr) -> bool:
    """Whether it is `enumerate` or `islice`, and no method of that name."""
    if isinstance(function, ast.Attribute):
        return function.attr == "islice" and isinstance(function.value, ast.Name) and function.value.id == "itertools"
    return isinstance(function, ast.Name) and function.id in ("enumerate", "islice")


def _has_yield(node: ast.AST) -> bool:
    return any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in _walk_function(node))


def _has_yield_in(statements: Iterable[ast.stmt]) -> bool:
    return any(_is_yield(node) or _has_yield(node) for node in statements)


def _is_yield(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, (ast.Yield, ast.YieldFrom))


def _written_names(node: ast.AST) -> set[str]:
    """Names that a statement binds, or whose items or attributes it assigns."""
    stores = (ast.Subscript, ast.Attribute)
    targets = [item for item in _walk_scope(node) if isinstance(item, stores) and isinstance(item.ctx, ast.Store)]
    roots = {root.id for root in map(_root, targets) if isinstance(root, ast.Name)}
    return _stored_names([node]) | roots


def _turn_names(loop: Any, captured: set[str]) -> set[str]:
    """Names that live for one turn of the loop: bound in it, before they are read."""
    bound = _stored_names([*loop.body, *([loop.target] if isinstance(loop, ast.For) else [])])
    early = _live_before(loop.body, set(), captured) & bound
    first = _stored_names([loop.target]) if isinstance(loop, ast.For) else set()
    inner = [item for node in loop.body for item in _walk_scope(node) if isinstance(item, (ast.For, ast.While))]
    theirs = {name for node in inner if isinstance(node, ast.For) for name in _stored_names([node.target])}
    return bound - (early - first - theirs) - captured


def _is_switchable(loop: Any) -> bool:
    """Whether turns of the loop can be served: what decides on the next turn must not depend on what is skipped, and a
    turn must end with its sample: one that yields in a loop of its own would go on after serving has ended."""
    has_inner = any(isinstance(item, (ast.For, ast.While)) and _has_yield(item) for item in _walk_body(loop))
    return not has_inner and (isinstance(loop, ast.For) or not _has_work(loop.test))


def _walk_body(loop: Any) -> Iterator[ast.AST]:
    return (item for node in loop.body for item in (node, *_walk_function(node)))


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
        elif not _is_release(node):
            yield node


def _skippable_until(statements: Sequence[Any], last: Any, turn: set[str]) -> set[int]:
    """Identities of the statements up to `last`, in the order of the source, that a cut after it skips."""
    found: set[int] = set()
    for node in statements:
        if isinstance(node, (ast.If, ast.With, ast.Try)):
            inner = [*node.body, *(node.orelse if isinstance(node, ast.If) else [])]
            found |= _skippable_until(inner, last, turn)
            if any(item is last for item in _simple(inner)):
                return found
        elif getattr(node, "_is_pin", False):
            found.add(id(node))
        elif isinstance(node, _SIMPLE) and not isinstance(node, (ast.For, ast.While)) and not _is_yield(node):
            found |= {id(node)} if _written_names(node) <= turn else set()
        if node is last:
            return found
    return found


# --- Small syntax helpers ---------------------------------------------------------------------------------------------


def _map_blocks(node: Any, change: Callable[[list[ast.stmt]], list[ast.stmt]]) -> None:
    """Change the statement's blocks in place, unless it is a loop."""
    for block in _blocks(node):
        block[:] = change(list(block)) or [ast.copy_location(ast.Pass(), node)]


def _blocks(node: Any) -> list[list[Any]]:
    """The blocks of a statement that is no loop, in the order of the source."""
    if not isinstance(node, (ast.If, ast.With, ast.Try)):
        return []
    handlers = [handler.body for handler in getattr(node, "handlers", [])]
    blocks = [node.body, *handlers, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
    return [block for block in blocks if block]


def _with_body(node: Any, body: list[ast.stmt]) -> Any:
    changed = copy.copy(node)
    changed.body = body or [ast.copy_location(ast.Pass(), node)]
    return changed


def _contains(node: ast.stmt, number: int) -> bool:
    if getattr(node, "_number", None) == number:
        return True
    if isinstance(node, ast.If):
        return any(_contains(item, number) for item in (*node.body, *node.orelse))
    if isinstance(node, (ast.With, ast.Try)):
        return any(_contains(item, number) for item in node.body)
    return False


def is_callable_loop(node: ast.stmt) -> bool:
    """Whether the statement may be a chain of transforms: `for t in ...:` where the body calls `t`, or hands `t` on."""
    return calls_its_target(node) or _hands_on_its_target(node)


def calls_its_target(node: ast.stmt) -> bool:
    """Whether the statement is `for t in ...:` with calls of `t` in its body."""
    if not isinstance(node, ast.For) or node.orelse or _leaves_early(node):
        return False
    return not _names_of(node.target).isdisjoint(
        item.func.id for item in ast.walk(node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)
    )


def _hands_on_its_target(node: ast.stmt) -> bool:
    """Whether the statement is `for t in ...:` with `x = apply(t, x)` in its body; what `t` is shows when it runs."""
    if not isinstance(node, ast.For) or node.orelse or _leaves_early(node):
        return False
    targets, carried = _names_of(node.target), _stored_names(node.body)
    calls = (item.value for item in ast.walk(node) if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call))
    given = (_loaded_names([*call.args, *call.keywords]) for call in calls)
    return any(names & targets and names & carried - targets for names in given)


def _names_of(target: ast.expr) -> set[str]:
    return {item.id for item in _targets(target) if isinstance(item, ast.Name)}


def _leaves_early(node: ast.For) -> bool:
    return any(isinstance(item, (ast.Break, ast.Continue)) for item in ast.walk(node))


def _runtime_call(where: ast.AST, method: str, arguments: list[ast.expr]) -> ast.expr:
    call = ast.Call(_runtime_attribute(method, where), arguments, [])
    return ast.fix_missing_locations(ast.copy_location(call, where))


def _runtime_attribute(name: str, where: ast.AST) -> ast.expr:
    node = ast.copy_location(ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load()), where)
    if not isinstance(where, ast.Attribute):  # the line of a method call is that on which its attribute ends
        node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
    return ast.fix_missing_locations(node)


def _tell(where: ast.stmt, method: str, *facts: Any) -> ast.stmt:
    """`_unstarve.enter(number, depth, locals())` and the like; strings in a list become a tuple."""
    arguments = [_parse_expression(repr(tuple(fact) if isinstance(fact, list) else fact), where) for fact in facts]
    call = _runtime_call(where, method, [*arguments, _parse_expression("locals()", where)])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), where))


def _parse_expression(text: str, where: ast.AST) -> ast.expr:
    node = ast.parse(text, mode="eval").body
    for item in ast.walk(node):
        ast.copy_location(item, where)
    return node


def _load(where: ast.stmt, names: Sequence[str], *, keep: bool = False) -> list[ast.stmt]:
    """`a, b = _unstarve.load(("a", "b"))`, or nothing for no names; with the present locals if some may be kept
    (then also for no names: locals of the functions around this one may wait for it)."""
    if not names and not keep:
        return []
    return [_assign_loaded(where, names, (repr(tuple(names)), *(["locals()"] if keep else [])))]


def _assign_loaded(where: ast.stmt, names: Sequence[str], arguments: Iterable[str]) -> ast.stmt:
    """The names assigned from `_unstarve.load` with these arguments."""
    target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
    call = _runtime_call(where, "load", [_parse_expression(text, where) for text in arguments])
    return ast.fix_missing_locations(ast.copy_location(ast.Assign([target], call), where))


def _redirect(node: Any, method: str) -> Any:
    """The statement with its call `f(a)` turned into `_unstarve.<method>(f, a)`, or `_unstarve.resume()`."""
    call = _main_call(node)
    if call is None:
        if method != "call":
            raise Unsplittable("the statement is not a single call")
        return node
    if isinstance(call, ast.Call) and method == "call":
        name = _last_name(getattr(call.func, "_pinned", call.func))
        if name in _NAMESAKES:
            call.func = _runtime_call(call.func, "told_apart", [call.func])
        if name in _CALLER_READERS | _NAMESAKES:
            return node
    if method == "resume":
        new = _runtime_call(call, "resume", [])
    elif isinstance(call, ast.Subscript):
        if not isinstance(call.ctx, ast.Load):
            return node
        index = call.slice
        if isinstance(index, (ast.Slice, ast.Tuple)):
            return node
        new = _runtime_call(call, method, [_runtime_attribute("getitem", call), call.value, index])
    elif isinstance(call, ast.Call):
        where = call.func if isinstance(call.func, ast.Attribute) else getattr(call.func, "_pinned", call)
        new = ast.Call(_runtime_attribute(method, where), [call.func, *call.args], call.keywords)
    node.value = ast.fix_missing_locations(ast.copy_location(new, call))
    return node


# --- Compiling --------------------------------------------------------------------------------------------------------


def _compile(parts: Split, definition: ast.FunctionDef) -> types.CodeType:
    return _compiled_definition(parts.function.__code__, definition, parts.filename)


def _compiled_definition(original: types.CodeType, definition: ast.FunctionDef, filename: str) -> types.CodeType:
    """The variant's code, which shares the original's cells and has one more for the runtime."""
    definition.args.defaults = [ast.copy_location(ast.Constant(None), item) for item in definition.args.defaults]
    definition.args.kw_defaults = [
        item and ast.copy_location(ast.Constant(None), item) for item in definition.args.kw_defaults
    ]
    # a local of the outer function for each cell; `super()` too finds `__class__` there
    cells = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in (*original.co_freevars, RUNTIME)]
    outer = ast.parse("def _unstarve_outer(): pass").body[0]
    # a function that calls itself finds its name where it did, and not in the function around the variant
    is_cell = definition.name in original.co_freevars
    own_name: list[ast.stmt] = [] if is_cell else [ast.Global([definition.name])]
    outer.body = [*own_name, *cells, definition]  # type: ignore[attr-defined]
    ast.copy_location(outer, definition)
    module = ast.fix_missing_locations(ast.Module([outer], []))
    compiled = syntax.compiled(module, filename, original.co_flags & _FUTURES)
    return _nested(_nested(compiled, "_unstarve_outer"), definition.name)


def _nested(code: types.CodeType, name: str) -> types.CodeType:
    return next(item for item in code.co_consts if isinstance(item, types.CodeType) and item.co_name == name)


def _bind(function: types.FunctionType, code: types.CodeType, runtime: Any) -> types.FunctionType:
    """The variant of `function` with this code, talking to `runtime`."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[RUNTIME] = types.CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    variant = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    variant.__kwdefaults__ = function.__kwdefaults__
    variant.__qualname__ = function.__qualname__
    return variant
