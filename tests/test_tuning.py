"""What follows from a search among loader settings, from literal recordings; and the edit of the script's line."""

from __future__ import annotations

import ast
import dataclasses
import json
import linecache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstarve import recording as recordings
from unstarve import tuning
from unstarve.recording import Block, Loader, Note, Recording, Rung, Settings, Start
from unstarve.remedies.settings import WITHOUT_WORKERS
from unstarve.tuning import FINAL, Tuning

MS = 1_000_000
OWN = Settings(num_workers=4)
LOADER = Loader(
    number=0, name="DataLoader(Toy)", length=100, batch_size=8, num_workers=4, persistent_workers=True, source=None
)


def blocks_of(rung: str, period_ms: float, *, rounds: int = 4, jitter: float = 0.01) -> list[Block]:
    found = []
    for number in range(rounds):
        period = int(period_ms * (1 + jitter * (((number * 7 + len(rung) * 3) % 5) - 2) / 2) * MS)
        found.append(
            Block(
                rung=rung, round=number, start_ns=0, end_ns=8 * period, waits_ns=(period // 2,) * 8,
                bodies_ns=(period - period // 2,) * 8,
            )
        )  # fmt: skip
    return found


def searched(tried: dict[Settings, float], final: tuple[Settings, float] | None = None, **facts) -> Recording:
    """A search in which the script's own settings took 40 ms a step, and others what is given."""
    rungs = [Rung(id="none", label="nothing cached", kind="none", order=90)]
    blocks = blocks_of("none", 40)
    for settings, period in tried.items():
        rungs.append(Rung(id=f"trial:{settings}", label=str(settings), kind="trial", order=-1, settings=settings))
        blocks += blocks_of(rungs[-1].id, period, rounds=2)
    if final is not None:
        label = f"{final[0]}, again"
        rungs.append(Rung(id=FINAL, label=label, kind="trial", order=-1, settings=final[0]))
        blocks += blocks_of(FINAL, final[1], jitter=facts.pop("jitter", 0.01))
    values = {"loader": LOADER, "rungs": tuple(rungs), "blocks": tuple(blocks), "span_ns": 10**10, **facts}
    return Recording(command="unstarve tune train.py", created="2026-01-01T00:00:00+0000", **values)


def judged(*arguments, **facts) -> Tuning:
    found = tuning.judge(searched(*arguments, **facts))
    assert found is not None
    return found


# --- The judgement ----------------------------------------------------------------------------------------------------

SIX, TWO, EIGHT = Settings(num_workers=6), Settings(num_workers=2), Settings(num_workers=8)


def test_what_was_faster_beyond_doubt_is_recommended() -> None:
    """The winner's settings, the arguments that lead there, and the gain measured after the choice."""
    found = judged({SIX: 20, TWO: 60}, (SIX, 21))
    assert found.best == SIX
    assert found.arguments == {"num_workers": 6}
    assert found.gain is not None
    assert found.gain.low <= 40 / 21 <= found.gain.high
    assert "6 workers instead of 4 workers the loop runs 1.9" in found.sentence
    assert found.is_change


def test_the_gain_of_the_choice_is_not_that_of_the_search() -> None:
    """The best of many looks too good, so blocks that led to the choice do not count for its gain."""
    found = judged({SIX: 10}, (SIX, 30))
    assert found.gain is not None
    assert found.gain.value == pytest.approx(40 / 30, rel=0.02)


@pytest.mark.parametrize(("period", "jitter"), [(39.5, 0.01), (41, 0.01), (30, 1.6)])
def test_what_may_be_chance_is_not_recommended(period: float, jitter: float) -> None:
    """A gain under two percent, a loss, or one whose interval holds 1 changes nothing."""
    found = judged({SIX: 20}, (SIX, period), jitter=jitter)
    assert found.best == OWN
    assert found.gain is None
    assert not found.is_change
    assert found.sentence.startswith("Nothing that was tried is better than 4 workers")


def test_fewer_workers_that_are_as_good_are_recommended() -> None:
    """Where no time is lost, processes are saved; and that is not called a speed-up."""
    found = judged({TWO: 40}, (TWO, 40.1))
    assert found.arguments == {"num_workers": 2}
    assert "the loop is as fast" in found.sentence
    assert "times as fast" not in found.sentence


def test_fewer_workers_that_lose_time_are_not() -> None:
    """Saving processes is not worth five percent of the loop's speed."""
    assert judged({TWO: 42}, (TWO, 42)).best == OWN


def test_no_speed_up_is_claimed_that_may_be_none() -> None:
    """Fewer workers that seem faster, but not beyond doubt, are called as fast, with the interval."""
    found = judged({TWO: 38}, (TWO, 38.5), jitter=0.045)
    assert found.gain is not None
    assert 0.97 < found.gain.low < 1 < tuning.WORTH < found.gain.value
    assert found.best == TWO
    assert "the loop is as fast" in found.sentence


def test_a_search_that_did_not_reach_its_end_does_not_deny_what_it_saw() -> None:
    """Settings that looked better but were not measured again are named, and not recommended."""
    found = judged({SIX: 20, TWO: 60})
    assert not found.is_change
    assert "With 6 workers instead of 4 workers the loop seemed to run 2.0" in found.sentence
    assert "Nothing that was tried" not in found.sentence


def test_without_the_scripts_own_settings_there_is_no_answer() -> None:
    """Nothing can be said where the loop was not measured as it is, or where there was no loader."""
    assert tuning.judge(searched({}, blocks=())) is None
    assert tuning.judge(searched({}, loader=None)) is None


def test_a_trial_without_a_block_is_left_out() -> None:
    """A rung that was planned and never measured is not among what was tried; where all are such there is no answer."""
    plan = searched({SIX: 20, TWO: 60})
    found = tuning.judge(without(plan, f"trial:{SIX}"))
    assert found is not None
    assert [item.settings for item in found.tried] == [OWN, TWO]
    assert tuning.judge(without(plan, f"trial:{SIX}", f"trial:{TWO}")) is None


def without(plan: Recording, *rungs: str) -> Recording:
    return dataclasses.replace(plan, blocks=tuple(block for block in plan.blocks if block.rung not in rungs))


def test_a_final_that_was_given_up_recommends_nothing() -> None:
    """Blocks of a final whose workers failed in the end are no proof that these settings work."""
    plan = searched({SIX: 20}, (SIX, 20))
    found = tuning.judge(dataclasses.replace(plan, rungs=plan.rungs[:-1]))
    assert found is not None
    assert not found.is_change
    assert "seemed to run" in found.sentence


def test_everything_tried_is_listed_best_first() -> None:
    """Each with its gain against the script's own settings, which stand among them with none."""
    found = judged({TWO: 60, SIX: 20})
    assert [item.settings for item in found.tried] == [SIX, OWN, TWO]
    assert [item.is_own for item in found.tried] == [False, True, False]
    assert found.tried[1].gain is None
    assert (found.tried[0].rounds, found.tried[1].rounds) == (2, 4)


def test_first_workers_are_kept_over_epochs() -> None:
    """A script that had no workers would start them anew in every epoch, unless told to keep them."""
    loader = dataclasses.replace(LOADER, num_workers=0, persistent_workers=False)
    found = judged({TWO: 20}, (TWO, 20), loader=loader)
    assert found.arguments == {"num_workers": 2, "persistent_workers": True}


NOBODY = Settings(num_workers=0)


@pytest.mark.parametrize(
    ("facts", "also"),
    [
        ({}, {}),
        ({"persistent_workers": True}, {"persistent_workers": False}),
        ({"prefetch_factor": 4}, {"prefetch_factor": None}),
    ],
)
def test_what_only_workers_have_goes_with_the_last_of_them(facts: dict, also: dict) -> None:
    """A `DataLoader` without workers refuses arguments that are about workers."""
    loader = dataclasses.replace(LOADER, **{"persistent_workers": False, **facts})
    found = judged({NOBODY: 20}, (NOBODY, 20), loader=loader, starts=(start(1000),) * 3)
    assert found.best == NOBODY
    assert found.arguments == {"num_workers": 0, **also}
    assert "With no workers instead of 4 workers" in found.sentence


def test_a_winner_that_loses_does_not_deny_what_else_looked_better() -> None:
    """What was measured once more and lost says nothing of others, which are named and not recommended."""
    found = judged({SIX: 20, EIGHT: 25}, (SIX, 41))
    assert not found.is_change
    assert "With 6 workers, which looked best, the loop was not faster than with 4 workers" in found.sentence
    assert "With 8 workers it seemed to run 1.6" in found.sentence
    assert "Nothing that was tried" not in found.sentence


def start(construct_ms: float, first_ms: float = 0) -> Start:
    return Start(
        loader=0, created_ns=0, construct_ns=int(construct_ms * MS), first_wait_ns=int(first_ms * MS), batches=100,
        wait_ns=0, ended_ns=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("construct_ms", "persistent", "is_advised"), [(1000, False, True), (60, False, False), (1000, True, False)]
)
def test_keeping_the_workers_is_advised_where_starting_them_takes_long(
    construct_ms: float, persistent: bool, is_advised: bool
) -> None:
    """A second of every epoch of four is worth an argument; 20 ms are not, and kept workers are kept already."""
    loader = dataclasses.replace(LOADER, persistent_workers=persistent)
    found = judged({SIX: 41}, loader=loader, starts=(start(construct_ms),) * 3)
    assert found.is_change is is_advised
    assert found.arguments == ({"persistent_workers": True} if is_advised else {})
    assert ("Keeping the workers over epochs would save the 19%" in found.sentence) is is_advised
    assert found.sentence.startswith("Keep 4 workers, and add persistent_workers=True.") is is_advised


def test_keeping_the_workers_is_not_advised_for_what_kept_ones_do_as_well() -> None:
    """A second until the first batch that a worker needs for any batch is no matter of starting it."""
    recording = searched(
        {SIX: 41}, loader=dataclasses.replace(LOADER, persistent_workers=False), starts=(start(20, 1000),) * 3
    )
    for fetch_ms, is_advised in ((1000, False), (40, True)):
        blocks = tuple(
            dataclasses.replace(block, fetches_ns=(fetch_ms * MS,) * 8) if block.rung == "none" else block
            for block in recording.blocks
        )
        found = tuning.judge(dataclasses.replace(recording, blocks=blocks))
        assert found is not None
        assert ("persistent_workers" in found.arguments) is is_advised


def test_only_starts_that_recur_count_for_keeping_the_workers() -> None:
    """The first may include what happens once, such as filling the page cache."""
    loader = dataclasses.replace(LOADER, persistent_workers=False)
    assert not judged({SIX: 41}, loader=loader, starts=(start(2000), start(60), start(60))).is_change


def test_threads_of_the_workers_are_changed_by_a_function_not_an_argument() -> None:
    """`DataLoader` has no argument for them, so the change is a snippet and no diff."""
    found = judged({}, (dataclasses.replace(OWN, worker_threads=1), 20))
    assert found.is_change
    assert found.arguments == {}
    assert "torch.set_num_threads(1)" in (found.snippet or "")
    assert "cv2.setNumThreads(0)" in (found.snippet or "")  # torch alone has one thread in a worker anyway


@pytest.mark.parametrize(("host_ms", "says"), [(39.5, "not held back by its input"), (10, "not for want of settings")])
def test_where_nothing_helps_the_headroom_says_why(host_ms: float, says: str) -> None:
    """Either there was nothing to gain, or what there is to gain is not in the settings."""
    plan = searched({SIX: 41})
    found = tuning.judge(dataclasses.replace(plan, blocks=plan.blocks + tuple(blocks_of("host", host_ms))))
    assert found is not None
    assert says in found.sentence


@pytest.mark.parametrize(("length", "gain"), [(4, 1.0), (8, 2.0), (12, 1.5), (1000, 2.0), (None, 2.0)])
def test_gains_are_those_of_epochs_as_long_as_the_loaders(length: int | None, gain: float) -> None:
    """Eight workers are twice as fast as four where they run on; of an epoch of four batches each of four makes one, and
    the others none."""
    plan = searched({EIGHT: 20}, (EIGHT, 20), loader=dataclasses.replace(LOADER, length=length), jitter=0.0)
    blocks = tuple(
        dataclasses.replace(block, bodies_ns=(MS // 10,) * 8, fetches_ns=(160 * MS,) * 8) for block in plan.blocks
    )
    found = tuning.judge(dataclasses.replace(plan, blocks=blocks))
    assert found is not None
    assert found.is_change is (gain > 1)
    assert found.tried[0].gain is not None
    assert found.tried[0].gain.value == pytest.approx(gain, rel=0.02)
    assert found.tried[0].gain.low <= found.tried[0].gain.value <= found.tried[0].gain.high
    assert ("short-epochs" in {caveat.id for caveat in found.caveats}) is (gain < 2)


@pytest.mark.parametrize("ident", tuning.UNTRIED)
def test_settings_that_could_not_be_tried_are_not_denied_a_gain(ident: str) -> None:
    """Where input costs something, more workers than there was room for may be what is wanting."""
    plan = searched({SIX: 41}, notes=(Note(id=ident, sentence="There was no room."),))
    found = tuning.judge(dataclasses.replace(plan, blocks=plan.blocks + tuple(blocks_of("host", 10))))
    assert found is not None
    assert "Input costs a factor of 4.00, and some settings could not be tried" in found.sentence
    assert "There was no room." in [caveat.sentence for caveat in found.caveats]


def test_doubts_are_told() -> None:
    """Any order cannot be repeated exactly; a gain beyond the headroom does not fit; two rounds are few."""
    best = dataclasses.replace(OWN, in_order=False)
    plan = searched({}, (best, 20))
    blocks = [block for block in plan.blocks if block.rung != FINAL or block.round < 2] + blocks_of("host", 30)
    found = tuning.judge(dataclasses.replace(plan, blocks=tuple(blocks)))
    assert found is not None
    assert {caveat.id for caveat in found.caveats} == {"order", "evidence-disagrees", "few-rounds"}


def test_the_result_as_json_holds_everything() -> None:
    """It names its schema and can be read by anything that reads JSON."""
    data = json.loads(judged({SIX: 20}, (SIX, 20)).to_json())
    assert data["schema"] == "unstarve.tuning/1"
    assert data["best"]["num_workers"] == 6
    assert data["arguments"] == {"num_workers": 6}
    assert data["tried"][-1]["gain"] is None


def test_settings_survive_the_file() -> None:
    """A stored search is judged like the one in memory."""
    plan = searched({SIX: 20}, (SIX, 21))
    stored = recordings.from_json(json.loads(json.dumps(dataclasses.asdict(plan))))
    assert tuning.judge(stored) == tuning.judge(plan)


# --- The edit ---------------------------------------------------------------------------------------------------------


def edited(folder: Path, text: str, arguments: dict, number: int = 1) -> str | None:
    """The script after the diff, applied line by line; None where there is no diff."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8", newline="")
    linecache.clearcache()
    found = tuning.diff(f"{path}:{number}", arguments)
    return None if found is None else patched("".join(linecache.getlines(str(path))), found)


def patched(text: str, diff: str) -> str:
    lines, done, position = text.split("\n"), [], 0
    for line in diff.split("\n")[2:]:
        if line.startswith("@@"):
            first = int(line.split()[1].split(",")[0][1:]) - 1
            done += lines[position:first]
            position = first
        elif line[:1] in (" ", "-"):
            assert lines[position] == line[1:]
            position += 1
        if line[:1] in (" ", "+"):
            done.append(line[1:])
    return "\n".join(done + lines[position:])


def keywords_of(text: str, name: str = "DataLoader") -> dict[str, str]:
    """Keyword arguments of the first call of that name, as written."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
            return {str(keyword.arg): ast.unparse(keyword.value) for keyword in node.keywords}
    raise AssertionError(f"no call of {name}")


CHANGE = {"num_workers": 6, "prefetch_factor": 4}


@pytest.mark.parametrize(
    ("text", "after", "number"),
    [
        ("x = DataLoader(ds)\n", "x = DataLoader(ds, num_workers=6, prefetch_factor=4)\n", 1),
        (
            "x = DataLoader(ds, 8, True, num_workers=2)\n",
            "x = DataLoader(ds, 8, True, num_workers=6, prefetch_factor=4)\n",
            1,
        ),
        (
            "x = DataLoader(ds, num_workers=args.n or os.cpu_count() // 2, shuffle=True)\n",
            "x = DataLoader(ds, num_workers=6, shuffle=True, prefetch_factor=4)\n",
            1,
        ),
        (
            "x = DataLoader(\n    Wrap(ds, size=(4, 4)),\n    num_workers=2,\n    shuffle=True,  # always\n)\n",
            "x = DataLoader(\n    Wrap(ds, size=(4, 4)),\n    num_workers=6,\n    shuffle=True, prefetch_factor=4,  # always\n)\n",
            3,
        ),
        (
            "x = DataLoader(\n    ds,\n    shuffle=True  # (why not)\n    # nothing more)\n)\n",
            "x = DataLoader(\n    ds,\n    shuffle=True, num_workers=6, prefetch_factor=4  # (why not)\n    # nothing more)\n)\n",
            5,
        ),
        (
            "x = DataLoader(ds, collate_fn=(lambda s: s))\n",
            "x = DataLoader(ds, collate_fn=(lambda s: s), num_workers=6, prefetch_factor=4)\n",
            1,
        ),
        ("x = DataLoader(((ds)) , )\n", "x = DataLoader(((ds)), num_workers=6, prefetch_factor=4 , )\n", 1),
        (
            "é, x = 'häß→😀', DataLoader(ds, num_workers=2)\n",
            "é, x = 'häß→😀', DataLoader(ds, num_workers=6, prefetch_factor=4)\n",
            1,
        ),
        (
            "x = {'a': [DataLoader(ds, num_workers=0), 3]}\n",
            "x = {'a': [DataLoader(ds, num_workers=6, prefetch_factor=4), 3]}\n",
            1,
        ),
        (
            "x = torch.utils.data.DataLoader(ds)\n",
            "x = torch.utils.data.DataLoader(ds, num_workers=6, prefetch_factor=4)\n",
            1,
        ),
        (
            "from torch.utils.data import DataLoader as DL\nx = DL(ds)\n",
            "from torch.utils.data import DataLoader as DL\nx = DL(ds, num_workers=6, prefetch_factor=4)\n",
            2,
        ),
        (
            "x = MyLoader(ds, num_workers=n, prefetch_factor=2)\n",
            "x = MyLoader(ds, num_workers=6, prefetch_factor=4)\n",
            1,
        ),
        (
            "x = DataLoader(ImageFolder(root, loader=PilLoader(3)), num_workers=2)\n",
            "x = DataLoader(ImageFolder(root, loader=PilLoader(3)), num_workers=6, prefetch_factor=4)\n",
            1,
        ),
        (
            "class L(DataLoader):\n    def __init__(self):\n        super().__init__(ds, num_workers=2)\n",
            "class L(DataLoader):\n    def __init__(self):\n        super().__init__(ds, num_workers=6, prefetch_factor=4)\n",
            3,
        ),
        (
            "\x0c\na = '\u2028'\nx = DataLoader(ds, num_workers=2)\n",
            "\x0c\na = '\u2028'\nx = DataLoader(ds, num_workers=6, prefetch_factor=4)\n",
            3,
        ),
        ("x = DataLoader(ds)", "x = DataLoader(ds, num_workers=6, prefetch_factor=4)\n", 1),
        (
            "y = 1\r\nx = DataLoader(ds,\r\n  num_workers=2)\r\n",
            "y = 1\nx = DataLoader(ds,\n  num_workers=6, prefetch_factor=4)\n",
            2,
        ),
    ],
)
def test_the_call_is_edited_as_it_is_written(tmp_path: Path, text: str, after: str, number: int) -> None:
    """Values are replaced, missing keywords follow the last argument, and nothing else changes."""
    assert edited(tmp_path, text, CHANGE, number) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("x = DataLoader(ds, num_workers=2)\n", "x = DataLoader(ds, num_workers=0)\n"),
        (
            "x = DataLoader(ds, num_workers=2, prefetch_factor=2, persistent_workers=True, timeout=60)\n",
            "x = DataLoader(ds, num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)\n",
        ),
        (
            "x = DataLoader(ds, multiprocessing_context='spawn', num_workers=2)\n",
            "x = DataLoader(ds, multiprocessing_context=None, num_workers=0)\n",
        ),
    ],
)
def test_a_call_without_workers_keeps_no_argument_that_needs_them(tmp_path: Path, text: str, after: str) -> None:
    """What the call gives and torch would refuse takes its default; what it does not give stays away."""
    assert edited(tmp_path, text, {"num_workers": 0}) == after


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("x = DataLoader(ds, **options)\n", 1),
        ("x = DataLoader(*arguments, shuffle=True)\n", 1),
        ("x = DataLoader(ds, 8, True, None, None, 4)\n", 1),
        ("x = MyLoader()\n", 1),
        ("x = make(ds)\n", 1),
        ("x = create_loader(ds, num_workers=2)\n", 1),
        ("x = DataLoader(ds)\ny = 3\n", 2),
        ("a, b = DataLoader(ds), DataLoader(other)\n", 1),
        ("x = DataLoader(ds\n", 1),
        ("", 1),
    ],
    ids=[
        "**",
        "*",
        "positional",
        "no argument",
        "other call",
        "may refuse some",
        "other line",
        "two calls",
        "no Python",
        "empty",
    ],
)
def test_what_cannot_be_edited_safely_is_left_alone(tmp_path: Path, text: str, number: int) -> None:
    """Where arguments cannot be seen, the call cannot be told, or may refuse what was not given before, there is no diff."""
    assert edited(tmp_path, text, CHANGE, number) is None


def test_a_script_that_is_gone_gives_no_diff(tmp_path: Path) -> None:
    """Neither does a loader whose place is not known."""
    assert tuning.diff(f"{tmp_path}/gone.py:3", CHANGE) is None
    assert tuning.diff(None, CHANGE) is None


def test_settings_that_are_there_already_give_no_diff(tmp_path: Path) -> None:
    """An edit that changes nothing is none."""
    assert edited(tmp_path, "x = DataLoader(ds, num_workers=6)\n", {"num_workers": 6}) is None


def test_two_loaders_on_lines_of_their_own_are_told_apart(tmp_path: Path) -> None:
    """The line number decides, in the middle of a call too."""
    text = "a = wrap(\n    DataLoader(\n        train\n    ),\n    DataLoader(test),\n)\n"
    assert edited(tmp_path, text, {"num_workers": 6}, 3) == text.replace("train", "train, num_workers=6")
    assert edited(tmp_path, text, {"num_workers": 6}, 5) == text.replace("test", "test, num_workers=6")


VALUES = st.sampled_from(["2", "None", "(1)", "f(a, b=[3])", "lambda x: (x)", "'é#)'", '"""a\n)b"""', "x if y else z"])
NAMES = st.sampled_from(["num_workers", "prefetch_factor", "pin_memory", "in_order", "shuffle", "collate_fn"])
GAPS = st.sampled_from(["", " ", "\n    ", "  # a comment, with ) and é\n    "])
FUNCTIONS = st.sampled_from(["DataLoader", "torch.utils.data.DataLoader", "data.DataLoader"])
ARGUMENTS = st.dictionaries(st.sampled_from(["num_workers", "prefetch_factor", "pin_memory"]), st.integers(0, 9), min_size=1)  # fmt: skip


@st.composite
def calls(draw) -> str:
    positional = draw(st.lists(VALUES, min_size=1, max_size=4))
    named = draw(st.dictionaries(NAMES, VALUES))
    items = [f"({item})" if draw(st.booleans()) else item for item in positional]
    items += [f"{name}={f'({item})' if draw(st.booleans()) else item}" for name, item in named.items()]
    inner = ",".join(f"{draw(GAPS)}{item}{draw(GAPS)}" for item in items)
    return f"{draw(FUNCTIONS)}({inner}{draw(st.sampled_from(['', ',', ', ']))}{draw(GAPS)})"


@given(call=calls(), before=st.sampled_from(["", "é = '→'; ", "[", "f(1, "]), arguments=ARGUMENTS)
def test_an_edited_call_has_exactly_the_wanted_values(
    tmp_path_factory: pytest.TempPathFactory, call: str, before: str, arguments: dict[str, int]
) -> None:
    """However the call is spelt, the script still parses; what was asked for is there, the rest as it was."""
    closing = {"[": "]", "f(1, ": ")"}.get(before, "")
    text = f"{before}{call}{closing}\n"
    given = keywords_of(text)
    reset = WITHOUT_WORKERS if arguments.get("num_workers") == 0 else {}
    reset = {name: str(value) for name, value in reset.items() if name in given}
    wanted = {**given, **reset, **{name: str(value) for name, value in arguments.items()}}
    after = edited(tmp_path_factory.getbasetemp(), text, arguments) or text
    assert keywords_of(after) == wanted
    assert ast.unparse(ast.parse(after)).split("DataLoader")[0] == ast.unparse(ast.parse(text)).split("DataLoader")[0]
