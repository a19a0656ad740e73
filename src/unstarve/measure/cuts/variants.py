"""Variants of a function that was split:

- `watched`: the whole function, telling a runtime when each unit starts and ends and letting it enter calls;
- `resumed`: only what follows a unit, with the live locals loaded from the runtime;
- `stubbed`: the whole function with one unit's results loaded from the runtime instead of computed.

Generators, which cannot be exchanged while they run, have a variant of their own in `switched`.
"""

from __future__ import annotations

import ast
import copy
import functools
import types
from collections.abc import Callable, Sequence
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
from unstarve.measure.cuts.normalise import has_work
from unstarve.measure.cuts.split import Address, Split, Unit, Unsplittable, is_callable_loop, remembered
from unstarve.measure.cuts.tree import (
    RUNTIME,
    captured_names,
    is_own_local,
    last_name,
    live_before,
    loaded_names,
    map_blocks,
    root_of,
    stored_names,
    target_names,
    walk_function,
    walk_scope,
)

Factory = Callable[[Any], types.FunctionType]
"""Makes a variant that talks to the runtime given."""


def watched(parts: Split, opened: frozenset[int] = frozenset(), closed: frozenset[int] = frozenset()) -> Factory:
    """The whole function, reporting each unit to the runtime: `enter`, `leave`, `bound`, `iteration` in loops, and `caught`.

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
    make = _variant(parts, ("resumed", address), lambda: _Resumer(parts, address).definition())
    return make, _own_length(parts, address)


def stubbed(parts: Split, address: Address) -> tuple[Factory, int]:
    """The whole function with what the unit at `address` gives or changes loaded from the runtime; see `resumed`."""
    make = _variant(parts, ("stubbed", address), lambda: _Stubber(parts, address).definition())
    return make, _own_length(parts, address)


def live_after(parts: Split, address: Address) -> tuple[str, ...]:
    """Locals that `resumed(parts, address)` may read before it sets them, so that must be carried across."""
    return remembered(parts.known, ("live", address), lambda: _Resumer(parts, address).live())


def attributes_after(parts: Split, address: Address) -> frozenset[str]:
    """Names of the attributes that `resumed(parts, address)` reads."""
    return remembered(parts.known, ("attributes", address), lambda: _attributes(rest_after(parts, address)))


def _attributes(statements: Sequence[ast.stmt]) -> frozenset[str]:
    nodes = (item for statement in statements for item in ast.walk(statement))
    return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute))


def rest_after(parts: Split, address: Address) -> list[ast.stmt]:
    """The statements of `resumed(parts, address)`, to be read and not changed."""
    return _Resumer(parts, address).rest()[1]


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
    original = parts.function.__code__
    code = remembered(parts.known, key, lambda: compiled_definition(original, make(), parts.filename))
    return functools.partial(bind, parts.function, code)


class _Watcher:
    """Builds the `watched` variant."""

    def __init__(self, parts: Split, opened: frozenset[int], closed: frozenset[int]) -> None:
        self._parts, self._opened, self._closed = parts, opened, closed

    def definition(self) -> ast.FunctionDef:
        node = copy.deepcopy(self._parts.node)
        node.body = self._block(node.body, depth=0)
        return _telling_what_is_caught(node)

    def _block(self, statements: Sequence[ast.stmt], depth: int) -> list[ast.stmt]:
        """The statements told about; `depth` is 1 in the body of a loop."""
        return map_units(statements, lambda node, pins, releases: self._statement(node, pins, releases, depth))

    def _statement(self, node: ast.stmt, pins: list[ast.stmt], releases: list[ast.stmt], depth: int) -> list[ast.stmt]:
        number = getattr(node, "_number", None)
        if number is None or isinstance(node, ast.Return):
            map_blocks(node, lambda block: self._block(block, depth))
            return [*pins, node, *releases]
        names = sorted(stored_names([node]))
        if not isinstance(node, (ast.For, ast.While)):
            redirect(node, "bound")
        elif depth == 0 and (number in self._opened or (is_callable_loop(node) and number not in self._closed)):
            self._loop(node)
        enter, leave = tell(node, "enter", number, depth), tell(node, "leave", number, depth, names)
        pinned = [tell(node, "pinned")] if pins else []
        return [enter, *pins, *pinned, node, *releases, leave]

    def _loop(self, node: Any) -> None:
        by_item = is_callable_loop(node)
        names = sorted(stored_names(node.body))
        start, end = tell(node, "iteration", by_item), tell(node, "iterated", names)
        node.body = [start, *self._block(node.body, depth=1), end]
        if isinstance(node, ast.For):
            node.iter = runtime_call(node, "each", [node.iter])


class _Resumer:
    """Builds the `resumed` variant."""

    def __init__(self, parts: Split, address: Address) -> None:
        self._parts, self._address = parts, address
        self._descends = len(address) > _own_length(parts, address)

    def definition(self) -> ast.FunctionDef:
        names = live_after(self._parts, self._address)
        node, body = self.rest()
        self._parts.known.pop(("rest", self._address))
        node.body = [*_load(node, names), *body] or [ast.copy_location(ast.Pass(), node)]
        return _telling_what_is_caught(node)

    def live(self) -> tuple[str, ...]:
        node, body = self.rest()
        read = live_before(body, set(), captured_names(self._parts.node))
        if "super" in loaded_names(body) and node.args.args:
            read.add(node.args.args[0].arg)
        code = self._parts.function.__code__
        local = {*code.co_varnames, *code.co_cellvars} - self._parts.node._hidden  # type: ignore[attr-defined]
        return tuple(sorted(name for name in read if name in local or is_own_local(name)))

    def rest(self) -> tuple[ast.FunctionDef, list[ast.stmt]]:
        """A copy of the definition, and what of its statements follows the unit."""
        # copying a long function takes milliseconds, and a worker waits for it at each cut
        return remembered(self._parts.known, ("rest", self._address), self._made_rest)

    def _made_rest(self) -> tuple[ast.FunctionDef, list[ast.stmt]]:
        node = copy.deepcopy(self._parts.node)
        return node, self._after(node.body)

    def _after(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        for position, node in enumerate(statements):
            rest = statements[position + 1 :]
            if getattr(node, "_number", None) == self._address[0]:
                return [*self._rest_of(node), *rest[len(leading_releases(rest)) :]]
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
        return [redirect(node, "resume")] if self._descends else []

    def _rest_of_loop(self, node: Any) -> list[ast.stmt]:
        iteration, inner = self._address[1], self._address[2:3]
        if iteration < 0 or not is_callable_loop(node):
            raise Unsplittable("a cut inside a loop is safe only if the loop runs over callables")
        if not _is_repeatable(node.iter) or loaded_names([node.iter]) & stored_names(node.body):
            raise Unsplittable("what the loop runs over may be another the next time")
        sequence = f"{RUNTIME}_sequence"
        make = ast.Assign([ast.Name(sequence, ast.Store())], runtime_call(node, "sequence", [node.iter]))
        whole = copy.deepcopy(node)
        whole.iter = parse_expression(f"{sequence}[{iteration + 1}:]", node)
        current: list[ast.stmt] = []
        if inner:
            set_target = ast.Assign([copy.deepcopy(node.target)], parse_expression(f"{sequence}[{iteration}]", node))
            is_rebound = not stored_names(node.body).isdisjoint(target_names(node.target))  # then it is loaded
            tail = _tail_of_body(node.body, inner[0], descends=self._descends)
            current = tail if is_rebound else [set_target, *tail]
        return [ast.fix_missing_locations(ast.copy_location(item, node)) for item in (make, *current, whole)]


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


def _is_repeatable(node: ast.expr) -> bool:
    """Whether evaluating what a loop runs over again gives the same items: no work, or a plain view of such."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return not any(has_work(item) for item in (node.value, node.slice))
    if isinstance(node, ast.Call) and not node.keywords:
        is_view = isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and not node.args
        is_wrapper = isinstance(node.func, ast.Name) and node.func.id in _WRAPPERS
        return (is_view or is_wrapper) and not any(has_work(item) for item in (*node.args, root_of(node.func)))
    return not has_work(node)


_VIEWS = frozenset(("values", "items", "children", "named_children"))

_WRAPPERS = frozenset(("enumerate", "zip", "reversed", "list", "tuple"))


def _tail_of_body(body: list[ast.stmt], number: int, *, descends: bool) -> list[ast.stmt]:
    for position, node in enumerate(body):
        rest = body[position + 1 :]
        if getattr(node, "_number", None) == number:
            _refuse_return(node)
            return [*([redirect(node, "resume")] if descends else []), *rest[len(leading_releases(rest)) :]]
        if isinstance(node, ast.If) and _contains(node, number):
            in_body = any(_contains(item, number) for item in node.body)
            return [*_tail_of_body(node.body if in_body else node.orelse, number, descends=descends), *rest]
    raise Unsplittable("a cut inside a nested block of a loop is not safe")


def _refuse_return(node: ast.stmt) -> None:
    """Refuse to go on after a unit in which samples may end: only those that come through would be served."""
    if any(isinstance(item, ast.Return) for item in walk_scope(node)):
        raise Unsplittable("the function may return inside it")


def _telling_what_is_caught(definition: ast.FunctionDef) -> ast.FunctionDef:
    """The definition with `_unstarve.caught()` where it handles whatever is raised, our doing included."""
    for item in list(walk_function(definition)):
        if isinstance(item, ast.ExceptHandler) and _catches_all(item.type):
            call = ast.Expr(runtime_call(item, "caught", []))
            item.body.insert(0, ast.fix_missing_locations(ast.copy_location(call, item)))
    return definition


def _catches_all(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(item is None or last_name(item) in ("Exception", "BaseException") for item in kinds)


class _Stubber:
    """Builds the `stubbed` variant."""

    def __init__(self, parts: Split, address: Address) -> None:
        self._parts, self._address, self._used = parts, address, _own_length(parts, address)
        self._descends = len(address) > self._used
        self._names = live_after(parts, address[: self._used])

    def definition(self) -> ast.FunctionDef:
        node = copy.deepcopy(self._parts.node)
        node.body = self._block(node.body)
        return _telling_what_is_caught(node)

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, node: Any) -> list[ast.stmt]:
        number = getattr(node, "_number", None)
        if number is None:
            map_blocks(node, self._block)
            return [node]
        if number != self._address[0]:
            return [node]
        return self._loop(node) if self._used > 1 else self._replacement(node)

    def _loop(self, node: Any) -> list[ast.stmt]:
        if self._address[1] < 0 or not is_callable_loop(node):
            raise Unsplittable("one iteration can be served only in a loop over callables")
        counter = f"{RUNTIME}_count"
        if self._used == 2:
            special = self._replacement(node)
        else:
            special = _replace_in_body(copy.deepcopy(node.body), self._address[2], self._replacement)
        test = parse_expression(f"{counter} == {self._address[1]}", node)
        node.target = ast.Tuple([ast.Name(counter, ast.Store()), node.target], ast.Store())
        node.iter = runtime_call(node, "enumerate", [node.iter])
        node.body = [ast.copy_location(ast.If(test, special, node.body), node)]
        return [ast.fix_missing_locations(node)]

    def _replacement(self, node: ast.stmt) -> list[ast.stmt]:
        """What stands for the unit: the call it leads through, and then the locals from the runtime."""
        _refuse_return(node)
        if not self._descends:
            return _load(node, self._names, keep=True)
        assigned = stored_names([node])  # results of the call, which is made
        return [redirect(node, "descend"), *_load(node, [n for n in self._names if n not in assigned], keep=True)]


def _replace_in_body(body: list[ast.stmt], number: int, make: Callable[[ast.stmt], list[ast.stmt]]) -> list[ast.stmt]:
    result: list[ast.stmt] = []
    for node in body:
        if getattr(node, "_number", None) == number:
            result += make(node)
            continue
        if not hasattr(node, "_number"):
            map_blocks(node, lambda inner: _replace_in_body(inner, number, make))
        result.append(node)
    return result


def _load(where: ast.stmt, names: Sequence[str], *, keep: bool = False) -> list[ast.stmt]:
    """`a, b = _unstarve.load(("a", "b"))`, or nothing for no names; with the present locals if some may be kept
    (then also for no names: locals of the functions around this one may wait for it)."""
    if not names and not keep:
        return []
    return [assign_loaded(where, names, (repr(tuple(names)), *(["locals()"] if keep else [])))]
