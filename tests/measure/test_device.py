"""Which device the loop feeds, without one: torch's functions are stand-ins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

from unstarve.measure import cuda, device


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Lets the script hold so many bytes on each device; what is returned lists the devices that are waited for."""

    def hold(*held: int) -> list[int]:
        waited: list[int] = []
        stand_ins = {
            "is_available": lambda: True, "is_initialized": lambda: True, "device_count": lambda: len(held),
            "current_device": lambda: 0, "memory_allocated": lambda number=0: held[number],
            "synchronize": waited.append, "Stream": lambda name: name,
            "mem_get_info": lambda name=None: (1000 if name == "cuda:1" else 10, 1000),
        }  # fmt: skip
        for name, function in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, function)
        return waited

    return hold


@pytest.mark.parametrize(
    ("held", "name"),
    [((0, 500, 0), "cuda:1"), ((8, 500, 0), "cuda:1"), ((200, 500, 0), "cuda:0"), ((500, 200, 0), "cuda:0")],
    ids=["another", "another, something astray", "first layers here", "current"],
)
def test_the_device_is_the_one_that_the_script_computes_on(
    holding: Callable[..., list[int]], held: tuple[int, ...], name: str
) -> None:
    """A script may name a device without making it the current one, and spread a model over several."""
    holding(*held)
    found = device.current()
    assert found is not None
    assert found.name == name
    assert cuda.is_in_use()


def test_all_devices_that_compute_are_waited_for(holding: Callable[..., list[int]]) -> None:
    """At the border of a block none may be left at work; devices that the script does not touch stay untouched."""
    waited = holding(0, 500, 200)
    found = device.current()
    assert found is not None
    found.synchronize()
    assert waited == [1, 2]


def test_room_is_that_of_the_device_in_use(holding: Callable[..., list[int]]) -> None:
    """Here device 1 has 1000 bytes free, and the current one 10."""
    holding(0, 500, 0)
    found = device.current()
    assert found is not None
    assert found.has_room(400)
    assert not found.has_room(600)


def test_an_idle_device_is_no_device(holding: Callable[..., list[int]]) -> None:
    holding(0, 0, 0)
    assert device.current() is None
    assert not cuda.is_in_use()


def test_what_is_copied_ahead_is_only_what_the_loop_moves(
    holding: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two tensors the one with a wanted path is copied, on the side stream and without waiting, and handed over when the
    loop's stream waits for it; `meta` stands for the device."""
    holding(0, 500, 0)
    told: list[object] = []

    class Stream:
        wait_event = record_event = lambda self, *event: told.append(event or "event")

    def to(tensor: torch.Tensor, name: str, *, non_blocking: bool) -> torch.Tensor:
        told.append((name, non_blocking))
        return torch.empty_like(tensor, device="meta")

    monkeypatch.setattr(torch.cuda, "Stream", lambda name: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda name: Stream())
    monkeypatch.setattr(torch.Tensor, "to", to)
    found = device.current()
    assert found is not None
    assert found.copy_ahead is not None
    batch = {"x": torch.zeros(2), "lengths": torch.ones(2)}
    taken = found.copy_ahead(batch, frozenset({"batch['x']"}))()
    assert told == [("cuda:1", True), "event", (None,)]
    assert taken["x"].is_meta
    assert taken["lengths"] is batch["lengths"]
    assert all(leaf.is_meta for leaf in found.copy_ahead(batch, None)().values())
