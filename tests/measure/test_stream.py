"""Generators of the user's are watched and served step by step, and give what they give without us."""

from __future__ import annotations

import linecache
import random
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unstarve.measure import split
from unstarve.measure.split import Unsplittable
from unstarve.measure.stream import Serving, Stream, StreamObserver

_count = iter(range(100_000))


def data_of(source: str, **names: Any) -> Any:
    """An object of the class `Data` that the source defines, and that can be read back."""
    filename = f"/stream/{next(_count)}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)
    return names["Data"]()


def streamed(data: Any) -> Stream:
    return Stream(data, iter(data), {})


def watched(stream: Stream, observer: StreamObserver, draws: int, *, record: bool = True) -> list[Any]:
    return [observer.watch(stream, stream.__next__, record=record) for _ in range(draws)]


def filled(stream: Stream, addresses: Any, draws: int = 24) -> StreamObserver:
    observer = StreamObserver(wanted=addresses, limit=6)
    watched(stream, observer, draws, record=False)
    return observer


def served(stream: Stream, observer: StreamObserver, address: Any, draws: int, *, resume: bool) -> list[Any]:
    stream.serve(Serving(address, observer.pools[address], resume))
    try:
        return [next(stream) for _ in range(draws)]
    finally:
        stream.serve(None)


def address_of(observer: StreamObserver, text: str) -> Any:
    return next(address for address, cost in sorted(observer.costs.items()) if text in cost.text)


# --- Everything as without us -----------------------------------------------------------------------------------------

STATEMENTS = st.sampled_from(
    [
        "x = x + 1",
        "x = self.twice(x)",
        "self.state += x",
        "count += 1",
        "kept.append(x)",
        "x = kept.pop() if len(kept) > 3 else x",
        "pair = {'x': x, 'count': count}\npair['x'] = self.twice(pair['x'])\nx = pair['x']",
        "if x % 3 == 0:\n    continue",
        "if x % 2:\n    x = self.twice(x) - 1\nelse:\n    yield -x",
        "try:\n    x = 12 // (x % 4)\nexcept ZeroDivisionError:\n    x = 5",
        "with self.block() as more:\n    x += more\n    yield x",
        "for part in range(x % 3):\n    yield part, x",
        "yield from self.parts(x)",
        "yield x, count",
        "yield self.twice(x), [self.twice(y) for y in range(2)]",
        "x = self.rng.randrange(100) + x",
    ]
)
SOURCES = st.sampled_from(
    ["range(5)", "self.numbers(7)", "enumerate(self.numbers(4))", "[3, 1, 2]", "self.filtered(self.numbers(9))"]
)

HEAD = '''
import contextlib, random
class Data:
    def __init__(self):
        self.state, self.rng = 0, random.Random(1)
    def twice(self, x):
        self.state += 1
        return 2 * x % 1001
    @contextlib.contextmanager
    def block(self):
        self.state += 3
        yield 2
    def parts(self, x):
        yield x
        yield x + 1
    def numbers(self, n):
        for i in range(n):
            self.state += i
            yield i
    def filtered(self, numbers):
        """Only some."""
        for number in numbers:
            if number % 2:
                continue
            yield number
    def __iter__(self):
        count, kept = 0, []
        while True:
            yield "turn"
'''


def _program(source: str, body: list[str]) -> str:
    target = "_, x" if source.startswith("enumerate") else "x"
    indented = "\n".join(" " * 16 + line for part in body for line in part.splitlines())
    return f"{HEAD}            for {target} in {source}:\n{indented}\n"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SOURCES, st.lists(STATEMENTS, min_size=1, max_size=5), st.lists(st.sampled_from("pwf"), min_size=8, max_size=40))
def test_a_watched_stream_gives_what_the_plain_one_gives(source: str, body: list[str], modes: list[str]) -> None:
    """Whatever the loop is made of, and however watching is switched on and off, items and state are the same."""
    text = _program(source, body)
    plain, ours = data_of(text), data_of(text)
    expected, stream = iter(plain), streamed(ours)
    watch, fill = StreamObserver(), StreamObserver(limit=4)
    for mode in modes:
        observer = {"p": None, "w": watch, "f": fill}[mode]
        got = next(stream) if observer is None else observer.watch(stream, stream.__next__, record=True)
        assert got == next(expected)
        assert ours.state == plain.state
    assert ours.rng.getstate() == plain.rng.getstate()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SOURCES, st.lists(STATEMENTS, min_size=1, max_size=5), st.booleans())
def test_a_stream_goes_on_after_each_cut(source: str, body: list[str], resume: bool) -> None:
    """Serving any step that agreed to be kept neither fails nor ends the stream, which then runs on by itself."""
    stream = streamed(data_of(_program(source, body)))
    first = StreamObserver()
    watched(stream, first, 30)
    fill = filled(stream, list(first.costs))
    for address in [a for a in fill.pools if len(fill.pools[a]) and a not in fill.refused]:
        assert len(served(stream, fill, address, 6, resume=resume)) == 6
        assert [next(stream) for _ in range(3)]


def test_ends_and_exceptions_come_through() -> None:
    """The end of the data ends the stream, and what the user's code raises is what the loop gets."""
    source = """
class Data:
    def __iter__(self):
        for x in range(3):
            yield 6 // (2 - x)
"""
    stream = streamed(data_of(source))
    assert [next(stream), next(stream)] == [3, 6]
    with pytest.raises(ZeroDivisionError):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


# --- What is found ----------------------------------------------------------------------------------------------------

CHAIN = """
import time
class Data:
    calls = {"read": 0, "decode": 0, "augment": 0}
    def read(self):
        for number in range(1000):
            raw = self.fetch(number)
            yield raw, number % 10
    def fetch(self, number):
        self.calls["read"] += 1
        return [number] * 4
    def decode(self, records):
        for raw, label in records:
            image = self.to_image(raw)
            yield {"image": image, "label": label}
    def to_image(self, raw):
        self.calls["decode"] += 1
        time.sleep(0.002)
        return [2 * value for value in raw]
    def __iter__(self):
        for sample in self.decode(self.read()):
            sample["image"] = self.augment(sample["image"])
            yield sample
    def augment(self, image):
        self.calls["augment"] += 1
        return [value + 1 for value in image]
"""


def test_steps_of_a_chain_are_timed_each() -> None:
    """Through two generators down to the statement that sleeps, each with the time it took; sources contain what
    they draw from."""
    stream, observer = streamed(data_of(CHAIN)), StreamObserver()
    watched(stream, observer, 10)
    spent = {cost.text: sum(cost.wall_ns) for cost in observer.costs.values()}
    slow = spent["image = self.to_image(raw)"]
    assert slow > 10 * 0.0019e9
    assert spent["for sample in self.decode(self.read()):"] >= slow > spent["for raw, label in records:"]
    assert observer.costs[address_of(observer, "to_image")].can_enter
    assert len(observer.costs[address_of(observer, "to_image")].wall_ns) == 10


def test_a_step_is_entered_where_the_watch_is_sent() -> None:
    """The call that a step makes is looked into, and the line that sleeps is found below it."""
    stream, first = streamed(data_of(CHAIN)), StreamObserver()
    watched(stream, first, 4)
    address = address_of(first, "to_image")
    second = StreamObserver(opened=[address])
    watched(stream, second, 4)
    inside = {cost.text: a for a, cost in second.costs.items() if a[: len(address)] == address and a != address}
    assert inside["time.sleep(0.002)"][: len(address) + 1] == (*address, split.ANY_ITERATION)


@pytest.mark.parametrize(
    ("text", "resume", "made"),
    [
        ("to_image", False, {"read": 5, "decode": 0, "augment": 5}),
        ("to_image", True, {"read": 0, "decode": 0, "augment": 5}),
        ("self.fetch", False, {"read": 0, "decode": 5, "augment": 5}),
        ("self.fetch", True, {"read": 0, "decode": 5, "augment": 5}),
        ("for raw, label", False, {"read": 0, "decode": 5, "augment": 5}),
        ("self.augment", False, {"read": 5, "decode": 5, "augment": 0}),
        ("self.augment", True, {"read": 0, "decode": 0, "augment": 0}),
    ],
)
def test_what_is_served_is_not_made(text: str, resume: bool, made: dict[str, int]) -> None:
    """A knock-out leaves out its step alone, a cut everything up to it; all other steps run, and samples stay whole."""
    data = data_of(CHAIN)
    stream, first = streamed(data), StreamObserver()
    watched(stream, first, 4)
    fill = filled(stream, list(first.costs))
    before = dict(data.calls)
    items = served(stream, fill, address_of(first, text), 5, resume=resume)
    assert {name: count - before[name] for name, count in data.calls.items()} == made
    assert all(set(item) == {"image", "label"} for item in items)
    assert all(value % 2 for item in items for value in item["image"])  # decoded once and augmented once
    number = next(stream)["image"][0]
    assert number % 2


def test_served_values_vary() -> None:
    """A cut serves several samples in turn, not the same one again."""
    stream, first = streamed(data_of(CHAIN)), StreamObserver()
    watched(stream, first, 4)
    fill = filled(stream, list(first.costs))
    items = served(stream, fill, address_of(first, "to_image"), 6, resume=True)
    assert len({item["image"][0] for item in items}) == 6


def test_a_shuffle_buffer_is_left_to_work() -> None:
    """Steps that put something into a buffer, or take it out, are never skipped; what comes before and after can be."""
    source = """
class Data:
    def __iter__(self):
        buffer = []
        for number in range(10000):
            x = number + 1
            buffer.append(x)
            if len(buffer) < 4:
                continue
            picked = buffer.pop(0)
            y = -picked
            yield y
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    watched(stream, first, 8)
    fill = filled(stream, list(first.costs))
    assert "buffer" in fill.refused[address_of(first, "buffer.append")]
    assert "buffer" in fill.refused[address_of(first, "buffer.pop")]
    assert len(fill.pools[address_of(first, "y = -picked")]) == 6
    assert all(y < 0 for y in served(stream, fill, address_of(first, "x = number"), 12, resume=True))


def test_a_file_is_not_read_out_of_step(tmp_path: Any) -> None:
    """A read that moves on a file of the whole loop is refused, since the next read would find other bytes."""
    (tmp_path / "records").write_bytes(bytes(range(250)) * 20)
    source = """
class Data:
    def __iter__(self):
        with open(PATH, "rb") as file:
            for number in range(1000):
                head = file.read(1)
                body = file.read(3)
                value = sum(body)
                yield value
"""
    stream, first = streamed(data_of(source, PATH=str(tmp_path / "records"))), StreamObserver()
    watched(stream, first, 4)
    fill = filled(stream, list(first.costs))
    assert "outlives a turn" in fill.refused[address_of(first, "file.read(3)")]
    assert len(fill.pools[address_of(first, "sum(body)")]) == 6


def test_a_stream_starts_anew_if_serving_it_fails() -> None:
    """An exception that only serving caused ends no epoch: the data set is iterated again."""
    stream, first = streamed(data_of(CHAIN)), StreamObserver()
    watched(stream, first, 4)
    fill = filled(stream, list(first.costs))
    pool = fill.pools[address_of(first, "to_image")]
    pool.serve = lambda *_: [{"image": None, "label": 0}]  # type: ignore[method-assign]
    stream.serve(Serving(address_of(first, "to_image"), pool, True))
    with pytest.raises(TypeError):
        next(stream)
    stream.serve(None)
    assert next(stream)["image"] == [1, 1, 1, 1]


def test_opaque_iterators_are_known_as_such() -> None:
    """Time that goes into an iterator which cannot be looked into is told from time in steps."""
    source = """
import time
class Data:
    def slow(self, x):
        time.sleep(0.001)
        return x
    def __iter__(self):
        for x in map(self.slow, range(1000)):
            yield x
"""
    stream, observer = streamed(data_of(source)), StreamObserver()
    watched(stream, observer, 5)
    assert observer.opaque_share > 0.9
    stream, observer = streamed(data_of(CHAIN)), StreamObserver()
    watched(stream, observer, 5)
    assert observer.opaque_share < 0.1


# --- What is left alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return iter([1, 2])", "no generator of Python's"),
        ("got = yield 1", "only yields"),
        ("yield 1\n        return 2", "returns a value"),
        ("yield locals()", "locals"),
        ("yield (lambda: (yield 3))()", ""),
    ],
)
def test_other_iterators_are_refused_with_a_reason(body: str, reason: str) -> None:
    """What is no plain generator is left as it is, and the reason is told."""
    data = data_of(f"class Data:\n    def __iter__(self):\n        {body}\n")
    if not reason:
        assert streamed(data) is not None
        return
    with pytest.raises(Unsplittable, match=reason):
        streamed(data)


def test_a_generator_that_has_begun_is_refused() -> None:
    """Only from its start on can a generator be exchanged."""
    data = data_of(CHAIN)
    iterator = iter(data)
    next(iterator)
    with pytest.raises(Unsplittable, match="not begun"):
        Stream(data, iterator, {})


def test_a_stream_that_is_off_costs_little() -> None:
    """While nothing is watched, no step is told of: the variant takes the loop's own statements."""
    data = data_of(CHAIN)
    stream = streamed(data)
    seen: list[Any] = []
    stream.observe = seen.append  # type: ignore[method-assign]
    assert [next(stream)["label"] for _ in range(4)] == [0, 1, 2, 3]
    assert not seen
    assert not stream.effects


def test_random_state_is_left_alone() -> None:
    """Watching and filling draw nothing from the program's random generators."""
    stream = streamed(data_of(CHAIN))
    random.seed(5)
    before = random.getstate()
    observer = StreamObserver()
    watched(stream, observer, 4)
    filled(stream, list(observer.costs), 10)
    assert random.getstate() == before
    assert time.get_clock_info("perf_counter").monotonic
