"""What belongs together in a report, and how figures and text are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstarve import render as view
from unstarve.render import page, terminal
from unstarve.report import Caveat, Estimate, Needs, Remedy, Report, Verdict, WallTime


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;unfinished link", "]8;;unfinished link"),
        ("\u202egnp.exe\x00\x9b2J", "gnp.exe"),
        ("lone \ud800 surrogate", "lone surrogate"),
    ],
)
def test_printable(given: str, expected: str) -> None:
    """A name is one line of visible characters, whatever it holds."""
    assert view.printable(given).replace("  ", " ") == expected


def test_patches_keep_their_lines(toy: Report) -> None:
    """Cleaning a report joins the lines of every text but a patch."""
    remedy = replace(toy.remedies[0], advice="one\ntwo", patch="-\tone\n+two\x1b[0m")
    clean = view.cleaned(replace(toy, remedies=(remedy,))).remedies[0]
    assert (clean.advice, clean.patch) == ("one two", "-   one\n+two")


def test_cleaning_changes_nothing_else(toy: Report) -> None:
    """A report without unprintable text stays equal, but for the newline that ends a patch."""
    patches = tuple(replace(remedy, patch=remedy.patch and remedy.patch.rstrip()) for remedy in toy.remedies)
    assert view.cleaned(toy) == replace(toy, remedies=patches)


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, "0.00"), (0.0123, "0.012"), (0.89, "0.89"), (12.34, "12.3"), (1234.5, "1234")]
)
def test_figures(value: float, expected: str) -> None:
    """A figure shows about three significant digits."""
    assert view.figure(value) == expected


def test_interval_has_the_decimals_of_its_value() -> None:
    """The ends of an interval are as fine as the estimate between them."""
    assert view.ratio(Estimate(value=9.96, low=9.51, high=10.42)) == "×9.96 (9.51–10.42)"


def test_answer_does_not_repeat_the_badge() -> None:
    """The badge's word is dropped from the sentence only where the sentence starts with it."""
    assert view.answer(Verdict(bound="step", sentence="Step-bound: the device is busy.")) == "The device is busy."
    assert view.answer(Verdict(bound="step", sentence="Beware: odd.")) == "Beware: odd."


@pytest.mark.parametrize(
    ("bound", "stage", "gain", "is_told"),
    [
        ("input", "iterator", 5.0, True),
        ("input", "loader:1", 5.0, True),
        ("start", "worker-start", 5.0, True),
        ("step", "step", 5.0, True),
        ("input", "iterator", 1.5, False),
        ("input", "transform:2", 5.0, False),
    ],
)
def test_a_claim_beyond_the_headroom_is_said_to_lie_beside_it(
    toy: Report, bound: str, stage: str, gain: float, is_told: bool
) -> None:
    """Else a claim of more than all that feeding from cache gains reads like a contradiction."""
    culprit = replace(toy.verdict.culprits[0], stage=stage, gain=Estimate(value=gain, low=gain, high=gain))
    report = replace(toy, verdict=replace(toy.verdict, bound=bound, culprits=(culprit,)))
    assert ("beside them" in view.beside_headroom(report)) is is_told
    assert ("first claim is about" in " ".join(terminal.render(report).split())) is is_told
    assert ("the first claim is about" in page.render(report)) is is_told


def test_guilty_drop_lies_below_the_rung_that_spares_the_culprit(toy: Report) -> None:
    """A culprit marks the rung below the one that serves its output, or that of a stage around it, from cache."""
    drops = view.guilty_drops(toy)
    assert {rung: culprit.stage for rung, culprit in drops.items()} == {"none": "0", "after:2": "3.1"}


@pytest.mark.parametrize(("kind", "rung"), [("copy", "host"), ("ipc", "collated"), ("collate", "samples")])
def test_culprit_without_a_stage_has_a_place(toy: Report, kind: str, rung: str) -> None:
    """Copying, transport and collation mark the drop that shows them, though no cut point names them."""
    culprit = replace(toy.verdict.culprits[0], stage=kind, kind=kind)
    bare = replace(toy, stages=(), rungs=tuple(replace(each, after=None) for each in toy.rungs))
    assert list(view.guilty_drops(replace(bare, verdict=replace(toy.verdict, culprits=(culprit,))))) == [rung]


def test_cause_that_is_no_stage_marks_no_drop(toy: Report) -> None:
    """Where the ladder cannot show a cause, none of its drops is blamed."""
    culprit = replace(toy.verdict.culprits[0], stage="workers", kind="workers")
    assert view.guilty_drops(replace(toy, verdict=replace(toy.verdict, culprits=(culprit,)))) == {}


def test_cheap_siblings_share_a_line(toy: Report) -> None:
    """Stages below 2 % of a sample and without a gain are summed; the shown and the summed are all there are."""
    rows = view.stage_rows(toy)
    folds = [(row.folded, round(row.folded_wall_s * 1e3, 3)) for row in rows if row.stage is None]
    assert folds == [(2, 0.021), (3, 0.33)]
    assert sum(row.folded or 1 for row in rows) == len(toy.stages)


def test_guilty_stage_is_never_folded(toy: Report) -> None:
    """A stage that the verdict names has its own line, however cheap it and its surroundings are."""
    cheap = replace(toy, stages=tuple(replace(stage, share=0.001, gain_if_free=None) for stage in toy.stages))
    shown = [row.stage.id for row in view.stage_rows(cheap) if row.stage is not None]
    assert shown == ["get", "0", "3", "3.1"]


def test_stage_with_an_unknown_parent_is_outermost(toy: Report) -> None:
    """No stage is lost because the one around it is missing."""
    rows = view.stage_rows(replace(toy, stages=(replace(toy.stages[1], parent="nowhere"),)))
    assert [(row.stage and row.stage.id, len(row.guides)) for row in rows] == [("0", 1)]


def test_remedies_stand_with_the_culprit_they_mention(toy: Report) -> None:
    """A remedy joins the first culprit it mentions; the others are kept, none is shown twice."""
    owned = [[remedy.id for remedy in finding.remedies] for finding in view.findings(toy)]
    assert owned == [["smaller-source"], ["or-of-shifts"]]
    assert [remedy.id for remedy in view.other_remedies(toy)] == ["workers"]


def test_sole_culprit_gets_every_remedy(toy: Report) -> None:
    """With one culprit there is nothing else a remedy could be for."""
    one = replace(toy, verdict=replace(toy.verdict, culprits=toy.verdict.culprits[:1]))
    assert set(view.findings(one)[0].remedies) == set(toy.remedies)
    assert view.other_remedies(one) == ()


def test_what_was_tried_is_said_before_what_is_computed(toy: Report) -> None:
    """A finding has room for three remedies: the one with a measured gain is first of them, and what is left of the others
    stands with those of no culprit."""
    one = replace(toy.verdict, culprits=toy.verdict.culprits[:1])
    gain = Estimate(value=3.8, low=3.7, high=3.9)
    computed = [Remedy(id=name, advice=name, predicted_gain=gain) for name in ("a", "b", "c")]
    tried = Remedy(id="workers", advice="Let 8 worker processes load.", measured_gain=gain)
    report = replace(toy, verdict=one, remedies=(*computed, tried))
    assert [remedy.id for remedy in view.findings(report)[0].remedies] == ["workers", "a", "b"]
    assert [remedy.id for remedy in view.other_remedies(report)] == ["c"]


def test_making_a_culprit_cheaper_brings_at_most_what_it_brings_to_be_rid_of_it(toy: Report) -> None:
    """A remedy whose predicted gain is the culprit's own is promised as a bound; what a number of workers gains is none."""
    first = toy.verdict.culprits[0]
    cheaper = Remedy(id="cheaper", advice="Do less.", predicted_gain=first.gain, measured_gain=first.gain)
    assert [word for word, _ in view.promises(toy, cheaper)] == ["predicted at most", "measured"]
    less = replace(cheaper, predicted_gain=replace(first.gain, low=first.gain.low * 0.9), measured_gain=None)
    assert [word for word, _ in view.promises(toy, less)] == ["predicted"]
    workers = replace(toy, verdict=replace(toy.verdict, culprits=(replace(first, kind="workers"),)))
    assert [word for word, _ in view.promises(workers, cheaper)] == ["predicted", "measured"]


def test_line_number_is_not_mistaken_for_a_longer_one(toy: Report) -> None:
    """A remedy for `train.py:48` does not belong to a culprit at `train.py:4`."""
    first, second = toy.verdict.culprits
    culprits = (replace(first, source="train.py:4"), second)
    findings = view.findings(replace(toy, verdict=replace(toy.verdict, culprits=culprits)))
    assert [remedy.id for remedy in findings[1].remedies] == ["or-of-shifts"]


def test_every_doubt_has_exactly_one_place(toy: Report) -> None:
    """Each caveat is printed once, beside what it weakens; one about something unknown weakens the verdict."""
    unknown = Caveat(id="odd", sentence="Odd.", about="no-such-thing")
    placed = view.doubts(replace(toy, caveats=(*toy.caveats, unknown)))
    assert {place: len(sentences) for place, sentences in placed.items()} == {
        "verdict": 2,
        "ladder": 2,
        "stages": 1,
        "finding 3.1": 1,
    }


@pytest.mark.parametrize(("workers", "words"), [(1, "1 worker."), (8, "8 workers.")])
def test_one_worker_is_not_several(toy: Report, workers: int, words: str) -> None:
    lines = dict(view.needs(replace(toy, needs=Needs(cores=0.8, workers=workers))))
    assert words in lines["Needs"]


def test_wall_time_is_told_only_where_it_matters() -> None:
    """The account appears when starts or other loaders exceed 5 %, and leaves out what took no time."""
    assert view.wall_parts(WallTime(steady=0.95, start=0.05, other_loaders=0.0)) == ()
    assert view.wall_parts(WallTime(steady=0.9, start=0.0, other_loaders=0.1)) == (
        ("steady", 0.9),
        ("other loaders", 0.1),
    )


@pytest.mark.parametrize(
    ("headroom", "says"),
    [
        (Estimate(value=1.01, low=0.98, high=1.04), "Nothing to mend was found in 48 steps: your input keeps up"),
        (Estimate(value=1.01, low=0.75, high=1.35), "Nothing to mend was found in 48 steps."),
        (Estimate(value=1.3, low=0.9, high=1.9), ""),
    ],
    ids=["sure", "unsure", "not fed"],
)
def test_a_loop_with_nothing_to_mend_is_told_so(stepping: Report, headroom: Estimate, says: str) -> None:
    """In one sentence that praises no more than was shown, and only where nothing is advised."""
    report = replace(stepping, headroom=headroom, baseline=Estimate(value=3.0, low=2.9, high=3.1, steps=48))
    verdict = replace(report.verdict, culprits=())
    report = replace(report, verdict=verdict)
    assert view.good_news(report).startswith(says)
    assert bool(view.good_news(report)) is bool(says)
    assert view.good_news(replace(report, remedies=(Remedy(id="x", advice="Do this."),))) == ""
    assert view.good_news(replace(report, verdict=replace(verdict, bound="input"))) == ""


def test_what_is_long_and_tells_least_of_the_environment_comes_last(toy: Report) -> None:
    """The line is cut at its end, which must not cost the cores or the device."""
    report = replace(toy, environment={"platform": "Linux-6", "cores": 4, "device": "A10G"})
    assert [name for name, _ in view.environment_items(report)][-3:] == ["cores", "device", "platform"]
