"""Functions are watched and resumed at any of their statements, and give what they give as a whole."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import pytest
from test_split import Quiet, Squares, defined, resume

from unstarve.measure.cuts import split, variants
from unstarve.measure.cuts.split import Unsplittable


def number_of(function: Any, text: str) -> int:
    return next(unit.number for unit in split.split(function).units if unit.text == text)


def test_resuming_loads_only_what_is_needed() -> None:
    """The rest of a function gets the locals that it reads before it sets them."""
    function = defined("def f(a, b):\n    c = a + 1\n    d = b\n    b = c\n    return b\n")
    assert variants.live_after(split.split(function), (0,)) == ("b", "c")
    assert variants.live_after(split.split(function), (1,)) == ("c",)


def test_variables_of_comprehensions_are_not_carried() -> None:
    """A comprehension's variable that is called as a global function is does not hide it behind the cut."""
    for source in (
        "def f(xs):\n    y = abs(xs)\n    a = [repr for repr in xs]\n    return repr(y)\n",
        "def f(xs):\n    y = abs(xs)\n    a = [abs(repr) for repr in xs]\n    return repr(y)\n",
        "def f(xs):\n    y = abs(xs)\n    a = [lambda: repr for repr in xs]\n    return repr(y)\n",
        "def f(xs):\n    y = abs(xs)\n    a = {repr: 1 for repr in xs}\n    return repr(y)\n",
    ):
        function = defined(source)
        assert variants.live_after(split.split(function), (0,)) == ("xs", "y")
        assert resume(function, (0,), None, xs=[1], y=3) == "3"


def test_variables_that_a_comprehension_shares_by_name_are_carried() -> None:
    """A local, an argument and a name bound by `:=` stay locals where a comprehension uses the same name."""
    source = "def f(x, y):\n    z = abs(x)\n    a = [x for x in (1, 2)], [y for y in (1, 2)], [(w := z) for z in (1, 2)]\n    b = abs(w)\n    return x, y, z, w\n"
    assert variants.live_after(split.split(defined(source)), (1,)) == ("w", "x", "y", "z")


def test_a_bare_annotation_sets_nothing() -> None:
    """`x: int` does not hide that `x` must be carried across the cut."""
    function = defined("def f(x):\n    y = abs(x)\n    x: int\n    return x\n")
    assert variants.live_after(split.split(function), (0,)) == ("x",)


def test_a_file_is_not_opened_again() -> None:
    """Behind a cut in the block of an opened file, the file is not touched; one still read is carried, and so refused."""
    source = "def f(p):\n    with open(p) as file:\n        x = file.read()\n        y = x.upper()\n        z = file.name\n    return y\n"
    function = defined(source)
    parts = split.split(function)
    first, second = number_of(function, "x = file.read()"), number_of(function, "y = x.upper()")
    assert "file" in variants.live_after(parts, (first,))
    assert "file" in variants.live_after(parts, (second,))
    third = number_of(function, "z = file.name")
    assert resume(function, (third,), "no such file", y="HI") == "HI"


def test_a_block_is_entered_again_only_if_known_to_be_harmless() -> None:
    """`suppress` holds for the rest of its block; a manager of the user's is not entered in the middle."""
    source = """
import contextlib
def f(m, x):
    with contextlib.suppress(ValueError):
        y = abs(x)
        x = int(y)
    with m(x) as z:
        a = abs(z)
        b = abs(a)
    return x, b
"""
    function = defined(source)
    assert resume(
        function, (number_of(function, "y = abs(x)"),), contextlib.nullcontext, 1, x=7, y="no", m=contextlib.nullcontext
    ) == (7, 7)
    with pytest.raises(Unsplittable, match="cannot be entered"):
        variants.resumed(split.split(function), (number_of(function, "a = abs(z)"),))


def test_a_rebound_name_of_a_block_stays_rebound() -> None:
    """Entering a block again does not reset the name after `as`."""
    source = "import contextlib\ndef f(x):\n    with contextlib.nullcontext(x) as x:\n        x = x + 1\n        y = abs(x)\n    return x, y\n"
    function = defined(source)
    assert resume(function, (number_of(function, "x = x + 1"),), None, x=5) == (5, 5)


def test_cuts_in_try_keep_handlers() -> None:
    """The rest of a guarded block is guarded."""
    source = "def f(x):\n    try:\n        y = abs(x)\n        z = int(y)\n    except ValueError:\n        z = 'caught'\n    else:\n        z = 'fine'\n    finally:\n        w = 1\n    return z, w\n"
    function = defined(source)
    assert resume(function, (0,), None, y="no", x=0) == ("caught", 1)
    assert resume(function, (0,), None, y=3, x=0) == ("fine", 1)


@pytest.mark.parametrize(
    ("kind", "is_told"),
    [("", True), ("Exception", True), ("(OSError, BaseException)", True), ("builtins.Exception as error", True),
     ("ValueError", False), ("(OSError, ValueError)", False)],
)  # fmt: skip
def test_the_rest_tells_of_exceptions_that_anything_would_have_caught(kind: str, is_told: bool) -> None:
    """What a cut did wrong would end in such a handler; one for certain kinds belongs to how the function works."""
    source = f"import builtins\ndef f(x):\n    try:\n        y = abs(x)\n        z = int(y)\n    except {kind}:\n        z = 0\n    return z\n"
    parts, quiet = split.split(defined(source)), Quiet({"y": "no"})
    assert variants.resumed(parts, (0,))[0](quiet)(None) == 0
    assert quiet.seen == ["caught"] * is_told


def test_loops_over_a_draw_are_not_cut() -> None:
    """A loop over something computed could run over something else the second time."""
    source = "def f(x, pick):\n    for t in pick(x):\n        x = t(x)\n    return x\n"
    with pytest.raises(Unsplittable, match="another"):
        variants.resumed(split.split(defined(source)), (0, 0))


def test_loops_over_callables_are_cut_between_items() -> None:
    """The rest of a chain of transforms runs on the value carried across."""
    source = "def f(x, ts):\n    for t in ts:\n        y = t(x)\n        x = y + 1\n    return x\n"
    function = defined(source)
    ts = [abs, lambda x: x * 2, lambda x: x - 1]
    assert function(-3, ts) == 9
    assert resume(function, (0, 0), None, None, x=4, ts=ts, t=abs) == 9
    assert resume(function, (0, 1, 0), None, None, y=8, ts=ts, t=abs, x=0) == 9
    assert resume(function, (0, 2), None, None, x=8, ts=ts, t=abs) == 8


@pytest.mark.parametrize(
    ("over", "body"),
    [
        ("i, t in enumerate(ts)", "y = t(x)\n        x = y + i - i + 1"),
        ("t in ts[0:3]", "y = t(x)\n        x = y + 1"),
        ("t in ts", "t = (lambda t: t)(t)\n        y = t(x)\n        x = y + 1"),
        ("t in ts", "y = run(t, x)\n        x = y + 1"),
    ],
)
def test_chains_are_cut_however_they_are_written(over: str, body: str) -> None:
    """Numbered, sliced and rebound items, and items handed on to another function, are as good as plain ones."""
    source = f"run = lambda t, x: t(x)\ndef f(x, ts):\n    for {over}:\n        {body}\n    return x\n"
    function = defined(source)
    ts = [abs, lambda x: x * 2, lambda x: x - 1]
    whole = split.split(function)
    assert split.is_callable_loop(whole.node.body[0])
    assert function(-3, ts) == 9
    assert resume(function, (0, 0), None, None, x=4, ts=ts, t=abs, i=0) == 9
    last = len(whole.bodies[0]) - 2
    assert resume(function, (0, 1, last), None, None, y=8, ts=ts, t=ts[1], x=4, i=1) == 9


def test_tracebacks_show_the_users_lines() -> None:
    """A variant fails in the user's file, on the user's line, in a function of the user's name."""
    function = defined("def f(x):\n    y = abs(x)\n\n    return int(\n        y[0])\n")
    for call in (lambda: function([1]) and None, lambda: resume(function, (0,), 1, y=1)):
        with pytest.raises(TypeError) as caught:
            call()
        last = caught.traceback[-1]
        assert (str(last.path), last.name) == (function.__code__.co_filename, "f")
        assert last.lineno + 1 in (2, 5)


def test_missing_arguments_are_told_as_before() -> None:
    """The variant's complaint about its arguments is the function's."""
    function = defined("class C:\n    def f(self, x):\n        return x\n", "C.f")
    messages = []
    for call in (function, variants.watched(split.split(function))(Quiet())):
        with pytest.raises(TypeError) as caught:
            call()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_units_are_told_in_pairs() -> None:
    """Each unit that starts ends, in its place, inside blocks too."""
    function = defined(
        "def f(x):\n    if x:\n        y = abs(x)\n    for t in (abs, str):\n        y = t(y)\n    return y\n"
    )
    quiet = Quiet()
    variants.watched(split.split(function))(quiet)(3)
    assert quiet.seen == [
        ("enter", 0, 0), ("leave", 0, 0), ("enter", 1, 0),
        ("enter", 0, 1), ("leave", 0, 1), ("enter", 0, 1), ("leave", 0, 1), ("leave", 1, 0),
    ]  # fmt: skip


def test_variants_are_functions_of_the_same_globals() -> None:
    """A variant sees its module's names as they are when it runs."""
    function = defined("k = 1\ndef f(x):\n    return abs(x) + k\n")
    function.__globals__["k"] = 10
    variant = variants.watched(split.split(function))(Quiet())
    assert isinstance(variant, types.FunctionType)
    assert variant(1) == 11


def test_what_a_comprehension_gathered_is_carried_across_a_cut() -> None:
    """After the loop that stands for a comprehension, the rest of the function reads its list."""
    parts = split.split(Squares.batch)
    make, _ = variants.resumed(parts, (0,))
    (gathered,) = variants.live_after(parts, (0,))
    assert make(Quiet({gathered: [1, 4, 9]}))(None, None) == [1, 4, 9]
