"""Generators of the user's are watched and served step by step, and give what they give without us."""

from __future__ import annotations

import contextlib
import linecache
import random
import textwrap
import time
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unstarve.measure.cuts import split
from unstarve.measure.cuts.split import Unsplittable
from unstarve.measure.cuts.stream import Serving, Stream, StreamObserver, is_sole

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
        "try:\n    x = self.twice(6 // (x % 3))\nexcept ZeroDivisionError:\n    x = self.twice(self.twice(5))\n"
        "else:\n    self.state += self.twice(1)\nfinally:\n    count = self.twice(count) - 1",
        "try:\n    x = 12 // (x % 3)\nexcept ZeroDivisionError:\n    yield from self.parts(x)\n    continue",
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
        with contextlib.suppress(Unsplittable):  # where none of the six that were kept comes through a filter
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


def test_what_follows_an_inner_loop_is_timed_once_watching_began_within_it() -> None:
    """A turn of the outer loop that had begun before the watch is seen from the end of the inner loop on, blocks included."""
    source = """
import time
class Data:
    def __iter__(self):
        for number in range(1000):
            if number >= 0:
                for part in range(10):
                    yield number, part
                time.sleep(0.002)
            self.last = tuple([number])
"""
    stream, observer = streamed(data_of(source)), StreamObserver()
    assert [next(stream) for _ in range(6)][-1] == (0, 5)
    assert watched(stream, observer, 6)[-1] == (1, 1)
    assert sum(observer.costs[address_of(observer, "time.sleep")].wall_ns) >= 2e6
    assert address_of(observer, "self.last") in observer.costs


def test_what_a_step_reads_is_told_from_what_storage_gave() -> None:
    """Bytes, calls and bytes from storage of every sample end up in the fields of their names."""

    class Scripted:
        looks = 0

        def read(self) -> tuple[int, int, int]:
            self.looks += 1
            return 100 * self.looks, 3 * self.looks, 70 * self.looks

    stream, observer = streamed(data_of(CHAIN)), StreamObserver()
    observer._reads.close()
    observer._reads = Scripted()  # type: ignore[assignment]
    watched(stream, observer, 2)
    step = observer.costs[address_of(observer, "to_image")]
    assert (step.read_bytes, step.read_calls, step.storage_bytes) == (200, 6, 140)


def test_what_handles_exceptions_is_timed_and_never_skipped() -> None:
    """A record that is made where another way failed has its time; whether it is needed shows each time anew."""
    source = """
class Data:
    cache = {}
    def __iter__(self):
        for number in range(1000):
            try:
                record = self.cache[number]
            except KeyError:
                record = self.read(number)
            value = sum(record)
            yield value
    def read(self, number):
        return [number] * 3
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    watched(stream, first, 4)
    address = address_of(first, "self.read")
    assert len(first.costs[address].wall_ns) == 4
    fill = filled(stream, list(first.costs))
    assert not fill.pools[address]
    assert len(fill.pools[address_of(first, "sum(record)")]) == 6


def test_what_looks_at_its_caller_finds_the_generator() -> None:
    """A query in a loop that yields sees its locals, watched or not."""
    source = """
import sys
class Data:
    def query(self, name):
        return sys._getframe(1).f_locals[name]
    def __iter__(self):
        for number in range(1000):
            row = self.query("number")
            yield row, globals()["Data"] is type(self)
"""
    stream = streamed(data_of(source))
    assert watched(stream, StreamObserver(), 3) == [(0, True), (1, True), (2, True)]


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


def test_objects_that_iterate_by_a_generator_are_looked_into() -> None:
    """A reader class with a generator for `__iter__`, and data sets chained by torch, are taken apart like functions."""
    source = """
from torch.utils.data import ChainDataset, IterableDataset
class Reader:
    def __iter__(self):
        for number in range(50):
            record = [number] * 2
            yield record
class Part(IterableDataset):
    def __iter__(self):
        for record in Reader():
            total = sum(record)
            yield total
def Data():
    return ChainDataset([Part(), Part()])
"""
    data = data_of(source)
    stream, observer = streamed(data), StreamObserver()
    assert watched(stream, observer, 60) == list(data)[:60]
    assert {"record = [number] * 2", "total = sum(record)"} <= {cost.text for cost in observer.costs.values()}
    fill = filled(streamed(data), list(observer.costs))
    assert len(fill.pools[address_of(observer, "sum(record)")]) == 6


def test_an_iterator_that_is_no_iterable_is_drawn_from() -> None:
    """What `__iter__` gives need only have `__next__`: a `for` does not ask it again."""
    source = """
from torch.utils.data import IterableDataset
class Draws:
    def __init__(self):
        self.number = 0
    def __next__(self):
        self.number += 1
        if self.number > 5:
            raise StopIteration
        return self.number
class Reader:
    def __iter__(self):
        return Draws()
class Data(IterableDataset):
    def __iter__(self):
        for number in Reader():
            double = 2 * number
            yield double
"""
    data = data_of(source)
    assert list(streamed(data)) == [2, 4, 6, 8, 10]
    stream, observer = streamed(data), StreamObserver()
    assert watched(stream, observer, 5) == [2, 4, 6, 8, 10]


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


def test_a_shuffle_buffer_of_the_object_is_left_to_work() -> None:
    """One that hangs on the data set is neither drained nor fed alone, whether its methods or the loop itself work on it; a
    memory of what was made hinders nothing."""
    source = """
class Data:
    def __init__(self):
        self.buffer, self.made = [], {}
    def take(self):
        return self.buffer.pop(0)
    def decode(self, x):
        self.made[x] = -x
        return -x
    def __iter__(self):
        for number in range(10000):
            x = number + 1
            self.buffer.append(x)
            if len(self.buffer) < 4:
                continue
            picked = self.take()
            y = self.decode(picked)
            yield y
"""
    data = data_of(source)
    stream, first = streamed(data), StreamObserver()
    watched(stream, first, 8)
    fill = filled(stream, list(first.costs))
    assert "buffer" in fill.refused[address_of(first, "self.take")]
    length = len(data.buffer)
    served(stream, fill, address_of(first, "y = self.decode"), 12, resume=True)
    assert len(data.buffer) == length


@pytest.mark.parametrize(
    ("noted", "taken", "is_kept"),
    [
        ("0.5", "", False),
        ("(x, 'name')", "", False),
        ("{'key': x, 'took': 0.5}", "", False),
        ("bytes(x)", "", True),
        ("[x] * 100", "", True),
        ("'long ' * 100", "", True),
        ("(x, bytes(x))", "", True),
        ("x", "x -= self.log.pop(0) if len(self.log) > 3 else 0", True),
    ],
)
def test_a_log_is_no_buffer(noted: str, taken: str, is_kept: bool) -> None:
    """Figures and names that a step adds to a list of the object's, and that nothing takes out, leave it free to be
    skipped; data do not, nor what another step takes out again."""
    source = f"""
class Data:
    def __init__(self):
        self.log = []
    def decode(self, x):
        self.log.append({noted})
        return -x
    def __iter__(self):
        for number in range(1, 10000):
            y = self.decode(number)
            x = number
            {taken or "pass"}
            yield y
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    watched(stream, first, 2)
    fill = filled(stream, list(first.costs))
    address = address_of(first, "self.decode")
    assert (address in fill.refused) == is_kept
    if not is_kept:
        assert all(y < 0 for y in served(stream, fill, address, 12, resume=False))


MEMORIES = """
import pathlib
import numpy as np
SEEN = {}
class Data:
    def __init__(self):
        self.root, self.memo, self.buffer, self.lengths = pathlib.Path(ROOT), {}, [None] * 3, []
    def decode(self, key):
        return np.full(2000, key)
    def __iter__(self):
        known, waiting = {}, []
        for key in range(1000):
            {body}
            yield x
"""


@pytest.mark.parametrize(
    ("lines", "kept_in"),
    [
        (("x = self.decode(key)", "self.memo[key] = x"), "self.memo"),
        (("x = self.decode(key)", "memo = {'x': x + 1}", "self.memo.update({key: memo})"), "self.memo"),
        (("x = self.decode(key)", "SEEN[key] = x"), "SEEN"),
        (("x = self.decode(key)", "known[key] = x"), "known"),
        (("x = self.decode(key)", "np.save(self.root / f'{key}.npy', x)"), "a file"),
        (("x = self.decode(key)", "waiting.append(x)", "x = waiting.pop()"), None),
        (("x = self.decode(key)", "self.buffer[key % 3], x = x, x"), None),
        (("x = self.decode(key)", "parts = {}", "parts[key] = x", "x = parts[key]"), None),
        (("known[key] = 1", "x = self.decode(key)", "self.lengths.append(len(x))", "self.last = len(x)"), None),
        (("x = self.decode(key)", "for part in x[:2]:", "    self.memo[key] = part"), "self.memo"),
        (("x = self.decode(key)", "print('line ' * 99, file=open('/dev/null', 'w'))"), None),
    ],
)
def test_a_statement_is_not_served_alone_where_its_results_are_kept(
    lines: tuple[str, ...], kept_in: str | None, tmp_path: Any
) -> None:
    """A cache under keys never gets the values of another sample, nor do files; where samples wait for later turns, it does
    not matter."""
    source = MEMORIES.replace("{body}", ("\n" + " " * 12).join(lines))
    stream, first = streamed(data_of(source, ROOT=str(tmp_path))), StreamObserver()
    watched(stream, first, 3)
    fill = filled(stream, list(first.costs), 8)
    address = address_of(first, "x = self.decode")
    assert not any("looked at" in reason for reason in fill.refused.values())
    assert len(fill.pools[address])
    reason = fill.why_not_alone.get(address)
    assert reason is None if kept_in is None else f"kept in {kept_in}," in str(reason)
    for observer in (first, fill):
        observer.close()


def test_what_a_generator_around_keeps_is_not_served_alone() -> None:
    """What the outer of two generators puts into a cache hinders what the inner one makes for it, but not what loops draw,
    which has its key with it."""
    source = """
class Data:
    def __init__(self):
        self.memo = {}
    def numbers(self):
        for key in range(1000):
            x = abs(-key)
            yield x, key
    def __iter__(self):
        for x, key in self.numbers():
            self.memo[key] = x
            yield x
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    watched(stream, first, 3)
    fill = filled(stream, list(first.costs), 8)
    assert set(fill.why_not_alone) == {address_of(first, "x = abs")}


PACKING = """
class Data:
    def __init__(self): self.made = self.counted = 0
    def make(self, i): self.made += 1; return [i]
    def count(self, x): self.counted += 1; return len(x)
    def __iter__(self):
        total = 0
        for i in range(1000):
            x = self.make(i)
            total += self.count(x)
            y = x + [1]
            yield y[1], total
"""

CHUNKS = """
class Data:
    made = 0
    def make(self, chunk): self.made += 1; return sum(chunk) > 0
    def __iter__(self):
        rest = []
        for i in range(1000):
            rest.extend([i + 1, i + 2])
            while len(rest) > 3:
                chunk, rest = rest[:2], rest[2:]
                x = self.make(chunk)
                yield x
"""

LOGGED = """
class Data:
    made = 0
    seen = []
    def make(self, i): self.made += 1; return [i]
    def log(self, x): self.seen.append(x[0])
    def __iter__(self):
        for i in range(1000):
            x = self.make(i)
            self.log(x)
            y = self.make(i)
            yield y[0]
"""


def test_a_total_is_kept_behind_a_cut() -> None:
    """A statement that runs since its effect outlives the turn gets what its own calls give, of what was served."""
    data = data_of(PACKING)
    stream = streamed(data)
    observer = filled(stream, [(5,)])
    assert observer.refused == {}
    made, counted = data.made, data.counted
    assert served(stream, observer, (5,), 5, resume=True) == [(1, 25 + n) for n in range(5)]
    assert (data.made, data.counted) == (made, counted + 5)
    assert next(stream)[1] == 30


def test_a_buffer_that_is_cut_into_chunks_goes_on_behind_a_cut() -> None:
    """What is taken out of a buffer is taken out under a cut, too."""
    data = data_of(CHUNKS)
    stream = streamed(data)
    found = StreamObserver()
    watched(stream, found, 3)
    address = address_of(found, "x = self.make(chunk)")
    observer = filled(stream, [address])
    made = data.made
    assert served(stream, observer, address, 5, resume=True) == [True] * 5
    assert data.made == made


def test_what_runs_behind_a_cut_gets_values_of_the_turn() -> None:
    """A call whose effect is unknown runs, with the value that was kept with the one that is served."""
    data = data_of(LOGGED)
    stream = streamed(data)
    found = StreamObserver()
    watched(stream, found, 3)
    address = address_of(found, "y = self.make(i)")
    observer = filled(stream, [address])
    made = data.made
    assert served(stream, observer, address, 5, resume=True) == data.seen[-5:]
    assert data.made == made


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


def test_a_cut_whose_samples_are_all_dropped_ends() -> None:
    """Where a filter behind the cut drops every sample that was kept, serving gives up instead of turning for ever."""
    source = """
class Data:
    def __iter__(self):
        for number in range(100000):
            x = number
            if x % 50 != 49:
                continue
            yield x
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    watched(stream, first, 2)
    fill = filled(stream, list(first.costs), 2)
    with pytest.raises(Unsplittable, match="none comes through"):
        served(stream, fill, address_of(first, "x = number"), 1, resume=True)
    assert next(stream) == 49


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


# --- What was once different from the plain loop ----------------------------------------------------------------------

DIFFERENCES = {
    "methods named like iter": """
        class Tree:
            def iter(self, tag): return [tag, tag]
            def islice(self, a, b): return range(a, b)
            def enumerate(self, x): return [x]
        class Data:
            def __iter__(self):
                for e in Tree().iter("object"): yield e
                for e in Tree().islice(0, 3): yield e
                for e in Tree().enumerate("x"): yield e
        """,
    "a generator that the loop's body draws from too": """
        class Data:
            def numbers(self):
                yield from range(20)
            def __iter__(self):
                it = self.numbers()
                for a in it:
                    b = next(it)
                    yield a, b
        """,
    "a generator that goes on after a break": """
        class Data:
            def numbers(self):
                yield from range(9)
            def __iter__(self):
                it = self.numbers()
                for head in it:
                    yield "head", head
                    break
                for rest in it:
                    yield "rest", rest
        """,
    "a generator that is kept for the next epoch": """
        import itertools
        class Data:
            it = None
            def numbers(self):
                yield from range(100)
            def __iter__(self):
                self.it = self.it or self.numbers()
                for _ in range(3):
                    for x in itertools.islice(self.it, 4): yield x
        """,
    "a parameter that several loops run over": """
        class Data:
            def numbers(self):
                yield from range(6)
            def thrice(self, it):
                for _ in range(3):
                    for x in it: yield x
            def __iter__(self):
                yield from self.thrice(self.numbers())
        """,
    "functions of one factory": """
        def make(name):
            def records():
                for number in range(3): yield name, number
            return records
        records = make("a")
        class Data:
            def __init__(self): self.more = make("b")
            def __iter__(self):
                yield from records()
                yield from self.more()
        """,
    "a picture that is verified before it is loaded": """
        import io
        from PIL import Image
        def png():
            file = io.BytesIO(); Image.new("RGB", (8, 8), (9, 8, 7)).save(file, "PNG"); file.seek(0); return file
        class Data:
            def __iter__(self):
                for number in range(40):
                    picture = Image.open(png())
                    picture.verify()
                    again = Image.open(png())
                    again = again.convert("L")
                    yield number, again.tobytes()
        """,
    "objects that cannot be looked at": """
        class Touchy:
            def __getattr__(self, name): raise RuntimeError(name)
            @property
            def __dict__(self): raise RuntimeError("no")
        class Data:
            def __iter__(self):
                for number in range(40):
                    thing = Touchy()
                    pair = [thing, number]
                    yield pair[1]
        """,
    "what dies at a break": """
        log = []
        class Data:
            def numbers(self, *most):
                try:
                    for number in range(*most): yield number
                finally:
                    log.append("closed")
            def __iter__(self):
                for x in self.numbers(5):
                    yield x
                    if x == 2: break
                yield tuple(log)
                for x in self.numbers(3): yield x
                else: log.append("else")
                yield tuple(log)
        """,
    "a reader that connects anew": """
        class Data:
            def read(self):
                for number in range(4): yield number
                raise OSError("gone")
            def __iter__(self):
                for attempt in range(3):
                    try:
                        for x in self.read(): yield attempt, x
                    except OSError:
                        continue
        """,
}


@pytest.mark.parametrize("mode", ["plain", "watched", "filled"])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_streams_are_what_they_were(name: str, mode: str) -> None:
    """Whatever a generator does with other generators, names and pictures, all its items are those of the plain loop."""
    source = textwrap.dedent(DIFFERENCES[name])
    expected = list(data_of(source))
    assert len(expected) > 3
    stream = streamed(data_of(source))
    observer = {"plain": None, "watched": StreamObserver(), "filled": StreamObserver(limit=4)}[mode]
    if observer is None:
        assert list(stream) == expected
        return
    assert watched(stream, observer, len(expected)) == expected
    with pytest.raises(StopIteration):
        observer.watch(stream, stream.__next__, record=True)


def test_an_iterator_that_is_kept_elsewhere_is_left_alone() -> None:
    """What a data set returns and keeps may be used by its other methods; only a fresh one is exchanged."""

    class Holder:
        pass

    data = data_of(CHAIN)
    holder = Holder()
    holder.dataset_iter = iter(data)  # type: ignore[attr-defined]
    assert is_sole(holder)
    kept = holder.dataset_iter  # type: ignore[attr-defined]
    assert not is_sole(holder)
    assert next(kept)["label"] == 0


def test_turns_that_are_served_are_not_counted() -> None:
    """`enumerate` and `islice` in the user's loop count what is drawn, so that sharding by number stays right."""
    source = """
import itertools
class Data:
    def __iter__(self):
        for number, x in enumerate(itertools.islice(self.numbers(), 400)):
            y = x * 1
            yield number, y
    def numbers(self):
        for x in range(1000):
            yield x
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    assert watched(stream, first, 4) == [(n, n) for n in range(4)]
    fill = filled(stream, list(first.costs), 10)
    served(stream, fill, address_of(first, "y = x * 1"), 7, resume=True)
    assert next(stream) == (14, 14)


def test_a_call_inside_a_call_is_knocked_out() -> None:
    """What the outer call needs beside the served value is there."""
    source = """
class Data:
    def __iter__(self):
        for number in range(1000):
            yield self.outer(self.inner(number))
    def inner(self, x): return x + 1
    def outer(self, x): return -x
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    watched(stream, first, 3)
    fill = filled(stream, list(first.costs))
    address = next(a for a, cost in first.costs.items() if cost.callee == "self.inner")
    assert all(item < 0 for item in served(stream, fill, address, 8, resume=False))


def test_giving_up_is_not_swallowed_for_ever() -> None:
    """Where the user's code catches every exception and begins again, serving ends all the same, and so does the call."""
    source = """
class Data:
    def __init__(self): self.seen = set()
    def read(self):
        for number in range(10**6):
            x = number
            if x in self.seen:
                continue
            self.seen.add(x)
            yield x
    def __iter__(self):
        while True:
            try:
                for x in self.read():
                    yield x
            except Exception:
                continue
"""
    stream, first = streamed(data_of(source)), StreamObserver()
    watched(stream, first, 3)
    fill = filled(stream, list(first.costs), 8)
    with pytest.raises(Unsplittable, match="none comes through"):
        served(stream, fill, address_of(first, "x = number"), 3, resume=True)
    assert isinstance(next(stream), int)


def test_a_shard_dies_when_the_next_is_loaded() -> None:
    """The variant keeps no item and no iterable alive that the plain loop has let go."""
    source = """
import weakref
class Shard(list): pass
class Data:
    def __init__(self): self.alive = weakref.WeakSet()
    def load(self, number):
        shard = Shard([number])
        self.alive.add(shard)
        return shard
    def __iter__(self):
        for number in range(10):
            for row in self.load(number):
                yield number, len(self.alive)
"""
    source = source.replace("class Shard(list): pass", "class Shard(list):\n    __hash__ = object.__hash__")
    expected = list(data_of(source))
    assert list(streamed(data_of(source))) == expected
    assert max(count for _, count in expected) == 2 or max(count for _, count in expected) == 1


def test_what_watching_reads_inside_a_statement_is_not_what_the_statement_reads() -> None:
    """The kernel's counters are read for each statement of a function that is looked into, and the stream reads no file."""
    data = data_of(
        """
class Data:
    def twice(self, x):
        y = abs(x)
        return y + x

    def __iter__(self):
        for x in range(100):
            y = self.twice(x)
            yield y
"""
    )
    first = StreamObserver()
    watched(streamed(data), first, 2)
    observer = StreamObserver([address_of(first, "self.twice")])
    watched(streamed(data), observer, 8)
    assert len(observer.costs) > len(first.costs)
    assert [cost.read_bytes for cost in observer.costs.values()] == [0] * len(observer.costs)


def test_warnings_of_a_stream_point_at_its_lines() -> None:
    """What a statement calls finds the user's frame above it, and the line there."""
    source = """
import warnings

def deprecated():
    warnings.warn("here", stacklevel=2)

class Data:
    def __iter__(self):
        for x in range(3):
            deprecated()
            y = abs(x)
            yield y
"""
    places = []
    for is_watched in (False, True):
        stream, observer = streamed(data_of(source)), StreamObserver()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            _ = watched(stream, observer, 3) if is_watched else list(stream)
        places.append([(warning.filename.startswith("/stream/"), warning.lineno) for warning in found])
        observer.close()
    assert places[0] == places[1] == [(True, 10)] * 3
