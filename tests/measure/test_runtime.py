"""Generated datasets must give the same samples when watched, resumed and stubbed as when they are left alone."""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import operator
import random
import sys
import traceback
import types
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from unstarve.measure import split, variants
from unstarve.measure.effects import is_as_large
from unstarve.measure.observer import Observer
from unstarve.measure.resolving import is_library, resolve
from unstarve.measure.server import Server

_numbers = itertools.count()

PRELUDE = """
import contextlib, copy, functools, random
import numpy as np
import torch
from PIL import Image
LOG = []
GLOBAL = 3
def h(k, x=1, **more):
    LOG.append(("h", k))
    return (int(x) * 3 + k + len(more)) % 11
def tensor_of(k):
    LOG.append(("tensor", k))
    return torch.arange(12, dtype=torch.float32).reshape(3, 4) + k
def halve(t):
    LOG.append(("halve",))
    return t / 2
def apply(f, t):
    LOG.append(("apply",))
    return f(t)
def down(k):
    LOG.append(("down", k))
    return down(k - 1) if k > 0 else h(k)
def add_in_place(t):
    LOG.append(("add",))
    t.add_(1)
    return t
def silently(t):
    LOG.append(("silent",))
    t.mul_(2)
class Scale:
    def __init__(this, by):
        this.by, this.calls = by, 0
    def __call__(this, t):
        LOG.append(("scale", this.by))
        scaled = t * this.inner(this.by)
        return scaled
    def inner(this, by):
        return by + 1
class Noise(torch.nn.Module):
    def forward(self, t):
        LOG.append(("noise",))
        draw = torch.rand(t.shape)
        t = t + draw
        return t
class Shift(torch.nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def forward(self, t):
        step = self.by * h(1)
        return t + step
class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, t):
        for f in self.transforms:
            t = f(t)
        return t
class Joint:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, t, d):
        for f in self.transforms:
            t, d = f(t, d)
        return t, d
def both(t, d):
    d = dict(d)
    d["mean"] = h(2, t.sum() % 7)
    return halve(t), d
def flip(t, d):
    d["flipped"] = True
    return t.flip(0), d
class Base(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def g(self, k, x=0):
        LOG.append(("g", k))
        return (k * 7 + int(x)) % 13
    def inherited(self, t):
        LOG.append(("inherited",))
        return t - 1
    def make(self, n):
        LOG.append(("make", n))
        return n + 1
class Data(Base):
    def __init__(self):
        self.__secret = 5
        self.tf = Compose([Scale(1), halve, Shift(2), functools.partial(torch.add, other=2), Compose([Scale(2)])])
        self.noisy = Compose([Noise(), add_in_place])
        self.joint = Joint([both, flip])
        self.choices = [halve, Shift(1)]
        self.table = [4, 8, 15, 16, 23, 42, 1, 2, 3, 5, 7, 9, 11]
        self.lookup = {k: k + 1 for k in range(60)}
        self.module = Shift(3)
        self.count = 0
        self.buffer = torch.zeros(3, 4)
        self.rng = np.random.default_rng(1)
    @property
    def size(self):
        LOG.append(("size",))
        return 6
    def make(self, n):
        n = super().make(n)
        return n * 2
    def __hidden(self, n):
        LOG.append(("hidden", n))
        return n + self.__secret
    @contextlib.contextmanager
    def step(self, n):
        LOG.append(("step in", n))
        yield n
        LOG.append(("step out", n))
    def fails(self, n):
        LOG.append(("fails", n))
        if n % 3 == 0:
            raise ValueError(f"bad {n}")
        return n
    def fill(self, t):
        self.buffer[:] = t
    def __getitem__(self, index):
        n, m, t = index, 2, tensor_of(index)
        a = np.arange(6).reshape(2, 3) + index
        d = {"img": t.clone(), "label": index}
        items = [1, 2, 3]
        picture = Image.new("L", (4, 4), index)
"""

SIMPLE = """
n = {e}
m = {e}
n += {e}
n, m = {e}, {e}
items = [{e}, n, {e}]
items.append({e})
items[0] = {e}
d["label"] = {e}
d = {{**d, "more": {e}}}
t = self.tf(t)
t = self.tf(tensor_of({e}))
t = halve(self.module(t))
t = self.noisy(t)
t, d = self.joint(t, d)
t = self.inherited(t)
t = add_in_place(t)
silently(t)
silently(d["img"])
t = self.noisy(self.tf(t)) * n + halve(t)
t = torch.nn.functional.pad(t, (1, h(0) * 0, 0, 0))[:, :4]
view = t[:, :2]; view.add_({e}); d["view"] = view
view = t.view(-1); silently(view); n = n + h(1)
a = np.roll(a, {e})
a[0] += {e}
b = a[:, ::-1]; b[0] = h(1); a = a + 1
a = np.ascontiguousarray(a[:, ::-1])
picture = picture.rotate({e})
picture.putpixel((0, 0), {e} % 255)
n = picture.resize((self.g(2), 4)).size[0]
n = self.make(n)
n = self.__hidden({e})
n = (m := {e}) + m
n = h(*[{e}, n])
n = h(*self.table[{e} % 5:][:1], {e})
n = h({e}, **{{"x": {e}}})
n = [h(k, n) for k in items][0]
n = sum(h(k) for k in items if k < n)
n = (lambda q: q + h(3) + n)({e})
n += random.randint(0, 5)
n = n + int(np.random.randint(9)) + h(1)
t = t + torch.rand(1) * h(2)
n = int(self.rng.integers(0, self.g(1) + 2))
n = len(f"{{n}}{{h(2)}}{{self.size}}")
self.count += 1
self.count = self.count + h(1)
self.buffer[:] = t; t = self.buffer + 0
self.fill(t); t = self.buffer.clone()
self.picked = t; t = self.picked * 2
assert n == n
x: int = {e}
del items[0]; items.append(3)
def nested(q): return q + n
def nested(q): return q + h(n); n = nested(m); n = n + nested({e})
n = functools.partial(h, 1)({e})
n, *items = [{e}, 1, {e}]; items = list(items) + [2, 3]
d["deep"] = {{"n": [{e}]}}
n = d["label"] + (d["label"] if {e} > 4 else h(9))
n = self.table[self.g(2) % 5] - self.table[{e} % 5]
n = h({e}) if {e} > 3 else self.g({e})
n = down({e} % 3)
t = random.choice(self.choices)(t)
t = apply(self.choices[{e} % 2], t)
""".strip().splitlines()

EXPRESSIONS = """
n
{k}
h({k})
self.g({k}, n)
self.g({e}, x={e})
h({e}, x={e}) + {e}
n - {e}
self.size + {e}
(h(1) if {e} > 3 else self.g(2))
({e} and h(2))
({e} or {e})
(h(1) < {e} < {e})
(not {e})
max({e}, m, {e})
self.table[{e} % 7]
self.lookup[abs({e}) % 50]
({e} == {e})
[n, {e}, h(4)][{e} % 3]
int(t.sum() + h(1)) % 9
len([{e}, {e}])
self.make({e})
GLOBAL + {e}
int(a.sum()) % 5
""".strip().splitlines()

BLOCKS = [
    ["if {e} > 4:", "{s}", "else:", "{s}"],
    ["if n % 2:", "{s}", "{s}"],
    ["if n > 20:", "return t, {e}"],
    ["if (m := {e}) > 4:", "{s}"],
    ["if not isinstance(t, torch.Tensor) or {e} > 30:", "{s}", "elif {e}:", "{s}"],
    ["with torch.no_grad():", "{s}", "{s}"],
    ["with self.step({e}) as q:", "{s}", "{s}"],
    ["with contextlib.suppress(ValueError):", "n = self.fails(n)", "{s}"],
    ["with np.errstate(all='ignore'), torch.no_grad():", "{s}", "{s}"],
    ["try:", "n = self.fails({e})", "{s}", "except ValueError:", "n = h(5)"],
    ["try:", "{s}", "n = self.fails(n)", "except ValueError as error:", "m = h(5)", "else:", "m = h(6)"],
    ["try:", "{s}", "{s}", "finally:", "m = h(6)"],
    ["try:", "n = self.fails({e})", "except ValueError:", "{s}", "{s}", "else:", "{s}", "finally:", "m = h(n)"],
    ["for k in range(3):", "n = n + h(k)", "if n % 5 == 1:", "-continue", "{s}"],
    ["for k in items:", "if k > 2:", "-break", "{s}"],
    ["while n > 5:", "n = n // 2 - h(1) % 2"],
    ["for f in self.tf.transforms:", "t = f(t)", "{s}"],
    ["for f in (self.make, h, self.g):", "n = f(n)"],
    ["for k, f in enumerate(self.tf.transforms):", "t = f(t) + k"],
    ["for f in self.tf.transforms[1:]:", "t = apply(f, t)"],
    ["for f in self.choices:", "f = functools.partial(apply, f)", "t = f(t)"],
    ["for k in items:", "t = apply(halve, t) * k"],
    ["for f in random.sample([halve, Scale(2), Scale(3)], 2):", "t = f(t)"],
    ["match n % 3:", "-case 0: m = h(1)", "-case _: n = h(2)"],
    ["match n % 3:", "-case 0: return t, h(1)", "-case _: n = h(2)"],
    ["for k in range(3):", "n = n + h(k)", "if n % 5 == 1: return t, {e}", "{s}"],
    ["while True:", "{s}", "return halve(t), {e}"],
]


@st.composite
def expressions(draw: Any, depth: int = 0) -> str:
    """An integer expression, most of whose calls leave a trace."""
    text = draw(st.sampled_from(EXPRESSIONS[:4] if depth > 1 else EXPRESSIONS))
    while "{e}" in text:
        text = text.replace("{e}", draw(expressions(depth + 1)), 1)
    return text.replace("{k}", str(draw(st.integers(0, 5))))


@st.composite
def statements(draw: Any) -> str:
    """A simple statement, or several on one line."""
    text = draw(st.sampled_from(SIMPLE))
    while "{e}" in text:
        text = text.replace("{e}", draw(expressions()), 1)
    return text.replace("{{", "{").replace("}}", "}")


@st.composite
def bodies(draw: Any) -> str:
    """Some statements and blocks of `__getitem__`."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 2)):
            lines.append("        " + draw(statements()))
            continue
        for line in draw(st.sampled_from(BLOCKS)):
            while "{e}" in line:
                line = line.replace("{e}", draw(expressions()), 1)
            is_head = line.endswith(":") and not line.startswith("-")
            text = draw(statements()) if line == "{s}" else line.lstrip("-")
            text = "pass" if text.startswith("def ") else text
            lines.append(
                "        "
                + "    "
                * (
                    2
                    if line.startswith(("-co", "-br"))
                    else 0
                    if is_head and line != "if n % 5 == 1:" and line != "if k > 2:"
                    else 1
                )
                + text
            )
    ending = draw(
        st.sampled_from(
            [
                "t, {e}, d, a, items, picture, m",
                "{{'t': self.tf(t), 'n': {e}, 'd': d}}",
                "halve(t), a, n, m, d",
                "(t - m) / 2, d['label'] == n, self.size",
            ]
        )
    )
    while "{e}" in ending:
        ending = ending.replace("{e}", draw(expressions()), 1)
    return "\n".join([*lines, "        return " + ending.replace("{{", "{").replace("}}", "}"), ""])


def module_of(source: str) -> types.ModuleType:
    """The source as a module whose lines can be read back."""
    name = f"generated_{next(_numbers)}"
    filename = f"/generated/{name}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(name)
    exec(compile(source, filename, "exec"), module.__dict__)
    return module


def random_state() -> Any:
    return torch.get_rng_state().clone(), np.random.get_state()[1:3], random.getstate()


def seed(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def restore(state: Any) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(("MT19937", *state[1], 0, 0.0))
    random.setstate(state[2])


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal, types included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Image.Image):
        return left.tobytes() == right.tobytes()
    if isinstance(left, np.random.Generator):
        return same(left.bit_generator.state, right.bit_generator.state)
    if hasattr(left, "__dict__") and not callable(left):
        return same(vars(left), vars(right))
    return callable(left) or left == right


class Outcome:
    """What a call did: its result or exception, what it logged, and the random state that it left."""

    def __init__(self, module: types.ModuleType, call: Any, *, number: int | None = 7) -> None:
        if number is not None:
            seed(number)
        start = len(module.LOG)
        self.error: Any = None
        self.result: Any = None
        try:
            self.result = call()
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [(frame.filename, frame.lineno, frame.name) for frame in frames if "/generated/" in frame.filename]
            self.error = (type(error), str(error), lines)
        self.log = module.LOG[start:]
        self.random = random_state()

    def check(self, other: Outcome, *, with_random: bool = True) -> None:
        assert self.error == other.error
        assert self.log == other.log
        assert same(self.result, other.result)
        assert not with_random or same(self.random, other.random)


class Recorder(Observer):
    """An observer that remembers the state of the world at each cut."""

    def __init__(self, module: types.ModuleType, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.module = module
        self.at_start: dict[Any, Any] = {}
        self.at_end: dict[Any, Any] = {}

    def _set_marks(self, item: Any) -> None:
        self.at_start[self._address()] = random_state()
        super()._set_marks(item)

    def _add(self, address: Any, item: Any, innermost: Any) -> None:
        self.at_end[address] = random_state()
        super()._add(address, item, innermost)


def check(body: str, index: int) -> tuple[int, dict[Any, str]]:
    """Compare all variants of one dataset on one sample; gives the number of cuts compared and those refused."""
    module = module_of(PRELUDE + body)
    function = module.Data.__getitem__
    plain, watched = module.Data(), module.Data()
    expected = Outcome(module, lambda: function(plain, index))
    opened = _addresses(module, function, index)
    observer = Observer(opened)
    Outcome(module, lambda: observer.run(function, (watched, index))).check(expected)
    assert same(vars(plain), vars(watched))
    observer.close()
    recorder = Recorder(module, opened, tuple(observer.costs), 1)
    data = module.Data()
    for _ in range(3):
        Outcome(module, lambda: recorder.run(function, (data, index)))
    assert not [reason for reason in recorder.refused.values() if "looked at" in reason]
    if expected.error is None:
        for address, pool in recorder.pools.items():
            if len(pool) and address not in recorder.refused:
                check_cut(module, recorder, address, index, data)
    recorder.close()
    return sum(len(pool) for pool in recorder.pools.values()), recorder.refused


def check_cut(module: Any, recorder: Any, address: Any, index: int, data: Any) -> None:
    """Compare the rest of the function, and the function with the unit stubbed, with the function itself."""
    function = module.Data.__getitem__
    pool, chain = recorder.pools[address], recorder.chains[address]
    rng, before = recorder.at_end[address], recorder.at_start[address]
    state = vars(data).copy()
    whole = Outcome(module, lambda: function(module.Data(), index))
    draws_privately = "self.rng" in _body(function)  # a generator of the data set's own goes on from where it is
    for _ in range(3):
        vars(data).update(state)
        restore(rng)
        tail = Outcome(module, lambda: Server(pool, chain, resume=True).run((data, index)), number=None)
        assert tail.error is None, (address, tail.error)
        assert draws_privately or same(tail.result, whole.result), address
        assert draws_privately or tail.log == whole.log[len(whole.log) - len(tail.log) :], address
    keeps = any(level.why_not_alone or level.left_in for level in chain)
    for _ in range(3 if same(rng, before) and not draws_privately and not keeps else 0):
        vars(data).update(state)
        stub = Outcome(module, lambda: Server(pool, chain, resume=False).run((data, index)))
        assert stub.error is None, (address, stub.error)
        assert same(stub.result, whole.result), address


def _body(function: Any) -> str:
    source = "".join(linecache.getlines(function.__code__.co_filename))
    return source[len(PRELUDE) :]


def _addresses(module: Any, function: Any, index: int) -> tuple[Any, ...]:
    """Everything that can be looked into, found from the outside in."""
    opened: set[Any] = set()
    while True:
        observer = Observer(tuple(opened))
        with contextlib.suppress(Exception):
            observer.run(function, (module.Data(), index))
        observer.close()
        more = {a for a, cost in observer.costs.items() if cost.can_enter or cost.is_loop} - opened
        if not more or len(opened) > 100:
            return tuple(opened)
        opened |= more


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=bodies(), index=st.integers(0, 7))
def test_variants_do_what_the_function_does(body: str, index: int) -> None:
    """Watched, resumed and stubbed variants give the function's values, calls in its order, and its exceptions."""
    check(body, index)


@pytest.mark.parametrize(
    "body",
    [
        "view = t.view(-1); silently(view); n = n + h(1)",
        "t, d = self.joint(t, d)\n        silently(d['img'])",
        "with contextlib.suppress(ValueError):\n            t, d = self.joint(t, d)",
        "items[0] = n == n",
        "d['view'] = t[:, :2]; silently(d['view'])",
        "b = a[:, ::-1]; b[0] = h(1)",
        "t = self.noisy(self.tf(t)) * n + halve(t)",
        "try:\n            n = self.fails(3)\n        except ValueError:\n            n = h(5)\n        n = h(n)",
        "self.buffer[:] = t; t = self.buffer + 0",
        "n = self.table[self.g(2) % 5] - self.table[h(1) % 5]",
        "def nested(q): return q + h(n)\n        n = nested(m); n = n + nested(h(1))",
        "for f in (self.make, h, self.g):\n            n = f(n)",
        "for f in self.choices:\n            f = functools.partial(apply, f)\n            t = f(t)\n        n = down(n)",
        "t = apply(self.choices[n % 2], t)\n        n = h(n) if n > 1 else down(2)",
        "for k, f in enumerate(self.tf.transforms[1:]):\n            t = apply(f, t) + k",
        "return (t - m) / 2, self.size, (n < m) + h(2) * -n",
        "raise KeyError(h(n))",
    ],
)
def test_what_once_went_wrong(body: str) -> None:
    """Stages that work in place, on views, through blocks or in nested calls are cut and stubbed rightly."""
    check(f"        {body}\n        return t, n, d, a, items, picture, m, d.get('label')\n", 3)


def refusals(body: str) -> str:
    """The reasons for which cuts in the data set were refused, on the third sample."""
    module = module_of(PRELUDE + f"        {body}\n        return t, n\n")
    opened = _addresses(module, module.Data.__getitem__, 2)
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
    name = f"generated_{next(_numbers)}.py"
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


def test_calls_lead_where_python_would_go() -> None:
    """Functions are found behind methods, partials, modules and subscripts, not where hooks interfere."""
    module = module_of(PRELUDE + "        return t\n")
    shift, scale, data = module.Shift(1), module.Scale(2), module.Data()
    assert resolve(module.h, (1,)) == (module.h, (1,))
    assert resolve(scale, (1,)) == (module.Scale.__call__, (scale, 1))
    assert resolve(shift, (1,)) == (module.Shift.forward, (shift, 1))
    assert resolve(functools.partial(module.h, 4), (1,)) == (module.h, (4, 1))
    assert resolve(operator.getitem, (data, 1)) == (module.Data.__getitem__, (data, 1))
    assert resolve(data.make, (1,)) == (module.Data.make, (data, 1))
    for callee in (len, module.Scale, functools.partial(module.h, x=1), torch.nn.Identity):
        assert resolve(callee, (1,)) is None
    shift.register_forward_hook(lambda *_: None)
    assert resolve(shift, (1,)) is None


def test_hooks_on_all_modules_are_heeded() -> None:
    """A module is not entered past hooks that torch calls for every module, and is without them in every torch."""
    module = torch.nn.Identity()
    assert resolve(module, (1,)) == (torch.nn.Identity.forward, (module, 1))
    for name in ("forward", "forward_pre", "full_backward", "full_backward_pre"):
        handle = getattr(torch.nn.modules.module, f"register_module_{name}_hook")(lambda *_: None)
        assert resolve(module, (1,)) is None
        handle.remove()
    assert resolve(module, (1,)) is not None


def test_keywords_of_any_name_pass() -> None:
    """A user's keyword may have the name of one of ours."""
    body = "n = dict(callee=h(1), self=h(2), arguments=h(3))\n        return n['callee'], n['self'], t"
    check(f"        {body}\n", 1)


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


# --- Long loops -------------------------------------------------------------------------------------------------------


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


# --- Units that do not come to their end ------------------------------------------------------------------------------


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


# --- Exceptions that are caught behind a cut --------------------------------------------------------------------------


class Skipping:
    """A data set that takes the next sample where anything goes wrong."""

    def __init__(self) -> None:
        self.is_broken = False

    def load(self, index: int) -> list[int]:
        if index == 1:
            raise OSError("corrupt")
        return [index]

    def tf(self, x: list[int]) -> list[int]:
        if self.is_broken:
            self.is_broken = False
            raise TypeError("not what it expects")
        return [*x, *x]

    def sample(self, index: int) -> Any:
        try:
            x = self.load(index)
            y = self.tf(x)
        except Exception:
            y = self.sample(index + 1)
        return y


@pytest.mark.parametrize("resume", [True, False])
def test_a_failure_that_the_user_catches_is_one_all_the_same(resume: bool) -> None:
    """The handler makes another sample whole, which would pass for what the rest takes."""
    data, filler = Skipping(), Observer((), [(0,)], 1)
    for _ in range(2):
        filler.run(Skipping.sample, (data, 5))
    server = Server(filler.pools[0,], filler.chains[0,], resume=resume)
    assert server.run((data, 5)) == [5, 5]
    data.is_broken = True
    with pytest.raises(split.Unsplittable, match="caught"):
        server.run((data, 5))
    assert server.run((data, 5)) == [5, 5]


def test_what_fails_before_the_stage_is_no_failure_of_the_knock_out() -> None:
    """A corrupt file is skipped as without us."""
    data, filler = Skipping(), Observer((), [(1,)], 1)
    for _ in range(2):
        filler.run(Skipping.sample, (data, 5))
    server = Server(filler.pools[1,], filler.chains[1,], resume=False)
    assert server.run((data, 1)) == [2, 2]
    assert server.run((data, 3)) == [5, 5]


class Decorated:
    """Nothing of it needs gradients."""

    @torch.no_grad()
    def sample(self, index: int) -> Any:
        x = self.load(index)
        y = x * 2
        return y, torch.is_grad_enabled()

    @torch.inference_mode()
    def load(self, index: int) -> torch.Tensor:
        x = torch.full((2,), float(index))
        x = x + 1
        return x


@pytest.mark.parametrize("resume", [True, False])
def test_code_under_a_decorator_of_torchs_is_served(resume: bool) -> None:
    """`@torch.no_grad()` on a method hinders neither a cut in it nor a knock-out, and holds for the rest."""
    data, found = Decorated(), Observer(opened=[(0,), (0, 0), (0, 0, 0)])
    found.run(Decorated.sample, (data, 3))
    address = next(address for address, cost in found.costs.items() if cost.text == "x = x + 1")
    filler = Observer([(0,), (0, 0), (0, 0, 0)], [address], 1)
    filler.run(Decorated.sample, (data, 3))
    assert filler.refused == {}
    result, has_gradients = Server(filler.pools[address], filler.chains[address], resume=resume).run((data, 5))
    assert result.tolist() == [8, 8]
    assert not has_gradients


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        (contextlib.__file__, True),
        ("/opt/env/lib/python3.11/site-packages/monai/data/dataset.py", True),
        ("/usr/lib/python3/dist-packages/numpy/core/numeric.py", True),
        ("/home/me/train.py", False),
    ],
)
def test_what_is_installed_is_not_the_users(filename: str, expected: bool) -> None:
    """Whatever the system calls the folder of its packages."""
    assert is_library(filename) == expected


# --- What a knock-out would leave behind ------------------------------------------------------------------------------

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
