"""Functions of every kind are taken apart in Python's order, or refused with the reason."""

from __future__ import annotations

import ast
import functools
import linecache
import types
import warnings
from typing import Any

import pytest

from unstarve.measure.cuts import split, variants
from unstarve.measure.cuts.observer import Observer
from unstarve.measure.cuts.split import Unsplittable
from unstarve.measure.cuts.switched import switched

_count = iter(range(10_000))


def defined(source: str, name: str = "f", **names: Any) -> Any:
    """The function of that name after the source, which can be read back."""
    filename = f"/split/{next(_count)}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)
    return functools.reduce(getattr, name.split(".")[1:], names[name.split(".")[0]])


def texts(function: Any) -> list[str]:
    """The normalised statements."""
    return ast.unparse(split.split(function).node).splitlines()[1:]


class Quiet:
    """A runtime that lets everything pass, and remembers the calls."""

    def __init__(self, frame: dict[str, Any] | None = None) -> None:
        self.frame = frame or {}
        self.seen: list[Any] = []
        self.getitem = lambda owner, key: owner[key]

    def enter(self, number: int, depth: int, frame: Any) -> None:
        self.seen.append(("enter", number, depth))

    def leave(self, number: int, depth: int, names: Any, frame: Any) -> None:
        self.seen.append(("leave", number, depth))

    def pinned(self, frame: Any) -> None:
        pass

    def caught(self) -> None:
        self.seen.append("caught")

    iteration = iterated = lambda self, *facts: None

    def each(self, items: Any) -> Any:
        return items

    def bound(self, callee: Any, /, *arguments: Any, **keywords: Any) -> Any:
        return functools.partial(callee, *arguments, **keywords)

    def load(self, names: Any, present: Any = None) -> Any:
        return [self.frame.get(name) for name in names]

    def sequence(self, items: Any) -> Any:
        return list(items)


def watch(function: Any, *arguments: Any, **keywords: Any) -> Any:
    return variants.watched(split.split(function))(Quiet())(*arguments, **keywords)


def resume(function: Any, address: tuple[int, ...], *arguments: Any, **frame: Any) -> Any:
    factory, _ = variants.resumed(split.split(function), address)
    return factory(Quiet(frame))(*arguments)


# --- What cannot be taken apart ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(x):\n    yield x", "generator"),
        ("async def f(x):\n    return x", "coroutine"),
        ("async def g(): pass\ndef f(x):\n    return [a async for a in x]", "coroutine"),
        ("def f(x):\n    return locals()", "locals"),
        ("def f(x):\n    return eval('x')", "eval"),
        ("def f(x):\n    exec('x')", "exec"),
        ("def f(x):\n    return vars()", "vars"),
        ("import sys\ndef f(x):\n    return sys._getframe()", "_getframe"),
        ("def f(x):\n    global y\n    y = x", "global"),
        ("def f(x):\n    def g():\n        nonlocal x\n        x = 1\n    g()\n    return x", "enclosing"),
    ],
)
def test_what_looks_at_or_beyond_its_frame_is_refused(source: str, reason: str) -> None:
    """Generators, coroutines and functions that use their frame or rebind outer names are wholes, with the reason."""
    try:
        function = defined(source)
    except SyntaxError:
        pytest.skip("not Python of this version")
    with pytest.raises(Unsplittable, match=reason):
        split.split(function)


def test_without_source_it_is_refused() -> None:
    """Code made by `exec` without a readable source is a whole."""
    names: dict[str, Any] = {}
    exec("def f(x):\n    return x", names)
    with pytest.raises(Unsplittable, match="source"):
        split.split(names["f"])


def test_builtins_and_lambdas_are_refused() -> None:
    """What has no definition statement is a whole."""
    for function in (len, functools.partial(len), lambda x: x):
        with pytest.raises(Unsplittable):
            split.split(function)


def test_an_edited_file_is_refused() -> None:
    """Source that is not what runs is never taken for it, not even if only a number changed."""
    function = defined("def f(x):\n    return x * 2\n")
    filename = function.__code__.co_filename
    linecache.cache[filename] = (0, None, ["def f(x):\n", "    return x * 3\n"], filename)
    split._parse.cache_clear()
    split._anatomy.cache_clear()
    with pytest.raises(Unsplittable, match="not what runs"):
        split.split(function)


@pytest.mark.parametrize("body", ["return x", "yield x"])
def test_source_that_does_not_compile_once_more_is_refused(body: str) -> None:
    """A notebook's cell that awaits something outside of functions is no error of the program's."""
    filename = f"/split/{next(_count)}.py"
    source = f"def f(x):\n    {body}\nawait g()\n"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    cell = compile(source, filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    code = next(item for item in cell.co_consts if isinstance(item, types.CodeType))
    with pytest.raises(Unsplittable, match="taken apart"):
        (split.split if body == "return x" else switched)(types.FunctionType(code, {}))


def test_source_that_is_nested_too_deep_is_refused() -> None:
    """What Python compiles and we cannot walk through stays a whole."""
    function = defined(f"def f(x):\n    return {'+'.join(['x'] * 600)}\n")
    assert function(1) == 600
    with pytest.raises(Unsplittable, match="RecursionError"):
        split.split(function)


def test_calls_of_harmless_namesakes_are_allowed() -> None:
    """`model.eval()` and `vars(x)` look at no frame."""
    split.split(defined("def f(m):\n    m.eval()\n    return vars(m), dir(m), globals()\n"))


# --- What can ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x):\n    '''doc'''", None),
        ("def f(x):\n    '''doc'''\n    return x", 3),
        ("def f(x):\n    return", None),
        ("def f(x):\n    return x + 1", 4),
        ("def f(x):\n    if x > 2:\n        return 1\n    return 2", 1),
        ("def f(x, *a, k=2, **m):\n    return x + k + len(a) + len(m)", 5),
        ("def f(x, /, y=int('4')):\n    return max(x, y)", 4),
        (
            "def f(x):\n    try:\n        return int('a')\n    except ValueError:\n        return -x\n    finally:\n        x = 9",
            -3,
        ),
        (
            "def f(x):\n    while True:\n        x += 1\n        if x % 5:\n            continue\n        break\n    return x",
            5,
        ),
        (
            "def f(x):\n    for g in (abs, str):\n        x = g(x)\n        if x == '3': break\n    else:\n        x = 0\n    return x",
            "3",
        ),
        ("def f(x):\n    def g(y=int('2')): return x + y\n    return g()", 5),
        ("def f(x):\n    class C:\n        z = x\n    return C().z", 3),
        ("def f(x):\n    import math\n    return math.floor(float(x))", 3),
        (
            "def f(x):\n    match {'k': [x, 4]}:\n        case {'k': [a, *b], **c}:\n            return a + b[0] + len(c)",
            7,
        ),
        ("def f(x):\n    y: int\n    y: int = abs(x)\n    return y", 3),
        ("def f(x):\n    a = [y := abs(i) for i in range(x)]\n    return y + len(a)", 5),
        ("def f(x):\n    return f'{abs(x)!r:>3}' + ''.join(str(i) for i in range(x))", "  3012"),
        ("def f(x):\n    del x\n    x = int('3')\n    return x", 3),
        ("def f(x):\n    return [*range(x), *map(abs, [x])]", [0, 1, 2, 3]),
        ("def f(x):\n    return (lambda y=abs(x): y)()", 3),
        ("def f(x):\n    return {**{'a': abs(x)}, 'b': abs(1)}", {"a": 3, "b": 1}),
        ("def f(x):\n    return x if abs(x) > 1 else -x", 3),
        ("def f(x):\n    return 1 < abs(x) < abs(9)", True),
    ],
)
def test_watched_functions_give_their_result(source: str, expected: Any) -> None:
    """Every kind of statement survives being taken apart."""
    function = defined(source)
    assert function(3) == expected
    assert watch(function, 3) == expected


def test_source_from_the_line_cache_is_enough() -> None:
    """Notebooks keep their cells there."""
    assert [unit.text for unit in split.split(defined("def f(x):\n    y = abs(x)\n    return y\n")).units] == [
        "y = abs(x)",
        "return y",
    ]


def test_a_form_feed_ends_no_line() -> None:
    """Statements have the text of their own line behind one."""
    filename = f"/split/{next(_count)}.py"
    source = "k = 1\n\x0c\ndef f(x):\n    y = abs(x)\n    return y\n"
    linecache.cache[filename] = (len(source), None, [line + "\n" for line in source.split("\n")], filename)
    names: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), names)
    assert [unit.text for unit in split.split(names["f"]).units] == ["y = abs(x)", "return y"]


def test_nested_calls_become_units_in_pythons_order() -> None:
    """A nested expression is computed from the inside out and the left to the right; pins are no units."""
    source = "def f(self, i):\n    return self.tf(self.load(i), key=i[0], other=g(i)) + h(self.rest), i\n"
    parts = split.split(defined(source))
    assert [unit.callee for unit in parts.units] == ["self.load", "g", "self.tf", "h", None, None]
    assert [unit.line for unit in parts.units] == [2] * 6


@pytest.mark.parametrize(
    ("returned", "callees"),
    [
        ("self.tf(*self.load(i))", ["self.load", "self.tf"]),
        ("{'x': self.tf(self.load(i)), 'shape': (*self.size, 3)}", ["self.load", "self.tf"]),
        ("[*self.load(i), i]", ["self.load"]),
    ],
)
def test_what_is_unpacked_is_a_unit_of_its_own(returned: str, callees: list[str]) -> None:
    """A star in a statement hides neither the call whose result it unpacks nor the others beside it."""
    units = split.split(defined(f"def f(self, i):\n    return {returned}\n")).units
    assert [unit.callee for unit in units if unit.callee] == callees


@pytest.mark.parametrize(
    "lazy", ["map(draw, x)", "(draw(k) for k in x)", "(draw(k) for k in list(x))", "each(draw, x)", "lazy"]
)
@pytest.mark.parametrize("around", ["(*{}, len(x), abs(1))", "abs(max(*{}, abs(1)))", "sum([*{}, abs(1)])"])
def test_what_is_drawn_by_unpacking_is_timed_by_itself(lazy: str, around: str) -> None:
    """The work of an iterator that a star draws from is charged to no call beside it."""
    runtime = Quiet()
    source = f"def f(x, draw):\n    lazy = map(draw, x)\n    return {around.format(lazy)}\n"
    parts = split.split(defined(f"def each(g, x):\n    for k in x:\n        yield g(k)\n{source}"))
    variants.watched(parts)(runtime)([1, 2], lambda k: runtime.seen.append("drawn") or k)
    drawn = runtime.seen.index("drawn")
    assert runtime.seen[drawn : drawn + 2] == ["drawn", "drawn"]
    event, number, _ = runtime.seen[drawn - 1]
    assert event == "enter"
    assert parts.units[number].callee is None
    assert runtime.seen[drawn + 2] == ("leave", number, 0)


@pytest.mark.parametrize("shown", ["[*map(draw, x)]", "(*map(draw, x), 3)", "[*(draw(k) for k in x)]"])
def test_what_a_return_unpacks_is_a_unit(shown: str) -> None:
    """Items that are drawn for what is returned take their time in a unit, and not after the last."""
    runtime = Quiet()
    function = defined(f"def f(x, draw):\n    return {shown}\n")
    variants.watched(split.split(function))(runtime)([1], lambda k: runtime.seen.append("drawn"))
    assert runtime.seen[runtime.seen.index("drawn") + 1][0] == "leave"


@pytest.mark.parametrize("test", ["(y := abs(x)) is None", "not (y := abs(x))", "(y := abs(x)) > 5 or x"])
def test_a_name_bound_in_a_condition_belongs_to_a_unit(test: str) -> None:
    """The call in a condition takes time like any other, and what it binds is carried across a cut behind it."""
    function = defined(f"def f(x):\n    if {test}:\n        x = 0\n    z = abs(x)\n    return y, z\n")
    assert "y" in split.split(function).units[0].outputs
    assert watch(function, -3) == function(-3)
    assert resume(function, (0,), None, _unstarve_0=False, x=-3, y=7) == (7, 3)


def test_temporaries_die_with_their_use() -> None:
    """A large intermediate value is not kept alive until the function returns."""
    assert texts(defined("def f(x):\n    y = abs(int(x))\n    return y\n")) == [
        "    _unstarve_0 = int(x)",
        "    y = abs(_unstarve_0)",
        "    del _unstarve_0",
        "    return y",
    ]


@pytest.mark.parametrize(
    ("returned", "callees"),
    [
        ("(x - self.mean) / self.std, i", [None]),
        ("x > 0", [None]),
        ("{'x': ~x}", [None]),
        ("self.picture, i", [None]),
        ("abs(x), x / 2", ["abs", None]),
        ("abs(x) / 2", ["abs", None]),
        ("abs(x), self.label", ["abs"]),
        ("x, -1", []),
        ("x, lambda: x + 1", []),
        ("x", []),
    ],
)
def test_what_a_return_computes_is_a_unit(returned: str, callees: list[str | None]) -> None:
    """Arithmetic without a call takes time like a call, and so may a property; names and constants take none."""
    units = split.split(defined(f"def f(self, x, i):\n    return {returned}\n")).units
    assert [unit.callee for unit in units] == [*callees, None]


@pytest.mark.parametrize(
    "expression",
    [
        "o.get(t(1))(t(2), *t([3]), k=t(4), **t({'z': 5}))",
        "{**t({}), 'a': t(1)}",
        "{t(1): t(2), **t({}), t(3): t(4)}",
        "o.a(t(1), o.n, t(2))",
        "o[t(1)] + o[o.n] + t(2)",
        "[o.n, t(1), o.n][t(0):t(2):t(1)]",
        "t(1) < o.n < t(3)",
        "o.n + t(1) * o.n - t(2)",
        "(t(0) or o.n) + t(1)",
        "(o.n if t(1) else t(2)) + (t(3) and o.n)",
        "t(f'{t(1)}{o.n}') + str(t(2))",
        "t([i for i in t([1, 2]) if t(i)]) + [o.n]",
        "(y := t(1)) + y + t(2)",
        "t(o.get)(t(1), lambda q=t(2): q)",
        "-t(1) + (not t(0))",
        "o.late(o.set(4), o.n)",
        "v + o.rebind()",
        "w[0] + o.mutate(w)",
        "o.get(t(1))(*t([1]), k=o.n)",
        "o.get(t(1))(*t([1]), t(2), *o.each(t(2)), *w[2], o.more(w), k=t(3))",
        "[*o.each(t(2)), t(1), *w[2], o.more(w)]",
        "{*w[2], o.more(w)}",
        "t([(*w[2], t(3))])",
        "{**w[1], 'k': o.mutate(w)}",
    ],
)
def test_order_of_evaluation(expression: str) -> None:
    """Calls, attribute look-ups and reads of variables that calls may rebind happen in Python's order."""
    source = f"""
def make(t, o):
    v = 1
    def rebind():
        nonlocal v
        v = 100
        return 1
    def f(w):
        return {expression}
    o.rebind = rebind
    return f
"""
    outcomes = []
    for is_watched in (False, True):
        log: list[Any] = []
        function = defined(source, "make")(functools.partial(tell, log), Traced(log))
        result = (functools.partial(watch, function) if is_watched else function)([5, {"a": 1}, [7]])
        outcomes.append((log, None if callable(result) else str(result)))
    assert outcomes[0] == outcomes[1]


def tell(log: list[Any], value: Any) -> Any:
    log.append(None if callable(value) else str(value))
    return value


class Traced:
    """An object that tells of each look-up."""

    def __init__(self, log: list[Any]) -> None:
        self.__dict__["log"] = log
        self.__dict__["value"] = 1

    def __getattr__(self, name: str) -> Any:
        self.log.append(name)
        if name == "n":
            return self.value
        if name == "get":
            return lambda *arguments: functools.partial(self.act, name, ())
        return lambda *arguments: self.act(name, arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __getitem__(self, key: Any) -> Any:
        return key

    def act(self, name: str, arguments: Any, *more: Any, **named: Any) -> Any:
        self.log.append((name, "called", len(arguments)))
        if name == "set":
            self.__dict__["value"] = arguments[0]
        if name == "each":
            return (self.act("drawn", ()) for _ in range(arguments[0]))
        if name == "more":
            arguments[0][2].append(9)
        if name == "mutate":
            arguments[0][0] = 50
            arguments[0][1]["more"] = 1
            return 2
        return len(arguments)


# --- Classes ----------------------------------------------------------------------------------------------------------

CLASSES = """
class Base:
    def f(self, x):
        return [x]
class __Odd(Base):
    __scale = 3
    def __init__(self):
        self.__y = 2
    def __twice(self, __x):
        return __x * 2
    def f(self, x):
        __local = self.__twice(abs(x))
        def inner(z):
            return z * self.__y + self.__scale
        return super().f(inner(__local)) + [len(super().f(x))]
    @staticmethod
    def s(x): return abs(x)
    @classmethod
    def c(cls, x): return cls.s(x), __class__.__name__
Odd = __Odd
class f:
    def f(self, x): return abs(x)
"""


def test_private_names_and_super() -> None:
    """Methods see private names, `super()` and `__class__` as inside their class."""
    odd = defined(CLASSES, "Odd")
    assert watch(odd.f, odd(), 4) == odd().f(4) == [19, 1]
    assert watch(odd.c.__func__, odd, -4) == (4, "__Odd")
    assert watch(odd.s, -4) == 4
    parts = split.split(odd.f)
    first = next(unit.number for unit in parts.units if "_Odd__local" in unit.outputs)
    assert resume(odd.f, (first,), None, None, _Odd__local=8, self=odd(), x=4, inner=None) == [19, 1]


def test_a_method_named_like_its_class() -> None:
    """The variant is the method and not the class."""
    kind = defined(CLASSES, "f")
    assert watch(kind.f, kind(), -2) == 2


def test_decorated_functions() -> None:
    """What a decorator returns is what runs, and is what is taken apart."""
    source = """
import functools
def twice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        result = function(*args, **kwargs)
        return result * 2
    return wrapper
def register(function): return function
@twice
@register
def f(x):
    return abs(x)
"""
    function = defined(source)
    assert watch(function, -3) == 6
    assert split.split(function).units[0].text == "result = function(*args, **kwargs)"
    assert watch(function.__wrapped__, -3) == 3


def test_closures_of_the_same_code_keep_apart() -> None:
    """Two closures share their variants' code and nothing else."""
    make = defined("def make(k):\n    def f(x):\n        return abs(x) + k\n    return f\n", "make")
    assert [watch(make(k), 1) for k in (1, 2, 3)] == [2, 3, 4]


def test_equal_code_in_two_files_keeps_its_file() -> None:
    """Two files with the same text are told apart."""
    first, second = (defined("def f(x):\n    return abs(x)\n") for _ in range(2))
    assert split.split(first).filename != split.split(second).filename


def test_future_statements_hold_in_variants() -> None:
    """Annotations of nested functions are not evaluated where the module says so."""
    source = (
        "from __future__ import annotations\ndef f(x):\n    def g(y: Missing) -> Missing: return y\n    return g(x)\n"
    )
    assert watch(defined(source), 3) == 3


@pytest.mark.skipif(not hasattr(ast, "TypeVar"), reason="syntax of Python 3.12")
def test_type_parameters() -> None:
    """Generic functions and classes are taken apart too."""
    source = "class C[T]:\n    def f[U](self, x: T, y: U) -> T:\n        z: T = abs(x)\n        return z\n"
    kind = defined(source, "C")
    assert watch(kind.f, kind(), -2, 1) == 2


def test_what_python_warned_of_is_not_said_again() -> None:
    """A source that Python warned of when it was loaded is taken apart, and run in variants, without a word."""
    source = 'def f(x):\n    y = abs(x)\n    assert (y, "always true")\n    return "\\d", y is 3\n'
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = defined(source)
        warnings.simplefilter("error")
        assert watch(function, -2) == ("\\d", False)
        assert resume(function, (0,), None, y=5) == ("\\d", False)


@pytest.mark.parametrize(
    "body",
    ["for t in ts:\n        x = t(x)\n        break", "for t in ts:\n        x = abs(t)", "for t in ts:\n        x = f(x)",
     "for t in ts:\n        x = t(x)\n    else:\n        x = 0"],
)  # fmt: skip
def test_other_loops_are_wholes(body: str) -> None:
    """A loop that is left early, or neither calls its items nor hands them on, is no chain of transforms."""
    parts = split.split(defined(f"def f(x, ts):\n    {body}\n    return x\n"))
    assert not split.is_callable_loop(next(node for node in parts.node.body if isinstance(node, ast.For)))


def test_a_comprehension_is_looked_into_like_the_loop_that_it_stands_for() -> None:
    """What a list comprehension calls is a unit of its own, on the line of the comprehension."""
    parts = split.split(Squares.batch)
    loop = parts.units[0]
    assert loop.is_loop
    assert loop.text.startswith("squares = [self.square(number)")
    assert parts.bodies[loop.number][0].callee == "self.square"


@pytest.mark.parametrize("numbers", [[], [1, 2, 3, 4], range(5)])
def test_a_comprehension_taken_apart_gives_the_same(numbers: Any) -> None:
    """Filters, unpacked targets, shadowed names and comprehensions inside other expressions keep their meaning."""
    for function in (Squares.batch, Squares.pairs, Squares.shadowed, Squares.inside):
        expected = function(Squares(), numbers)
        assert Observer(opened=[(number,) for number in range(4)]).run(function, (Squares(), numbers)) == expected


class Squares:
    def square(self, number: int) -> int:
        return number * number

    def batch(self, numbers: Any) -> list[int]:
        squares = [self.square(number) for number in numbers if number % 2 or number > 2]
        return squares

    def pairs(self, numbers: Any) -> list[int]:
        return [self.square(one) + other for one, other in enumerate(numbers)]

    def shadowed(self, numbers: Any) -> tuple[list[int], str]:
        number = "outer"
        found = [self.square(number) for number in numbers]
        return found, number

    def inside(self, numbers: Any) -> tuple[int, int]:
        return sum([self.square(number) for number in numbers]), len([abs(number) for number in numbers])
