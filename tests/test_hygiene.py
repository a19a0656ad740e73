"""Rules of the project that are not checked elsewhere. Each check is shown able to fail."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import unstarve

SOURCE = Path(unstarve.__file__).parent
ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"

FREE_OF_TORCH = (
    "recording",
    "report",
    "payload",
    "errors",
    "estimate",
    "judge",
    "remedies",
    "render",
    "script",
    "simulate",
    "cli",
)
"""Modules that judge, draw or store: they work where torch is not installed."""

PURE = ("recording", "report", "payload", "errors", "estimate", "judge", "remedies", "comparison")
"""Modules that must touch no clock, no worker and no loader."""


def imports_of(path: Path, *, at_top: bool) -> set[str]:
    """Modules that a file imports, at its top level or anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if at_top else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files_of(name: str) -> list[Path]:
    """The file or files of a module or package of ours."""
    file = SOURCE / f"{name}.py"
    return [file] if file.is_file() else sorted((SOURCE / name).glob("*.py"))


def offenders(names: tuple[str, ...], forbidden: tuple[str, ...], *, at_top: bool) -> list[str]:
    """Imports of forbidden modules by modules that must not have them."""
    return [
        f"{path.name} imports {module}"
        for name in names
        for path in files_of(name)
        for module in imports_of(path, at_top=at_top)
        if module.split(".")[0] in forbidden
        or any(module == item or module.startswith(item + ".") for item in forbidden)
    ]


def test_judging_and_drawing_need_no_torch() -> None:
    """No module of the judging and drawing half imports torch, torchvision or the measuring half at its top level."""
    assert offenders(FREE_OF_TORCH, ("torch", "torchvision", "unstarve.measure"), at_top=True) == []
    assert offenders(("measure",), ("torch",), at_top=True), "the check finds nothing even where torch is imported"


def test_judging_is_pure() -> None:
    """Modules that judge import neither clocks nor processes, anywhere."""
    assert offenders(PURE, ("time", "multiprocessing", "threading", "subprocess", "psutil"), at_top=False) == []
    assert offenders(("measure",), ("time",), at_top=False), "the check finds nothing even where a clock is used"


def test_importing_the_package_loads_no_torch() -> None:
    """`import unstarve` loads neither torch nor numpy; the measuring half is imported on first use."""
    code = "import sys, unstarve; print([name for name in ('torch', 'numpy', 'rich') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_public_names_are_those_promised() -> None:
    """The public surface is pinned, small, and every name resolves."""
    assert set(unstarve.__all__) == {
        "__version__", "diagnose", "probe", "watch", "stage", "load", "Report", "Estimate",
        "UnstarveError", "UsageError", "MeasurementError", "FormatError",
    }  # fmt: skip
    assert all(getattr(unstarve, name) is not None for name in unstarve.__all__)
    with pytest.raises(AttributeError):
        unstarve.no_such_name  # noqa: B018


def test_nothing_prints_outside_the_command_line() -> None:
    """`print` and `sys.exit` occur in the command line and the demonstration only."""
    found = []
    for path in SOURCE.rglob("*.py"):
        if path.name in ("cli.py", "__main__.py") or "demo" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit"):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


def test_frozen_data_has_documented_fields() -> None:
    """Every field of a public dataclass of report, recording and payload has a line of documentation beneath it."""
    missing = []
    for name in ("report", "recording", "payload"):
        for node in ast.parse((SOURCE / f"{name}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                for field, below in zip(node.body, [*node.body[1:], None], strict=True):
                    is_documented = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                    if isinstance(field, ast.AnnAssign) and not is_documented:
                        missing.append(f"{node.name}.{ast.unparse(field.target)}")
    assert missing == []


@pytest.mark.parametrize("name", ["toy_train.py", "toy_train_inline.py"])
def test_examples_run(name: str) -> None:
    """The example scripts run as they are, without unstarve."""
    pytest.importorskip("torchvision")
    command = [sys.executable, str(ROOT / "examples" / name), "--steps", "2", "--batch-size", "2", "--workers", "0"]
    done = subprocess.run([*command, "--step-ms", "1"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "unstarve" not in (ROOT / "examples" / name).read_text().split('"""')[2]


@pytest.mark.parametrize("name", sorted(path.name for path in BENCHMARKS.glob("*.py")))
def test_benchmarks_can_be_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they take from the package is there, though nothing else runs them often."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(f"loaded_{Path(name).stem}", BENCHMARKS / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("unstarve"):
            raise
        pytest.skip(f"needs {error.name}")
