"""Reading what peers say is judged from literals: no peer, no torch, no run."""

import pytest
from peer_readings import (
    Spot,
    bare_name,
    hottest,
    line_calling,
    read_cprofile,
    read_loadtune,
    read_py_spy,
    read_spdl,
    read_traceml,
    verdict,
    workers_of,
)
from peers import CHOSEN, PEERS, case_table, cell, claimed_marks, convicts, page_of, place, shares
from score import CASES

CASE = {
    "title": "a title",
    "bound": ["input"],
    "culprit": {"kind": ["read", "code"], "name": None, "line": r"\.read\(", "resource": []},
    "must_not": {"kind": ["collate"], "name": None},
}
HEALTHY = {"title": "healthy", "bound": ["step"], "culprit": None, "must_not": {"kind": ["read"], "name": None}}
FOLDER = "/bench/cases/X1"
TRAIN = f"{FOLDER}/train.py"
DATA = "/lib/torch/utils/data"
FORK = f"main ({TRAIN}:90);train ({TRAIN}:80);__iter__ ({DATA}/dataloader.py:400);_launch (/lib/multiprocessing/popen_fork.py:70)"
WORKER = f"{FORK};_worker_loop ({DATA}/_utils/worker.py:349)"
FETCH = f"{WORKER};fetch ({DATA}/_utils/fetch.py:52)"


def culprit_of(report):
    assert "bound" not in report["verdict"]
    (found,) = report["verdict"]["culprits"]
    return found


def spy(*stacks, lines=None):
    """Return the reading of (process, stack, samples) triples; `lines` is the text of lines of train.py and fetch.py."""
    first = 'process 1:"python train.py";'
    prefix = {1: first, 7: f'{first}process 7:"python train.py";'}
    raw = "\n".join(f"{prefix[process]}{stack} {samples}" for process, stack, samples in stacks)
    return read_py_spy(raw, FOLDER, lambda path, line: (lines or {}).get(line, "x = 1"))


# --- what is claimed ---------------------------------------------------------------------------------------------


def test_what_a_peer_does_not_claim_is_neither_right_nor_wrong():
    marks = claimed_marks(CASE, verdict("input"), None)
    assert marks == {"bound": True, "kind": None, "line": None}
    marks = claimed_marks(CASE, verdict(culprits=[{"kind": "collate", "source": "train.py:3"}]), "a = b")
    assert marks == {"bound": None, "kind": False, "line": False}


def test_no_report_claims_nothing():
    assert set(claimed_marks(CASE, None, None).values()) == {None}
    assert convicts(HEALTHY, None) is None


def test_a_case_without_a_culprit_asks_for_no_kind_and_no_line():
    marks = claimed_marks(HEALTHY, verdict("step", [{"kind": "read", "source": "train.py:3"}]), "x")
    assert marks == {"bound": True, "kind": None, "line": None}


def test_a_profile_of_a_healthy_loop_convicts_nobody_but_a_verdict_does():
    assert convicts(HEALTHY, verdict(culprits=[{"kind": "read"}])) is None
    assert convicts(HEALTHY, verdict("step")) is False
    assert convicts(HEALTHY, verdict("input")) is True


def row(report, expected=CASE, **changes):
    marks = claimed_marks(expected, report, "file.read()")
    facts = {"case": "X1", "peer": "py-spy", "report": report, "failure": None, "seconds": 12.0, "load": 1.5}
    return {**facts, "marks": marks, "convicts": convicts(expected, report), **changes}


def test_a_cell_shows_every_claim_with_its_mark():
    assert cell(row(verdict("step", [{"kind": "read", "source": f"{TRAIN}:7"}]))) == "step NO, read yes, train.py:7 yes"
    assert cell(row(verdict())) == "·"
    assert cell(row(None)) == "did not run"


def test_shares_count_claims_alone():
    rows = [row(verdict("input")), row(verdict("step")), row(verdict()), row(None)]
    assert shares(rows, "bound", {"X1"}) == "1/2"
    assert shares(rows, "kind", {"X1"}) == "·"


def test_the_page_names_command_versions_and_what_was_left_out():
    facts = {"command": "python bench/peers.py", "date": "d", "python": "3", "torch": "2", "machine": "m"}
    page = page_of(
        [row(verdict("input"))], {"X1": CASE}, {"py-spy": "0.4", "SPDL": "1"}, {"TraceML": "No module"}, facts
    )
    assert "python bench/peers.py" in page
    assert "| py-spy | 0.4 | 1/1 | 1/1 | · | · |" in page
    assert "**TraceML** was left out: No module" in page
    assert "Did not run" not in page
    assert "`it broke`" in page_of([row(None, failure="it broke")], {"X1": CASE}, {"py-spy": "0.4"}, {}, facts)


def test_a_case_that_a_peer_was_not_run_on_stays_empty():
    table = case_table([row(verdict("input"))], {"X1": CASE, "H1": HEALTHY}, ["py-spy"])
    assert "| H1 healthy | step: nobody | - |" in table


def test_a_place_is_the_file_and_the_line():
    assert place("/a/b/train.py:12") == "train.py:12"
    assert place(None) is None


def test_the_chosen_cases_exist_and_hold_five_healthy_controls():
    assert all((CASES / case / "expect.json").is_file() for case in CHOSEN)
    assert len(set(CHOSEN)) == len(CHOSEN) == 24
    assert sum(case.startswith("H") for case in CHOSEN) == 5
    assert "unstarve" in PEERS


# --- profiles ----------------------------------------------------------------------------------------------------


def test_the_hottest_line_is_named_unless_the_machinery_outweighs_all_lines():
    lines = [Spot(3, "code", "a:1"), Spot(2, "read", "a:2"), Spot(2, "read", "a:2")]
    assert culprit_of(hottest([*lines, Spot(6, "ipc")]))["source"] == "a:2"
    assert culprit_of(hottest([*lines, Spot(8, "ipc")])) == {"kind": "ipc", "name": ""}
    assert hottest([]) == verdict()


def test_a_workers_line_is_read_below_the_stack_that_forked_it():
    found = culprit_of(spy((7, f"{FETCH};__getitem__ ({TRAIN}:30);read ({TRAIN}:20)", 9), lines={20: "file.read()"}))
    assert (found["kind"], found["source"]) == ("read", f"{TRAIN}:20")


def test_a_waiting_worker_an_import_and_the_device_are_nobody():
    report = spy(
        (7, f"{WORKER};get (/lib/multiprocessing/queues.py:113);select (/lib/selectors.py:415)", 90),
        (7, f"{FETCH};__getitem__ ({TRAIN}:30);_find_and_load (<frozen importlib._bootstrap>:1176)", 50),
        (1, f"main ({TRAIN}:90);train_step ({TRAIN}:50)", 80),
        lines={50: "time.sleep(0.04)"},
    )
    assert report == verdict()


def test_host_work_of_the_loop_body_is_named_as_such():
    found = culprit_of(spy((1, f"main ({TRAIN}:90);accuracy ({TRAIN}:50)", 80)))
    assert (found["kind"], found["source"]) == ("step-host", f"{TRAIN}:50")


def test_a_thread_of_a_worker_counts_as_the_datasets():
    found = culprit_of(
        spy(
            (7, f"{WORKER};get (/lib/multiprocessing/queues.py:113);select (/lib/selectors.py:415)", 1),
            (7, f"_worker (/lib/concurrent/futures/thread.py:58);strip ({TRAIN}:33)", 5),
        )
    )
    assert (found["kind"], found["source"]) == ("code", f"{TRAIN}:33")


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        (f"{FETCH};join ({TRAIN}:40)", "collate"),
        (f"{WORKER};fetch ({DATA}/_utils/fetch.py:50);sessions ({TRAIN}:41)", "code"),
        (f"{FETCH};default_collate ({DATA}/_utils/collate.py:398)", "collate"),
        (f"{WORKER};warm_up ({TRAIN}:42)", "worker-start"),
        (f"train ({TRAIN}:80);_next_index ({DATA}/dataloader.py:700);__iter__ ({TRAIN}:43)", "sampler"),
        (
            f"train ({TRAIN}:80);__next__ ({DATA}/dataloader.py:700);rebuild (/lib/multiprocessing/reductions.py:9)",
            "ipc",
        ),
        ("_feed (/lib/multiprocessing/queues.py:264);dumps (/lib/multiprocessing/reduction.py:51)", "ipc"),
        (
            f"{WORKER};fetch ({DATA}/_utils/fetch.py:50);Photos.__getitem__ ({TRAIN}:44);Mask.forward ({TRAIN}:45)",
            "transform",
        ),
        (f"{WORKER};fetch ({DATA}/_utils/fetch.py:50);__getitem__ ({TRAIN}:46)", "decode"),
    ],
)
def test_the_kind_follows_from_where_the_loader_calls_a_line(stack, kind):
    lines = {52: "return self.collate_fn(data)", 50: "data = next(self.dataset_iter)", 46: "zlib.decompress(x)"}
    assert culprit_of(spy((7, stack, 5), lines=lines))["kind"] == kind


SOURCE = [
    "class Files:\n",
    "    def __getitem__(self, index):\n",
    "        name = self.names[index]\n",
    "        return Image.open(name).convert()\n",
    "\n",
    "def accuracy(scores):\n",
    "    return sum(score.item() for score in scores)\n",
    "\n",
    "def join(samples):\n",
    "    return torch.stack(samples)\n",
]
FETCHER, GET, OPEN = (
    (f"{DATA}/_utils/fetch.py", 20, "fetch"),
    (TRAIN, 2, "__getitem__"),
    ("/lib/PIL/Image.py", 1, "open"),
)
BUILTIN = ("~", 0, "<method 'decode' of 'ImagingDecoder' objects>")


def profile_of(**more):
    """Return a profile in which the data code's time is in a built-in below Image.open."""
    edge = (1, 1, 0.1, 4.0)
    return {
        FETCHER: (1, 1, 0.1, 4.2, {}),
        GET: (1, 1, 0.1, 4.1, {FETCHER: (1, 1, 0.1, 4.1)}),
        OPEN: (1, 1, 0.1, 4.0, {GET: edge}),
        BUILTIN: (1, 1, 3.9, 3.9, {OPEN: (1, 1, 3.9, 3.9)}),
        **more,
    }


def test_a_profile_hands_time_up_to_the_call_in_the_users_function():
    found = culprit_of(read_cprofile(profile_of(), FOLDER, lambda path: SOURCE))
    assert (found["kind"], found["source"], found["name"]) == ("decode", f"{TRAIN}:4", "__getitem__")


def test_a_profile_tells_the_loop_body_and_collation_from_data_code():
    body, join = (TRAIN, 6, "accuracy"), (TRAIN, 9, "join")
    stats = {FETCHER: (1, 1, 0.1, 1.0, {}), body: (1, 1, 5.0, 5.0, {})}
    assert culprit_of(read_cprofile(stats, FOLDER, lambda path: SOURCE))["kind"] == "step-host"
    stats = {FETCHER: (1, 1, 0.1, 1.0, {}), join: (1, 1, 5.0, 5.0, {FETCHER: (1, 1, 5.0, 5.0)})}
    assert culprit_of(read_cprofile(stats, FOLDER, lambda path: SOURCE))["kind"] == "collate"


def test_a_sampler_is_known_by_its_class_where_iter_hides_who_called_it():
    text = ["class Balanced(Sampler):\n", "    def __iter__(self):\n", "        return iter(sorted(self.keys))\n"]
    draw, through = (TRAIN, 2, "__iter__"), ("~", 0, "<built-in method builtins.iter>")
    below = {(f"{DATA}/sampler.py", 300, "__iter__"): (1, 1, 0.0, 5.0)}
    stats = {through: (1, 1, 0.0, 5.0, below), draw: (1, 1, 5.0, 5.0, {through: (1, 1, 5.0, 5.0)})}
    stats[next(iter(below))] = (1, 1, 0.0, 5.0, {})
    assert culprit_of(read_cprofile(stats, FOLDER, lambda path: text))["kind"] == "sampler"


def test_sleeping_in_the_loop_body_is_the_device():
    body, sleep = (TRAIN, 6, "accuracy"), ("~", 0, "<built-in method time.sleep>")
    stats = {body: (1, 1, 0.0, 5.0, {}), sleep: (1, 1, 5.0, 5.0, {body: (1, 1, 5.0, 5.0)})}
    found = culprit_of(read_cprofile({**stats, **profile_of()}, FOLDER, lambda path: SOURCE))
    assert found["kind"] == "decode"


def test_a_listed_function_is_found_in_source_by_its_bare_name():
    assert bare_name("<built-in method time.sleep>") == "sleep"
    assert bare_name("<method 'read' of '_io.BufferedReader' objects>") == "read"
    assert bare_name("convolve2d") == "convolve2d"
    assert line_calling(SOURCE, 2, "open") == 4
    assert line_calling(SOURCE, 2, "stack") == 2


# --- verdicts ----------------------------------------------------------------------------------------------------


def test_a_cached_loader_tells_the_input_from_the_step():
    assert read_spdl({"live": 10.0, "cached": 20.0}) == verdict("input")
    assert read_spdl({"live": 10.0, "cached": 10.5}) == verdict("step")
    assert read_spdl({"live": 10.0, "cached": None}) == verdict()


@pytest.mark.parametrize(
    ("status", "bound"), [("INPUT-BOUND", "input"), ("RESIDUAL-HEAVY", "step"), ("NO DATA", None), (None, None)]
)
def test_a_summary_claims_what_its_step_time_says(status, bound):
    assert read_traceml({"step_time": {"diagnosis": {"status": status}}}) == verdict(bound)
    assert read_traceml({}) == verdict()


def test_loadtune_is_read_by_its_own_rule():
    assert read_loadtune("baseline: 9.1 samples/s, data wait 61.0%, device cpu", 2) == verdict("input")
    assert read_loadtune("baseline: 9.1 samples/s, data wait 10.0%, device cpu", 2) == verdict()
    assert read_loadtune("baseline: 9.1 samples/s, data wait 1.0%, device cpu", 2) == verdict("step")
    assert read_loadtune("baseline failed", 2) == verdict()


def test_more_workers_that_won_claim_that_there_were_too_few():
    output = (
        "baseline: 9.1 samples/s, data wait 61.0%, device cpu\nbest overall: workers=2, persistent — 1.52x baseline"
    )
    assert read_loadtune(output, 0)["verdict"]["culprits"][0]["kind"] == "workers"
    assert read_loadtune(output, 2) == verdict("input")


def test_a_scripts_workers_are_read_from_its_text():
    assert workers_of("DataLoader(data, num_workers=6)") == 6
    assert workers_of("PROCESSES = 12\nloader = DataLoader(data, num_workers=PROCESSES)") == 12
    assert workers_of("DataLoader(data)") == 0
