"""Putting the engine between a script's loops and its loaders, and taking it out again."""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from unstarve.measure.engine import Engine

OTHER_LOADERS = {"torchdata.nodes.loader": "Loader", "fastai.data.load": "DataLoader"}
"""Loaders that are no `DataLoader`: their classes, by the module that defines them."""


@contextmanager
def installed(engine: Engine) -> Iterator[None]:
    """While open, every iteration over a loader of this process goes through `engine`.

    Subclasses of `DataLoader` that override `__iter__` reach us through `super()`, or are hooked themselves, those
    too that are made or imported meanwhile; other processes are left alone.
    """
    hooks = _Hooks(engine)
    hooks.put_on(DataLoader)
    for kind in _below(DataLoader):
        hooks.put_on_subclass(kind)
    # a function, since Python 3.10 does not hand the class on to a bound method
    subclassed = classmethod(lambda kind, **keywords: hooks.subclassed(kind, **keywords))
    DataLoader.__init_subclass__ = subclassed  # type: ignore[method-assign, assignment]
    for name, kind_name in OTHER_LOADERS.items():
        if name in sys.modules:
            hooks.put_on(getattr(sys.modules[name], kind_name))
    finder = _Finder(lambda module: hooks.put_on(getattr(module, OTHER_LOADERS[module.__name__])))
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        del DataLoader.__init_subclass__
        hooks.take_off()
        engine.close()


class _Hooks:
    """Methods of loader classes that were replaced by ours."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._replaced: list[tuple[type, str, Any]] = []

    def put_on(self, kind: type) -> None:
        """Let objects of the class be iterated through the engine, and remembered when they are made."""
        engine, iterate, make = self._engine, kind.__iter__, kind.__init__  # type: ignore[attr-defined, misc]

        @functools.wraps(make)
        def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
            engine.remember(self)
            make(self, *arguments, **keywords)

        @functools.wraps(iterate)
        def __iter__(self: Any) -> Any:
            return engine.iterate(self, iterate)

        self._replace(kind, "__iter__", __iter__)
        if "__init__" in vars(kind):
            self._replace(kind, "__init__", __init__)

    def _replace(self, kind: type, name: str, method: Any) -> None:
        self._replaced.append((kind, name, vars(kind)[name]))
        setattr(kind, name, method)

    def put_on_subclass(self, kind: type) -> None:
        """Do so for a class below `DataLoader` if its `__iter__` does not lead to that of the class above."""
        own = vars(kind).get("__iter__")
        if isinstance(own, types.FunctionType) and not {"super", "__iter__"} & {*own.__code__.co_names}:
            self.put_on(kind)

    def subclassed(self, kind: type, **keywords: Any) -> None:
        """What `DataLoader.__init_subclass__` does meanwhile."""
        super(DataLoader, kind).__init_subclass__(**keywords)  # type: ignore[misc]
        self.put_on_subclass(kind)

    def take_off(self) -> None:
        """Put all methods back."""
        for kind, name, method in reversed(self._replaced):
            setattr(kind, name, method)
        self._replaced.clear()


def _below(kind: type) -> set[type]:
    direct: list[type] = kind.__subclasses__()
    return {*direct, *(inner for outer in direct for inner in _below(outer))}


class _Finder:
    """Tells when one of the other loaders' modules has been imported."""

    def __init__(self, imported: Callable[[types.ModuleType], None]) -> None:
        self._imported = imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """What the import system asks."""
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name in OTHER_LOADERS else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            self._imported(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
