"""Faults planted into batches are found, clean batches are left in peace, and the use of a batch in a step is seen."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import pickle
import random
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from unstarve.measure import payload
from unstarve.measure.cuts import values
from unstarve.measure.payload import UseWatch, audit
from unstarve.payload import Field, changes, findings

Make = Callable[[np.random.Generator], Any]


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Sample:
    left: Any
    right: Any


class Encoding(collections.UserDict):
    pass


# --- Audit: planted faults --------------------------------------------------------------------------------------------


def _image(rng: np.random.Generator, dtype: Any = np.float32) -> Any:
    return torch.from_numpy(rng.normal(0.1, 1.2, (8, 3, 48, 48)).astype(dtype))


def _bytes(rng: np.random.Generator) -> Any:
    return torch.from_numpy(rng.integers(0, 256, (8, 3, 64, 64), np.uint8))


def _binary(rng: np.random.Generator, share: float = 0.4) -> Any:
    return torch.from_numpy(rng.random((16, 100, 100)) < share)


def _one_hot(rng: np.random.Generator) -> Any:
    return torch.nn.functional.one_hot(torch.from_numpy(rng.integers(0, 21, (8, 40, 40))), 21)


def _padded(rng: np.random.Generator, shape: tuple[int, ...] = (16, 2000)) -> Any:
    field = torch.from_numpy(rng.normal(0, 1, shape).astype(np.float32))
    for number, length in enumerate(rng.integers(50, int(shape[1] * 0.7), shape[0])):
        field[number, length:] = -100.0
    return field


PLANTED: dict[str, tuple[Make, ...]] = {
    "uint8": (
        lambda rng: _bytes(rng).float(),
        lambda rng: _bytes(rng).float().div(255),
        lambda rng: _bytes(rng).double().div_(255),
        lambda rng: _bytes(rng).numpy().astype(np.float64),
        lambda rng: _bytes(rng).float().numpy()[::-1],
    ),
    "float32": (lambda rng: _image(rng, np.float64), lambda rng: _image(rng, np.float64).numpy()),
    "class-ids": (lambda rng: _one_hot(rng), lambda rng: _one_hot(rng).float(), lambda rng: _one_hot(rng).bool()),
    "mask": (
        lambda rng: _binary(rng).float(),
        lambda rng: _binary(rng).long().numpy(),
        lambda rng: _binary(rng).byte(),
        lambda rng: _binary(rng).bfloat16(),
    ),
    "narrow-int": (
        lambda rng: torch.from_numpy(rng.integers(0, 50_000, (16, 1024))),
        lambda rng: rng.integers(-300, 300, (16, 4096), np.int32),
    ),
    "sparse": (lambda rng: _image(rng) * torch.from_numpy(rng.random((8, 3, 48, 48)) < 0.03),),
    "padding": (
        _padded,
        lambda rng: _padded(rng, (8, 300, 64)),
        lambda rng: _padded(rng, (16, 4000)).half(),
    ),
    "constant": (lambda rng: torch.full((16, 4096), 0.25), lambda rng: np.ones((16, 4096), np.int64)),
    "view": (lambda rng: torch.cat([_image(rng)] * 3)[:8],),
}
"""Makers of a faulty leaf, by the finding that they shall give."""

CLEAN: tuple[Make, ...] = (
    _image,
    _bytes,
    lambda rng: _image(rng).half(),
    lambda rng: _image(rng).numpy(),
    lambda rng: _image(rng).numpy()[:, :, ::-1],
    lambda rng: (_bytes(rng).float().div(255) - 0.45) / 0.23,
    lambda rng: torch.from_numpy(rng.integers(0, 10, 8)),
    lambda rng: _binary(rng),
    lambda rng: torch.from_numpy(rng.normal(0, 1, (4096, 5)).astype(np.float32)),
    lambda rng: torch.view_as_complex(torch.from_numpy(rng.normal(0, 1, (512, 32, 2)))),
    lambda rng: torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2), (2,)),
    lambda rng: torch.zeros(0, 4),
    lambda rng: np.array(["a", "b"]),
    lambda rng: [str(number) for number in range(100)],
    lambda rng: "name",
    lambda rng: None,
)
"""Makers of leaves that nothing is wrong with, of different values each time."""

CONTAINERS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda left, right: [left, right],
    lambda left, right: (left, right),
    lambda left, right: {"a": left, 7: right},
    lambda left, right: Encoding({"a": left, "b": right}),
    Pair,
    Sample,
)

LAYOUTS = st.lists(
    st.tuples(st.sampled_from(CLEAN), st.sampled_from(CONTAINERS), st.booleans()), min_size=1, max_size=5
)
"""How clean leaves are wrapped around a leaf, from the inside out."""


def wrapped(leaf: Any, layout: Any, rng: np.random.Generator) -> Any:
    for make, contain, is_first in layout:
        leaf = contain(leaf, make(rng)) if is_first else contain(make(rng), leaf)
    return leaf


def path_of(leaf: Any, batch: Any) -> str:
    return next(path for path, other in values.named_leaves(batch, "batch") if other is leaf)


def found(batches: list[Any], **options: Any) -> dict[str, list[str]]:
    result: dict[str, list[str]] = collections.defaultdict(list)
    for finding in findings(audit(batches, **options), batch_size=8):
        result[finding.path].append(finding.id)
    return dict(result)


FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(
    st.sampled_from([(id, make) for id, makers in PLANTED.items() for make in makers]), LAYOUTS, st.integers(0, 2**32)
)
def test_a_planted_fault_is_found_where_it_is_and_nothing_else(
    planted: tuple[str, Make], layout: Any, seed: int
) -> None:
    """In whatever containers, among whatever clean leaves, each fault gives its finding at its path, and no other."""
    id, make = planted
    rng = np.random.default_rng(seed)
    leaves = [make(rng) for _ in range(2)]
    batches = [wrapped(leaf, layout, rng) for leaf in leaves]
    assert found(batches) == {path_of(leaves[0], batches[0]): [id]}


@pytest.mark.parametrize(
    "make", [make for id in ("uint8", "class-ids", "mask", "narrow-int", "float32", "view") for make in PLANTED[id]]
)
def test_patches_run(make: Make) -> None:
    """What is sent, by the patch or made as it says, comes back by the patch with the values and the type that it had."""
    rng = np.random.default_rng(7)
    whole = make(rng)
    plain = torch.from_numpy(np.ascontiguousarray(whole)) if isinstance(whole, np.ndarray) else whole
    for finding in findings(audit([{"x": whole}]), batch_size=8):
        names = {"torch": torch, "device": "cpu", "batch": {"x": whole}}
        if finding.patch is None:
            continue
        code, _, when = finding.patch.partition("  # ")
        if "in the loop" in when:
            sent = plain.float().argmax(-1) if finding.id == "class-ids" else plain
            sent = (sent * 255).round() if finding.id == "uint8" and sent.max() <= 1 else sent
            sent = sent.to(torch.uint8)
            names["batch"] = {"x": sent.numpy() if isinstance(whole, np.ndarray) else sent}
        made = torch.as_tensor(eval(code, names))
        assert torch.allclose(made.double(), plain.double())
        assert made.dtype == plain.dtype or "in the loop" not in when


def test_a_duplicate_is_put_only_where_it_can_be() -> None:
    """Into a dictionary, and not into what may be a tuple."""
    ids = [torch.randint(0, 2**40, (8, 2048)) for _ in range(2)]
    for batches, patch in (
        ([{"a": item, "b": item} for item in ids], "batch['b'] = batch['a']  # in the loop, on the device"),
        ([(item, item) for item in ids], None),
    ):
        (finding,) = findings(audit(batches), batch_size=8)
        assert (finding.id, finding.patch) == ("duplicate", patch)


@FEW
@given(LAYOUTS, st.sampled_from(CLEAN), st.integers(0, 2**32))
def test_a_clean_batch_gives_no_finding(layout: Any, make: Make, seed: int) -> None:
    """Nothing is found where nothing was planted."""
    rng = np.random.default_rng(seed)
    assert found([wrapped(make(rng), layout, rng) for _ in range(2)]) == {}


@FEW
@given(LAYOUTS, st.integers(0, 2**32))
def test_the_audit_changes_nothing(layout: Any, seed: int) -> None:
    """Batches stay as they are, down to version counters, and so does every random state."""
    rng = np.random.default_rng(seed)
    batch = wrapped(_padded(rng), layout, rng)
    random.seed(seed)
    before = values.fingerprint(batch), random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())
    audit([batch])
    after = values.fingerprint(batch), random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())
    assert before == after


@FEW
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_sampling_keeps_to_its_size(shape: list[int]) -> None:
    """A sample has at most the allowed number of values, and more than a quarter of it where there are more."""
    tensor = torch.zeros(()).expand(shape)
    thin = payload._thinned(tensor)
    assert thin.ndim == tensor.ndim
    assert thin.numel() <= payload.SAMPLE_VALUES
    assert thin.numel() == tensor.numel() or thin.numel() > payload.SAMPLE_VALUES / 4


# --- Audit: facts -----------------------------------------------------------------------------------------------------


def fields_of(*batches: Any) -> dict[str, Field]:
    return {field.path: field for field in audit(batches)}


def test_duplicates_are_equal_in_every_batch() -> None:
    """A leaf that once differed is no duplicate; one tensor given twice is."""
    one, two = torch.arange(50), torch.arange(50) + 1
    fields = fields_of(
        {"a": one, "b": one.clone(), "c": one, "d": one}, {"a": two, "b": two, "c": one, "d": two.clone()}
    )
    assert {path: field.duplicate_of for path, field in fields.items()} == {
        "batch['a']": None,
        "batch['b']": "batch['a']",
        "batch['c']": None,
        "batch['d']": "batch['a']",
    }


def test_duplicates_are_equal_in_all_values() -> None:
    """A difference that sampling misses is none the less seen."""
    one = torch.zeros(2 * payload.SAMPLE_VALUES)
    other = one.index_fill(0, torch.tensor([1]), 1.0)
    assert fields_of([one, other])["batch[1]"].duplicate_of is None


def test_planted_duplicates_and_small_tensors_are_found() -> None:
    """Labels that are the inputs again, and a list of boxes for each image."""
    ids = [torch.randint(0, 2**40, (8, 2048)) for _ in range(2)]
    assert found([{"ids": item, "labels": item.clone()} for item in ids]) == {"batch['labels']": ["duplicate"]}
    boxes = [torch.rand(number % 5 + 1, 4) for number in range(80)]
    assert found([(torch.randn(8, 3, 99, 99), boxes)]) == {"batch[1][0]": ["small-tensors"]}


def test_views_of_one_buffer_drag_nothing() -> None:
    """Fields packed into one storage share it; a part of a storage alone drags all of it."""
    buffer = torch.randn(100_000)
    packed = fields_of([buffer[:60_000], buffer[60_000:]])
    assert [field.storage_bytes for field in packed.values()] == [240_000, 160_000]
    assert fields_of([buffer[:10]])["batch[0]"].storage_bytes == 400_000


def test_an_array_is_as_large_as_its_values() -> None:
    """Whatever it is a part of: only its own values are sent."""
    (field,) = audit([np.zeros((1000, 1000))[:2]])
    assert (field.bytes, field.storage_bytes) == (16_000, 16_000)


def test_extremes_come_from_all_values_and_the_rest_says_how_many_it_rests_on() -> None:
    """A single large value is not missed by sampling."""
    tensor = torch.zeros(3_000_001, dtype=torch.int64)
    tensor[1] = 2**33
    (field,) = audit([tensor])
    assert (field.min, field.max) == (0, 2**33)
    assert field.looked_values <= payload.SAMPLE_VALUES


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([[0.0, 1, 0], [1, 0, 0]]), {"row_is_one_hot": True, "distinct": 2, "is_integral": True}),
        (torch.tensor([[0.0, 1, 0], [0, 0, 0]]), {"row_is_one_hot": False, "nonzero_fraction": 1 / 6}),
        (torch.tensor([[0.0, 2, 0], [1, 0, 0]]), {"row_is_one_hot": False, "distinct": 3}),
        (torch.tensor([0.5, float("nan")]), {"min": None, "max": None, "is_integral": False, "is_constant": False}),
        (torch.tensor([0.0, float("inf")]), {"min": 0.0, "max": None} | {"min": None}),
        (torch.tensor([7, 7], dtype=torch.uint8), {"is_constant": True, "distinct": 1, "min": 7, "max": 7}),
        (torch.tensor([True, False]), {"dtype": "bool", "distinct": 2, "is_integral": True}),
        (torch.tensor([0.0, 0.5, 1.0]), {"is_scaled_bytes": False}),
        (torch.tensor([0.0, 51.0, 255.0]) / 255, {"is_scaled_bytes": True}),
        (torch.tensor([[1.0] * 6 + [0.0] * 4, [1.0] * 8 + [0.0] * 2]), {"padding_fraction": pytest.approx(0.3)}),
        (torch.tensor([[1.0] * 6 + [0.0] * 4, [2.0] * 10]), {"padding_fraction": pytest.approx(0.2)}),
        (torch.tensor([[2.0] * 9 + [3.0], *[[1.0] * 5 + [0.0] * 5] * 2]), {"padding_fraction": pytest.approx(1 / 3)}),
        (torch.arange(300), {"distinct": None}),
        (torch.arange(300.0).reshape(3, 100), {"padding_fraction": pytest.approx(1 / 300)}),
        (torch.zeros(2, 3).to_sparse(), {"kind": "tensor", "distinct": None, "looked_values": 0}),
        (torch.zeros(2, device="meta"), {"kind": "tensor", "looked_values": 0}),
    ],
)
def test_facts_of_a_leaf(tensor: torch.Tensor, expected: dict[str, Any]) -> None:
    """What is said of a leaf's values holds for them."""
    (field,) = audit([tensor])
    assert {name: getattr(field, name) for name in expected} == expected


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_what_cannot_be_looked_at_spoils_nothing(layout: torch.layout) -> None:
    """A nested tensor is left out, and what lies beside it is looked at."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    assert "batch['b']" in fields_of({"a": nested, "b": torch.ones(2)})
    assert used([nested, torch.ones(2)], lambda batch: (batch[0] * 2, batch[1] + 1)) == {"batch[1]"}


def test_numbers_in_ragged_lists_are_few_fields() -> None:
    """A batch of thousands of them is not thousands of fields; tensors are fields of their own wherever they lie."""
    ragged = [(float(number),) * (number % 7) for number in range(1000)]
    fields = fields_of([ragged, torch.ones(4)], [ragged[::-1], torch.ones(4)])
    numbers = [field for field in fields.values() if field.kind == "other"]
    assert len(numbers) <= 2 * payload.MOST_VALUED
    total = sum(map(len, ragged)) * sys.getsizeof(1.0)
    assert sum(field.bytes_per_step for field in numbers) == pytest.approx(total, rel=0.01)
    assert fields["batch[1]"].kind == "tensor"
    assert fields[payload.FURTHER].seen_batches == 2


def test_facts_hold_for_all_batches() -> None:
    """Extremes span the batches, claims need every batch, and absence is counted."""
    fields = fields_of({"a": torch.tensor([1.0, 1.0])}, {"a": torch.tensor([0.5, 3.0]), "b": [torch.ones(4)]})
    field = fields["batch['a']"]
    assert (field.min, field.max, field.is_integral, field.is_constant, field.distinct) == (0.5, 3.0, False, False, 3)
    assert (fields["batch['b'][0]"].seen_batches, fields["batch['b'][0]"].looked_batches) == (1, 2)


def test_only_tensors_with_a_memory_are_called_unread() -> None:
    """What is no dense tensor cannot be watched, so that nothing is claimed of it."""
    others = {"c": np.ones(2), "d": "x", "e": torch.ones(2).to_sparse()}
    fields = audit([{"a": torch.ones(2), "b": torch.ones(2), **others}], {"batch['a']"})
    assert [field.read_by_step for field in fields] == [True, False, None, None, None]
    assert all(field.read_by_step is None for field in audit([[torch.ones(2)]]))


# --- Use --------------------------------------------------------------------------------------------------------------


def _pinned(x: torch.Tensor) -> None:
    with contextlib.suppress(RuntimeError):  # without a device there is no such memory
        x.pin_memory()


def used(batch: Any, step: Callable[[Any], Any]) -> set[str] | None:
    watch = UseWatch()
    watch.start(batch)
    try:
        step(batch)
    finally:
        result = watch.stop()
    assert _get_current_dispatch_mode_stack() == []
    assert torch.overrides._get_current_function_mode_stack() == []
    return result


def test_a_training_step_reads_what_it_computes_with() -> None:
    """Inputs and labels are read, also through copies; what is only moved, or asked for its shape, is not."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(batch: Any) -> None:
        moved = {name: item.to(torch.float64) for name, item in batch["in"].items()}
        moved["y"], _ = batch["y"].clone().long(), batch["pinned"].detach().clone()
        assert batch["shape"].shape[0] == 5
        loss = torch.nn.functional.cross_entropy(model(moved["x"].float()), moved["y"])
        loss.backward()
        optimizer.step()

    names = ("y", "pinned", "shape")
    batch = {"in": {"x": torch.randn(5, 4), "moved": torch.randn(5)}, **{name: torch.zeros(5).long() for name in names}}
    assert used(batch, step) == {"batch['in']['x']", "batch['y']"}


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.numpy(),
        lambda x: x.double().numpy(),
        lambda x: np.asarray(x),
        lambda x: x.tolist(),
        lambda x: x[0].item(),
        lambda x: float(x[0]),
        lambda x: x.data_ptr(),
        lambda x: x.view(-1)[1:].sum(),
        lambda x: torch.empty(3).copy_(x),
        lambda x: x.clone().add_(1),
        lambda x: np.from_dlpack(x),
        lambda x: torch.vmap(torch.sin)(x),
        lambda x: pickle.dumps(x),
        lambda x: copy.deepcopy(x),
        lambda x: torch.stack([x, x]),
        lambda x: [x for _ in x],
    ],
)
def test_ways_to_read(use: Callable[[torch.Tensor], Any]) -> None:
    """Every way in which values leave a tensor counts, and the field beside it stays unread."""
    assert used([torch.rand(3), torch.rand(3)], lambda batch: use(batch[0])) == {"batch[0]"}


@pytest.mark.parametrize(
    "use", [lambda x: x.double(), lambda x: x.clone(), lambda x: x.detach(), lambda x: x.shape, lambda x: x.is_pinned()]
)
def test_ways_to_move(use: Callable[[torch.Tensor], Any]) -> None:
    """Copies that nobody uses, and questions about shape and place, read nothing."""
    assert used([torch.rand(3), torch.rand(3)], lambda batch: (use(batch[0]), batch[1].sum())) == {"batch[1]"}


@pytest.mark.parametrize(
    ("use", "is_used"),
    [
        (lambda x: x.to("meta"), False),
        (lambda x: x.float().to("meta"), False),
        (lambda x: x.view(-1)[1:].to("meta"), False),
        (lambda x: x.div_(2).to("meta"), False),
        (lambda x: [row.to("meta") for row in x], False),
        (lambda x: torch.empty(3, device="meta").copy_(x), False),
        (lambda x: x.to("meta") + 1, False),
        (lambda x: x.shape, False),
        (lambda x: x.numpy(), True),
        (lambda x: x.long().numpy(), True),
        (lambda x: x[0].item(), True),
        (lambda x: np.asarray(x), True),
        (lambda x: x == torch.zeros(3), True),
        (lambda x: torch.zeros(3) == x.long(), True),
        (lambda x: x.sub_(torch.ones(3)), True),
        (lambda x: torch.empty(3).copy_(x), True),
        (lambda x: torch.stack([x, x]), True),
        (_pinned, True),
    ],
)
def test_use_on_the_host(use: Callable[[torch.Tensor], Any], is_used: bool) -> None:
    """What would fail, or wait, with the tensor on a device (here `meta`) is told apart from what could run there alike,
    whether the tensor is moved besides or not."""
    for step in (use, lambda x: (x.to("meta"), use(x))):
        watch, x = UseWatch(), torch.rand(3)
        watch.start([x, torch.rand(3)])
        step(x)
        watch.stop()
        assert watch.on_host == ({"batch[0]"} if is_used else set())


def _under_autocast(x: torch.Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.nn.functional.linear(x, torch.rand(3, 3))


@pytest.mark.parametrize(
    ("use", "rounded_to"),
    [
        (lambda x: x.bfloat16() + 1, "bfloat16"),
        (lambda x: x.clone().half().float().sum(), "float16"),
        (lambda x: [x.half().sum(), x.half().mean()], "float16"),
        (_under_autocast, "bfloat16"),
        (lambda x: x + 1, None),
        (lambda x: x.double() + 1, None),
        (lambda x: x.long() + 1, None),
        (lambda x: [x.half() + 1, x.sum()], None),
        (lambda x: [x.half() + 1, x.bfloat16() + 1], None),
        (lambda x: x.half().shape, None),
    ],
)
def test_what_is_rounded_before_it_is_read_is_known(use: Callable[[torch.Tensor], Any], rounded_to: str | None) -> None:
    """Sending it rounded changes nothing then, if it is read in no other way."""
    watch, batch = UseWatch(), [torch.rand(2, 3), torch.rand(3)]
    watch.start(batch)
    use(batch[0])
    batch[1].sum()
    field, _ = audit([batch], watch.stop(), read_as=watch.read_as)
    assert field.rounded_to == rounded_to


def test_a_field_that_is_used_on_the_host_is_not_handed_over_on_the_device() -> None:
    """Though the step moves it, and copying it costs what it costs."""
    batches = [{"x": torch.arange(40_000.0) % 2} for _ in range(2)]
    (field,) = audit(batches, {"batch['x']"}, {"batch['x']"}, {"batch['x']"})
    assert (field.moved_by_step, field.used_on_host) == (True, True)
    assert [change.is_moved for change in changes([field], batch_size=8)] == [False]


def test_fields_of_one_storage_are_read_together() -> None:
    """Who reads a view may read what lies beside it."""
    buffer = torch.rand(10)
    assert used([buffer[:5], buffer[5:]], lambda batch: batch[0].sum()) == {"batch[0]", "batch[1]"}


@pytest.mark.parametrize("batch", [["a", 1], [torch.rand(2)], None])
def test_where_nothing_is_read_use_is_unknown(batch: Any) -> None:
    """A loop that prefetches, or replays a graph, reads its batches where it is not seen."""
    assert used(batch, lambda batch: None) is None


def test_an_error_of_the_step_passes_and_the_watch_ends() -> None:
    """The user's exception is the user's, and no mode stays behind."""
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        used([torch.rand(2, 3)], lambda batch: batch[0] @ batch[0])


class Other(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_it_steps_aside_for_a_mode_around_it() -> None:
    """A mode that leaves before the watch does would put out the watch instead of itself."""
    watch = UseWatch()
    with Other():
        watch.start([torch.rand(2)])
    assert _get_current_dispatch_mode_stack() == []
    assert watch.stop() is None


def test_it_leaves_from_beneath_a_mode_that_stays() -> None:
    """A mode entered in the step and left in a later one is kept."""
    watch, other, batch = UseWatch(), Other(), [torch.rand(2)]
    watch.start(batch)
    with other:
        batch[0].sum()
        assert watch.stop() == {"batch[0]"}
        assert _get_current_dispatch_mode_stack() == [other]
    assert _get_current_dispatch_mode_stack() == []


def test_a_default_device_does_not_hinder() -> None:
    """A step under `torch.device` is watched like any other, and the device stays what it was."""
    with torch.device("cpu"):
        watch, batch = UseWatch(), [torch.rand(2)]
        watch.start(batch)
        batch[0].sum()
        assert watch.stop() == {"batch[0]"}
        assert len(torch.overrides._get_current_function_mode_stack()) == 1
    assert torch.overrides._get_current_function_mode_stack() == []


def test_another_thread_learns_nothing() -> None:
    """Modes belong to a thread; ended from another, the watch says that it does not know."""
    watch, answers = UseWatch(), []
    batch = [torch.rand(2)]
    watch.start(batch)
    batch[0].sum()
    modes = watch._modes
    thread = threading.Thread(target=lambda: answers.append(watch.stop()))
    thread.start()
    thread.join()
    assert answers == [None]
    assert modes is not None
    payload._take_out(*modes)


def test_a_fault_of_the_watch_is_kept_from_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks inside, the step goes on and the use is unknown."""
    monkeypatch.setattr(UseWatch, "_paths_of", lambda self, given: 1 / 0)
    assert used([torch.rand(2)], lambda batch: batch[0].sum()) is None


def test_copies_are_freed_as_without_it() -> None:
    """The watch keeps no memory alive: a copy that the step drops is gone at once."""
    watch, batch = UseWatch(), [torch.rand(2)]
    watch.start(batch)
    batch[0].double().sum()
    assert [held.expired() for held in watch._held] == [False, True]
    assert watch.stop() == {"batch[0]"}


def test_compiled_code_is_watched_and_not_compiled_again() -> None:
    """A compiled step is seen, and the watch costs no compilation; it steps aside where it would, before torch 2.6."""
    graphs = []

    def backend(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    step = torch.compile(lambda batch: batch[0].sin().sum(), backend=backend)
    batch = [torch.rand(3), torch.rand(3)]
    step(batch)
    assert used(batch, step) == ({"batch[0]"} if hasattr(torch.compiler, "set_stance") else None)
    step(batch)
    assert len(graphs) == 1
