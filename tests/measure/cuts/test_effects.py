"""What a stage changes and leaves behind decides whether it is served, and how."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest
from generated import NUMBERS, PRELUDE, addresses_of, module_of
from PIL import Image

from unstarve.measure.cuts import split
from unstarve.measure.cuts.effects import is_as_large
from unstarve.measure.cuts.observer import Observer
from unstarve.measure.cuts.resolving import attributes_of
from unstarve.measure.cuts.server import Server


def refusals(body: str) -> str:
    """The reasons for which cuts in the data set were refused, on the third sample."""
    module = module_of(PRELUDE + f"        {body}\n        return t, n\n")
    opened = addresses_of(module, module.Data.__getitem__, 2)
    observer, data = Observer(opened), module.Data()
    observer.run(module.Data.__getitem__, (data, 2))
    filler = Observer(opened, tuple(observer.costs), 1)
    for _ in range(3):
        filler.run(module.Data.__getitem__, (data, 2))
    for each in (observer, filler):
        each.close()
    return " ".join(filler.refused.values())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("self.picked = halve(t); t = halve(self.picked)", "data pass through Data.picked"),
        ("self.fill(t); t = halve(self.buffer)", "data pass through Data.buffer"),
        ("self.count = self.count + h(1)\n        n = h(self.count)", "data pass through Data.count"),
        ("with self.step(n):\n            n = h(n)\n            t = halve(t)", "cannot be entered"),
        ("for f in random.sample([halve, Scale(2)], 2):\n            t = f(t)", "may be another"),
        ("for k in range(3):\n            n = h(k)", "only if the loop runs over callables"),
        ("x = iter([1, 2])\n        n = h(1) + next(x) + n", "only once"),
        ("def g(): return h(n)\n        n = h(3)\n        n = g()", "nested function"),
        ("x = open(__file__) if False else open('/dev/null')\n        n = h(1)\n        x.close()", "open file"),
    ],
)
def test_unsafe_cuts_are_refused(body: str, reason: str) -> None:
    """A cut that could give a wrong sample is refused, with the reason."""
    assert reason in refusals(body)


SLOTTED = """
class Data:
    __slots__ = ("__last", "count")

    def sample(self, index):
        self.__last = [index]
        x = abs(index)
        y = x + len(self.__last) + self.__last[0]
        return y
"""


def test_an_attribute_in_a_slot_carries_data_like_any_other() -> None:
    """A cut behind which it is read would serve the value of one sample with the attribute of another."""
    module = module_of(SLOTTED)
    filler, data = Observer((), [(0,), (1,)], 2), module.Data()
    for index in range(3):
        filler.run(module.Data.sample, (data, index))
    filler.close()
    assert "data pass through Data._Data__last" in filler.refused[1,]
    assert attributes_of(data) == {"_Data__last": [2]}


def test_a_cache_that_the_first_sample_makes_is_no_reason() -> None:
    """A handle opened lazily on the first sample does not spoil the cuts of later ones."""
    body = "self.handle = getattr(self, 'handle', None) or h(1)\n        n = h(n) + self.handle\n"
    assert "handle" not in refusals(body)


class Remote:
    """Answers to every name, as clients of databases do."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Remote()


def test_an_attribute_that_answers_to_every_name_spoils_no_cut() -> None:
    module = module_of(PRELUDE + "        n = h(2)\n        t = halve(t)\n        return n, t\n")
    observer, data = Observer(), module.Data()
    data.collection = Remote()
    observer.run(module.Data.__getitem__, (data, 2))
    filler = Observer((), tuple(observer.costs), 4)
    for _ in range(3):
        filler.run(module.Data.__getitem__, (data, 2))
    assert any(len(pool) for pool in filler.pools.values())


THUMBNAIL = """
from PIL import Image
class Data:
    def __init__(self, path, method):
        self.path, self.method = path, method
    def __getitem__(self, index):
        picture = Image.open(self.path)
        getattr(picture, "thumbnail")((40, 40)) if self.method == "named" else picture.thumbnail((40, 40))
        return picture.convert("RGB")
"""


def test_a_picture_is_decoded_as_small_as_the_script_asks(tmp_path) -> None:
    """`thumbnail` has a JPEG decoded at a fraction of its size, unless it was decoded before: then pixels differ."""
    path = tmp_path / "x.jpg"
    Image.effect_noise((640, 640), 80).convert("RGB").save(path)
    name = f"generated_{next(NUMBERS)}.py"
    linecache.cache[name] = (len(THUMBNAIL), None, THUMBNAIL.splitlines(True), name)
    scope: dict[str, Any] = {"__name__": "generated"}
    exec(compile(THUMBNAIL, name, "exec"), scope)
    data = scope["Data"](path, "plain")
    plain = np.asarray(data[0])
    watched = Observer().run(scope["Data"].__getitem__, (data, 0))
    assert np.array_equal(np.asarray(watched), plain)


DRAFTED = """
from PIL import Image
class Data:
    def __init__(self, path):
        self.path = path
    def __getitem__(self, index):
        picture = Image.open(self.path)
        number = abs(index)
        picture.draft("RGB", (80, 80))
        small = picture.convert("RGB")
        return small, number
"""


def test_keeping_values_leaves_a_picture_undecoded(tmp_path) -> None:
    """While pools are filled, too, `draft` has its say: what lies before it is not kept, and what follows is."""
    path = tmp_path / "x.jpg"
    Image.effect_noise((640, 640), 80).convert("RGB").save(path)
    module = module_of(DRAFTED)
    data, filler = module.Data(path), Observer((), [(number,) for number in range(4)], 2)
    plain = data[1][0]
    assert plain.size == (80, 80)
    for _ in range(3):
        assert filler.run(module.Data.__getitem__, (data, 1))[0].size == plain.size
    assert "decoded later" in filler.refused[0,]
    assert "decoded later" in filler.refused[1,]
    for address, resume in (((3,), True), ((3,), False), ((2,), False)):
        server = Server(filler.pools[address], filler.chains[address], resume=resume)
        assert server.run((data, 1))[0].tobytes() == plain.tobytes()


CACHES = """
import contextlib, pathlib, time, torch
import numpy as np
SEEN = {}
class Remote:  # as of a cache in another process: nothing of it shows here
    __slots__ = ("held", "last")
    def __init__(self): self.held = {}
    def __contains__(self, key): return key in self.held
    def __getitem__(self, key): return self.held[key]
    def __setitem__(self, key, value): self.held[key] = value
    def put(self, key, value): self.held[key] = value
def memoised(function):
    store = Remote()
    def wrapper(self, i):
        store[i] = function(self, i)
        return store[i] * 1
    return wrapper
def plain(function):
    def wrapper(self, i):
        found = function(self, i)
        return found
    return wrapper
class Data:
    def __init__(self, root):
        self.root, self.remote, self.items, self.count = pathlib.Path(root), Remote(), [None] * 8, 0
        self.records, self.fresh, self.boxes = [{"n": n, "more": {}} for n in range(8)], Fresh(), np.ones(4)
        self.seen, self.times, self.files, self.masks, self.held = [], [], {}, {}, {}
        self.table, self.room, self.counts = np.zeros((8, 4)), np.zeros(9), np.zeros(8)
    def extract(self, i):
        return np.full(4, i)
    def same(self, r):
        return r
    def extract_large(self, i):
        return np.full(9999, i)
    def remember(self, i, x):
        self.items += [x]
    def hold(self, i, x):
        self.held[i] = {"x": x * 2}
    def fill(self, x, key):
        y = x * 2
        self.table[key] = y
    def fill_later(self, i, x):
        self.fill(x, i)
    def work(self, i, x):
        self.room[:len(x)] = x
        self.counts[i] += 1
        self.fill(np.ones(4), i)
        return self.room * 1
    def note(self, i, x):
        self.seen.append(i)
        self.times.append(time.perf_counter())
        self.files[f"shard {i}"] = open("/dev/null")
        if i == 2:
            self.masks[x.shape] = np.ones(x.shape)
    @memoised
    def memo(self, i):
        x = self.extract(i)
        return x
    @plain
    def hidden(self, i):
        y = self.extract(i)
        self.last = y
        return i
    def __getitem__(self, i):
        {body}
        return x, i
class Fresh:
    def __getitem__(self, i):
        return {"n": i}
"""


def served_alone(body: str, root: Any, *, opened: Any = ()) -> dict[str, str | None]:
    """Of each statement whose values are kept, why it cannot be served alone; None if it can."""
    module = module_of(CACHES.replace("{body}", body))
    observer, data = Observer(opened), module.Data(root)
    observer.run(module.Data.__getitem__, (data, 0))
    filler = Observer(opened, tuple(observer.costs), 4)
    for index in (1, 2, 3):
        filler.run(module.Data.__getitem__, (data, index))
    found: dict[str, str | None] = {}
    for address, pool in filler.pools.items():
        if len(pool) and address not in filler.refused:
            Server(pool, filler.chains[address], resume=True)
            try:
                Server(pool, filler.chains[address], resume=False)
            except split.Unsplittable as error:
                found[observer.costs[address].text] = str(error)
            else:
                found.setdefault(observer.costs[address].text, None)
    for each in (observer, filler):
        each.close()
    return found


@pytest.mark.parametrize(
    ("lines", "kept_in"),
    [
        (("x = self.extract(i)", "np.save(self.root / f'{i}.npy', x)"), "a file"),
        (("x = self.extract(i)", "torch.save({'x': x}, self.root / f'{i}.pt')"), "a file"),
        (("x = self.extract(i)", "self.remote[i] = x"), "self"),
        (("x = self.extract(i)", "self.remote.put(i, x * 2)"), "self"),
        (("x = self.extract(i)", "y = (x + 1)[None]", "held = self.remote", "held[i] = {'y': y}"), "self"),
        (("held = self.remote", "x = self.extract(i)", "held[i] = x"), "held"),
        (("x = self.extract(i)", "SEEN[i] = x"), "SEEN"),
        (("r = self.records[i]", "x = self.extract(i)", "r['x'] = x"), "self.records"),
        (("x = self.extract(i)", "r = self.records[i]", "r['x'] = x", "r = dict(r)"), "self.records"),
        (("r = self.records[i]", "r = self.same(r)", "x = self.extract(i)", "r['x'] = x"), "self.records"),
        (("r = self.records[i]", "r = dict(r)", "x = self.extract(i)", "r['more']['x'] = x"), "self.records"),
        (("r = self.records[0]['more']", "x = self.extract(i)", "r['x'] = x"), "self.records"),
        (("x = self.extract(i)", "self.remember(i, x)"), "Data"),
        (("x = self.extract(i)", "self.hold(i, x)"), "Data"),
        (("x = self.extract(i)", "self.fill(x + 1, key=i)"), "self.table"),
        (("x = self.extract(i)", "self.fill_later(i, x)"), "self.table"),
        (("x = self.extract(i)", "self.last = x"), "Data.last"),
        (("x = self.extract(i)", "y = {'x': x + 1}", "self.last, self.count = y, i"), "Data.last"),
        (("x = self.extract(i)", "self.items += [x]"), "Data"),
        (("x = self.extract(i)", "self.remote.last = x"), "self"),
    ],
)
def test_a_stage_is_not_served_alone_where_its_results_are_kept(lines: tuple, kept_in: str, tmp_path: Any) -> None:
    """A cache of the user's, in memory, elsewhere or in files, never gets the values of one sample under another's key."""
    reason = served_alone("\n        ".join(lines), tmp_path)["x = self.extract(i)"]
    assert reason is not None
    assert f"kept in {kept_in}," in reason


def test_a_stage_inside_a_decorator_that_keeps_its_result_is_not_served_alone(tmp_path: Any) -> None:
    """The decorator's own statement would keep what the stage did not make."""
    opened = [(0,), (0, 0)]
    found = served_alone("x = self.memo(i)", tmp_path, opened=opened)
    assert "kept in store" in str(found["x = self.extract(i)"])
    assert found["x = self.memo(i)"] is None


def test_a_stage_that_a_method_keeps_in_its_object_is_not_served_alone(tmp_path: Any) -> None:
    """Also where a decorator hides whose method it is, so that nobody looks at the object later."""
    found = served_alone("x = self.hidden(i)", tmp_path, opened=[(0,), (0, 0)])
    assert "kept in self" in str(found["y = self.extract(i)"])


@pytest.mark.parametrize(
    "lines",
    [
        ("x = self.extract(i)", "self.count += 1", "self.items[0] = i"),
        ("x = self.extract(i)", "self.note(i, x)"),
        ("x = self.extract(i)", "x = self.work(i, x)"),
        ("x = self.extract(i)", "(self.size,), self.kind = x.shape, f'{x.dtype}'"),
        ("x = self.extract(i)", "x = np.append(x, 1)", "x[0] = x.sum()", "parts = []", "parts.append(x)"),
        ("r = self.fresh[i]", "x = self.extract(i)", "r['x'] = x", "r.update(y=x)"),
        ("r = self.records[i]", "r = dict(r)", "x = self.extract(i)", "r['x'] = x"),
        ("r = self.records[i]", "x = self.extract(i)", "r = {**r}", "r['x'] = x"),
        ("x = self.extract(i)", "r = self.records[i]", "n = r['n']", "r = r.copy()", "r['x'] = x"),
        ("r = self.records[i]", "if i: r = dict(r)", "x = self.extract(i)", "r['x'] = x"),
        ("b = self.boxes", "b = b * 2", "x = self.extract(i)", "b[0] = x[0]", "self.count += 1"),
        ("x = self.extract(i)", "np.save(self.root / f'{i}.npy', x)", "x = abs(x)"),
        ("x = self.extract(i)", "print('sample', i, x.shape, file=open('/dev/null', 'w'))"),
        ("x = self.extract_large(i)", "print('long/' * 199, i, file=open('/dev/null', 'w'))"),
        ("x = self.extract(i)", "open('/dev/null', 'w').write('line ' * 1999 * (i == 2))"),
    ],
)
def test_the_usual_statement_can_be_served_alone(lines: tuple, tmp_path: Any) -> None:
    """Counting samples, changing a sample in place, gathering its parts and printing leave nothing behind that matters; nor
    do notes about samples, such as their sizes, files that stay open, and what is made once for many."""
    found = served_alone("\n        ".join(lines), tmp_path)
    last = "x = abs(x)" if lines[-1] == "x = abs(x)" else next(line for line in lines if "extract" in line)
    assert found[last] is None


@pytest.mark.parametrize(
    ("written", "content", "expected"),
    [
        (160, 32, True),  # a small array in a file
        (120, 32, False),  # a line that is printed
        (9_000, 150_528, True),  # a picture, compressed
        (3_000, 150_528, False),  # what is asked of a server, or logged about a picture
        (1_700, 3_072, True),
    ],
)
def test_what_is_written_is_told_from_lines_by_its_size(written: int, content: int, expected: bool) -> None:
    """What a file keeps of a value is about as large as the value, or large in itself."""
    assert is_as_large(written, content) is expected
