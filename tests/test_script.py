"""A user's script in this process: what it sees, and what is shown of its errors."""

from __future__ import annotations

import builtins
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unstarve import cli, script
from unstarve.errors import UsageError


@pytest.fixture(autouse=True)
def own_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The process is as it was afterwards, and works in an empty folder meanwhile."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def run(source: str, *, as_module: bool = False) -> dict[str, Any]:
    """The names of a program after it has run, as a file or with `-m`."""
    Path("program.py").write_text(source)
    program = script.from_module("program", ()) if as_module else script.from_file("program.py", ())
    script.execute(program)
    return vars(program.module)


@pytest.mark.parametrize("as_module", [False, True])
def test_builtins_are_a_module_in_the_main_module(as_module: bool) -> None:
    """As under Python; elsewhere they may be a dictionary, and scripts that put something there count on this one."""
    found = run(
        "is_module = hasattr(__builtins__, 'len')\n__builtins__.extra = 3\nsum_ = extra",
        as_module=as_module,
    )
    try:
        assert found["is_module"]
        assert isinstance(found["__builtins__"], types.ModuleType)
    finally:
        del builtins.extra  # type: ignore[attr-defined]


def test_a_script_that_dies_of_recursion_is_shown_as_it_died(capsys: pytest.CaptureFixture[str]) -> None:
    """Its traceback has as many entries as there may be calls."""
    with pytest.raises(RecursionError) as dying:
        run("def f():\n    f()\nf()")
    script.show_exception(dying.value)
    shown = capsys.readouterr().err
    assert "RecursionError" in shown
    assert "program.py" in shown
    assert script.__file__ not in shown


def test_errors_that_led_to_an_error_are_shown_without_our_frames() -> None:
    """Causes and contexts too, also where they lead back to themselves."""
    ours: dict[str, Any] = {}
    exec(compile("def f(g):\n    g()", script.__file__, "exec"), ours)

    def fail() -> None:
        raise ValueError("first")

    with pytest.raises(KeyError) as caught:
        try:
            ours["f"](fail)
        except ValueError as error:
            raise KeyError("second") from error
    caught.value.__cause__.__cause__ = caught.value  # type: ignore[union-attr]
    script._strip(caught.value)
    for error in (caught.value, caught.value.__context__):
        assert error is not None
        assert script.__file__ not in "".join(traceback.format_tb(error.__traceback__))


def package(init: str, **modules: str) -> None:
    """A package `trainer` with these modules."""
    Path("trainer").mkdir()
    for name, source in {"__init__": init, **modules}.items():
        Path("trainer", f"{name}.py").write_text(source)


@pytest.mark.parametrize("name", ["trainer", "trainer.train"])
def test_a_package_may_put_folders_before_others_on_the_path(name: str) -> None:
    """They stay where it put them, before the working directory, which takes the place of our own entry."""
    package("import sys; sys.path.insert(0, '/first')", __main__="", train="")
    own, rest = sys.path[0], sys.path[1:]
    program = script.from_module(name, ())
    assert sys.path == ["/first", own, *rest]
    script.execute(program)
    assert sys.path == ["/first", str(Path.cwd()), *rest]


def test_a_package_sees_the_arguments_that_python_would_show_it() -> None:
    package("import sys; seen = sys.argv", __main__="import sys; seen = sys.argv")
    program = script.from_module("trainer", ("--amp", "x"))
    assert sys.modules["trainer"].seen == ["-m", "--amp", "x"]
    script.execute(program)
    assert program.module.seen == [program.filename, "--amp", "x"]


@pytest.mark.parametrize(
    ("init", "error"),
    [
        ("import not_installed", ModuleNotFoundError),
        ("from . import not_there", ImportError),
        ("raise ValueError('no configuration')", ValueError),
        ("def f(:", SyntaxError),
    ],
)
@pytest.mark.parametrize("name", ["trainer", "trainer.train"])
def test_an_error_of_the_package_is_the_scripts_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, init: str, error: type[Exception]
) -> None:
    """It is shown as it is, and the exit code is that of a script that failed."""
    package(init, __main__="", train="")
    monkeypatch.setattr(sys, "argv", ["unstarve", "run", "--no-history", "-m", name])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == cli.SCRIPT_FAILED
    said = capsys.readouterr().err
    assert error.__name__ in said
    assert "Traceback" in said


@pytest.mark.parametrize("name", ["none", "none.train", "trainer.none", "trainer.train.none", ".train", "trainer"])
def test_a_module_that_is_not_there_is_wrong_usage(name: str) -> None:
    """Also where a part of the way to it is there, and where a package has no main module."""
    package("", train="")
    with pytest.raises(UsageError, match=name):
        script.from_module(name, ())
