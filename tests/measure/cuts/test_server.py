"""Generated datasets must give the same samples when watched, resumed and stubbed as when they are left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from generated import bodies, check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unstarve.measure.cuts import split
from unstarve.measure.cuts.observer import Observer
from unstarve.measure.cuts.server import Server


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


def test_keywords_of_any_name_pass() -> None:
    """A user's keyword may have the name of one of ours."""
    body = "n = dict(callee=h(1), self=h(2), arguments=h(3))\n        return n['callee'], n['self'], t"
    check(f"        {body}\n", 1)


class Skipping:
    """A data set that takes the next sample where anything goes wrong."""

    def __init__(self) -> None:
        self.fails = 0
        self.corrupt = 7

    def load(self, index: int) -> list[int]:
        if index == 1:
            raise OSError("corrupt")
        return [index]

    def tf(self, x: list[int]) -> list[int]:
        y = list(x)
        if self.fails or x == [self.corrupt]:
            self.fails = max(0, self.fails - 1)
            raise TypeError("not what it expects")
        return y + x

    def both(self, x: list[int]) -> list[int]:
        y = self.tf(x)
        return self.tf(y)

    def sample(self, index: int) -> Any:
        try:
            x = self.load(index)
            y = self.tf(x)
        except Exception:
            y = self.sample(index + 1)
        return y


@pytest.mark.parametrize("resume", [True, False])
def test_failures_that_the_user_catches_are_no_habit(resume: bool) -> None:
    """The handler makes another sample whole: now and then it does so without us, too, but where it always does, its samples
    would pass for what the rest takes."""
    data, filler = Skipping(), Observer((), [(0,)], 1)
    filler.run(Skipping.sample, (data, 5))
    server = Server(filler.pools[0,], filler.chains[0,], resume=resume)
    for number in range(50):
        data.fails = number % 10 == 9
        assert server.run((data, 5)) == ([6, 6] if number % 10 == 9 else [5, 5])
    data.corrupt = 5
    with pytest.raises(split.Unsplittable, match="caught"):
        for _ in range(50):
            server.run((data, 5))


@pytest.mark.parametrize("opened", [(), [(1,)]], ids=["before", "within"])
def test_what_is_made_of_a_record_that_fails_is_not_kept(opened: Any) -> None:
    """A corrupt record comes to its handler each time that it is served: only records that come through are kept."""
    address = (1, 0) if opened else (0,)
    data, filler = Skipping(), Observer(opened, [address], 4)
    for index in (7, 5, 7, 6):
        filler.run(Skipping.sample, (data, index))
    assert filler.refused == {}
    server = Server(filler.pools[address], filler.chains[address], resume=True)
    assert [server.run((data, 3)) for _ in range(3)] == [[5, 5], [6, 6], [5, 5]]


def test_what_is_made_of_a_record_that_ends_the_sample_is_not_kept() -> None:
    """Nor is what was kept where nobody handles the exception."""
    data, filler = Skipping(), Observer([(0,)], [(0, 0)], 4)
    with pytest.raises(TypeError):
        filler.run(Skipping.both, (data, [7]))
    filler.run(Skipping.both, (data, [6]))
    assert len(filler.pools[0, 0]) == 1


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
