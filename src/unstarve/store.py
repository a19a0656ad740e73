"""Earlier runs, in one SQLite file of the user's: written after a verdict, read by `history`, `show` and `compare`.

The file is plain SQLite with a rollback journal, not a write-ahead log, which network file systems do not support. A
write takes the lock at once and waits `PATIENCE_S` for it, so concurrent runs queue; a read opens the file read-only,
so it works where nothing may be written. Nothing here prints: what goes wrong is an `UnstarveError`, and the caller
decides what it is worth.

Format history
--------------
1: first version.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstarve import recording as recordings
from unstarve.errors import FormatError, UsageError
from unstarve.recording import Recording
from unstarve.report import Estimate, Report

SCHEMA = "unstarve.history/1"
"""Schema of the list as JSON."""

VERSION = 1
"""Format of the file, in SQLite's `user_version`."""

APPLICATION_ID = 0x756E7374
"""Marks a SQLite file as ours: the letters `unst`."""

PATIENCE_S = 5.0
"""How long to wait for another writer."""

_TABLE = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created TEXT NOT NULL,
    project TEXT NOT NULL,
    command TEXT NOT NULL,
    bound TEXT NOT NULL,
    sentence TEXT NOT NULL,
    baseline REAL, baseline_low REAL, baseline_high REAL,
    ceiling REAL, ceiling_low REAL, ceiling_high REAL,
    recording BLOB NOT NULL
)
"""
_COLUMNS = (
    "id, created, project, command, bound, sentence, "
    "baseline, baseline_low, baseline_high, ceiling, ceiling_low, ceiling_high"
)
_LAST = re.compile(r"last(?:~(\d{1,9}))?")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One line of the history; `recording` gives the rest."""

    id: int
    """Number in the history, never used twice."""
    created: str
    """ISO 8601 time of the start of the run."""
    project: str
    """See `project_of`."""
    command: str
    """What was run."""
    bound: str
    """`Verdict.bound`."""
    sentence: str
    """`Verdict.sentence`."""
    baseline: Estimate | None
    """Steps per second with nothing cached."""
    ceiling: Estimate | None
    """Steps per second when input costs nothing."""


def location() -> Path:
    """The history's file: in the folder `$UNSTARVE_HOME`, or else in the platform's folder for a user's data."""
    home = os.environ.get("UNSTARVE_HOME")
    if home:
        return Path(home).expanduser().absolute() / "history.db"
    import platformdirs

    return Path(platformdirs.user_data_dir("unstarve", appauthor=False)) / "history.db"


def project_of(folder: str | Path) -> str:
    """The top of the git work tree that `folder` lies in, or `folder` itself where it lies in none."""
    here = Path(folder).resolve()
    return str(next((place for place in (here, *here.parents) if (place / ".git").exists()), here))


def remember(recording: Recording, report: Report, project: str) -> int:
    """Add a run to the history, which is made if need be.

    Returns:
        The run's id.

    Raises:
        FormatError: the file is not a history, damaged, or of another version.
        UsageError: the file cannot be written, or was locked for too long.
    """
    values = (
        *map(_storable, (recording.created, project, recording.command)),
        report.verdict.bound, _storable(report.verdict.sentence), *_figures(report.baseline), *_figures(report.ceiling),
        _packed(recording),
    )  # fmt: skip
    path = location()
    with _explained(path, "written"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(_connect(path, "rwc")) as database, _transaction(database):
            _prepare(database, path)
            marks = ", ".join("?" * len(values))
            fields = _COLUMNS.removeprefix("id, ") + ", recording"
            added = database.execute(f"INSERT INTO runs ({fields}) VALUES ({marks})", values)
            assert added.lastrowid is not None
            return added.lastrowid


def runs(project: str | None = None, limit: int | None = None) -> tuple[Run, ...]:
    """Runs of `project`, or of all projects, newest first; none where there is no history yet.

    Raises:
        FormatError: the file is not a history, damaged, or of another version.
        UsageError: the file cannot be read.
    """
    where = "" if project is None else "WHERE project = :project"
    query = f"SELECT {_COLUMNS} FROM runs {where} ORDER BY id DESC LIMIT :limit"
    rows = _select(query, {"project": project and _storable(project), "limit": -1 if limit is None else limit})
    return tuple(_run(row) for row in rows)


def recording(run_id: int) -> Recording:
    """The recording of a run.

    Raises:
        FormatError: the history or the recording cannot be understood.
        UsageError: there is no such run, or the file cannot be read.
    """
    rows = _select("SELECT recording FROM runs WHERE id = :id", {"id": run_id})
    if not rows:
        raise UsageError(f"There is no run {run_id} in the history {location()}; `unstarve history --all` lists them.")
    where = f"run {run_id} of the history {location()}"
    try:
        data = json.loads(zlib.decompress(rows[0][0]))
    except (zlib.error, ValueError, TypeError) as error:
        raise FormatError(f"The recording of {where} is damaged: {error}.") from None
    return recordings.from_json(data, where)


def named(reference: str, project: str) -> Recording | None:
    """The recording that an id, `last` or `last~N` (N runs before the last of `project`) stands for.

    Returns:
        None where `reference` has none of these forms.

    Raises:
        FormatError: as for `recording`.
        UsageError: there is no such run, or the file cannot be read.
    """
    if _NUMBER.fullmatch(reference):
        return recording(int(reference))
    match = _LAST.fullmatch(reference)
    if match is None:
        return None
    back = int(match[1] or 0)
    found = runs(project, back + 1)
    if len(found) <= back:
        count = f"only {len(found)} run{'s' if len(found) != 1 else ''}" if found else "no run"
        raise UsageError(
            f"{reference!r} asks for run {back + 1} from the end, but the history has {count} of {project}; "
            "`unstarve history --all` lists those of other projects."
        )
    return recording(found[back].id)


def to_json(runs: Iterable[Run]) -> str:
    """The runs as a JSON text by the schema `unstarve.history/1`, with the file's location."""
    data = {"schema": SCHEMA, "location": str(location()), "runs": [dataclasses.asdict(run) for run in runs]}
    return json.dumps(data, indent=1, allow_nan=False)


# --- Rows -------------------------------------------------------------------------------------------------------------


def _storable(text: str) -> str:
    """`text` without the surrogates that stand for undecodable bytes of a path or argument: SQLite refuses them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _figures(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)


def _packed(recording: Recording) -> bytes:
    return zlib.compress(json.dumps(dataclasses.asdict(recording)).encode())


def _run(row: tuple[Any, ...]) -> Run:
    names = [name.strip() for name in _COLUMNS.split(",")]
    fields = dict(zip(names, row, strict=True))
    for name in ("baseline", "ceiling"):
        value, low, high = fields.pop(name), fields.pop(f"{name}_low"), fields.pop(f"{name}_high")
        fields[name] = None if value is None else Estimate(value=value, low=low, high=high)
    return Run(**fields)


# --- The file ---------------------------------------------------------------------------------------------------------


def _select(query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    path = location()
    if not path.exists():
        return []
    with _explained(path, "read"), closing(_connect(path, "ro")) as database:
        if not _is_ours(database, path):
            return []
        return database.execute(query, values).fetchall()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that begins no transaction by itself."""
    return sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=PATIENCE_S, isolation_level=None)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Everything inside or, since closing the connection undoes the rest, nothing; the write lock is taken at once."""
    database.execute("BEGIN IMMEDIATE")
    yield
    database.execute("COMMIT")


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    if not _is_ours(database, path):
        database.execute(_TABLE)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {VERSION}")


def _is_ours(database: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is a history of this version; False where it is still empty.

    Raises:
        FormatError: it is a history of another version, or another program's file.
    """
    application, version = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if (application, version) == (APPLICATION_ID, VERSION):
        return True
    if application == APPLICATION_ID:
        age = "a newer" if version > VERSION else "an older"
        raise FormatError(
            f"The history {path} has the format {version}, expected {VERSION}: {age} release of unstarve wrote it. "
            "Use that release, or move the file away to begin a new history."
        )
    if application or version or database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise FormatError(f"{path} is a database, but not a history of unstarve: move it away, or set UNSTARVE_HOME.")
    return False


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Errors of the file system and of SQLite in our own words."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"The history {path} cannot be {done}: {error.strerror or error}.") from None
    except sqlite3.OperationalError as error:
        raise UsageError(f"The history {path} cannot be {done}: {error}.") from None
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        raise FormatError(f"The history {path} is damaged ({error}): move it away to begin a new one.") from None
