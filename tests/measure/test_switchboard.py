"""Orders to the workers."""

from __future__ import annotations

from unstarve.measure.switchboard import Switchboard


def test_an_order_that_is_held_back_comes_back_under_its_own_generation() -> None:
    board = Switchboard()
    generation = board.write({"mode": "token"})
    board.hold()
    held, order = board.read()
    assert held > generation
    assert order == {"mode": "run"}
    board.release()
    assert board.read() == (generation, {"mode": "token"})
    assert board.write({"mode": "idle"}) > held


def test_a_new_order_replaces_the_one_that_is_held_back() -> None:
    board = Switchboard()
    board.write({"mode": "token"})
    board.hold()
    generation = board.write({"mode": "idle"})
    board.release()
    assert board.read() == (generation, {"mode": "idle"})


def test_nothing_is_held_back_where_batches_are_made_as_without_us() -> None:
    board = Switchboard()
    board.hold()
    assert not board.is_held
    generation = board.write({"mode": "run"})
    board.hold()
    assert not board.is_held
    assert board.read() == (generation, {"mode": "run"})
