"""Reading a program's source once more, in silence: what Python warns of was said when the program was loaded."""

from __future__ import annotations

import ast
import types
import warnings


def parsed(source: str) -> ast.Module:
    """The source's tree.

    Raises:
        SyntaxError: it is no Python, or not of this version.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def loops(source: str) -> dict[int, int]:
    """For each line of a statement, the line where the innermost `for` or `while` around it in the same function begins; 0
    where there is none. Empty where the source is no Python."""
    found: dict[int, int] = {}
    try:
        _note_loops(parsed(source), 0, found)
    except (SyntaxError, ValueError):
        return {}
    return found


def _note_loops(node: ast.AST, around: int, found: dict[int, int]) -> None:
    for child in ast.iter_child_nodes(node):
        inside = 0 if isinstance(child, _SCOPES) else around
        if isinstance(child, ast.stmt):
            found.update(dict.fromkeys(range(child.lineno, (child.end_lineno or child.lineno) + 1), inside))
        _note_loops(child, child.lineno if isinstance(child, (ast.For, ast.AsyncFor, ast.While)) else inside, found)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def compiled(source: str | ast.Module, filename: str, flags: int) -> types.CodeType:
    """The module's code, under the future statements of `flags` and no others.

    Raises:
        SyntaxError: it is no Python, or not of this version.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(source, filename, "exec", flags=flags, dont_inherit=True)
