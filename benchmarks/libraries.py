"""What becomes of pipelines of known libraries: the stages found, and whether the expensive one is named.

Each of the pipelines in `tests/libraries` has one stage that costs much more than the others. The table says which
stages are found, what is suspected first, which stages can be served alone, and why others cannot. Libraries that are
not installed are left out; `pip install unstarve[libraries]` brings them. Run it with `python benchmarks/libraries.py`.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent.parent / "tests" / "libraries"


def cases() -> Iterator[Any]:
    """The pipelines of all libraries that are installed."""
    for path in sorted(FOLDER.glob("test_*.py")):
        try:
            module = importlib.import_module(path.stem)
        except pytest.skip.Exception as reason:
            print(reason, file=sys.stderr)
            continue
        yield from getattr(module, "CASES", ())


def main(show: Callable[[Any], None]) -> int:
    """Print the table; 1 if an expensive stage was not named."""
    sys.path.insert(0, str(FOLDER))
    looking = importlib.import_module("looking")
    table = Table("library", "pipeline", "stages found", "suspected", "", "served", "refused", title="Libraries")
    wrong = count = 0
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            found = looking.look(case.make(Path(folder)))
        is_right = found.guilty == case.guilty
        wrong += not is_right
        count += 1
        names = ", ".join(name[:40] for name in found.stages)
        served = f"{len(found.served)} of {len(found.served) + len(found.refused)}"
        mark = "right" if is_right else f"not {case.guilty}"
        table.add_row(case.library, case.name, names, found.guilty[:60], mark, served, "; ".join(found.refused)[:120])
    show(table)
    show(f"{count - wrong} of {count} named rightly")
    return int(wrong > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(Console(width=200).print))
