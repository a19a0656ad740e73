"""The file between measuring and judging."""

from __future__ import annotations

import json

import pytest
from literals import DECODE, make_recording

from unstarve import recording
from unstarve.errors import FormatError
from unstarve.payload import Field


def test_saving_and_loading_is_identity(tmp_path) -> None:
    """A recording read back equals the one that was written."""
    image = Field(
        path="batch[0]", kind="tensor", dtype="float32", shape=(8, 3), bytes=96, storage_bytes=96, min=-0.1, max=1
    )
    names = Field(path="batch['name']", kind="other", dtype="str", bytes=60, storage_bytes=60, read_by_step=False)
    original = make_recording({"none": 80, "host": 20, "knockout:decode": 25}, stages=(DECODE,), payload=(image, names))
    original.save(tmp_path / "run.json")
    assert recording.load(tmp_path / "run.json") == original


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a recording"),
        ("[1, 2]", "schema None"),
        ('{"schema": "unstarve.recording/99"}', "unstarve.recording/99"),
        ('{"schema": "unstarve.report/1"}', "--save"),
        ('{"schema": "unstarve.recording/1"}', "does not follow it"),
        ('{"schema": "unstarve.recording/1", "command": 3, "created": "", "loader": null}', "expected str"),
    ],
)
def test_foreign_files_are_refused_with_a_reason(tmp_path, text: str, message: str) -> None:
    """A file that is no recording raises FormatError saying what was found and what was expected."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        recording.load(path)


def test_fields_of_a_later_minor_release_are_ignored(tmp_path) -> None:
    """An unknown field does not make a file unreadable."""
    make_recording({"none": 80, "host": 20}).save(tmp_path / "run.json")
    data = json.loads((tmp_path / "run.json").read_text())
    data["novelty"] = 1
    assert recording.from_json(data).command == "unstarve run train.py"
