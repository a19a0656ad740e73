"""Running a user's script in this process as `python SCRIPT` would.

The script becomes the real `__main__` module, with its own file and specification, so that the guard, pickling of
classes defined in it, and worker processes started by spawn or forkserver behave as without us.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unstarve.errors import UsageError

_INTERPRETER = re.compile(r"python[\d.]*(\.exe)?")


@dataclass(frozen=True, slots=True)
class Script:
    """A program to run."""

    source: bytes | types.CodeType
    """Its source, or its code where the source is compiled already."""
    filename: str
    """Absolute path, as `__main__.__file__` has it."""
    module: types.ModuleType
    """What will be `__main__`."""
    arguments: tuple[str, ...]
    """`sys.argv`, its own name first."""
    path_entry: str
    """Where it finds modules of its own: the first entry of `sys.path`, unless it has put others before."""
    replaced_entry: str | None
    """The entry that it takes the place of: where this process found its own program."""


def from_file(path: str, arguments: Sequence[str]) -> Script:
    """The program in the file `path`.

    Raises:
        UsageError: there is no such file, or it cannot be read.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "__main__.py"
    if not file.is_file():
        hint = ""
        if _INTERPRETER.fullmatch(file.name):
            hint = f" The script is run by the Python that runs unstarve: leave out {path!r}."
        elif path.startswith("-"):
            hint = " This command has no such option; options of the script come after its name."
        raise UsageError(f"No script {path!r} here: expected a Python file (working directory {os.getcwd()}).{hint}")
    try:
        source = file.read_bytes()
    except OSError as error:
        raise UsageError(f"The script {path!r} cannot be read: {error.strerror}.") from None
    module = types.ModuleType("__main__")
    filename = os.path.abspath(file)
    module.__file__ = filename
    module.__dict__["__builtins__"] = builtins
    module.__dict__["__spec__"] = None
    module.__dict__["__cached__"] = None
    return Script(source, filename, module, (path, *arguments), str(file.resolve().parent), _first_entry())


def from_module(name: str, arguments: Sequence[str]) -> Script:
    """The program that `python -m name` would run, with the packages around it imported.

    An error of these packages is the script's own, and comes through.

    Raises:
        UsageError: there is no such module, or it cannot be run.
    """
    own, folder = _first_entry(), os.getcwd()
    sys.path.insert(0, folder)
    sys.argv = ["-m", *arguments]  # what Python shows the packages
    try:
        spec = _find(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _find(f"{name}.__main__")
        find_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        code = find_code(spec.name) if spec is not None and find_code is not None else None
    finally:
        with contextlib.suppress(ValueError):  # the packages may have changed the path, too
            sys.path.remove(folder)
    if spec is None or code is None or spec.origin is None:
        raise UsageError(f"There is no module {name!r} that can be run with -m (working directory {folder}).")
    module = types.ModuleType("__main__")
    module.__file__ = spec.origin
    module.__spec__ = spec
    module.__package__ = spec.parent
    module.__loader__ = spec.loader
    module.__dict__["__builtins__"] = builtins
    return Script(code, spec.origin, module, (spec.origin, *arguments), folder, own)


def _first_entry() -> str | None:
    return sys.path[0] if sys.path else None


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    """Where a module is, after the packages around it are imported."""
    package = name.rpartition(".")[0]
    try:
        if package and not name.startswith("."):
            importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):  # a module that the package imports
            raise
        raise UsageError(f"The module {name!r} cannot be found: {error}.") from None
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise UsageError(f"The module {name!r} cannot be found: {error}.") from None


def execute(script: Script) -> None:
    """Run the program as `__main__`; whatever it raises comes through, a `SyntaxError` of its source included."""
    code = script.source
    if isinstance(code, bytes):
        code = compile(code, script.filename, "exec", dont_inherit=True)
    sys.argv = list(script.arguments)
    if script.replaced_entry in sys.path:
        sys.path[sys.path.index(script.replaced_entry)] = script.path_entry
    else:
        sys.path.insert(0, script.path_entry)
    sys.modules["__main__"] = script.module
    exec(code, script.module.__dict__)


def show_exception(error: BaseException) -> None:
    """Print the traceback as Python would have, without frames of this package."""
    _strip(error)
    traceback.print_exception(type(error), error, error.__traceback__)


def _strip(error: BaseException) -> None:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:  # not by recursion, for which a RecursionError of the script leaves no room
        found = waiting.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            found.__traceback__ = user_part(found.__traceback__)
            waiting += [found.__cause__, found.__context__]


def user_part(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback without frames of this package."""
    entries = []
    while trace is not None:
        if not is_package_file(trace.tb_frame.f_code.co_filename):
            entries.append(trace)
        trace = trace.tb_next
    kept = None
    for entry in reversed(entries):
        kept = types.TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def is_package_file(filename: str) -> bool:
    """Whether the file belongs to this package and not to its demonstration."""
    package = os.path.dirname(os.path.abspath(__file__))
    return filename.startswith(package + os.sep) and not filename.startswith(os.path.join(package, "demo") + os.sep)
