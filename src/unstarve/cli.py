"""The command line. The only place that prints and chooses exit codes."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from unstarve import __version__
from unstarve.errors import Finished, MeasurementError, NoSuchRank, Stalled, UnstarveError, UsageError
from unstarve.recording import ENDED_BY
from unstarve.report import Report

VERDICT, GATE, USAGE, SCRIPT_FAILED, NO_VERDICT = 0, 1, 2, 3, 4
"""Exit codes, by the contract."""

INTERRUPTED = 130
"""What a shell expects after Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the report goes."""

    json: str | None
    html: str | None
    save: str | None
    fail_above: float | None
    quiet: bool
    project: str | None = None
    """Project under which the run is remembered in the history; None to leave it out."""
    price: float | None = None
    """What an hour of the machine costs."""
    is_stored: bool = False
    """Whether what is shown comes from a file, so that nothing need be kept."""

    def check(self) -> None:
        """Refuse paths that cannot be written, before anything is measured.

        Raises:
            UsageError: a folder is missing or may not be written.
        """
        for option, path in (("--json", self.json), ("--html", self.html), ("--save", self.save)):
            folder = os.path.dirname(os.path.abspath(path)) if path and path != "-" else None
            if folder is not None and (not os.path.isdir(folder) or not os.access(folder, os.W_OK)):
                raise UsageError(f"{option} {path}: the folder {folder} does not exist or cannot be written.")
            if folder is not None and path is not None and os.path.isdir(path):
                raise UsageError(f"{option} {path}: this is a folder, expected the name of a file.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="unstarve")
def cli() -> None:
    """Find what starves a GPU of data, prove it by experiment, and prove the fix.

    \b
    unstarve run train.py --epochs 3     diagnose the loop of an unmodified script
    unstarve tune train.py               find the best loader settings by trying them
    unstarve demo                        the whole journey on a toy pipeline
    unstarve show FILE                   draw a stored recording again
    unstarve compare last~1 last         before and after: what changed, is it real
    unstarve history                     earlier runs of this project
    """


class _Running(click.Command):
    """A command whose options end with `-m MODULE`, as those of Python itself do: all that follows is the module's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What click asks for."""
        end = self._end_of_options(ctx, args)
        return super().parse_args(ctx, args if end is None else [*args[:end], "--", *args[end:]])

    def _end_of_options(self, ctx: click.Context, args: list[str]) -> int | None:
        """Where the module's own arguments begin; None where no module is given."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option) and not option.is_flag]
        with_value = {name for option in options for name in option.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
            is_module = args[at].startswith("-m")
            at += 2 if args[at] in with_value else 1
            if is_module:
                return at if at <= len(args) else None
        return None


def _output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "json_path", metavar="PATH", help="Write the report as JSON ('-' for stdout)."),
        click.option("--html", "html_path", metavar="PATH", help="Write the report as a page."),
        click.option("--fail-above", type=click.FloatRange(min=0), metavar="PERCENT",
                     help="Exit with 1 if input costs more than this share of the loop's time."),
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
    ):  # fmt: skip
        command = option(command)
    return command


def _experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the commands that try things in the loop of a script."""
    for option in (
        click.option("--patience", type=click.FloatRange(min=1), default=180.0, show_default=True, metavar="SECONDS",
                     help="Longest wait for one batch."),
        click.option("--simulate-step", type=click.FloatRange(min=0), metavar="MS",
                     help="Feed a simulated accelerator instead of the script's loop."),
        click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True,
                     help="In distributed training, the rank that is diagnosed; the others do as it does."),
        click.option("--loader", metavar="N|NAME", help="The loader that is meant, if the script has several."),
        click.option("--budget", type=click.FloatRange(min=1), metavar="SECONDS",
                     help="Time to spend; by default 40 s, and up to 150 s where a step takes longer than 0.4 s."),
        click.option("--save", "save_path", metavar="PATH", help="Keep the recording, for `unstarve show` and `compare`."),
        click.option("-m", "module", metavar="MODULE", help="Run a module as `python -m MODULE` would."),
    ):  # fmt: skip
        command = option(command)
    return command


@cli.command(cls=_Running, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_experiment_options
@click.option("--full", is_flag=True, help="Measure every rung, whatever the first rounds say.")
@click.option("--depth", type=click.IntRange(min=0), default=4, show_default=True, help="Levels of calls to look into.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="PER_HOUR",
    help="What the machine costs, to say what an epoch does.",
)
@click.option("--no-history", is_flag=True, help="Do not remember this run for `unstarve history`.")
@click.option("--continue", "go_on", is_flag=True, help="Let the script run on, untouched, after the diagnosis.")
@_output_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(
    module: str | None, save_path: str | None, budget: float | None, full: bool, depth: int, loader: str | None,
    rank: int, simulate_step: float | None, price: float | None, no_history: bool, go_on: bool, patience: float,
    json_path: str | None, html_path: str | None, fail_above: float | None, quiet: bool, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Diagnose the training loop of SCRIPT, which is run as it is.

    The loop is served batches from successively earlier points of its input pipeline; where throughput falls, the
    culprit stands. Weights are worthless afterwards, and the script is stopped when the diagnosis is done.
    """
    output = Output(
        json=_absolute(json_path),
        html=_absolute(html_path),
        save=_absolute(save_path),
        fail_above=fail_above,
        quiet=quiet,
        project=None if no_history else _project(),
        price=price,
    )
    output.check()
    _check_rank(rank)
    script = _script(module, arguments)
    _require_torch()
    from unstarve.measure.engine import Engine
    from unstarve.measure.program import Options
    from unstarve.render.live import Progress

    progress = None if quiet or _is_other_rank(rank) else Progress()
    engine = Engine(
        Options(budget_s=budget, depth=depth, full=full, may_load_here=not go_on),
        command=_command(module, arguments),
        loader=loader, stop=not go_on, patience_s=patience, on_progress=progress, simulate_step_ms=simulate_step,
        lead=rank,
    )  # fmt: skip
    ending = _execute(script, engine, progress)
    _leave_if_following(engine, ending, rank)
    _conclude(engine, ending, output, goes_on=go_on)


@cli.command(cls=_Running, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON ('-' for stdout).")
@_experiment_options
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def tune(
    module: str | None, json_path: str | None, save_path: str | None, budget: float | None, loader: str | None,
    rank: int, simulate_step: float | None, patience: float, quiet: bool, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Try other loader settings in the training loop of SCRIPT, and print the change that is worth making.

    Numbers of workers, batches ordered ahead, delivery in any order, threads of the workers and pinning are tried in
    the script's own loop, interleaved with its own settings. The script is stopped when the search is done.
    """
    output = Output(json=_absolute(json_path), html=None, save=_absolute(save_path), fail_above=None, quiet=quiet)
    output.check()
    _check_rank(rank)
    script = _script(module, arguments)
    _require_torch()
    from unstarve.measure import tuner
    from unstarve.measure.engine import Engine
    from unstarve.measure.program import Options
    from unstarve.render.live import Progress

    progress = None if quiet or _is_other_rank(rank) else Progress()
    engine = Engine(
        Options(budget_s=budget),
        command=_command(module, arguments),
        loader=loader, patience_s=patience, on_progress=progress, simulate_step_ms=simulate_step,
        lead=rank, program=tuner.program,
    )  # fmt: skip
    ending = _execute(script, engine, progress)
    _leave_if_following(engine, ending, rank)
    _conclude_tuning(engine, ending, output)


def _conclude_tuning(engine: Any, ending: _Ending, output: Output) -> None:
    """Print what was found, or why nothing was, and leave with the contract's exit code."""
    from unstarve import tuning
    from unstarve.render.tuning import render

    recording = engine.recording()
    if output.save:
        with _writing():
            recording.save(output.save)
    if ending.failed and not engine.is_finished:
        click.echo("unstarve: the script failed; this is its own error, shown unchanged.", err=True)
        _leave(SCRIPT_FAILED)
    found = tuning.judge(recording)
    if found is None:
        if ending.interrupted:
            click.echo("unstarve: interrupted.", err=True)
            _leave(INTERRUPTED)
        click.echo(f"unstarve: no verdict: {_why_untuned(recording) or _why_none(engine, ending)}", err=True)
        _leave(NO_VERDICT)
    _answer(found.to_json(), output.json, lambda color: render(found, width=_width(), color=color))
    _leave(INTERRUPTED if ending.interrupted else VERDICT)


def _check_rank(rank: int) -> None:
    """Refuse a rank that there is not, where the launcher says how many there are."""
    count = os.environ.get("WORLD_SIZE", "")
    if count.isdecimal() and rank >= int(count):
        raise UsageError(f"--rank {rank}: there are {count} ranks, of which the last is {int(count) - 1}.")


def _is_other_rank(rank: int) -> bool:
    """Whether the launcher says that this is another rank than the one that is diagnosed."""
    return os.environ.get("RANK", str(rank)) != str(rank) and os.environ.get("WORLD_SIZE", "1") != "1"


def _leave_if_following(engine: Any, ending: _Ending, rank: int) -> None:
    """Another rank has the report and writes the files; this one has only something to say if its script failed."""
    if ending.failed and (engine.is_following or _is_other_rank(rank)):
        _tell_failure(ending)
        _leave(SCRIPT_FAILED)
    if engine.is_following:
        _leave(INTERRUPTED if ending.interrupted else VERDICT)


def _tell_failure(ending: _Ending) -> None:
    code = "" if ending.exit_code is None else f" with exit code {ending.exit_code}"
    click.echo(f"unstarve: the script failed{code}; this is its own error, shown unchanged.", err=True)
    if ending.message:
        click.echo(f"unstarve: note that {ending.message}, so it may be due to us.", err=True)


def _why_untuned(recording: Any) -> str | None:
    """Why no other settings could be had; None where they were only not reached."""
    from unstarve.tuning import UNTRIED

    if recording.loader is not None and recording.loader.kind == "other":
        return "the loop is fed by an iterable that is no DataLoader, which has no settings to try. See `unstarve run`."
    return next((note.sentence for note in recording.notes if note.id in UNTRIED), None)


def _absolute(path: str | None) -> str | None:
    """The path as it is meant now: the script may change the working directory."""
    return path if path in (None, "-") else os.path.abspath(path)


def _script(module: str | None, arguments: tuple[str, ...]) -> Any:
    from unstarve import script

    if module is not None:
        try:
            return script.from_module(module, arguments)
        except UnstarveError:
            raise
        except Exception as error:  # of the packages around the module, which Python imports first
            script.show_exception(error)
            _tell_failure(_Ending(failed=True))
            _leave(SCRIPT_FAILED)
    if not arguments:
        command = _command(None, ())
        raise UsageError(f"No script given: expected `{command} SCRIPT [ARGS]` or `{command} -m MODULE [ARGS]`.")
    found = script.from_file(arguments[0], arguments[1:])
    _tell_misplaced(found)
    return found


def _tell_misplaced(found: Any) -> None:
    """A line on options that are spelled like ours and stand behind the script's name, if it does not mention them itself."""
    ours = {name for option in click.get_current_context().command.params for name in option.opts if name[:2] == "--"}
    given = dict.fromkeys(argument.partition("=")[0] for argument in found.arguments[1:])
    misplaced = [name for name in given if name in ours and name.lstrip("-").encode() not in found.source]
    if misplaced:
        click.echo(
            f"unstarve: {', '.join(misplaced)} went to the script, as all that follows its name does; if unstarve was meant, "
            "put it before the script.",
            err=True,
        )


def _command(module: str | None, arguments: tuple[str, ...]) -> str:
    """What was asked for, as it is told: the command with the script or module and its arguments, without our options."""
    name = str(click.get_current_context().info_name)
    return shlex.join(["unstarve", name, *(["-m", module] if module else []), *arguments])


def _require_torch() -> None:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch is not installed here: install it (`pip install torch`) to run a training script.")


@dataclass(frozen=True, slots=True)
class _Ending:
    """How the script ended."""

    failed: bool = False
    interrupted: bool = False
    exit_code: int | None = None
    message: str | None = None


_INTERRUPTED = _Ending(interrupted=True, message="it was interrupted")


def _execute(program: Any, engine: Any, progress: Any) -> _Ending:
    from unstarve import script
    from unstarve.measure.hook import installed

    try:
        with installed(engine):
            script.execute(program)
    except Finished:
        return _Ending()
    except Stalled as stalled:
        return _Ending(message=f"{stalled}; a worker hangs, or the data takes longer than --patience allows")
    except SystemExit as leaving:
        if isinstance(leaving.__context__, KeyboardInterrupt):  # caught by the script, which leaves for it
            return _INTERRUPTED
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
        if isinstance(leaving.code, str):
            click.echo(leaving.code, err=True)
        return _Ending(failed=code != 0, exit_code=code, message=_our_part(engine) if code else None)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except NoSuchRank:
        raise
    except BaseException as error:
        _stop(progress)
        script.show_exception(error)
        return _Ending(failed=True, message=_our_part(engine))
    finally:
        _stop(progress)
    return _Ending()


def _our_part(engine: Any) -> str | None:
    """What a diagnosis that was under way may have had to do with the script's failure."""
    if engine.is_finished or not engine.has_interfered:
        return None
    if engine.serving in ("host", "device"):
        return f"the loop failed on a batch cached on the {engine.serving}"
    return "the loop was being diagnosed, in which it gets some batches many times and others not at all"


def _stop(progress: Any) -> None:
    if progress is not None:
        progress.close()


def _conclude(engine: Any, ending: _Ending, output: Output, *, goes_on: bool = False) -> None:
    """Print the report if there is a verdict, say why if there is none, and leave with the contract's exit code.

    Args:
        engine: what measured.
        ending: how the script ended.
        output: where the report goes.
        goes_on: whether the script was to run on after the diagnosis. Where it was stopped, what fails then is due to us.
    """
    from unstarve.judge import judge

    recording = engine.recording()
    try:
        report = judge(recording, price=output.price)
    except Exception:
        _save_after_crash(recording)
        raise
    has_verdict = report.baseline is not None and report.ceiling is not None
    if ending.failed and not (engine.is_finished and has_verdict):
        _tell_failure(ending)
        _keep(recording, report, output)
        _leave(SCRIPT_FAILED)
    if ending.interrupted:
        _keep(recording, report, output)
        if has_verdict:
            _deliver(recording, report, output, None)
        click.echo("unstarve: interrupted.", err=True)
        _leave(INTERRUPTED)
    if not has_verdict:
        _keep(recording, report, output)
        click.echo(f"unstarve: no verdict: {_why_none(engine, ending)}", err=True)
        _leave(NO_VERDICT)
    remembered = _remember(recording, report, output)
    _deliver(recording, report, output, remembered)
    if ending.failed and goes_on:
        _tell_failure(ending)
        _leave(SCRIPT_FAILED)
    _leave(_gate(report, output))


def _project() -> str | None:
    """The project that the working directory belongs to; asked for before the script, which may change directory."""
    try:
        from unstarve import store

        return store.project_of(".")
    except (ImportError, OSError) as error:  # a Python built without SQLite; a directory that is gone
        click.echo(f"unstarve: this run will not be in the history: {error}.", err=True)
        return None


def _remember(recording: Any, report: Report, output: Output) -> int | None:
    """The run's id in the history, to which it is added before anything is printed, since printing may fail."""
    if output.project is None:
        return None
    try:
        from unstarve import store

        return store.remember(recording, report, output.project)
    except Exception as error:  # whatever it is, it must not cost the user a diagnosis that took minutes
        click.echo(f"unstarve: this run is not in the history. {error}{_spared(recording, output)}", err=True)
        return None


def _spared(recording: Any, output: Output) -> str:
    """Where the recording is, now that the history has not taken it."""
    import tempfile

    if output.save:
        return ""
    try:
        handle, path = tempfile.mkstemp(prefix="unstarve-", suffix=".json")
        os.close(handle)
        recording.save(path)
    except OSError:
        return ""
    return f" Its recording is in {path}."


def _save_after_crash(recording: Any) -> None:
    """Keep what was measured when judging it fails: that is our fault, and measuring again costs the user."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix="unstarve-", suffix=".json", delete=False) as file:
        path = file.name
    recording.save(path)
    click.echo(f"unstarve: judging failed; this is a fault of unstarve. What was measured is in {path}.", err=True)


def _why_none(engine: Any, ending: _Ending) -> str:
    if ending.message:
        return f"{ending.message}."
    if engine.why_alone:
        return str(engine.why_alone)
    if engine.target is None and engine.was_in_thread:
        return (
            "the script iterates its DataLoader in a background thread, so that its loop cannot be clocked. `unstarve run` "
            "diagnoses such a loop where the thread fills a queue.Queue of limited size; give it a maxsize, or take the "
            "thread out for the diagnosis and iterate the loader in the loop itself."
        )
    if not engine.loaders:
        return (
            "the script iterated no DataLoader. If it feeds its loop otherwise, as nnU-Net does with batchgenerators, wrap the "
            "iterable: `for batch in unstarve.probe(batches)`. If it starts the processes that train itself, let torchrun start them: "
            "`torchrun --nproc-per-node N -m unstarve run SCRIPT`."
        )
    if engine.most_batches == 0:
        return "the loader is empty: it gave no batch at all."
    names = ", ".join(f"{loader.number}: {loader.name}" for loader in engine.loaders)
    if engine.wanted_loader is not None and engine.target is None:
        return f"there is no loader {engine.wanted_loader!r} with enough batches; the script iterated {names}."
    ended = next((note.sentence for note in engine.recording().notes if note.id in ENDED_BY), None)
    if ended is not None:
        return str(ended)
    if engine.is_finished:  # by the budget: nothing else ends an experiment before the rungs are compared
        return (
            f"the budget was over after {engine.steps_total} steps, before the rungs "
            f"could be compared. --budget {engine.enough_s} should be enough at this speed."
        )
    if engine.target is None:
        return (
            f"none of the loaders ({names}) gave enough batches to be taken for the training loader. "
            "Run more steps, or choose one with --loader."
        )
    if engine.was_interrupted:
        return f"the loop was interrupted, and took {engine.steps_total} steps in all, too few to compare rungs."
    if engine.busiest.facts.number != engine.target.facts.number:
        return (
            f"the loop over loader {_called(engine.target)} took {engine.steps_total} steps, too few to compare rungs, "
            f"while {_called(engine.busiest)} gave {engine.most_batches} batches: "
            f"--loader {engine.busiest.facts.number} has that one diagnosed."
        )
    return (
        f"the loop took {engine.steps_total} steps, too few to compare rungs. Let the script run more steps or epochs; "
        "60 steps are usually enough."
    )


def _called(session: Any) -> str:
    """A loader's number, name and place."""
    facts = session.facts
    return f"{facts.number}: {facts.name}" + (f" ({os.path.basename(facts.source)})" if facts.source else "")


def _keep(recording: Any, report: Report, output: Output) -> None:
    with _writing():
        if output.save:
            recording.save(output.save)
        if output.json and output.json != "-":
            report.to_json(output.json)
        if output.html:
            report.to_html(output.html)


def _deliver(recording: Any, report: Report, output: Output, remembered: int | None = None) -> None:
    """Write the files, then print the report: either may fail, and must not cost the user the other."""
    try:
        _keep(recording, report, output)
    finally:
        _print_report(report, output)
    if output.json == "-":
        return
    kept = [
        f"{what} {path}"
        for what, path in (("recording", output.save), ("page", output.html), ("JSON", output.json))
        if path
    ]
    if kept:
        click.echo(f"Written: {', '.join(kept)}.")
    if remembered is not None:
        click.echo(f"Run {remembered} of the history. Again: `unstarve show {remembered} --html page.html`;")
        click.echo(f"once it is mended and run again: `unstarve compare {remembered} last`.")
    elif not kept and not output.is_stored:
        click.echo("To keep this: --save FILE, then `unstarve show FILE --html page.html`.")


def _print_report(report: Report, output: Output) -> None:
    from unstarve.render.terminal import render

    if output.json == "-":
        click.echo(report.to_json())
        return
    color = sys.stdout.isatty()
    click.echo(render(report, width=_width(), color=color), nl=False, color=color)


def _width() -> int:
    import shutil

    return max(60, min(120, shutil.get_terminal_size((100, 24)).columns))


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"The report cannot be written to {error.filename!r}: {error.strerror}.") from None


def _gate(report: Report, output: Output) -> int:
    cost = _input_cost(report)
    if output.fail_above is None or cost is None or cost <= output.fail_above:
        return VERDICT
    click.echo(
        f"unstarve: input costs {cost:.1f} % of the loop's time, more than the {output.fail_above:g} % allowed.",
        err=True,
    )
    return GATE


def _input_cost(report: Report) -> float | None:
    """What input is shown to cost of the loop's time, in percent: what is sure of the headroom, the starts of iterators
    where they are the verdict, waiting where nothing was tried."""
    if report.headroom is None:
        return None if report.waiting is None else 100 * report.waiting
    cost = 1 - 1 / max(1.0, report.headroom.low)
    return 100 * max(cost, report.time.start if report.verdict.bound == "start" else 0.0)


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


@cli.command()
@click.argument("file", metavar="FILE|ID|last")
@_output_options
def show(file: str, json_path: str | None, html_path: str | None, fail_above: float | None, quiet: bool) -> None:
    """Draw a stored recording, or a run of the history, again. Works without torch."""
    from unstarve.judge import account, judge

    recording = _stored(file)
    was_watched = recording.command.startswith("unstarve watch")
    report = account(recording) if was_watched else judge(recording)
    output = Output(json=json_path, html=html_path, save=None, fail_above=fail_above, quiet=quiet, is_stored=True)
    _deliver(recording, report, output)
    _leave(_gate(report, output))


def _stored(reference: str) -> Any:
    """The recording in a file, or that of a run in the history: an id, `last`, or `last~N` for N runs before it."""
    from unstarve import recording as recordings

    try:
        if os.path.exists(reference) and not os.path.isdir(reference):  # a folder may be called `1` or `last`
            return recordings.load(reference)
        from unstarve import store

        found = store.named(reference, store.project_of("."))
    except OSError as error:
        raise UsageError(f"The recording {reference!r} cannot be read: {error.strerror}.") from None
    if found is None:
        raise UsageError(
            f"The recording {reference!r} cannot be read: there is no such file, and a run of the history is given by "
            "its id, `last` or `last~1`."
        )
    return found


@cli.command()
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option("--json", "json_path", metavar="PATH", help="Write the comparison as JSON ('-' for stdout).")
def compare(before: str, after: str, json_path: str | None) -> None:
    """What changed from one run to another, by how much, and whether it is real.

    BEFORE and AFTER are files written by --save, ids of `unstarve history`, `last`, or `last~N` for N runs before it.
    """
    from unstarve import comparison as comparisons
    from unstarve.render.comparison import render

    _written_to(json_path).check()
    comparison = comparisons.compare(_stored(before), _stored(after))
    _answer(comparison.to_json(), json_path, lambda color: render(comparison, width=_width(), color=color))
    _leave(NO_VERDICT if comparison.outcome == "unresolved" else VERDICT)


@cli.command()
@click.option("--all", "is_all", is_flag=True, help="Runs of every project, not only of this one.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Newest N runs.")
@click.option("--json", "json_path", metavar="PATH", help="Write the list as JSON ('-' for stdout).")
def history(is_all: bool, limit: int, json_path: str | None) -> None:
    """Earlier runs of this project, newest first."""
    from unstarve import store
    from unstarve.render.comparison import render_history

    _written_to(json_path).check()
    project = None if is_all else store.project_of(".")
    runs = store.runs(project, limit)
    _answer(
        store.to_json(runs),
        json_path,
        lambda color: render_history(runs, location=store.location(), width=_width(), color=color, project=project),
    )
    _leave(VERDICT)


def _written_to(json_path: str | None) -> Output:
    return Output(json=json_path, html=None, save=None, fail_above=None, quiet=True)


def _answer(text: str, path: str | None, draw: Callable[[bool], str]) -> None:
    """Print the JSON alone if its path is `-`; else write it, if there is a path, and print what is drawn, in colour or
    not."""
    if path == "-":
        click.echo(text)
        return
    if path is not None:
        with _writing():
            Path(path).write_text(text + "\n", encoding="utf-8")
    color = sys.stdout.isatty()
    click.echo(draw(color), nl=False, color=color)
    if path is not None:
        click.echo(f"Written: JSON {path}.")


@cli.command(cls=_Running, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module as `python -m MODULE` would.")
@click.option("--save", "save_path", metavar="PATH", help="Keep the recording, for `unstarve show`.")
@_output_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def watch(
    module: str | None,
    save_path: str | None,
    json_path: str | None,
    html_path: str | None,
    fail_above: float | None,
    quiet: bool,
    arguments: tuple[str, ...],
) -> None:
    """Clock the loop of SCRIPT to its end, changing nothing: where each step's time goes."""
    script = _script(module, arguments)
    _require_torch()
    from unstarve.judge import account
    from unstarve.measure.engine import Engine

    output = Output(
        json=_absolute(json_path),
        html=_absolute(html_path),
        save=_absolute(save_path),
        fail_above=fail_above,
        quiet=quiet,
    )
    output.check()
    engine = Engine(command=_command(module, arguments), passive=True)
    ending = _execute(script, engine, None)
    recording = engine.recording()
    report = account(recording)
    if ending.failed:
        click.echo("unstarve: the script failed; this is its own error, shown unchanged.", err=True)
        _leave(SCRIPT_FAILED)
    if not any(start.batches for start in recording.starts):
        raise MeasurementError(f"no verdict: {_why_none(engine, ending)}")
    _deliver(recording, report, output)
    _leave(INTERRUPTED if ending.interrupted else _gate(report, output))


@cli.command()
@click.option("--quick", is_flag=True, help="A shorter journey, with wider intervals.")
def demo(quick: bool) -> None:
    """The article's toy pipeline: diagnose, mend, diagnose again, twice."""
    _require_torch()
    from unstarve.demo.journey import run_journey

    run_journey(quick=quick)


def main() -> None:
    """Entry point of the console script."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        _leave(USAGE)
    except click.exceptions.Abort:
        click.echo("unstarve: interrupted.", err=True)
        _leave(INTERRUPTED)
    except MeasurementError as error:
        click.echo(f"unstarve: {error}", err=True)
        _leave(NO_VERDICT)
    except UnstarveError as error:
        click.echo(f"unstarve: {error}", err=True)
        _leave(USAGE)
    except Exception:  # ours: never the code of the gate
        traceback.print_exc()
        _leave(NO_VERDICT)
