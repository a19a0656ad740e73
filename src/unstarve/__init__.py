"""unstarve finds what starves a GPU of data, proves it by experiment, and proves the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "diagnose": "api",
    "probe": "api",
    "watch": "api",
    "stage": "labels",
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
    from unstarve.api import diagnose as diagnose
    from unstarve.api import load as load
    from unstarve.api import probe as probe
    from unstarve.api import watch as watch
    from unstarve.errors import FormatError as FormatError
    from unstarve.errors import MeasurementError as MeasurementError
    from unstarve.errors import UnstarveError as UnstarveError
    from unstarve.errors import UsageError as UsageError
    from unstarve.labels import stage as stage
    from unstarve.report import Estimate as Estimate
    from unstarve.report import Report as Report


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unstarve' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"unstarve.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
