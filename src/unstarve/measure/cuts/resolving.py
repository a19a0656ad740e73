"""What a call would run, whose code that is, and what callables are called."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_LIBRARY_PATHS = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def resolve(callee: Any, arguments: tuple[Any, ...]) -> tuple[types.FunctionType, tuple[Any, ...]] | None:
    """The Python function that a call would run, with the arguments it would get; None if there is none to enter."""
    if callee is operator.getitem:  # a subscript
        return resolve_special("__getitem__", arguments[0], arguments[1:])
    if type(callee) is functools.partial:
        is_open = callee.keywords or any(argument is _PLACEHOLDER for argument in callee.args)
        return None if is_open else resolve(callee.func, (*callee.args, *arguments))
    # by type, since a proxy around a function claims to be one, and what it does beside would be left out
    if type(callee) is types.FunctionType:
        return callee, arguments
    if type(callee) is types.MethodType:
        function = callee.__func__
        if function is torch.nn.Module.__call__ and isinstance(callee.__self__, torch.nn.Module):
            return _resolve_module(callee.__self__, arguments)
        return (function, (callee.__self__, *arguments)) if type(function) is types.FunctionType else None
    if isinstance(callee, torch.nn.Module) and type(callee).__call__ is torch.nn.Module.__call__:
        return _resolve_module(callee, arguments)
    return None if isinstance(callee, type) else resolve_special("__call__", callee, arguments)


_MAY_BE_OPEN = hasattr(functools, "Placeholder")
_PLACEHOLDER = getattr(functools, "Placeholder", object())
"""Marks arguments that a partial (from Python 3.14 on) leaves open."""


def resolve_special(name: str, owner: Any, arguments: tuple[Any, ...]) -> Any:
    """The method that Python would look up on the owner's type, unless it is a static or class method."""
    for kind in type(owner).__mro__:
        if name in vars(kind):
            method = vars(kind)[name]
            return (method, (owner, *arguments)) if type(method) is types.FunctionType else None
    return None


def _resolve_module(module: torch.nn.Module, arguments: tuple[Any, ...]) -> Any:
    has_hooks = any(getattr(module, name, True) for name in _HOOKS)
    has_hooks = has_hooks or any(getattr(torch.nn.modules.module, name, True) for name in _GLOBAL_HOOKS)
    is_plain = "forward" not in vars(module) and getattr(module, "_compiled_call_impl", None) is None
    forward = getattr(type(module), "forward", None)
    if has_hooks or not is_plain or not isinstance(forward, types.FunctionType):
        return None
    return forward, (module, *arguments)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)


@functools.cache  # asked for every batch and every call
def is_library(filename: str) -> bool:
    """Whether the file belongs to the standard library or an installed package, and not to the user."""
    if os.sep + os.path.join("unstarve", "demo") + os.sep in filename:
        return False
    is_installed = "site-packages" in filename or "dist-packages" in filename
    return is_installed or filename.startswith(("<frozen", *_LIBRARY_PATHS))


def defined_at(found: tuple[types.FunctionType, tuple[Any, ...]] | None) -> str | None:
    """`file:line` of a function of the user's."""
    if found is None or is_library(found[0].__code__.co_filename):
        return None
    return f"{found[0].__code__.co_filename}:{found[0].__code__.co_firstlineno}"


def code_names(code: types.CodeType) -> set[str]:
    """The globals and attributes that the code names, functions inside it included."""
    found = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= code_names(constant)
    return found


def bound_to(callee: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Callable[[], Any]:
    """The call as one without arguments, in which no frame of ours stands between who makes it and what is called: loggers,
    warnings and queries over tables look for the line, the module or the variables of their caller."""
    if callable(callee) and not _has_placeholder(arguments, keywords):
        return functools.partial(callee, *arguments, **keywords)
    return lambda: callee(*arguments, **keywords)  # which raises what it would


def _has_placeholder(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
    return _MAY_BE_OPEN and any(argument is _PLACEHOLDER for argument in (*arguments, *keywords.values()))


def step_of(item: Any) -> Any:
    """The callable that a loop runs over, alone or together with its name, number or probability."""
    parts = item if isinstance(item, tuple) else (item,)
    return next((part for part in parts if callable(part) and not isinstance(part, type)), None)


def item_name(item: Any) -> str:
    """What a callable is called: its class, or the function's own name."""
    if isinstance(item, functools.partial):
        return item_name(item.func)
    if isinstance(item, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return item.__name__
    return type(item).__name__


def attributes_of(owner: Any) -> dict[str, Any]:
    """The attributes that are set on the object, in its dictionary or in slots."""
    own = getattr(owner, "__dict__", {})
    slots = _slots(type(owner))
    return {**own, **_set_slots(owner, slots)} if slots else own


def _slots(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    kinds = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    return tuple(item for own in kinds for item in own.values() if isinstance(item, types.MemberDescriptorType))


def _set_slots(owner: Any, slots: Iterable[types.MemberDescriptorType]) -> dict[str, Any]:
    found = {}
    for slot in slots:
        with contextlib.suppress(AttributeError):  # it is not set
            found[slot.__name__] = slot.__get__(owner)
    return found


def held(owner: Any) -> dict[int, int]:
    """The callables in the owner's lists, by identity, with their numbers."""
    try:
        own = attributes_of(owner)
        attributes, modules = [owner, *own.values()], own.get("_modules")
        attributes += modules.values() if isinstance(modules, dict) else ()
        lists = [value for value in attributes if isinstance(value, _SEQUENCES) and len(value) <= MOST_CHOICES]
        items = [item for value in lists for item in value]
    except Exception:  # an object of the user's may answer anything
        return {}
    return {id(item): number for number, item in enumerate(items) if callable(item) and not isinstance(item, type)}


_SEQUENCES = (list, tuple, torch.nn.ModuleList, torch.nn.Sequential)


MOST_CHOICES = 64
"""Longer lists are data."""
