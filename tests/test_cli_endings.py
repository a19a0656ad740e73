"""How a run ends once the loop has been measured: exit codes, and what is written whatever else goes wrong."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from literals import DECODE, make_recording

from unstarve import cli

RECORDING = make_recording({"none": 80, "host": 20, "knockout:decode": 25}, stages=(DECODE,))
FAILED = cli._Ending(failed=True, exit_code=7)


def make_engine(*, is_following: bool = False) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        recording=lambda: RECORDING, is_finished=True, is_following=is_following, loaders=(), most_batches=1,
        was_in_thread=False, target=None, why_alone="",
    )  # fmt: skip


def make_output(**facts: object) -> cli.Output:
    return cli.Output(**{"json": None, "html": None, "save": None, "fail_above": None, "quiet": True, **facts})


@pytest.mark.parametrize(
    ("goes_on", "ending", "code"),
    [(True, FAILED, 3), (True, cli._Ending(), 0), (False, FAILED, 0)],
    ids=["went on and failed", "went on", "was stopped"],
)
def test_a_script_that_was_to_go_on_must_end_well(
    capsys: pytest.CaptureFixture[str], goes_on: bool, ending: cli._Ending, code: int
) -> None:
    """The report comes all the same. What fails while a script is stopped is due to us."""
    with pytest.raises(SystemExit) as leaving:
        cli._conclude(make_engine(), ending, make_output(), goes_on=goes_on)
    said = capsys.readouterr()
    assert leaving.value.code == code
    assert "INPUT-BOUND" in said.out
    assert ("the script failed with exit code 7" in said.err) == (code == 3)


@pytest.mark.live
def test_a_script_that_leaves_for_ctrl_c_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As trainers do, with a code of their own; an exit code that has nothing to do with it remains a failure."""
    from unstarve import script
    from unstarve.measure.engine import Engine

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def ending(error: str) -> cli._Ending:
        path = tmp_path / "train.py"
        path.write_text(f"import sys\ntry:\n    raise {error}\nexcept BaseException:\n    sys.exit(7)\n")
        return cli._execute(script.from_file(str(path), ()), Engine(), None)

    assert ending("KeyboardInterrupt") == cli._Ending(interrupted=True, message="it was interrupted")
    assert ending("ValueError") == FAILED


@pytest.mark.parametrize("json", ["r.json", "-"])
def test_a_report_that_cannot_be_printed_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, json: str) -> None:
    """A reader that has gone, as of a pipe into `head`, must not cost a diagnosis that took minutes."""

    def refuse(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.click, "echo", refuse)
    with pytest.raises(BrokenPipeError):
        cli._conclude(make_engine(), cli._Ending(), make_output(save="r.rec", html="r.html", json=json))
    assert {path.name for path in tmp_path.iterdir()} == {"r.rec", "r.html", json} - {"-"}


def test_a_report_that_cannot_be_written_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A folder that has gone meanwhile, or a full disk, is told after the report."""
    with pytest.raises(cli.UsageError, match="cannot be written"):
        cli._conclude(make_engine(), cli._Ending(), make_output(save=str(tmp_path / "none" / "r.rec")))
    assert "INPUT-BOUND" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("is_following", "ending", "variables", "code"),
    [
        (True, FAILED, {}, 3),
        (False, FAILED, {"RANK": "1", "WORLD_SIZE": "2"}, 3),
        (True, cli._Ending(), {}, 0),
        (True, cli._Ending(interrupted=True), {}, 130),
        (False, FAILED, {"RANK": "0", "WORLD_SIZE": "2"}, None),
        (False, cli._Ending(), {"RANK": "1", "WORLD_SIZE": "2"}, None),
    ],
    ids=["failed", "failed before it followed", "ended", "interrupted", "leads", "trains alone"],
)
def test_only_the_rank_that_is_diagnosed_writes_files(
    monkeypatch: pytest.MonkeyPatch,
    is_following: bool,
    ending: cli._Ending,
    variables: dict[str, str],
    code: int | None,
) -> None:
    """The others have the same options, and would replace its report by one of nothing."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    engine = make_engine(is_following=is_following)
    if code is None:
        cli._leave_if_following(engine, ending, 0)
        return
    with pytest.raises(SystemExit) as leaving:
        cli._leave_if_following(engine, ending, 0)
    assert leaving.value.code == code


@pytest.mark.parametrize("command", ["run", "tune"])
@pytest.mark.parametrize(("rank", "count", "is_refused"), [(2, "2", True), (1, "2", False), (1, "1", True)])
def test_a_rank_that_there_is_not_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    rank: int,
    count: str,
    is_refused: bool,
) -> None:
    """It is refused before anything runs, with what there is; here there is no script either."""
    monkeypatch.setenv("WORLD_SIZE", count)
    monkeypatch.setattr(sys, "argv", ["unstarve", command, "--rank", str(rank), "none.py"])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == cli.USAGE
    assert (f"the last is {int(count) - 1}" in capsys.readouterr().err) == is_refused


@pytest.mark.parametrize(("error", "is_ours"), [(cli.NoSuchRank, True), (cli.UsageError, False)])
def test_a_rank_that_there_is_not_is_no_failure_of_the_script(error: type[Exception], is_ours: bool) -> None:
    """It shows only in the loop, where no launcher says how many there are; other wrong usage there is the script's own."""
    engine = types.SimpleNamespace(has_interfered=False, is_finished=False)

    class Hook:
        def __enter__(self) -> None:
            raise error("--rank 5: there are 2 ranks")

        def __exit__(self, *_: object) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unstarve.measure.hook.installed", lambda engine: Hook())
        if is_ours:
            with pytest.raises(cli.NoSuchRank):
                cli._execute(None, engine, None)
        else:
            assert cli._execute(None, engine, None).failed


@pytest.mark.parametrize(
    ("engine", "part"),
    [
        ({"has_interfered": False, "is_finished": False, "serving": "loader"}, None),
        ({"has_interfered": True, "is_finished": False, "serving": "host"}, "cached on the host"),
        ({"has_interfered": True, "is_finished": False, "serving": "loader"}, "being diagnosed"),
        ({"has_interfered": True, "is_finished": True, "serving": "loader"}, None),
    ],
    ids=["before", "from cache", "between", "after"],
)
def test_a_failure_in_the_middle_of_a_diagnosis_may_be_due_to_us(engine: dict[str, object], part: str | None) -> None:
    """Whatever the batch came from with which the script failed: those before it may have been too many, or others."""
    found = cli._our_part(types.SimpleNamespace(**engine))
    assert found is None if part is None else part in str(found)


def loader(number: int, total: int) -> types.SimpleNamespace:
    facts = types.SimpleNamespace(number=number, name="DataLoader(Data)", source=f"/home/me/train.py:{10 + number}")
    return types.SimpleNamespace(facts=facts, total=total)


def unjudged(target: types.SimpleNamespace, busiest: types.SimpleNamespace) -> types.SimpleNamespace:
    """An engine whose loop ended before there was a verdict."""
    return types.SimpleNamespace(
        target=target, busiest=busiest, steps_total=target.total, most_batches=busiest.total, wanted_loader=None,
        loaders=(target.facts,), why_alone="", was_in_thread=False, is_finished=False, was_interrupted=False,
        recording=lambda: types.SimpleNamespace(notes=()),
    )  # fmt: skip


def test_a_loop_that_is_too_short_is_told_with_the_one_that_is_not() -> None:
    """As where the mean of the data is taken before training: the message names both, and how to choose the other."""
    why = cli._why_none(unjudged(loader(0, 25), loader(1, 2000)), cli._Ending())
    assert "0: DataLoader(Data) (train.py:10) took 25 steps" in why
    assert "1: DataLoader(Data) (train.py:11) gave 2000 batches: --loader 1 " in why
    alone = loader(0, 25)
    assert "--loader" not in cli._why_none(unjudged(alone, alone), cli._Ending())


def test_an_interruption_that_the_script_catches_is_what_is_told() -> None:
    """Not that the loop took too few steps, as if it were too short."""
    engine = unjudged(loader(0, 57), loader(0, 57))
    engine.was_interrupted = True
    assert "was interrupted, and took 57 steps" in cli._why_none(engine, cli._Ending())
