"""unstarve finds what starves a GPU of data, proves it by experiment, and proves the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "diagnose": "api",
    "probe": "api",
    "watch": "api",
    "stage": "api",
    "load": "api",
    "Report": "report",
    "Estimate": "report",
    "UnstarveError": "errors",
    "UsageError": "errors",
    "MeasurementError": "errors",
    "FormatError": "errors",
}
"""Public names and the modules they come from, imported on first use: `import unstarve` loads no torch."""

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from unstarve.api import diagnose, load, probe, stage, watch
    from unstarve.errors import FormatError, MeasurementError, UnstarveError, UsageError
    from unstarve.report import Estimate, Report


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unstarve' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"unstarve.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
