"""What a loader is and where it comes from, as facts for the recording."""

from __future__ import annotations

import inspect
import os
import sys
import types
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from unstarve.measure.cuts.resolving import code_names, is_library
from unstarve.measure.worker import makes_batches
from unstarve.recording import Loader
from unstarve.script import is_package_file


def describe_loader(loader: Any, number: int, length: int | None, made: str | None) -> Loader:
    source = made or calling_place()
    if not isinstance(loader, DataLoader):
        return Loader(number=number, name=type(loader).__name__, kind="other", source=source)
    dataset = loader.dataset
    context = loader.multiprocessing_context
    method = context.get_start_method() if context is not None else _start_method()
    sampler, sampler_source = _describe_sampler(loader)
    return Loader(
        number=number,
        name=f"{type(loader).__name__}({type(dataset).__name__})",
        length=length,
        batch_size=loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        dataset_length=_length_of(dataset),
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor or 2,
        persistent_workers=loader.persistent_workers,
        pin_memory=loader.pin_memory,
        start_method=method,
        in_order=getattr(loader, "in_order", True),
        source=source,
        sampler=sampler,
        sampler_source=sampler_source,
        kind="iterable" if isinstance(dataset, IterableDataset) else "map",
        makes_batches=loader.batch_sampler is not None and makes_batches(dataset),
        most_workers=_most_workers(loader),
    )


_SPLITS = frozenset({"get_worker_info", "split_by_worker", "worker_info", "num_workers", "split_dataset_by_node"})
"""Names that code reads which gives each worker its own part."""


def _most_workers(loader: DataLoader[Any]) -> int | None:
    """Workers that the loader may have without giving a sample twice, where the dataset is a stream of the user's own that
    is not seen to be split among them; a script that has several has seen to that."""
    if not isinstance(loader.dataset, IterableDataset) or loader.num_workers > 1:
        return None
    seen: set[int] = set()
    kinds = [kind for kind in type(loader.dataset).__mro__ if kind.__module__.partition(".")[0] != "torch"]
    functions = [item for kind in kinds for item in vars(kind).values() if isinstance(item, types.FunctionType)]
    is_foreign = any(is_library(function.__code__.co_filename) for function in functions)
    has_init = loader.worker_init_fn is not None  # which may give each worker's copy its part
    is_split = is_foreign or has_init or any(_names_a_split(function, seen) for function in functions)
    return None if is_split or not functions else 1


def _names_a_split(function: types.FunctionType, seen: set[int], depth: int = 3) -> bool:
    """Whether the function, or one of the user's that it names, asks for its worker."""
    if id(function) in seen or depth == 0:
        return False
    seen.add(id(function))
    names = code_names(function.__code__)
    named = [function.__globals__.get(name) for name in names]
    inner = [f for f in named if isinstance(f, types.FunctionType) and not is_library(f.__code__.co_filename)]
    return bool(names & _SPLITS) or any(_names_a_split(each, seen, depth - 1) for each in inner)


def _length_of(dataset: Any) -> int | None:
    """Samples of an indexed data set; one that is drawn from may only promise them."""
    return None if isinstance(dataset, IterableDataset) else told_length(dataset)


def told_length(dataset: Any) -> int | None:
    """What `len` says of a data set; None where it has no length, or its own method fails."""
    try:
        return len(dataset)
    except Exception:  # the user's: nobody has asked for the length yet, and nothing depends on it
        return None


def _start_method() -> str:
    """How processes would start, without settling it: the script may still choose. The default differs by version."""
    return torch.multiprocessing.get_start_method(allow_none=True) or torch.multiprocessing.get_all_start_methods()[0]


def _describe_sampler(loader: Any) -> tuple[str | None, str | None]:
    """Class and place of the sampler, if it is the user's: the batch sampler, or what a plain one draws from."""
    for sampler in (loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None), loader.sampler):
        code = getattr(getattr(type(sampler), "__iter__", None), "__code__", None)
        if code is not None and not is_library(code.co_filename):
            return type(sampler).__name__, f"{code.co_filename}:{code.co_firstlineno}"
    return None, None


def calling_place() -> str | None:
    """`file:line` of the innermost frame of the user's; of one outside torch where all are a library's."""
    frame = sys._getframe(1)
    torch_path = os.path.dirname(torch.__file__)
    outside = None
    while frame is not None:
        filename = frame.f_code.co_filename
        if not is_package_file(filename) and not filename.startswith(torch_path):
            outside = outside or f"{filename}:{frame.f_lineno}"
            if not is_library(filename):
                return f"{filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return outside


def describe_function(function: Any) -> tuple[str, str | None]:
    name = getattr(function, "__name__", type(function).__name__)
    inner = inspect.unwrap(function) if callable(function) else function
    called = getattr(type(inner), "__call__", None)  # noqa: B004 - the method itself is wanted
    code = getattr(inner, "__code__", None) or getattr(called, "__code__", None)
    what = name if name == "collate" else f"collate ({name})"
    if code is None or "site-packages" in code.co_filename:
        return what, None
    return what, f"{code.co_filename}:{code.co_firstlineno}"
