"""Units are timed as they run, whatever way they end, and what is watched gives what it gave."""

from __future__ import annotations

import logging
import random
import sys
import warnings
from typing import Any

import pytest
import torch
from generated import PRELUDE, Outcome, module_of
from PIL import Image

from unstarve.measure.cuts import split, variants
from unstarve.measure.cuts.observer import Observer
from unstarve.measure.cuts.server import Server


def test_no_more_bytes_are_kept_than_allowed() -> None:
    """A cut point whose values are large stops filling soon, though others go on."""
    module = module_of(PRELUDE + "        n = h(2)\n        t = halve(t)\n        return n, t\n")
    observer, data = Observer(), module.Data()
    observer.run(module.Data.__getitem__, (data, 2))
    filler = Observer((), tuple(observer.costs), 16, limit_bytes=60)
    for _ in range(16):
        filler.run(module.Data.__getitem__, (data, 2))
    kept = {len(pool) for pool in filler.pools.values() if len(pool)}
    assert min(kept) < 4
    assert all(pool.bytes <= 60 + 100 for pool in filler.pools.values())


def test_exceptions_pass_with_the_users_lines() -> None:
    """An exception's traceback has the user's file and lines, whether watched or not, and the observer goes on."""
    module = module_of(PRELUDE + "        n = h(1) + self.fails(\n            index)\n        return n\n")
    observer, data = Observer(), module.Data()
    for index in (0, 1, 3):
        plain = Outcome(module, lambda: module.Data.__getitem__(data, index))  # noqa: B023
        watched = Outcome(module, lambda: observer.run(module.Data.__getitem__, (data, index)))  # noqa: B023
        watched.check(plain)
        assert (plain.error is None) == (index == 1)
    observer.close()


class Pictures:
    """Some of whose files are damaged, and replaced."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        for index in range(4):
            Image.frombytes("L", (64, 64), random.Random(index).randbytes(4096)).save(folder / f"{index}.png")
        data = bytearray((folder / "0.png").read_bytes())
        data[2000:2200] = bytes(200)
        (folder / "0.png").write_bytes(data)

    def sample(self, index: int) -> Any:
        picture = Image.open(self.folder / f"{index}.png")
        try:
            picture = picture.convert("RGB")
        except OSError:
            return "replaced"
        return picture.getpixel((9, 9))


def test_a_damaged_picture_is_met_as_without_us(tmp_path: Any) -> None:
    """The user's code gets its decoder's error while it is watched and while values are kept, and other pictures are kept."""
    data, first = Pictures(tmp_path), (0,)
    observer, filler = Observer(), Observer(wanted=[first], limit=4)
    for index in range(4):
        assert observer.run(Pictures.sample, (data, index)) == data.sample(index)
        assert filler.run(Pictures.sample, (data, index)) == data.sample(index)
    assert not filler.refused
    assert len(filler.pools[first]) == 3


def test_the_source_that_is_read_to_look_into_a_call_is_not_what_the_call_reads(tmp_path: Any) -> None:
    """A statement that reads no file has read nothing, however long the file is that defines what it calls."""
    path = tmp_path / "far.py"
    path.write_text("#" * 10_000 + "\ndef far(x):\n    y = abs(x)\n    return y\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    module = module_of("class Data:\n    def sample(self, index):\n        x = far(index)\n        return x\n")
    module.far = names["far"]
    observer = Observer()
    observer.run(module.Data.sample, (module.Data(), 1))
    observer.close()
    assert [(cost.name, cost.read_bytes, cost.read_calls) for cost in observer.costs.values()] == [("far", 0, 0)]


CALLERS = """
import inspect
import logging
import warnings

def deprecated(x):
    warnings.warn("say so", DeprecationWarning, stacklevel=2)
    return x

class Said:
    def line(self, more=0):
        return inspect.stack()[1].lineno + more

class Data:
    def sample(self, index):
        log, said, many = logging.getLogger("sample"), Said(), {"more": 0}
        log.info("here")
        x = deprecated(index)
        warnings.warn("and here")
        lines = [said.line(), (said
            .line()), said.line(
                more=abs(0),
            ), (said
            .line(**many)), str(
                said
                .line())]
        log.warning(
            "there, %s",
            abs(x),
        )
        return lines, x
"""


def _said(run: Any) -> tuple[Any, Any, Any]:
    """What `run` gives, and where warnings and records say that they come from."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    log = logging.getLogger("sample")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            result = run()
    finally:
        log.removeHandler(handler)
    places = [(record.pathname, record.lineno, record.funcName) for record in records]
    return result, places, [(warning.filename, warning.lineno) for warning in found]


def test_what_tells_the_line_of_its_caller_tells_the_users() -> None:
    """Warnings, records of a log and whatever walks the stack point where they do without us."""
    data = module_of(CALLERS).Data()
    observer, sample = Observer(), type(data).sample
    plain = _said(lambda: data.sample(3))
    assert _said(lambda: observer.run(sample, (data, 3))) == plain
    assert len(plain[1]) == len(plain[2]) == 2
    observer.close()


class Table:
    """Finds variables where it is called from, as data frames do."""

    def query(self, name: str) -> Any:
        return sys._getframe(1).f_locals[name]

    def sample(self, index: int) -> Any:
        row = self.query("index")
        names = globals()
        return row, names["Table"]


def test_what_looks_at_its_caller_finds_the_user() -> None:
    """Queries over a table see the locals of the function that they stand in, and its module is what it was."""
    observer = Observer(opened=[(0,), (1,)])
    assert observer.run(Table.sample, (Table(), 7)) == (7, Table)
    assert [cost.callee for _, cost in sorted(observer.costs.items())][:2] == ["self.query", "globals"]


class Store:
    """Has methods with names of pandas' and torch's, which do no more than others."""

    def query(self, number: int) -> int:
        found = abs(number)
        return found

    def sample(self, index: int) -> Any:
        row = self.query(index)
        return row, self.query(self.query(-index)), torch.stack([torch.zeros(1)]).shape

    def lookup(self, index: int) -> Any:
        name = "index"
        return Table().query(str(name))


def test_a_method_of_the_users_is_looked_into_whatever_its_name() -> None:
    """And served; what looks at its caller is told by what it does, and what it finds is the user's frame."""
    opened = [(number,) for number in range(3)]
    observer, data = Observer(opened), Store()
    expected = data.sample(3)
    assert observer.run(Store.sample, (data, 3)) == expected
    inside = {address for address, cost in observer.costs.items() if cost.text == "found = abs(number)"}
    assert inside == {(0, 0), (1, 0), (2, 0)}
    filler = Observer(opened, [(0, 0)], 1)
    filler.run(Store.sample, (data, 3))
    for resume in (True, False):
        assert Server(filler.pools[0, 0], filler.chains[0, 0], resume=resume).run((data, 3)) == expected
    assert observer.run(Store.lookup, (data, 5)) == 5


def test_costs_are_those_of_the_parts() -> None:
    """Each unit that ran has one figure for each sample, and the parts of a unit take no longer than it."""
    module = module_of(PRELUDE + "        t = self.tf(t)\n        return t\n")
    observer, data = Observer(), module.Data()
    for index in range(5):
        observer.run(module.Data.__getitem__, (data, index), record=index > 0)
    observer.close()
    assert {len(cost.wall_ns) for cost in observer.costs.values()} == {4}
    items = {address: cost for address, cost in observer.costs.items() if cost.is_item}
    outer = {address[:-2] for address in items}
    assert [cost.name for address, cost in sorted(items.items()) if len(address) == 3][:3] == [
        "Scale",
        "halve",
        "Shift",
    ]
    for address in outer:
        parts = [
            sum(cost.wall_ns)
            for other, cost in items.items()
            if other[:-2] == address and len(other) == len(address) + 2
        ]
        assert sum(parts) <= sum(observer.costs[address].wall_ns)


def reading(path: str) -> int:
    total = 0
    for _ in range(50):
        total += 1
    with open(path, "rb") as file:
        data = file.read()
    return total + len(data)


def test_reads_of_the_observer_itself_are_not_the_users(tmp_path) -> None:
    """Bytes read are those of the user's statement, however often the observer looks at its own counters."""
    path = tmp_path / "data"
    path.write_bytes(bytes(10_000))
    observer = Observer(opened=[(1,)])
    observer.run(reading, (str(path),))
    loop = next(cost for cost in observer.costs.values() if cost.is_loop)
    read = next(cost for cost in observer.costs.values() if cost.callee == "file.read")
    assert loop.read_bytes == 0
    assert 10_000 <= read.read_bytes < 11_000


class Scripted:
    """Counters that find as much read at every look."""

    def __init__(self) -> None:
        self.looks = 0

    def read(self) -> tuple[int, int, int]:
        self.looks += 1
        return 100 * self.looks, 3 * self.looks, 70 * self.looks

    def close(self) -> None:
        pass


def test_what_is_read_and_what_comes_from_storage_are_kept_apart(tmp_path) -> None:
    """Bytes, calls and bytes from storage of every sample end up in the fields of their names."""
    path = tmp_path / "data"
    path.write_bytes(b"x")
    observer = Observer()
    observer._reads.close()
    observer._reads = Scripted()
    for _ in range(2):
        observer.run(reading, (str(path),))
    read = next(cost for cost in observer.costs.values() if cost.callee == "file.read")
    assert (read.read_bytes, read.read_calls, read.storage_bytes) == (200, 6, 140)


def _long(count: int) -> list[int]:
    found = []
    position = 0
    while position < count:
        step = abs(-1)
        if position == 700:
            return found
        found.append(position)
        position += step
    return found


def _twice(count: int) -> int:
    both = len(_long(count)) + len(_long(count // 2))
    return both


@pytest.mark.parametrize("count", [3, 99, 100, 101, 650, 5000])
def test_a_long_loop_is_watched_in_part(count: int) -> None:
    """However many iterations a loop has, it gives the same result, only the first are clocked, and they stand for all."""
    observer = Observer(opened=[(2,)])
    assert observer.run(_long, (count,)) == _long(count)
    inner = [cost for address, cost in observer.costs.items() if address[:1] == (2,) and len(address) > 1]
    assert {cost.text for cost in inner} >= {"step = abs(-1)", "position += step"}
    assert all(len(cost.wall_ns) == 1 for cost in inner)
    assert observer.run(_long, (count,)) == _long(count)


def test_iterations_left_out_are_counted() -> None:
    """A loop of ten times as many iterations as are watched shows its statements at ten times what was clocked."""

    class Counted(Observer):
        def leave(self, number: int, depth: int, *facts: Any) -> None:
            super().leave(number, depth, *facts)
            if depth and self._sample.get((2, -1, 0)):
                self._sample[2, -1, 0][0] = self._sample[2, -1, 0][0] // 1000 * 1000 + 1000  # one microsecond each

    observer = Counted(opened=[(2,)])
    observer.run(_long, (600,))
    assert observer.costs[2, -1, 0].wall_ns[0] >= 6 * 100 * 1000


def test_loops_after_a_long_one_are_watched_again() -> None:
    """Leaving a long loop, by its end or by a return inside it, ends what was left out."""
    observer = Observer(opened=[(0,), (1,), (2,), (0, 2), (1, 2)])
    assert observer.run(_twice, (2000,)) == _twice(2000)
    assert observer.run(_twice, (2000,)) == _twice(2000)
    assert observer._muted == -1


class Retrying:
    """A data set that leaves loops and matches by a return."""

    def __init__(self) -> None:
        self.tf = abs

    def load(self, index: int) -> int:
        if index < 2:
            raise OSError(index)
        return -index

    def until_it_works(self, index: int) -> Any:
        while True:
            try:
                return self.tf(self.load(index)), 0
            except OSError:
                index += 1

    def three_times(self, index: int) -> Any:
        for _ in range(3):
            try:
                return self.tf(self.load(index)), 0
            except OSError:
                index += 1

    def by_kind(self, index: int) -> Any:
        match index:
            case 0:
                return self.tf(self.load(2)), 0
        return None

    def nested(self, index: int) -> Any:
        sample = self.until_it_works(index)
        return sample

    def numbers(self, count: int) -> Any:
        number = 0
        while True:
            number += abs(1)
            if number == count:
                return number


@pytest.mark.parametrize("name", ["until_it_works", "three_times", "by_kind"])
def test_a_unit_that_a_return_leaves_is_charged(name: str) -> None:
    """What a sample did last, before it was returned, took its time like everything else, and can be looked into."""
    observer, function, data = Observer(opened=[(0,)]), getattr(Retrying, name), Retrying()
    for _ in range(3):
        assert observer.run(function, (data, 0)) == function(data, 0) == (2, 0)
    assert len(observer.costs[0,].wall_ns) == 3
    assert observer.costs[0,].is_loop == (name != "by_kind")
    inner = {cost.callee for cost in observer.costs.values()} - {None}
    assert inner == (set() if name == "by_kind" else {"self.load", "self.tf"})


def test_returns_inside_functions_that_are_looked_into_are_charged() -> None:
    """The loop of a method that is called counts below the call."""
    observer, data = Observer(opened=[(0,)]), Retrying()
    assert observer.run(Retrying.nested, (data, 0)) == (2, 0)
    assert observer.costs[0, 0].is_loop
    assert sum(observer.costs[0, 0].wall_ns) <= sum(observer.costs[0,].wall_ns)


def test_a_long_loop_that_a_return_leaves_counts_whole() -> None:
    """The iterations that were watched stand for all, as where the loop comes to its end."""

    class Fixed(Observer):
        def _unmute(self) -> None:
            for address, figures in self._sample.items() if self._muted >= 0 else ():
                figures[0] = 1000 if len(address) > 2 else figures[0]
            super()._unmute()

    observer = Fixed(opened=[(1,)])
    assert observer.run(Retrying.numbers, (Retrying(), 600)) == 600
    assert observer.costs[1, -1, 0].wall_ns == [6000]


def test_nothing_is_served_after_units_that_may_return() -> None:
    """Samples that come through such a unit are not those that most of the time goes into."""
    for name in ("three_times", "by_kind"):
        parts = split.split(getattr(Retrying, name))
        for make in (variants.resumed, variants.stubbed):
            with pytest.raises(split.Unsplittable, match="return inside"):
                make(parts, (0,))


class Cached:
    """A data set that keeps what it has decoded."""

    def __init__(self) -> None:
        self.cache: dict[int, int] = {}
        self.paths = [3, 4, 5]

    def read(self, path: int) -> int:
        return path

    def sample(self, index: int) -> Any:
        try:
            x = self.cache[index]
        except KeyError:
            x = self.cache[index] = abs(self.read(self.paths[index]))
        else:
            x = abs(x)
        finally:
            y = abs(index)
        return x, y

    def checked(self, index: int) -> int:
        x = self.refuse(index)
        return x

    def refuse(self, index: int) -> int:
        int(index)
        raise ValueError(index)

    def guarded(self, index: int) -> int:
        try:
            x = self.checked(index)
        except ValueError:
            x = abs(index)
        return x


def test_what_handles_exceptions_is_charged() -> None:
    """A handler that does the work, what follows if nothing was raised, and what is done in either case are units."""
    observer, data = Observer(), Cached()
    assert [observer.run(Cached.sample, (data, index)) for index in (0, 1, 0)] == [(3, 0), (4, 1), (3, 0)]
    counts = [(cost.callee or cost.text, len(cost.wall_ns)) for _, cost in sorted(observer.costs.items())]
    line = "x = self.cache[index] = abs(self.read(self.paths[index]))"
    assert counts == [
        ("x = self.cache[index]", 3), (line, 2), ("self.read", 2), ("abs", 2), ("abs", 1), ("abs", 3),
    ]  # fmt: skip


def test_a_unit_that_raises_is_charged_up_to_the_handler() -> None:
    """Level by level, and without what the handler takes."""
    observer, data = Observer(opened=[(0,), (0, 0)]), Cached()
    for _ in range(2):
        assert observer.run(Cached.guarded, (data, 7)) == 7
    assert {address: len(cost.wall_ns) for address, cost in observer.costs.items()} == {
        (0,): 2, (0, 0): 2, (0, 0, 0): 2, (0, 0, 1): 2, (1,): 2,
    }  # fmt: skip
    assert sum(observer.costs[0, 0, 0].wall_ns) <= sum(observer.costs[0, 0].wall_ns) <= sum(observer.costs[0,].wall_ns)


def test_watching_goes_on_after_a_long_loop_that_raises() -> None:
    """What follows in the handler is watched, and the loop counts."""

    def searched(items: list[int]) -> int:
        found = 0
        try:
            for item in items:
                found = 10 // item
        except ZeroDivisionError:
            found = abs(-5)
        return found

    observer = Observer(opened=[(1,)])
    assert observer.run(searched, ([1] * 300 + [0],)) == 5
    assert observer.costs[1,].is_loop
    assert {cost.text for cost in observer.costs.values()} >= {"found = 10 // item", "found = abs(-5)"}
    assert len(observer.costs[1,].wall_ns) == 1


def test_nothing_is_cut_inside_what_handles_exceptions() -> None:
    """Whether it is reached at all depends on what comes before."""
    parts = split.split(Cached.sample)
    for unit in parts.units:
        if unit.text not in ("x = self.cache[index]", "return x, y"):
            with pytest.raises(split.Unsplittable, match="handler"):
                variants.stubbed(parts, (unit.number,))


class Odd(dict):
    """Its keys are attributes, and whoever looks through it meets an error."""

    __getattr__ = dict.__getitem__

    def values(self) -> Any:
        raise RuntimeError("not now")


def odd(index: int) -> Any:
    x = Odd(index=index)
    return x.index


def test_looking_at_a_result_never_fails_the_user() -> None:
    """What the observer meets in an object of the user's is not the user's to handle."""
    assert Observer().run(odd, (3,)) == 3
