"""Data sets made of random statements, and what must hold for each cut of them."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import random
import traceback
import types
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from PIL import Image

from unstarve.measure.cuts.observer import Observer
from unstarve.measure.cuts.server import Server

NUMBERS = itertools.count()


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
    name = f"generated_{next(NUMBERS)}"
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
    opened = addresses_of(module, function, index)
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
    draws_privately = "self.rng" in body_of(function)  # a generator of the data set's own goes on from where it is
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


def body_of(function: Any) -> str:
    source = "".join(linecache.getlines(function.__code__.co_filename))
    return source[len(PRELUDE) :]


def addresses_of(module: Any, function: Any, index: int) -> tuple[Any, ...]:
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
