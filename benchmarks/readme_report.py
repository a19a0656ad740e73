"""Put a real report into README.md: run the tool on the example script and paste what it prints.

python benchmarks/readme_report.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ("unstarve", "run", "examples/toy_train.py", "--epochs", "100")
BEGIN, END = "<!-- report:begin -->", "<!-- report:end -->"
LAST_SECTION = re.compile(r"^2\. ", re.MULTILINE)


def report() -> str:
    """What the command prints, without the script's own lines, down to the first finding."""
    command = [sys.executable, "-m", "unstarve", "run", "--quiet", "--no-history", *COMMAND[2:]]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    text = done.stdout[done.stdout.index("INPUT-BOUND") - 1 :] if "INPUT-BOUND" in done.stdout else done.stdout
    second = LAST_SECTION.search(text)
    return text[: second.start()].rstrip() if second else text.rstrip()


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    shown = f"```text\n$ {' '.join(COMMAND)}\n{report()}\n```"
    readme.write_text(f"{before}{BEGIN}\n{shown}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
