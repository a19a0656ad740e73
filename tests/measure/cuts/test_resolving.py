"""Calls lead where Python would go, and files belong to whom they belong."""

from __future__ import annotations

import contextlib
import functools
import operator

import pytest
import torch
from generated import PRELUDE, module_of

from unstarve.measure.cuts.resolving import is_library, resolve


def test_calls_lead_where_python_would_go() -> None:
    """Functions are found behind methods, partials, modules and subscripts, not where hooks interfere."""
    module = module_of(PRELUDE + "        return t\n")
    shift, scale, data = module.Shift(1), module.Scale(2), module.Data()
    assert resolve(module.h, (1,)) == (module.h, (1,))
    assert resolve(scale, (1,)) == (module.Scale.__call__, (scale, 1))
    assert resolve(shift, (1,)) == (module.Shift.forward, (shift, 1))
    assert resolve(functools.partial(module.h, 4), (1,)) == (module.h, (4, 1))
    assert resolve(operator.getitem, (data, 1)) == (module.Data.__getitem__, (data, 1))
    assert resolve(data.make, (1,)) == (module.Data.make, (data, 1))
    for callee in (len, module.Scale, functools.partial(module.h, x=1), torch.nn.Identity):
        assert resolve(callee, (1,)) is None
    shift.register_forward_hook(lambda *_: None)
    assert resolve(shift, (1,)) is None


def test_hooks_on_all_modules_are_heeded() -> None:
    """A module is not entered past hooks that torch calls for every module, and is without them in every torch."""
    module = torch.nn.Identity()
    assert resolve(module, (1,)) == (torch.nn.Identity.forward, (module, 1))
    for name in ("forward", "forward_pre", "full_backward", "full_backward_pre"):
        handle = getattr(torch.nn.modules.module, f"register_module_{name}_hook")(lambda *_: None)
        assert resolve(module, (1,)) is None
        handle.remove()
    assert resolve(module, (1,)) is not None


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        (contextlib.__file__, True),
        ("/opt/env/lib/python3.11/site-packages/monai/data/dataset.py", True),
        ("/usr/lib/python3/dist-packages/numpy/core/numeric.py", True),
        ("/home/me/train.py", False),
    ],
)
def test_what_is_installed_is_not_the_users(filename: str, expected: bool) -> None:
    """Whatever the system calls the folder of its packages."""
    assert is_library(filename) == expected
