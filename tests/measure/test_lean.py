"""Batches that carry less from the workers to the loop, and are whole again when the loop gets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pipelines
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_worker import Worker
from torch.utils.data import DataLoader, Dataset

from unstarve import errors, judge, simulate
from unstarve.measure import device, lean
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.payload import audit
from unstarve.measure.program import Options
from unstarve.measure.worker import untagged
from unstarve.payload import Change, changes
from unstarve.report import Report

BYTES = torch.randint(0, 256, (8, 3, 64, 64), generator=torch.Generator().manual_seed(1))


def change(how: str, dtype: str, small: str, **facts: Any) -> Change:
    return Change(path="batch['x']", how=how, dtype=dtype, small=small, saved_bytes=1, **facts)


def sent(batch: Any, *planned: Change) -> Any:
    """What the worker sends, after a way through pinning, which makes lists of tuples."""
    return list(lean.packed(batch, lean.as_order(planned)["changes"]))


def size(value: Any) -> int:
    return sum(item.untyped_storage().nbytes() for item in lean.values.tensors(value))


@pytest.mark.parametrize(
    ("planned", "field"),
    [
        (change("cast", "float32", "uint8"), BYTES.float()),
        (change("scaled", "float32", "uint8"), BYTES.float() / 255),
        (change("scaled", "float64", "uint8"), BYTES.double().div(255)),
        (change("cast", "int64", "bool"), BYTES % 2),
        (change("cast", "int64", "int16"), BYTES * 20),
        (change("ids", "float32", "uint8", classes=100), torch.nn.functional.one_hot(torch.arange(64), 100).float()),
        (change("once", "float32", "float32"), torch.full((8, 3, 64, 64), 2.5)),
        (change("bits", "uint8", "uint8", classes=61), (BYTES % 2).to(torch.uint8)[..., :61].contiguous()),
        (change("bits", "int8", "uint8", classes=64), (BYTES % 2).to(torch.int8).transpose(1, 2)),
        (change("rounded", "float32", "bfloat16"), BYTES.float()),
        (change("rounded", "float64", "float32"), BYTES.double() / 4),
    ],
    ids=lambda item: item.how if isinstance(item, Change) else "",
)
def test_a_batch_is_whole_again_on_arrival(planned: Change, field: torch.Tensor) -> None:
    """Values, type and shape are the same, fewer bytes travel, and other fields are as they were."""
    batch = {"x": field, "y": ["a", torch.arange(8)]}
    travelling = sent(batch, planned)
    assert size(travelling) < size(batch)
    again = lean.unpacked(travelling)
    assert again["x"].dtype == field.dtype
    assert torch.equal(again["x"], field)
    assert again["x"].is_contiguous()
    assert torch.equal(again["y"][1], torch.arange(8))
    assert batch["x"] is field


def test_what_the_step_rounds_anyway_comes_rounded() -> None:
    """It has the type that it had, and the values that the step would have made of it."""
    values = torch.rand(8, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    again = lean.unpacked(sent({"x": values}, change("rounded", "float32", "bfloat16")))["x"]
    assert again.dtype == torch.float32
    assert not torch.equal(again, values)
    assert torch.equal(again.bfloat16(), values.bfloat16())


def test_what_nobody_reads_is_left_out() -> None:
    """In its place comes something of its shape and type, of values that it may have."""
    batch = {"x": BYTES.float(), "y": BYTES}
    travelling = sent(batch, change("left out", "float32", "float32"))
    assert size(travelling) < 0.7 * size(batch)
    again = lean.unpacked(travelling)
    assert again["x"].shape == BYTES.shape
    assert again["x"].is_contiguous()
    assert again["x"].unique().tolist() == [BYTES.flatten()[0]]
    assert torch.equal(again["y"], BYTES)


def test_what_would_not_be_the_same_is_refused() -> None:
    """Half a pixel, a value out of range, a field that is missing or carried twice: the batch goes as it is."""
    whole = change("cast", "float32", "uint8")
    for batch in ({"x": BYTES.float() + 0.5}, {"x": BYTES.float() * 2}, {"y": BYTES.float()}, {"x": BYTES}):
        with pytest.raises(ValueError, match=r"batch|values"):
            sent(batch, whole)
    twice = BYTES.float()
    with pytest.raises(ValueError, match="twice"):
        sent({"x": twice, "y": twice}, whole)


class Image(torch.Tensor):
    """A tensor of another class, which operations on it forget, as torchvision's do."""

    __torch_function__ = torch._C._disabled_torch_function_impl


def test_a_tensor_that_would_lose_its_class_is_refused() -> None:
    """The loop may ask for what only that class has."""
    with pytest.raises(ValueError, match="class"):
        sent({"x": BYTES.float().as_subclass(Image)}, change("cast", "float32", "uint8"))


@pytest.mark.parametrize("value", [None, (1, 2, 3), ["a", "b", "c"], torch.zeros(3), ("unstarve:packed", 1)])
def test_other_things_go_through_as_they_are(value: Any) -> None:
    """Only what was packed is unpacked."""
    assert lean.unpacked(value) is value


FIELDS = st.sampled_from(
    [
        BYTES.float(),
        BYTES.float() / 255,
        BYTES % 2,
        (BYTES % 2).to(torch.uint8),
        (BYTES % 2).float(),
        BYTES - 128,
        torch.nn.functional.one_hot(BYTES[:, 0] % 50, 50).float(),
        torch.full((8, 3, 64, 64), 3),
        torch.rand(8, 3, 64, 64, generator=torch.Generator().manual_seed(2)),
        BYTES.double() * 1.5,
    ]
)


@given(st.lists(FIELDS, min_size=1, max_size=4))
def test_what_the_audit_proposes_can_be_undone(fields: list[torch.Tensor]) -> None:
    """For all changes that follow from the audit of a batch, the batch is the same after packing and unpacking."""
    batch = [field.clone() for field in fields]
    planned = changes(audit([batch, batch]), batch_size=8)
    again = lean.unpacked(sent(batch, *planned)) if planned else batch
    for before, after in zip(batch, again, strict=True):
        assert before.dtype == after.dtype
        assert torch.equal(before, after)


def test_nothing_is_proposed_for_a_batch_that_is_lean() -> None:
    """Bytes as bytes and floats that use their bits are left alone."""
    batch = [BYTES.to(torch.uint8), torch.rand(8, 3, 64, 64), torch.arange(8)]
    assert changes(audit([batch]), batch_size=8) == ()


# --- Workers ----------------------------------------------------------------------------------------------------------


class Floats(pipelines.Drawing):
    """Images of bytes, sent as floats; from a certain sample on they are no bytes."""

    def __init__(self, length: int = 4000, until: int = 1 << 30) -> None:
        super().__init__(length)
        self.until = until

    def __getitem__(self, index: int) -> torch.Tensor:
        return (BYTES[index % 8] + (0.5 if index >= self.until else 0)).float()


def test_a_worker_sends_less_and_gives_up_where_that_changes_values() -> None:
    """The batch is whole on arrival; where unpacking would give something else, it goes as it is, with the reason."""
    worker = Worker(Floats(until=8))
    told = lean.as_order((Change(path="batch", how="cast", dtype="float32", small="uint8", saved_bytes=1),))
    worker.order(**json.loads(json.dumps(told)))
    raw = worker.raw()[1]
    assert raw[0] == lean.PACKED
    assert raw[1].dtype == torch.uint8
    assert torch.equal(lean.unpacked(raw), BYTES.float())
    made = worker.fetch()
    assert "would change its values" in (made.telemetry.failure or "")
    assert torch.equal(made.data, BYTES.float() + 0.5)


def test_a_device_that_cannot_unpack_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop gets the batch whole, on the host, and the rung is told why; the error is none of the user's."""

    def refuse(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")

    refusing = device.Device("full", lambda: None, lambda batch, paths: batch, refuse)
    monkeypatch.setattr(device, "current", lambda: refusing)
    worker = Worker(Floats())
    worker.order(**lean.as_order((Change(path="batch", how="cast", dtype="float32", small="uint8", saved_bytes=1),)))
    data, made = untagged(worker.raw())
    assert torch.equal(data, BYTES.float())
    assert made is not None
    assert made.failure == "RuntimeError: out of memory"


# --- In the loop ------------------------------------------------------------------------------------------------------


def diagnosed(
    bandwidth: float, data: Dataset[torch.Tensor] | None = None, read: Callable[[torch.Tensor], Any] = type
) -> tuple[Engine, Report]:
    """A loop that copies batches of 0.4 MB to a device with so many bytes per second, and computes for 2 ms."""
    engine = Engine(Options(budget_s=30))
    accelerator = simulate.SimulatedAccelerator(bandwidth_bytes_per_s=bandwidth, depth=2)
    with simulate.use(accelerator), installed(engine), pytest.raises(errors.Finished):
        for _ in range(50):
            for batch in DataLoader(data or Floats(), batch_size=8, num_workers=2):
                read(accelerator.to_device(batch, non_blocking=True))
                accelerator.launch(0.002)
    return engine, judge.judge(engine.recording())


@pytest.mark.live
def test_a_leaner_batch_is_advised_where_the_copy_holds_the_loop_back() -> None:
    """Planted: bytes as floats over a slow link; the trial converts on the device and gains what the copy is shorter."""
    engine, report = diagnosed(6e6)
    assert any(rung.changes for rung in engine.recording().rungs)
    remedy = next(item for item in report.remedies if item.id == "lean-batch")
    assert remedy.measured_gain is not None
    assert remedy.measured_gain.low > 1
    assert "uint8 instead of float32" in remedy.advice
    assert "on the device" in remedy.advice


class Noise(pipelines.Drawing):
    """Floats that use their bits."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(index))


@pytest.mark.live
@pytest.mark.parametrize(
    ("read", "is_advised"), [(lambda x: x.bfloat16().sum(), True), (lambda x: x.sum(), False)], ids=["half", "whole"]
)
def test_rounding_is_advised_where_the_step_rounds_anyway(
    read: Callable[[torch.Tensor], Any], is_advised: bool
) -> None:
    """Planted: a step in half precision behind a slow link, and one that reads what it gets as it is."""
    _, report = diagnosed(6e6, Noise(4000), read)
    found = [item for item in report.remedies if item.id == "lean-batch"]
    assert bool(found) is is_advised
    if found:
        assert "bfloat16 instead of float32" in found[0].advice
        assert found[0].measured_gain is not None
        assert found[0].measured_gain.low > 1


@pytest.mark.live
def test_a_leaner_batch_is_not_advised_where_moving_costs_nothing() -> None:
    """Planted: the same batch over a link that is never the limit, into a step that is."""
    _, report = diagnosed(1e12)
    assert not any(item.id == "lean-batch" for item in report.remedies)
