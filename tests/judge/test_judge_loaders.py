"""Other loaders, generators around the loader, starts of iterators, and batches that are dropped."""

from __future__ import annotations

import dataclasses

import pytest
from literals import (
    FED,
    LOADER,
    MS,
    STARVED,
    VALID,
    begun_in_steps,
    blamed,
    make_recording,
    make_start,
    started,
    with_fetches,
    with_validation,
    zipped,
)

from unstarve.judge import judge
from unstarve.recording import BodyLine
from unstarve.report import Report


def dropping(count: int, seconds: float, periods: dict[str, float] | None = None) -> Report:
    start = dataclasses.replace(make_start(), dropped=count, dropped_ns=int(seconds * 1e9))
    loader = dataclasses.replace(LOADER, length=200)
    return judge(make_recording(periods or {"none": 20.2, "host": 20}, loader=loader, starts=(start,)))


def test_batches_made_only_to_be_dropped_are_blamed() -> None:
    """A resumed run that makes 100 batches to skip them would be shorter by what that took."""
    report = dropping(100, 8.0)
    assert report.verdict.bound == "start"
    culprit = report.verdict.culprits[0]
    assert culprit.name == "batches made only to be dropped"
    assert culprit.gain.value == pytest.approx(1 + 8 / (100 * 0.0202), rel=0.02)
    assert "dropped the first 100 batches" in culprit.evidence


@pytest.mark.parametrize(("count", "seconds"), [(5, 8.0), (100, 0.4), (0, 0.0)], ids=["few", "quick", "none"])
def test_few_or_quickly_dropped_batches_are_no_accusation(count: int, seconds: float) -> None:
    """Looking at a first batch, or skipping what costs nothing, is nobody's fault."""
    names = {culprit.name for culprit in dropping(count, seconds).verdict.culprits}
    assert "batches made only to be dropped" not in names


def test_a_starved_loop_that_drops_batches_too_is_starved_first() -> None:
    """Input that costs a factor of four in every step is worse than a start that costs some steps once."""
    assert dropping(20, 1.5, {**STARVED, "none": 80}).verdict.bound == "input"


def test_another_loader_that_the_script_waits_for_is_blamed() -> None:
    """A validation loader without workers makes a fed loop input-bound, by the share of the epoch that it takes."""
    report = with_validation(0.9)
    culprit = blamed(report, "workers")
    assert report.verdict.bound == "input"
    assert (culprit.source, culprit.stage) == ("train.py:95", "loader:1")
    assert culprit.gain.value == pytest.approx(1 / (1 - 0.3), rel=0.05)


def test_another_loader_with_workers_is_blamed_as_a_loader() -> None:
    """Where it has workers their number is not what is wrong with it."""
    culprit = blamed(with_validation(0.9, workers=2), "loader")
    assert culprit.name.endswith("waited for between epochs")
    assert culprit.resource == "wait"


@pytest.mark.parametrize(("busy", "resource"), [(0.1, "wait"), (0.9, "cpu"), (None, "cpu")])
def test_another_loader_without_workers_waits_or_computes(busy: float | None, resource: str) -> None:
    """By the CPU time of the script's own thread, which makes its batches."""
    assert blamed(with_validation(0.9, busy=busy), "workers").resource == resource


@pytest.mark.parametrize(
    ("is_beside", "words"), [(True, "waited for beside the loop"), (False, "waited for in the middle of epochs")]
)
def test_another_loader_is_said_to_be_waited_for_where_it_is(is_beside: bool, words: str) -> None:
    """The second loader of a zip is drawn from in every step, and a validation may come in the middle of an epoch."""
    first = dataclasses.replace(make_start(batches=1000), ended_ns=20_000 * MS)
    inside = dataclasses.replace(
        make_start(loader=1, batches=50), created_ns=5_000 * MS, ended_ns=15_000 * MS, wait_ns=9_000 * MS
    )
    starts = (first, zipped(10.0) if is_beside else inside)
    recording = make_recording(FED, starts=starts, loaders=(LOADER, dataclasses.replace(VALID, num_workers=2)))
    culprit = blamed(judge(with_fetches(recording, 10)), "loader")
    assert culprit.name == f"DataLoader(Valid), {words}"
    assert words.removeprefix("waited for ") in culprit.evidence


@pytest.mark.parametrize(("wait_fraction", "seconds"), [(0.05, 10.0), (0.9, 0.5)], ids=["computes", "is short"])
def test_another_loader_that_costs_little_is_not_blamed(wait_fraction: float, seconds: float) -> None:
    """A validation that computes, or that is over soon, is nobody's fault."""
    report = with_validation(wait_fraction, seconds=seconds)
    assert report.verdict.bound == "step"
    assert report.verdict.culprits == ()


def test_what_any_batch_takes_is_not_blamed_on_starting_the_workers() -> None:
    """Kept workers need four seconds for the first batch of an epoch as well, so that keeping them is not advised."""
    report = started(4000)
    assert report.verdict.bound == "start"
    assert report.verdict.culprits[0].name == "the way to the first batch"
    assert [remedy.id for remedy in report.remedies] == ["epochs-run-on"]


@pytest.mark.parametrize(
    ("fetch_ms", "facts", "told"),
    [
        (100, {}, "smaller-buffer"),
        (100, {"start_method": "spawn"}, "persistent-workers"),
        (100, {"start_method": "forkserver"}, "persistent-workers"),
        (100, {"start_method": "spawn", "persistent_workers": True}, "smaller-buffer"),
        (4000, {}, "epochs-run-on"),
    ],
    ids=["forked", "spawned", "from a server", "kept", "slow anyway"],
)
def test_a_stream_fills_a_buffer_only_where_nothing_else_explains_its_first_wait(
    fetch_ms: float, facts: dict, told: str
) -> None:
    """Workers that are no copies of the script's process import everything first, and a batch takes what it takes."""
    assert [remedy.id for remedy in started(fetch_ms, kind="iterable", **facts).remedies] == [told]


@pytest.mark.parametrize("count", [1, 2])
def test_a_sampler_begins_anew_however_long_workers_live(count: int) -> None:
    """What it takes before its first index is lost in every epoch, also where the next one is begun ahead of time."""
    first = dataclasses.replace(make_start(construct_ms=6000), sampler_ns=4000 * MS)
    later = dataclasses.replace(make_start(construct_ms=0, first_ms=1), sampler_ns=4000 * MS)
    loader = dataclasses.replace(LOADER, length=100, persistent_workers=True, sampler="Balanced")
    report = judge(make_recording(FED, starts=(first, later)[:count], loader=loader))
    assert report.verdict.bound == "start"
    assert report.time.start == pytest.approx(4 / (4 + 2), rel=0.03)
    assert [(culprit.kind, culprit.name) for culprit in report.verdict.culprits] == [("sampler", "Balanced")]
    assert [remedy.id for remedy in report.remedies] == ["quicker-sampler"]


def sampled(text: str, own: float, inclusive: float, depth: int) -> BodyLine:
    return BodyLine(
        source=f"order.py:{10 + depth}",
        text=text,
        wall_fraction=own,
        cpu_fraction=own,
        wall_inclusive=inclusive,
        depth=depth,
    )


@pytest.mark.parametrize(
    ("own", "named"),
    [(0.7, "draw(rows)"), (0.3, "rows = [pick(row) for row in table]")],
    ids=["a line", "nothing but a call of many"],
)
def test_the_line_is_named_that_takes_a_sampler_long_to_begin(own: float, named: str) -> None:
    """One that takes most of it itself, or else the innermost that leads to nearly all."""
    lines = (
        sampled("return iter(self.rows())", 0.0, 1.0, 0),
        sampled("rows = [pick(row) for row in table]", 0.1, 0.9, 1),
        sampled("draw(rows)", own, own, 2),
    )
    start = dataclasses.replace(make_start(first_ms=4000), sampler_ns=3900 * MS)
    loader = dataclasses.replace(LOADER, length=100, sampler="Balanced", sampler_source="order.py:9")
    report = judge(make_recording(FED, starts=(start, start), loader=loader, sampler=lines))
    (culprit,) = report.verdict.culprits
    assert (culprit.name, culprit.text, culprit.path) == ("Balanced", named, ("Balanced", named))
    assert culprit.source == next(line.source for line in lines if line.text == named)


def test_an_epoch_without_an_end_says_nothing_of_starts() -> None:
    """A long first wait of a stream that has no length may come once in days."""
    stream = dataclasses.replace(LOADER, length=None, kind="iterable")
    report = judge(make_recording(FED, starts=(make_start(first_ms=8000, batches=100),), loader=stream))
    assert report.time.start == 0
    assert report.verdict.bound != "start"


def test_epochs_that_a_loop_leaves_early_are_as_long_as_it_lets_them() -> None:
    """A hundred of ten thousand batches each time, with a dear start: the starts bind."""
    long = dataclasses.replace(LOADER, length=10_000)
    starts = tuple(make_start(first_ms=4000, batches=100) for _ in range(4))
    assert judge(make_recording(FED, starts=starts, loader=long)).verdict.bound == "start"


def test_a_loader_that_every_step_begins_anew_is_blamed_for_its_starts() -> None:
    """What one iterator for all steps would save is its gain: the sampler's start, not the making of the batch."""
    report = begun_in_steps(100, sampler_ms=9, wait_ms=10)
    assert report.verdict.bound == "input"
    culprit = report.verdict.culprits[0]
    assert (culprit.kind, culprit.stage) == ("sampler", "loader:1")
    assert culprit.gain.value == pytest.approx(2.0, rel=0.05)
    assert "one-iterator" in {remedy.id for remedy in report.remedies}
    assert report.time.other_loaders == pytest.approx(11 / 20, rel=0.05)


def test_what_letting_go_of_an_iterator_takes_is_a_part_of_it() -> None:
    """A permutation that is drawn for one batch must also be freed, which one iterator for all steps would spare as well."""
    report = begun_in_steps(100, sampler_ms=9, wait_ms=10, closed_ms=4)
    assert report.verdict.culprits[0].gain.value == pytest.approx(20 / 6, rel=0.05)
    assert report.time.other_loaders == pytest.approx(15 / 20, rel=0.05)


@pytest.mark.parametrize(
    ("length", "name", "told"),
    [(1, "epochs of a single batch", "epochs-run-on"), (1000, "a new iterator for every step", "one-iterator")],
)
def test_an_iterator_that_has_no_second_batch_is_not_said_to_be_left_early(length: int, name: str, told: str) -> None:
    """Training on the whole data set at once makes an iterator for every step, and cannot take more batches from it."""
    starts = tuple(
        dataclasses.replace(make_start(construct_ms=180, first_ms=60, batches=1), created_ns=number * 250 * MS)
        for number in range(20)
    )
    loader = dataclasses.replace(LOADER, length=length)
    report = judge(make_recording({}, blocks=(), rungs=(), starts=starts, loader=loader))
    assert report.verdict.bound == "start"
    assert name in report.verdict.sentence
    assert report.verdict.culprits[0].name == name
    assert [remedy.id for remedy in report.remedies] == [told]


@pytest.mark.parametrize(
    ("length", "name", "told"),
    [(2, "epochs of 2 batches", "epochs-run-on"), (1000, "a new iterator for every step", "one-iterator")],
)
def test_iterators_of_two_batches_are_as_brief_as_those_of_one(length: int, name: str, told: str) -> None:
    """A loop that takes a pair of batches from each of its iterators is told so, though two of them are natural at most."""
    start = make_start(construct_ms=300, batches=2)
    starts = tuple(
        dataclasses.replace(start, created_ns=n * 400 * MS, ended_ns=n * 400 * MS + start.ended_ns, natural=n < 2)
        for n in range(40)
    )
    report = judge(make_recording(FED, starts=starts, loader=dataclasses.replace(LOADER, length=length)))
    assert report.verdict.bound == "start"
    assert report.verdict.culprits[0].name == name
    assert [remedy.id for remedy in report.remedies] == [told]


def test_a_long_epoch_after_looks_at_two_batches_is_no_brief_one() -> None:
    """What was looked at before training says nothing of how the loop goes on."""
    look = dataclasses.replace(make_start(first_ms=350, construct_ms=5000, batches=2), ended_ns=400 * MS)
    epoch = dataclasses.replace(make_start(first_ms=9000, batches=100), created_ns=400 * MS, natural=False)
    loader = dataclasses.replace(LOADER, length=100)
    report = judge(make_recording(FED, starts=(look, look, epoch), loader=loader))
    assert report.verdict.bound == "start"
    assert "new-iterators" not in {culprit.cause for culprit in report.verdict.culprits}


@pytest.mark.parametrize(
    ("workers", "method", "gain"), [(2, "fork", 130 / 50), (20, "fork", 13), (2, "spawn", 13), (0, "fork", 130 / 110)]
)
def test_workers_of_one_iterator_make_its_batches_still(workers: int, method: str, gain: float) -> None:
    """Of the 100 ms until a first batch each of two forked workers has 50 a step; what spawned ones import is not told from
    that, so that their gain may be as small."""
    starts = tuple(
        dataclasses.replace(make_start(construct_ms=20, first_ms=100, batches=1), created_ns=number * 130 * MS)
        for number in range(20)
    )
    loader = dataclasses.replace(LOADER, num_workers=workers, start_method=method)
    report = judge(make_recording({}, blocks=(), rungs=(), starts=starts, loader=loader))
    found = report.verdict.culprits[0].gain
    assert found.value == pytest.approx(gain, rel=0.01)
    assert report.ceiling is not None
    assert report.ceiling.value == pytest.approx(gain / 0.13, rel=0.01)
    assert found.is_computed is (workers > 0)
    assert found.low <= 130 / 50 or workers == 20
    assert ("their first batches" in report.verdict.sentence) is (workers > 0)


def test_a_worker_of_another_loader_makes_its_batches_still() -> None:
    """Without the 16 ms of each step of 20 until its batch comes, the one worker would need 15 for the next."""
    report = begun_in_steps(100, sampler_ms=0.1, wait_ms=15, num_workers=1)
    assert report.verdict.culprits[0].gain.value == pytest.approx(20.1 / 15, rel=0.02)


def test_a_look_at_another_loader_now_and_then_is_not_begun_in_every_step() -> None:
    assert "sampler" not in {culprit.kind for culprit in begun_in_steps(5, sampler_ms=9, wait_ms=10).verdict.culprits}


def passed_on(share: float, *, step_ms: float = 20.0) -> Report:
    """The report on a loop in whose body a generator around the loader takes this share."""
    line = BodyLine(
        source="train.py:30", text="yield augment(batch)", wall_fraction=share, cpu_fraction=share, busy_inclusive=share,
        wall_inclusive=share, in_iterator=share,
    )  # fmt: skip
    return judge(with_fetches(make_recording({"none": step_ms + 0.1, "host": step_ms}, body=(line,)), 10))


def test_work_between_the_loader_and_the_loop_is_input() -> None:
    """A generator that takes half of the body on batches that it hands on is named with its line."""
    report = passed_on(0.5)
    assert report.verdict.bound == "input"
    culprit = report.verdict.culprits[0]
    assert (culprit.kind, culprit.source, culprit.resource) == ("loader", "train.py:30", "cpu")
    assert culprit.gain.value == pytest.approx(2.0, rel=0.05)
    assert "work-in-workers" in {remedy.id for remedy in report.remedies}


@pytest.mark.parametrize("share", [0.0, 0.03, 0.99])
def test_a_loop_that_is_a_generator_itself_is_not_input(share: float) -> None:
    """Nor is a generator that hands batches on at once."""
    report = passed_on(share)
    assert report.verdict.bound == "step"
    assert "loader" not in {culprit.kind for culprit in report.verdict.culprits}


def test_workers_that_never_rest_do_not_bound_what_a_shorter_body_gains() -> None:
    """They slow the body in the control; in a loop that waits for its body they rest most of the time."""
    line = BodyLine(
        source="train.py:30", text="yield augment(batch)", wall_fraction=0.5, cpu_fraction=0.5, busy_inclusive=0.5,
        wall_inclusive=0.5, in_iterator=0.5,
    )  # fmt: skip
    periods = {"none": 20.1, "host": 20.0, "control:busy": 30.0}
    report = judge(with_fetches(make_recording(periods, body=(line,)), 10))
    assert report.verdict.culprits[0].stage == "iterator"
    assert report.verdict.culprits[0].gain.value == pytest.approx(2.0, rel=0.05)


def test_a_generator_gains_only_what_the_workers_leave() -> None:
    """They go on beside it: where they need nearly all of the period, a shorter body waits for them."""
    line = BodyLine(
        source="train.py:30", text="yield augment(batch)", wall_fraction=0.7, cpu_fraction=0.1, wall_inclusive=0.7,
        in_iterator=0.7,
    )  # fmt: skip
    report = judge(with_fetches(make_recording({"none": 24.0, "host": 20.0}, body=(line,)), 47))
    assert all(culprit.gain.value < 1.1 for culprit in report.verdict.culprits if culprit.stage == "iterator")
