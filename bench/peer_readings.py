"""What a peer's output claims, as the same dict as unstarve's JSON verdict: {"bound": …, "culprits": [{…}]}.

Pure functions, each peer read as well as a careful user would read it. What a peer does not say is left out: no `bound`
where it states no verdict, no culprit or no `source` where it names none. See bench/peers.py for the rules.
"""

import inspect
import itertools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

BOUND_RATIO = 1.1  # a cached loader that makes the loop this much faster means: bound by its input
LOADER_PATH = "torch/utils/data/"

# What a call waits for in the loop's own code: the simulated device, another thread. Nobody's work.
WAITING = re.compile(r"\b(sleep|synchronize|wait|result|join|acquire)\(")
READING = re.compile(
    r"sleep\(|\bopen\(|\.read|\.seek\(|np\.load\(|memmap|fromfile|read_bytes|pread|urlopen|get_object|\.recv|h5py",
    re.IGNORECASE,
)
DECODING = re.compile(
    r"Image\.open|\.convert\(|decode|decompress|imread|imdecode|json\.loads|pickle\.loads|unpack", re.IGNORECASE
)


@dataclass(frozen=True)
class Spot:
    """A place where time goes: `weight` in seconds or samples, `source` 'path:line' or None outside the user's files."""

    weight: float
    kind: str
    source: str | None = None
    name: str = ""


def verdict(bound=None, culprits=()):
    """Return a report that claims just that."""
    return {"verdict": {**({"bound": bound} if bound else {}), "culprits": list(culprits)}}


def hottest(spots):
    """Return the report of a profile: its hottest line of the user's, or, if more went into it than into all of those
    together, the hottest part of the loader's own machinery. It states no bound."""
    spots = merged(spots)
    lines = [spot for spot in spots if spot.source]
    machinery = [spot for spot in spots if not spot.source]
    first = max(lines, key=lambda spot: spot.weight, default=None)
    foreign = max(machinery, key=lambda spot: spot.weight, default=None)
    if foreign and foreign.weight > sum(spot.weight for spot in lines):
        first = foreign
    if first is None:
        return verdict()
    found = {"kind": first.kind, "name": first.name}
    return verdict(culprits=[{**found, "source": first.source} if first.source else found])


def merged(spots):
    """Return the spots with the weights of equal places added."""
    weights = Counter()
    for spot in spots:
        weights[spot.kind, spot.source, spot.name] += spot.weight
    return [Spot(weight, *place) for place, weight in weights.items()]


def kind_of_text(text):
    """Return the kind of a line or a call of the user's data code by what it calls."""
    if DECODING.search(text):
        return "decode"
    if READING.search(text):
        return "read"
    return None


# --- py-spy ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    name: str
    path: str
    line: int


def parse_stack(text):
    """Return (process id or None, frames from the outermost in, samples) of one line of py-spy's raw format.

    A line starts with the processes that lead to its own, and names functions by their qualified names.
    """
    stack, _, samples = text.strip().rpartition(" ")
    processes = re.findall(r"(?:^|;)process (\d+)", stack)
    found = (re.fullmatch(r"(.+?) \(([^()]+):(\d+)\)", part) for part in stack.split(";"))
    frames = [Frame(match[1].rsplit(".", 1)[-1], match[2], int(match[3])) for match in found if match]
    return processes[-1] if processes else None, frames, int(samples)


def read_py_spy(raw, folder, text_of):
    """Return what py-spy's raw format (with idle threads, children and full file names) claims.

    `folder` holds the user's files; `text_of(path, line)` is the text of a source line. Left out are imports and threads
    that wait: for a queue, for another process, in the loop's own code for the device.
    """
    stacks = [parse_stack(line) for line in raw.splitlines() if line.strip()]
    workers = {process for process, frames, _ in stacks if any(frame.name == "_worker_loop" for frame in frames)}
    places = (
        (spot_of_stack(frames, process in workers, folder, text_of), samples) for process, frames, samples in stacks
    )
    return hottest([Spot(samples, *place) for place, samples in places if place])


def spot_of_stack(frames, in_worker, folder, text_of):
    """Return (kind, source, name) of one stack, None if it is an import or a wait."""
    if not frames or any("importlib" in frame.path for frame in frames):
        return None
    loops = [depth for depth, frame in enumerate(frames) if frame.name == "_worker_loop"]
    if loops:  # what stands before is the stack of the process that forked this one
        frames = frames[loops[-1] :]
    outer = next((depth for depth, frame in enumerate(frames) if LOADER_PATH in frame.path), None)
    of_loader = frames[outer:] if outer is not None else frames if in_worker else []
    mine = [frame for frame in (of_loader or frames) if inside(frame.path, folder)]
    part = "ipc" if any(frame.name == "_feed" for frame in frames) else part_of_loader(of_loader, folder, text_of)
    if not mine:
        return (part, None, part) if part and not is_waiting(frames[-1]) else None
    source, text = f"{mine[-1].path}:{mine[-1].line}", text_of(mine[-1].path, mine[-1].line)
    if of_loader:
        return part or kind_of_text(text) or kind_of_function(frame.name for frame in mine), source, mine[-1].name
    if is_waiting(frames[-1]) or WAITING.search(text):
        return None
    return "step-host", source, mine[-1].name


def part_of_loader(frames, folder, text_of):
    """Return the kind that frames of the loader and below it show by themselves; None for the dataset's own code."""
    for frame, following in itertools.pairwise([*frames, None]):
        calls_user = following is not None and inside(following.path, folder)
        if inside(frame.path, folder):
            return None
        if frame.path.endswith(
            ("multiprocessing/reductions.py", "multiprocessing/reduction.py", "multiprocessing/queues.py")
        ):
            return "ipc"
        if frame.path.endswith(("multiprocessing/process.py", "multiprocessing/popen_fork.py")):
            return "worker-start"
        if frame.name == "_next_index":
            return "sampler"
        if frame.path.endswith("_utils/collate.py"):
            return "collate"
        if frame.path.endswith("_utils/fetch.py") and calls_user:
            return "collate" if "collate_fn(" in text_of(frame.path, frame.line) else None
        if frame.name == "_worker_loop" and calls_user:
            return "worker-start"  # worker_init_fn
        if frame.path.endswith(("data/dataloader.py", "data/sampler.py")) and calls_user:
            return "sampler"
    return None


def inside(path, folder):
    return Path(folder) in Path(path).parents


def is_waiting(leaf):
    """Return whether a thread whose innermost frame is `leaf` waits for another one."""
    if leaf.path.endswith(("selectors.py", "threading.py", "synchronize.py", "popen_fork.py", "/queue.py")):
        return True
    if leaf.path.endswith("concurrent/futures/thread.py"):
        return leaf.name == "_worker"
    return leaf.path.endswith("multiprocessing/connection.py") and leaf.name != "_send"


def kind_of_function(names):
    """Return the kind of data code by the functions it is in: a transform, which is called as an object, or other code."""
    return "transform" if {"__call__", "forward"} & set(names) else "code"


# --- cProfile ----------------------------------------------------------------------------------------------------

BUILT_IN = "~"  # the path of built-in functions in a profile


def read_cprofile(stats, folder, lines_of):
    """Return what a deterministic profile without workers claims.

    `stats` is `pstats.Stats(...).stats`: {(path, line, name): (calls, calls, own s, total s, {caller: same four})}.
    `lines_of(path)` is the list of a file's lines. A profile knows functions: time below one of the user's functions is
    counted under the call in it that it went into, and the line is the first in that function that has this call.
    """
    below = reached(stats, [function for function in stats if LOADER_PATH in function[0]])
    parts = parts_of_loader(stats, folder, lines_of)
    spots = [
        Spot(edge[3], "collate", None, "collate")
        for function, (_, _, _, _, callers) in stats.items()
        for caller, edge in callers.items()
        if function[0].endswith("_utils/collate.py") and caller[0].endswith("_utils/fetch.py")
    ]
    for (function, call), seconds in seconds_by_call(stats, folder).items():
        path, first, name = function
        line = line_calling(lines_of(path), first, call) if call else first
        text = line_of(lines_of(path), line) if line != first else f"{call}("
        if function in below:
            kind = parts.get(function) or kind_of_text(text) or kind_of_function([name])
        elif WAITING.search(text):
            continue
        else:
            kind = "step-host"
        spots.append(Spot(seconds, kind, f"{path}:{line}", name))
    return hottest(spots)


def line_of(lines, number):
    return lines[number - 1] if 0 < number <= len(lines) else ""


def parts_of_loader(stats, folder, lines_of):
    """Return {user's function: 'sampler' or 'collate'} of those that the loader calls as such, and what they call."""
    roots = defaultdict(list)
    for function, (_, _, _, _, callers) in stats.items():
        paths = [caller[0] for caller in callers if LOADER_PATH in caller[0] and inside(function[0], folder)]
        called_as_one = any(path.endswith(("data/dataloader.py", "data/sampler.py")) for path in paths)
        if called_as_one or (inside(function[0], folder) and is_of_sampler(function, lines_of(function[0]))):
            roots["sampler"].append(function)
        elif any(path.endswith("_utils/fetch.py") for path in paths) and is_collation(function, lines_of(function[0])):
            roots["collate"].append(function)
    own = {
        function: value for function, value in stats.items() if function[0] == BUILT_IN or inside(function[0], folder)
    }
    return {function: kind for kind, starts in roots.items() for function in reached(own, starts)}


def is_of_sampler(function, lines):
    """Return whether a function is the iteration of a sampler class: it is called through `iter`, which hides the loader."""
    above = (line for line in reversed(lines[: function[1]]) if line.startswith("class "))
    return function[2] == "__iter__" and "Sampler" in next(above, "")


def is_collation(function, lines):
    """Return whether a function that the fetcher calls is the collate function: no look-up, no stream."""
    _, first, name = function
    return name not in ("__getitem__", "__getitems__") and "yield" not in "".join(block_of(lines, first))


def reached(stats, starts):
    """Return `starts` and every function that is called below one of them."""
    called = defaultdict(set)
    for function, (_, _, _, _, callers) in stats.items():
        for caller in callers:
            called[caller].add(function)
    found, left = set(starts), list(starts)
    while left:
        fresh = called[left.pop()] - found
        found |= fresh
        left += fresh
    return found


def seconds_by_call(stats, folder):
    """Return the seconds of {(user's function, name of the call in it, or None for its own code): seconds}."""
    seconds = Counter()
    for function, (_, _, own, _, callers) in stats.items():
        if inside(function[0], folder):
            seconds[function, None] += own
        else:
            for caller, (_, _, own_here, _) in callers.items():
                hand_up(stats, seconds, folder, caller, function, own_here, {function})
    return seconds


def hand_up(stats, seconds, folder, caller, callee, amount, seen):
    """Add `amount` to the user's function that a foreign callee serves, through foreign callers in their proportion."""
    if inside(caller[0], folder):
        seconds[caller, bare_name(callee[2])] += amount
        return
    if caller in seen or caller not in stats or amount < 1e-4:
        return
    callers = stats[caller][4]
    total = sum(edge[3] for edge in callers.values())
    for above, edge in callers.items():
        if total > 0:
            hand_up(stats, seconds, folder, above, caller, amount * edge[3] / total, seen | {caller})


def bare_name(name):
    """Return how source code calls a function that a profile lists: 'sleep' of '<built-in method time.sleep>'."""
    method = re.search(r"method '(\w+)'", name)
    words = re.findall(r"\w+", name)
    return method[1] if method else words[-1] if words else name


def block_of(lines, first):
    """Return the lines of the function that starts at line `first`."""
    return inspect.getblock(lines[first - 1 :]) if 0 < first <= len(lines) else []


def line_calling(lines, first, call):
    """Return the number of the first line of the function that starts at line `first` that calls `call`, else `first`."""
    for offset, text in enumerate(block_of(lines, first)):
        if re.search(rf"\b{re.escape(call)}\(", text) and not re.match(r"\s*(def|class) ", text):
            return first + offset
    return first


# --- tools that state a verdict ----------------------------------------------------------------------------------


def read_spdl(rates):
    """Return what steps per second as they are and with the loader cached say: whether loading limits the loop."""
    live, cached = rates.get("live"), rates.get("cached")
    if not live or not cached:
        return verdict()
    return verdict("input" if cached / live >= BOUND_RATIO else "step")


def read_traceml(summary):
    """Return what TraceML's final summary, its parsed JSON, says of the step's time.

    A step of the bench sleeps outside any module, which TraceML calls residual: that is the loop's body, no conviction.
    """
    status = ((summary.get("step_time") or {}).get("diagnosis") or {}).get("status")
    if status == "INPUT-BOUND":
        return verdict("input")
    if status in ("COMPUTE-BOUND", "RESIDUAL-HEAVY", "BALANCED", "NORMAL", "HEALTHY"):
        return verdict("step")
    if status == "H2D-BOUND":
        return verdict("step", [{"kind": "copy", "name": "H2D"}])
    return verdict()


def read_loadtune(output, workers):
    """Return what `loadtune tune` printed of a script with so many `workers`.

    By its own rule a fifth of waiting is input-bound, a twentieth compute-bound, and what lies between neither. Its
    remedies are settings: a trial with more workers that won claims that there were too few.
    """
    waited = re.search(r"baseline: .*data wait ([\d.]+)%", output)
    if not waited:
        return verdict()
    best = re.search(r"best overall: (.*?) — ([\d.]+)x baseline", output)
    more = best and re.search(r"workers=(\d+)", best[1])
    if more and int(more[1]) > workers and float(best[2]) >= BOUND_RATIO:
        return verdict("input", [{"kind": "workers", "name": f"num_workers={more[1]}"}])
    share = float(waited[1]) / 100
    return verdict("input" if share >= 0.2 else "step" if share <= 0.05 else None)


def workers_of(script):
    """Return the num_workers that a script's text gives its first loader; 0 where it gives none."""
    found = re.search(r"num_workers=(\w+)", script)
    if not found:
        return 0
    if found[1].isdigit():
        return int(found[1])
    named = re.search(rf"^{found[1]} = (\d+)", script, re.MULTILINE)
    return int(named[1]) if named else 0
