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


def compiled(source: str | ast.Module, filename: str, flags: int) -> types.CodeType:
    """The module's code, under the future statements of `flags` and no others.

    Raises:
        SyntaxError: it is no Python, or not of this version.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(source, filename, "exec", flags=flags, dont_inherit=True)
