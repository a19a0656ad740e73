"""What a batch carries without need follows from facts about its fields."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstarve.payload import LEAST_BYTES, Field, Finding, findings

MIB = 2**20

IMAGE = Field(
    path="batch[0]",
    kind="tensor",
    dtype="float32",
    shape=(64, 3, 32, 32),
    bytes=MIB,
    storage_bytes=MIB,
    seen_batches=4,
    looked_batches=4,
    looked_values=10_000,
    min=-2.1,
    max=2.6,
    nonzero_fraction=1.0,
)
"""A normalised image: nothing is wrong with it."""

LABELS = replace(
    IMAGE, path="batch[1]", dtype="int64", shape=(64,), bytes=512, storage_bytes=512, min=0, max=9, is_integral=True, distinct=10
)  # fmt: skip

IDS = replace(LABELS, path="batch['ids']", shape=(64, 2048), bytes=MIB, storage_bytes=MIB, max=40_000, distinct=None)

MASK = replace(IDS, dtype="float32", min=0, max=1, distinct=2, nonzero_fraction=0.5, is_scaled_bytes=True)


def found(*fields: Field) -> tuple[Finding, ...]:
    return findings(fields, batch_size=64)


PLANTED = [
    (replace(IMAGE, read_by_step=False), "unread", 0),
    (replace(IMAGE, min=1.5, max=1.5, is_constant=True, distinct=1), "constant", 0),
    (replace(IMAGE, duplicate_of="batch[7]"), "duplicate", 0),
    (replace(IMAGE, min=0, max=255, is_integral=True), "uint8", MIB // 4),
    (replace(IMAGE, min=0, max=1, is_scaled_bytes=True), "uint8", MIB // 4),
    (replace(IMAGE, dtype="float64", min=0, max=255, is_integral=True), "uint8", MIB // 8),
    (replace(IMAGE, dtype="float64"), "float32", MIB // 2),
    (replace(IMAGE, dtype="float64", rounded_to="float32"), "float32", MIB // 2),
    (replace(IMAGE, dtype="float64", rounded_to="bfloat16"), "half", MIB // 4),
    (replace(IMAGE, dtype="float64", rounded_to="float8_e4m3fn"), "float32", MIB // 2),
    (replace(IMAGE, rounded_to="float16"), "half", MIB // 2),
    (replace(IMAGE, min=0, max=255, is_integral=True, rounded_to="float16"), "uint8", MIB // 4),
    (replace(MASK, shape=(64, 128, 32), row_is_one_hot=True, nonzero_fraction=1 / 32), "class-ids", MIB // 128),
    (replace(MASK, shape=(128, 2048), row_is_one_hot=True), "class-ids", 2 * MIB // 4 // 2048),
    (replace(MASK, dtype="uint8", shape=(64, 128, 3), row_is_one_hot=True), "class-ids", MIB // 3),
    (MASK, "mask", MIB // 4),
    (replace(MASK, dtype="int64"), "mask", MIB // 8),
    (replace(MASK, dtype="uint8"), "mask", MIB // 8),
    (replace(MASK, nonzero_fraction=0.01), "sparse", 10486 // 4 * 4),
    (IDS, "narrow-int", MIB // 2),
    (replace(IDS, min=-5, max=100), "narrow-int", MIB // 4),
    (replace(IMAGE, nonzero_fraction=0.03), "sparse", 62915),
    (replace(IMAGE, padding_fraction=0.5, nonzero_fraction=0.5), "padding", MIB // 2),
    (replace(IMAGE, storage_bytes=3 * MIB), "view", MIB),
]


def test_floats_of_eight_bits_are_not_sent() -> None:
    """A step that rounds to a type that few libraries know is no reason to send it, and none to give up."""
    assert found(replace(IMAGE, rounded_to="float8_e4m3fn"), LABELS) == ()


@pytest.mark.parametrize(("field", "id", "bytes_after"), PLANTED)
def test_a_fault_is_found_alone_with_what_it_saves(field: Field, id: str, bytes_after: int) -> None:
    """Each fault gives its own finding and no other, and the bytes that are left."""
    (finding,) = found(field, LABELS)
    assert (finding.id, finding.path) == (id, field.path)
    assert finding.bytes_after == pytest.approx(bytes_after, abs=4)
    assert finding.bytes_before == max(field.bytes, field.storage_bytes)
    assert field.path in finding.advice


@pytest.mark.parametrize(
    "field",
    [
        IMAGE,
        replace(IMAGE, min=None, max=None),
        replace(IMAGE, dtype="uint8", min=0, max=255, is_integral=True),
        replace(MASK, dtype="bool"),
        replace(IDS, max=2.0**40),
        replace(IMAGE, dtype="float64", min=1.7e9, max=1.8e9),
        replace(IMAGE, dtype="complex64", min=None, max=None),
        replace(IMAGE, kind="other", dtype="str"),
        replace(IMAGE, kind="array", storage_bytes=100 * MIB),
        replace(IMAGE, nonzero_fraction=0.9, padding_fraction=0.15),
        replace(IMAGE, is_constant=True, min=0.5, max=0.5, seen_batches=1, looked_batches=1),
        replace(IMAGE, read_by_step=True),
        replace(MASK, dtype="bool", padding_fraction=0.6),
    ],
)
def test_a_clean_batch_gives_no_finding(field: Field) -> None:
    """Normalised images, bytes, masks of bools, large ids, timestamps and small labels are left alone."""
    assert found(field, LABELS) == ()


@given(st.sampled_from(PLANTED), st.integers(1, LEAST_BYTES - 1), st.booleans())
def test_what_is_small_is_left_alone(planted: tuple[Field, str, int], size_bytes: int, is_tiny: bool) -> None:
    """A fault of less than 64 KiB, or of less than 1 % of the batch, is none."""
    field = planted[0]
    small = replace(field, bytes=size_bytes, storage_bytes=size_bytes) if is_tiny else field
    rest = replace(IMAGE, bytes=MIB if is_tiny else 300 * MIB, storage_bytes=300 * MIB if not is_tiny else MIB)
    assert found(small, rest) == ()


@given(st.lists(st.sampled_from([field for field, *_ in PLANTED]), max_size=8))
def test_findings_are_ordered_and_at_most_one_is_on_the_encoding(fields: list[Field]) -> None:
    """Whatever is combined, what saves most comes first, nothing grows, and encodings do not pile up on one field."""
    named = [replace(field, path=f"batch[{number}]") for number, field in enumerate(fields)]
    result = found(*named)
    saved = [finding.bytes_before - finding.bytes_after for finding in result]
    assert saved == sorted(saved, reverse=True)
    assert all(finding.bytes_after <= finding.bytes_before for finding in result)
    on_encoding = [finding.path for finding in result if finding.id not in ("padding", "view")]
    assert len(on_encoding) == len(set(on_encoding))


def test_a_field_that_can_go_gets_no_other_advice() -> None:
    """Who shall leave a field out is not told how to encode it."""
    field = replace(MASK, read_by_step=False, is_constant=True, duplicate_of="batch[2]", padding_fraction=0.9)
    assert [finding.id for finding in found(field)] == ["unread"]


def test_padding_comes_beside_the_encoding() -> None:
    """Padded ids are shortened and narrowed."""
    assert {finding.id for finding in found(replace(IDS, padding_fraction=0.6))} == {"padding", "narrow-int"}


def test_padding_alone_is_not_sparse() -> None:
    """Zeros that pad do not make a field sparse."""
    field = replace(IMAGE, padding_fraction=0.96, nonzero_fraction=0.04)
    assert [finding.id for finding in found(field)] == ["padding"]


def test_many_small_tensors_are_one_finding() -> None:
    """More than 64 tensors of less than 4 KiB are to be joined, whatever large ones stand beside them."""
    boxes = [replace(LABELS, path=f"batch[1][{number}]") for number in range(65)]
    (finding,) = found(IMAGE, *boxes)
    assert (finding.id, finding.path) == ("small-tensors", "batch[1][0]")
    assert "65 small tensors (1.0 a sample) of 512 bytes" in finding.advice
    assert found(IMAGE, *boxes[1:]) == ()
    assert found(IMAGE, *(replace(box, kind="other") for box in boxes)) == ()
    assert found(IMAGE, *(replace(box, bytes=5000, storage_bytes=5000) for box in boxes)) == ()


def test_a_field_of_some_batches_counts_by_its_share() -> None:
    """Bytes are those of an average step."""
    (finding,) = found(replace(IMAGE, dtype="float64", seen_batches=1))
    assert (finding.bytes_before, finding.bytes_after) == (MIB // 4, MIB // 8)


def test_an_empty_batch_gives_no_finding() -> None:
    """No fields, no findings."""
    assert findings((), batch_size=None) == ()
