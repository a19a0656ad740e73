"""Counting waits for the device, without one: torch's functions are stand-ins, its warning is emitted by hand."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unstarve.measure import cuda

SYNC = "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:157.)"
BODY = """
import warnings, torch
def item():
    warnings.warn({sync!r}, UserWarning)  # line 4
def wait():
    torch.cuda.synchronize()  # line 6
def other():
    warnings.warn("something else", RuntimeWarning)
"""


class Mode:
    """Torch's synchronisation debug mode, as a variable."""

    def __init__(self) -> None:
        self.value: int | str = 0
        self.synchronized = 0

    def get(self) -> int | str:
        return self.value

    def set(self, value: int | str) -> None:
        self.value = value

    def synchronize(self, device: object = None) -> None:
        self.synchronized += 1


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Mode:
    found = Mode()
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", found.get)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", found.set)
    monkeypatch.setattr(torch.cuda, "synchronize", found.synchronize)
    return found


@pytest.fixture
def body(tmp_path: Path) -> dict:
    """Functions of a user's script that wait for the device."""
    path = tmp_path / "loop.py"
    path.write_text(BODY.format(sync=SYNC))
    names: dict = {"path": str(path), "__name__": "__main__"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def test_waits_are_counted_by_the_users_line(mode: Mode, body: dict) -> None:
    """Every warning of torch's counts, though Python shows a warning once by default, and explicit waits count too."""
    watch = cuda.SyncWatch()
    watch.start()
    for _ in range(3):
        body["item"]()
    body["wait"]()
    watch.stop()
    assert watch.places == {(body["path"], 4): 3, (body["path"], 6): 1}
    assert mode.synchronized == 1


def test_nothing_counts_before_the_start_and_after_the_end(mode: Mode, body: dict) -> None:
    """The counts are those of the time between."""
    watch = cuda.SyncWatch()
    body["wait"]()
    watch.start()
    watch.stop()
    body["wait"]()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        body["item"]()
    assert not watch.places
    assert [str(item.message) for item in seen] == [SYNC]


def test_other_warnings_go_where_they_would_have_gone(mode: Mode, body: dict) -> None:
    """The user's own handler of warnings sees all that is not ours, with category, file and line, and none that is."""
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *arguments: seen.append(arguments)
        watch = cuda.SyncWatch()
        watch.start()
        body["other"]()
        body["item"]()
        watch.stop()
    assert [(str(item[0]), item[1], item[2], item[3]) for item in seen] == [
        ("something else", RuntimeWarning, body["path"], 8)
    ]


def test_warnings_that_the_user_silenced_stay_silent(mode: Mode, body: dict) -> None:
    """Filters of the script hold for everything but the warning that is counted."""
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.showwarning = lambda *arguments: seen.append(arguments)
        watch = cuda.SyncWatch()
        watch.start()
        body["other"]()
        body["item"]()
        watch.stop()
    assert not seen
    assert watch.places == {(body["path"], 4): 1}


def state() -> tuple:
    return warnings.showwarning, list(warnings.filters), torch.cuda.synchronize, torch.cuda.get_sync_debug_mode()


def test_everything_is_put_back(mode: Mode, body: dict) -> None:
    """Debug mode, filters, the handler of warnings and `synchronize` are afterwards what they were before."""
    mode.value = 2
    before = state()
    watch = cuda.SyncWatch()
    watch.start()
    assert mode.value == "warn"
    watch.stop()
    assert state() == before


def test_everything_is_put_back_after_an_exception_of_the_loop(mode: Mode, body: dict) -> None:
    """The loop may fail between start and stop; `stop` is called all the same and restores."""
    before = state()
    watch = cuda.SyncWatch()
    with pytest.raises(ZeroDivisionError):
        try:
            watch.start()
            1 / 0  # noqa: B018
        finally:
            watch.stop()
    assert state() == before


def test_a_start_that_fails_changes_nothing(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch refuses its debug mode, nothing is left patched."""

    def refuse(value: object) -> None:
        raise RuntimeError("no debug mode here")

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", refuse)
    before = state()
    with pytest.raises(RuntimeError, match="no debug mode"):
        cuda.SyncWatch().start()
    assert state() == before


def test_a_synchronize_that_the_script_replaced_meanwhile_is_called(
    mode: Mode, body: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stood there when counting began is called, not what stood there when the watch was made."""
    watch = cuda.SyncWatch()
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: calls.append(1))
    watch.start()
    body["wait"]()
    watch.stop()
    assert calls == [1]
    body["wait"]()
    assert calls == [1, 1]


def test_waits_of_our_own_are_not_the_users(mode: Mode) -> None:
    """A wait that comes from inside the package, as at the borders of blocks, is not the loop's."""
    from unstarve.measure.device import Device

    names: dict = {"torch": torch}
    filename = sys.modules[Device.__module__].__file__
    assert filename is not None
    exec(compile("def ours():\n    torch.cuda.synchronize()", filename, "exec"), names)
    watch = cuda.SyncWatch()
    watch.start()
    names["ours"]()
    watch.stop()
    assert not watch.places


@pytest.mark.parametrize(
    ("spans", "length"),
    [
        ([], 0),
        ([(0, 2), (3, 4)], 3),
        ([(0, 4), (1, 2)], 4),
        ([(3, 5), (0, 4)], 5),
        ([(0, 1), (1, 2)], 2),
        ([(2, 2)], 0),
        ([(0, 10), (1, 2), (3, 12), (11, 12)], 12),
    ],
)
def test_covered_is_the_length_of_the_union(spans: list, length: float) -> None:
    """Overlaps count once, gaps not at all, whatever the order."""
    assert cuda.covered(spans) == length


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12))
def test_covered_counts_each_moment_once(spans: list[tuple[int, int]]) -> None:
    """It equals the number of unit intervals that lie in any of the spans."""
    moments = {moment for begin, length in spans for moment in range(begin, begin + length)}
    assert cuda.covered([(begin, begin + length) for begin, length in spans]) == len(moments)


def event(begin_us: float, end_us: float, device: str = "CUDA", *, is_user_annotation: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        time_range=SimpleNamespace(start=begin_us, end=end_us),
        device_type=getattr(torch.autograd.DeviceType, device),
        is_user_annotation=is_user_annotation,
    )


@pytest.mark.parametrize(
    ("events", "busy_s"),
    [
        ([event(0, 500_000), event(400_000, 600_000), event(900_000, 1_000_000)], 0.7),
        ([event(0, 500_000, "CPU"), event(0, 900_000, is_user_annotation=True), event(0, 100_000)], 0.1),
        ([], 0.0),
        (None, 0.0),
    ],
    ids=["overlap", "others", "nothing", "no events"],
)
def test_a_device_is_busy_while_a_kernel_or_copy_runs(
    monkeypatch: pytest.MonkeyPatch, events: list | None, busy_s: float
) -> None:
    """What runs at the same time counts once; the host's events and the user's own labels do not count."""
    profile = SimpleNamespace(__enter__=lambda: None, __exit__=lambda *_: None, events=lambda: events)
    monkeypatch.setattr(torch.profiler, "profile", lambda **_: profile)
    clock = iter((0, 10**9))
    found = cuda.DeviceProfile(lambda: None, lambda: next(clock))
    found.start()
    assert found.stop() == pytest.approx(busy_s)


def test_what_runs_while_a_profile_is_paused_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that works half of two spans is half busy, however long the pause between them takes."""
    profile = SimpleNamespace(__enter__=lambda: None, __exit__=lambda *_: None, events=lambda: [event(0, 500_000)])
    monkeypatch.setattr(torch.profiler, "profile", lambda **_: profile)
    clock = iter((0, 10**9, 10**11, 10**11 + 10**9))
    found = cuda.DeviceProfile(lambda: None, lambda: next(clock))
    for _span in range(2):
        found.start()
        found.pause()
    assert found.stop() == pytest.approx(0.5)


def test_a_profiler_of_the_scripts_own_is_seen() -> None:
    """Torch allows one profiler at a time, and the script's goes first."""
    assert not cuda.is_profiled()
    with torch.autograd.profiler.profile():
        assert cuda.is_profiled()


def test_without_cuda_there_is_nothing_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not touched the device is not asked what it does there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not cuda.is_in_use()
