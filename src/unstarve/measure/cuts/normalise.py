"""Normalising a function: calls nested in a statement become statements of their own, in Python's order.

So `return self.tf(self.load(i)), y` becomes a load, a transform and a return. What counts as work, and so becomes a
statement, is decided here; numbering what comes out is left to `split`.

One liberty is taken with Python's order: in `module.function(argument())` the function is looked up after its argument
is evaluated, where it hangs on a global name; functions of modules do not change in between.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

from unstarve.measure.cuts.tree import (
    COMPREHENSIONS,
    RUNTIME,
    arguments_of,
    dotted,
    has_yield,
    is_temporary,
    last_name,
    loaded_names,
    map_blocks,
    root_of,
    stored_names,
    target_names,
    walk_scope,
)

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

_BLOCKS = (
    ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Match,
    *([ast.TryStar] if hasattr(ast, "TryStar") else []),
)  # fmt: skip

_OPAQUE = (ast.Lambda, *COMPREHENSIONS, ast.JoinedStr, *([ast.TemplateStr] if hasattr(ast, "TemplateStr") else []))


class Normaliser:
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
        for argument in arguments_of(node):
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
            map_blocks(node, self._block)
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
        if has_yield(node):
            holder = innermost_iterable(node)
            get, put = _attribute_slot(node, "iter") if holder is None else _item_slot(holder.args, 0)
            put(self._hoisted(get(), before, keep_top=False))

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
        if not has_work(node):
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
        renamed = _Renamer({name: self._fresh() for name in target_names(generator.target)})
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
        work = [has_work(get()) for get, _ in slots]
        for position, (get, put) in enumerate(slots):
            is_callee = isinstance(node, ast.Call) and position == 0
            if work[position]:
                put(self._inner(get(), before))
            if any(work[position + 1 :]) and not self._is_fixed(get(), is_callee):
                put(self._pinned(get(), before))

    def _inner(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        return self._expression(node, before) if has_work(node) else node

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
            return node.id in self._local or is_temporary(node.id) or (is_callee and self._is_global(node))
        if isinstance(node, ast.Attribute):
            return is_callee and self._is_global(root_of(node))
        if isinstance(node, ast.Starred):
            return isinstance(node.value, ast.Name) and is_temporary(node.value.id)
        if isinstance(node, ast.Tuple):
            return all(self._is_fixed(item, False) for item in node.elts)
        return isinstance(node, (ast.Constant, ast.Lambda))

    def _is_global(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id not in {*self._local, *self._cells} and not is_temporary(node.id)

    def _temporary(self, node: ast.expr, before: list[ast.stmt], *, is_pin: bool = False) -> ast.expr:
        name = f"{RUNTIME}_{self._count}"
        self._count += 1
        target = ast.copy_location(ast.Name(name, ast.Store()), node)
        assignment = ast.copy_location(ast.Assign([target], node), node)
        assignment._text = self._text(node)  # type: ignore[attr-defined]
        assignment._is_pin = is_pin  # type: ignore[attr-defined]
        before.append(assignment)
        loaded = ast.copy_location(ast.Name(name, ast.Load()), node)
        loaded._written = dotted(node) if is_pin else None  # type: ignore[attr-defined]
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


def _comprehension_names(definition: ast.FunctionDef) -> set[str]:
    """Names that only comprehensions bind: from Python 3.12 on they are among the function's variables all the same."""
    nodes = [node for node in ast.walk(definition) if isinstance(node, ast.comprehension)]
    bound = {name for node in nodes for name in target_names(node.target)}
    return bound - stored_names(definition.body) - {argument.arg for argument in arguments_of(definition)}


def _can_unroll(node: ast.ListComp) -> bool:
    """Whether the comprehension is a loop over one iterable with no scope inside it, in which names could clash."""
    scopes = (ast.Lambda, *COMPREHENSIONS, ast.NamedExpr)
    inside = [item for item in ast.walk(node) if item is not node]
    is_plain = len(node.generators) == 1 and not any(isinstance(item, scopes) for item in inside)
    target = node.generators[0].target
    has_calls = any(isinstance(item, (ast.Call, ast.Subscript)) for item in ast.walk(node.elt))
    return is_plain and has_calls and isinstance(target, (ast.Name, ast.Tuple)) and _is_flat(target)


def _is_flat(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or all(isinstance(item, ast.Name) for item in target.elts)  # type: ignore[attr-defined]


def _is_alternative(node: ast.stmt) -> bool:
    """Whether the statement is of the form `x = f() if ... else g()`, whose calls are only made if need be."""
    if not isinstance(node, (ast.Assign, ast.Return, ast.Expr)) or not isinstance(node.value, ast.IfExp):
        return False
    return has_work(node.value.body) or has_work(node.value.orelse)


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
        names = sorted(name for name in loaded_names([node]) if is_temporary(name))
        if names and isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            deletion = ast.Delete([ast.Name(name, ast.Del()) for name in names])
            deletion._is_release = True  # type: ignore[attr-defined]
            result.append(ast.fix_missing_locations(ast.copy_location(deletion, node)))
    return result


def is_silent(statement: ast.stmt) -> bool:
    """Whether the normaliser added the statement and it is no unit: a pin or a release."""
    return is_pin(statement) or is_release(statement)


def is_pin(statement: ast.stmt) -> bool:
    """Whether the statement only holds an operand for the unit that follows."""
    return getattr(statement, "_is_pin", False)


def is_release(statement: ast.stmt) -> bool:
    """Whether the statement only deletes temporaries of the unit before."""
    return getattr(statement, "_is_release", False)


def _again(context: ast.expr) -> str:
    """How the rest of a `with` block is resumed: without entering (`skip`), entering a new one (`repeat`), or not."""
    call = context.func if isinstance(context, ast.Call) else None
    if call is None:
        is_lock = isinstance(context, (ast.Name, ast.Attribute)) and "lock" in last_name(context).lower()
        return "repeat" if is_lock else ""
    if last_name(call) in _READERS:
        return "skip"
    arguments = [*context.args, *(keyword.value for keyword in context.keywords)]  # type: ignore[attr-defined]
    is_plain = not any(has_work(argument) for argument in arguments)
    return "repeat" if last_name(call) in _REPEATABLE and is_plain else ""


def has_work(node: ast.AST) -> bool:
    """Whether evaluating `node` may cost something: a call, a subscript of an object, a comprehension."""
    if isinstance(node, ast.Lambda):
        return any(
            has_work(default) for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None
        )
    if isinstance(node, ast.GeneratorExp):  # the work is done by what draws from it
        return has_work(node.generators[0].iter)
    if isinstance(node, ast.Starred) and isinstance(node.value, ast.GeneratorExp):
        return True
    if (isinstance(node, ast.Call) and not _is_cheap(node)) or isinstance(node, COMPREHENSIONS):
        return True
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Constant):
        return True
    return any(has_work(child) for child in ast.iter_child_nodes(node))


def _binds(node: ast.AST) -> bool:
    """Whether the expression assigns to names, so that its parts must stay where they are."""
    return any(isinstance(item, ast.NamedExpr) for item in ast.walk(node))


def _computes(node: ast.expr, *, has_units: bool) -> bool:
    """Whether what is left of a returned value may cost something: arithmetic, or a property that is all there is."""
    kinds = (ast.BinOp, ast.Compare, *(() if has_units else (ast.Attribute,)))
    return any(isinstance(item, kinds) or _is_operation(item) for item in walk_scope(node))


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


def innermost_iterable(node: ast.For) -> ast.Call | None:
    """The call whose first argument the loop runs over in the end, as in `enumerate(x)`; None for `x`."""
    holder, inner = None, node.iter
    while isinstance(inner, ast.Call) and _is_counter(inner.func) and inner.args:
        if isinstance(inner.args[0], ast.Starred):
            break
        holder, inner = inner, inner.args[0]
    return holder


def _is_counter(function: ast.expr) -> bool:
    """Whether it is `enumerate` or `islice`, and no method of that name."""
    if isinstance(function, ast.Attribute):
        return function.attr == "islice" and isinstance(function.value, ast.Name) and function.value.id == "itertools"
    return isinstance(function, ast.Name) and function.id in ("enumerate", "islice")


# --- Operands ---------------------------------------------------------------------------------------------------------

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
