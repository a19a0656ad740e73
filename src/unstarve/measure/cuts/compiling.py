"""Compiling a variant of a function: a normalised definition in which statements talk to a runtime.

What each kind of variant says to its runtime, and when, is decided in `variants` and `switched`. A variant has the
user's file name and line numbers, so that tracebacks read as if nothing had happened.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from unstarve import syntax
from unstarve.measure.cuts.normalise import is_pin, is_release
from unstarve.measure.cuts.split import FRAME_READERS, FUTURES, Unsplittable, main_call
from unstarve.measure.cuts.tree import RUNTIME, last_name

_CALLER_READERS = FRAME_READERS | {"super", "globals", "vars", "dir"}
"""Functions that look at the frame which calls them, by name."""


# --- Talking to the runtime -------------------------------------------------------------------------------------------


def map_units(
    statements: Sequence[ast.stmt], make: Callable[[Any, list[ast.stmt], list[ast.stmt]], list[ast.stmt]]
) -> list[ast.stmt]:
    """What `make` gives for each statement, the pins before it and the releases after it, which count with their unit."""
    result: list[ast.stmt] = []
    pins: list[ast.stmt] = []
    for position, node in enumerate(statements):
        if is_pin(node) or (pins and is_release(node)):
            pins.append(node)
        elif not is_release(node):
            result += make(node, pins, leading_releases(statements[position + 1 :]))
            pins = []
    return result + pins


def leading_releases(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The deletions at the start of the statements."""
    count = next((position for position, node in enumerate(statements) if not is_release(node)), len(statements))
    return list(statements[:count])


def redirect(node: Any, method: str) -> Any:
    """The statement with its call `f(a)` turned into `_unstarve.<method>(f, a)`, `_unstarve.resume()`, or, so that it is
    still this function that calls, `_unstarve.bound(f, a)()`."""
    call = main_call(node)
    if call is None:
        if method != "bound":
            raise Unsplittable("the statement is not a single call")
        return node
    if isinstance(call, ast.Call) and method == "bound" and last_name(_written(call)) in _CALLER_READERS:
        return node
    if method == "resume":
        new = runtime_call(call, "resume", [])
    elif isinstance(call, ast.Subscript):
        if not isinstance(call.ctx, ast.Load):
            return node
        index = call.slice
        if isinstance(index, (ast.Slice, ast.Tuple)):
            return node
        new = runtime_call(call, method, [_runtime_attribute("getitem", call), call.value, index])
    elif isinstance(call, ast.Call):
        where = _written(call) if isinstance(_written(call), ast.Attribute) else call
        new = ast.Call(_runtime_attribute(method, where), [call.func, *call.args], call.keywords)
    ast.copy_location(new, call)
    node.value = ast.fix_missing_locations(_made_here(call, new) if method == "bound" else new)
    return node


def _written(call: ast.Call) -> ast.expr:
    """The callee as the user wrote it."""
    return getattr(call.func, "_pinned", call.func)


def _made_here(call: ast.expr, bound: ast.expr) -> ast.Call:
    """`bound()`, on the line of the call that it stands for."""
    made = ast.copy_location(ast.Call(bound, [], []), call)
    if isinstance(call, ast.Call) and _is_method_call(call):
        method = _written(call)
        assert method.end_lineno is not None
        made.lineno = method.end_lineno  # as Python has it
        made.col_offset = method.col_offset if method.lineno == method.end_lineno else 0
    return made


def _is_method_call(call: ast.Call) -> bool:
    """Whether Python compiles it to a call of a method, whose line is that on which the method's name stands."""
    is_plain = all(item.arg for item in call.keywords) and not any(isinstance(item, ast.Starred) for item in call.args)
    is_method = is_plain and (sys.version_info >= (3, 11) or not call.keywords)
    return is_method and isinstance(_written(call), ast.Attribute)


def tell(where: ast.stmt, method: str, *facts: Any) -> ast.stmt:
    """`_unstarve.enter(number, depth, locals())` and the like; strings in a list become a tuple."""
    arguments = [parse_expression(repr(tuple(fact) if isinstance(fact, list) else fact), where) for fact in facts]
    call = runtime_call(where, method, [*arguments, parse_expression("locals()", where)])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), where))


def assign_loaded(where: ast.stmt, names: Sequence[str], arguments: Iterable[str]) -> ast.stmt:
    """The names assigned from `_unstarve.load` with these arguments."""
    target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
    call = runtime_call(where, "load", [parse_expression(text, where) for text in arguments])
    return ast.fix_missing_locations(ast.copy_location(ast.Assign([target], call), where))


def runtime_call(where: ast.AST, method: str, arguments: list[ast.expr]) -> ast.expr:
    """`_unstarve.<method>(*arguments)`, on the line of `where`."""
    call = ast.Call(_runtime_attribute(method, where), arguments, [])
    return ast.fix_missing_locations(ast.copy_location(call, where))


def _runtime_attribute(name: str, where: ast.AST) -> ast.expr:
    node = ast.copy_location(ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load()), where)
    if not isinstance(where, ast.Attribute):  # the line of a method call is that on which its attribute ends
        node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
    return ast.fix_missing_locations(node)


def parse_expression(text: str, where: ast.AST) -> ast.expr:
    """The expression that the text says, on the line of `where`."""
    node = ast.parse(text, mode="eval").body
    for item in ast.walk(node):
        ast.copy_location(item, where)
    return node


# --- Compiling --------------------------------------------------------------------------------------------------------


def compiled_definition(original: types.CodeType, definition: ast.FunctionDef, filename: str) -> types.CodeType:
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
    compiled = syntax.compiled(module, filename, original.co_flags & FUTURES)
    return _nested(_nested(compiled, "_unstarve_outer"), definition.name)


def _nested(code: types.CodeType, name: str) -> types.CodeType:
    return next(item for item in code.co_consts if isinstance(item, types.CodeType) and item.co_name == name)


def bind(function: types.FunctionType, code: types.CodeType, runtime: Any) -> types.FunctionType:
    """The variant of `function` with this code, talking to `runtime`."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[RUNTIME] = types.CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    variant = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    variant.__kwdefaults__ = function.__kwdefaults__
    variant.__qualname__ = function.__qualname__
    return variant
