"""From what watching found to what is worth measuring: pure functions on literal costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstarve.measure import plan
from unstarve.measure.cuts.observer import Cost
from unstarve.recording import BodyLine, Stage


def cost(*wall_ns: int, cpu: float = 1.0, **facts) -> Cost:
    return Cost(
        name="f", text="f(x)", source="train.py:3", wall_ns=list(wall_ns),
        cpu_ns=[int(wall * cpu) for wall in wall_ns], delay_ns=[0] * len(wall_ns), **facts,
    )  # fmt: skip


def unperturbed(passes: list[dict]) -> dict:
    """Passes of a single worker as one."""
    return plan.unperturbed([[costs] for costs in passes])


def test_nothing_watched_costs_nothing() -> None:
    """Without a pass there is no unit."""
    assert unperturbed([]) == {}


def test_a_unit_keeps_the_time_it_had_before_its_inside_was_watched() -> None:
    """Looking into a unit slows it down; the first pass that saw it tells what it takes."""
    found = unperturbed([{(1,): cost(100, 120)}, {(1,): cost(200, 240), (1, 0): cost(150, 180)}])
    assert found[1,].wall_ns == [100, 120]


def test_what_is_inside_gets_its_share_of_the_undisturbed_whole() -> None:
    """Wall, CPU and delay shrink alike, so that parts still sum to the whole."""
    whole, first, second = cost(200), cost(150, cpu=0.5), cost(50)
    found = unperturbed([{(1,): cost(100)}, {(1,): whole, (1, 0): first, (1, 1): second}])
    assert found[1, 0].wall_ns == [75]
    assert found[1, 0].cpu_ns == [37]
    assert found[1, 1].wall_ns == [25]


def test_shares_are_passed_down_level_by_level() -> None:
    """A statement two levels down is scaled by what both levels above it gained in being watched."""
    passes = [
        {(1,): cost(100)},
        {(1,): cost(200), (1, 0): cost(160)},
        {(1,): cost(400), (1, 0): cost(320), (1, 0, 2): cost(240)},
    ]
    found = unperturbed(passes)
    assert found[1, 0].wall_ns == [80]
    assert found[1, 0, 2].wall_ns == [60]


def test_units_come_from_the_latest_pass() -> None:
    """Facts other than times are those of the pass that knows most; a unit that it did not meet, as a random choice may
    not be, is kept as it was."""
    found = unperturbed([{(1,): cost(100), (2,): cost(5)}, {(1,): cost(200, read_bytes=7)}])
    assert set(found) == {(1,), (2,)}
    assert found[1,].read_bytes == 7


@pytest.mark.parametrize("samples", [1, 5, 12])
def test_what_was_read_is_of_as_many_samples_as_the_times(samples: int) -> None:
    """A pass of other samples in number than the first says how much a sample reads, not how much those of the first did."""
    reading = cost(
        *[100] * samples, read_bytes=samples << 20, read_calls=8 * samples, read_samples=samples, faults=4 * samples,
        storage_bytes=samples << 10,
    )  # fmt: skip
    found = unperturbed([{(1,): cost(100, 100, 100)}, {(1,): reading}])[1,]
    assert (found.read_bytes, found.read_calls, found.read_samples) == (3 << 20, 24, 3)
    assert (found.faults, found.storage_bytes) == (12, 3 << 10)


def test_what_one_of_many_samples_read_is_not_lost() -> None:
    """A unit that read once in a longer pass than the first has read."""
    rare = cost(*[100] * 12, read_bytes=5000, read_calls=1, read_samples=1)
    found = unperturbed([{(1,): cost(100, 100, 100)}, {(1,): rare}])[1,]
    assert (found.read_bytes, found.read_calls, found.read_samples) == (1250, 1, 1)


def test_a_unit_that_few_samples_run_is_charged_to_all() -> None:
    """What takes long once in four samples takes a quarter of that of each, and is a read if it reads where it runs."""
    rare = cost(400, read_bytes=1 << 20, read_samples=1)
    passes = [{(1,): cost(500, 100, 100, 100)}, {(1,): cost(500, 100, 100, 100), (1, 0): rare}]
    found = unperturbed(passes)
    assert found[1, 0].wall_ns == [400, 0, 0, 0]
    (_, inner) = plan.nodes(found, 200.0)
    assert (inner.share, inner.stage.kind, inner.stage.samples) == (0.5, "read", 4)


def test_a_whole_that_took_no_time_scales_nothing() -> None:
    """A clock too coarse to see the whole does not make its parts vanish."""
    found = unperturbed([{(1,): cost(0)}, {(1,): cost(0), (1, 0): cost(40)}])
    assert found[1, 0].wall_ns == [40]


def test_the_passes_are_left_as_they_were() -> None:
    """Figures are copied, not scaled in place: the passes are looked at again after the next."""
    passes = [{(1,): cost(100)}, {(1,): cost(200), (1, 0): cost(150)}]
    assert unperturbed(passes) == unperturbed(passes)
    assert passes[1][1, 0].wall_ns == [150]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=5), st.floats(1, 50))
def test_parts_sum_to_the_whole_however_much_watching_cost(parts: list[int], slowdown: float) -> None:
    """With everything inside slowed alike, the parts' times sum to what the whole took unwatched."""
    slow = [int(part * slowdown) for part in parts]
    inside = {(1, number): cost(figure) for number, figure in enumerate(slow)}
    found = unperturbed([{(1,): cost(sum(parts))}, {(1,): cost(sum(slow)), **inside}])
    total = sum(found[address].wall_ns[0] for address in inside)
    assert total == pytest.approx(sum(parts), rel=1e-6, abs=len(parts))


def test_counts_of_all_workers_become_the_stage_s() -> None:
    """What two workers read, and what of it came from storage, is added up on the way to the stage."""
    parts = [{(0,): cost(1000, read_bytes=500, storage_bytes=200)}, {(0,): cost(900, read_bytes=300, storage_bytes=9)}]
    stage = plan.nodes(plan.unperturbed([parts]), 1000.0)[0].stage
    assert (stage.read_bytes, stage.storage_bytes, len(stage.wall_ns)) == (800, 209, 2)


def stage_of(text: str, *, calls: int = 0, samples: int = 10) -> Stage:
    costs = {(0,): replace(cost(*[1000] * samples), text=text, source="train.py:3", name=text, read_calls=calls)}
    return plan.nodes(costs, 1000.0)[0].stage


@pytest.mark.parametrize(
    ("text", "calls", "reads", "decodes"),
    [
        ('x = Image.open(path).convert("RGB")', 20, True, True),
        ("x = cv2.imread(path)", 20, True, True),
        ("x = io.read_file(path)", 0, True, False),
        ("x = decode_jpeg(data)", 0, False, True),
        ("x = np.load(path)", 20, True, False),
        ("time.sleep(0.1)", 0, False, False),
        ("x = x * open_share", 1, False, False),
    ],
)
def test_stages_that_may_read_and_that_decode_are_told(text: str, calls: int, reads: bool, decodes: bool) -> None:
    """Reading shows in the kernel's count, in most samples, or in what is called; decoding in what is called alone."""
    stage = stage_of(text, calls=calls)
    assert plan.may_read(stage) is reads
    assert stage.decodes is decodes


@pytest.mark.parametrize(
    ("callee", "kind"),
    [
        ("sparse.csr_matrix", "code"), ("morphology.opening", "code"), ("self.readout", "code"), ("self.is_ready", "code"),
        ("parser.parse", "decode"), ("fits.open", "read"), ("file.readline", "read"),
        ("np.loadtxt", "decode"), ("pd.read_csv", "decode"),
    ],
)  # fmt: skip
def test_words_inside_other_words_say_nothing(callee: str, kind: str) -> None:
    """A statement that did not wait is called by what it calls, word by word."""
    found = replace(cost(100), callee=callee, name=callee, text=f"x = {callee}(y)")
    assert plan.kind_of(found) == kind


BOTH = """
def chain(train):
    if not train:
        return T.Compose([T.Resize(256), T.ToTensor()])
    return T.Compose([T.RandomCrop(224), T.Flip(), T.ToTensor()])
"""


def test_a_transform_is_found_in_the_list_that_it_is_in(tmp_path) -> None:
    """Of two lists with a transform of this name, the one with its siblings is meant."""
    path = tmp_path / "train.py"
    path.write_text(BOTH)
    for siblings, line in (({"RandomCrop", "Flip", "ToTensor"}, 5), ({"Resize", "ToTensor"}, 4)):
        assert plan._where_built("ToTensor", [str(path)], siblings) == f"{path}:{line}"


def test_what_is_seen_of_a_batch_is_shared_out_over_its_samples() -> None:
    """One call in four samples is a quarter of a call for each; what was not looked at stays unknown."""
    stage = Stage(
        id="code:0", kind="read", name="load", wall_ns=(800, 400), cpu_ns=(80, 40), delay_ns=(8, 4), read_bytes=1200,
        read_calls=2,
    )  # fmt: skip
    shared = plan.shared_out(stage, 4)
    assert (shared.wall_ns, shared.cpu_ns, shared.delay_ns) == ((200, 100), (20, 10), (2, 1))
    assert (shared.read_bytes, shared.read_calls, shared.storage_bytes) == (300, 0.5, None)


def suspects(costs: dict) -> list[tuple[int, ...]]:
    return [node.address for node in plan.suspects(plan.nodes(costs, 1000.0), 3)]


@pytest.mark.parametrize(("items", "blamed"), [(300, [(0,)]), (800, [(0, 0, 0)])])
def test_a_call_that_spends_its_time_outside_its_transforms_is_to_blame_itself(items: int, blamed: list) -> None:
    """A lazy property among the arguments of a chain of transforms is not the first transform's fault."""
    loop = replace(cost(items), is_loop=True)
    costs = {(0,): cost(1000), (0, 0): loop, (0, 0, 0): replace(cost(items - 10), is_item=True, name="T")}
    assert suspects(costs) == blamed


LOOP = {
    (0,): cost(100),
    (1,): replace(cost(900), is_loop=True),
    (1, -1, 0): replace(cost(130), name="read", callee="read_frame", text="x = read_frame(path)"),
    (1, -1, 1): replace(cost(750), name="flow", callee="flow", text="y = flow(x)"),
}

CHOICE = {
    (0,): cost(980),
    (0, 0): cost(20),
    (0, 1): cost(950),
    (0, 1, -2): replace(cost(800), is_item=True, name="Warp"),
    (0, 1, -3): replace(cost(100), is_item=True, name="Flip"),
}


@pytest.mark.parametrize(("costs", "blamed"), [(LOOP, [(1,), (0,)]), (CHOICE, [(0, 1)])])
def test_what_can_be_served_only_as_a_whole_is_suspected_as_a_whole(costs: dict, blamed: list) -> None:
    """A statement in a loop, or one choice of several, is not credited with what serving all of the loop gains."""
    assert suspects(costs) == blamed


def test_what_is_served_as_a_whole_is_told_from_what_is_served_alone() -> None:
    """A stage says whether it can be served alone, so that the judge names the whole with its part."""
    servable = {node.address: node.stage.is_servable for node in plan.nodes(LOOP, 1000.0)}
    assert servable == {(0,): True, (1,): True, (1, -1, 0): False, (1, -1, 1): False}


@pytest.mark.parametrize(("around", "is_shown"), [(1000, True), (550, False)])
def test_a_loop_in_any_order_is_shown_where_nothing_around_it_stands_for_it(around: int, is_shown: bool) -> None:
    """The call around a loop over callables stands for it, unless it does much else; then only the loop can be blamed."""
    loop = replace(cost(500), is_loop=True)
    items = {(0, 1, -2): replace(cost(300), is_item=True), (0, 1, -3): replace(cost(190), is_item=True)}
    costs = {(0,): cost(around), (0, 0): cost(around - 500), (0, 1): loop, **items}
    assert ((0, 1) in {node.address for node in plan.nodes(costs, 1000.0)}) == is_shown
    assert ((0, 1) if is_shown else (0,)) in suspects(costs)


def test_a_raw_sample_is_not_yet_processed() -> None:
    """A loop that reads and processes each item is no cut before the processing; one that only reads is, before the rest."""
    rest = {(2,): replace(cost(300), callee="augment", text="augment(x)", name="augment")}
    only_reads = {address: cost for address, cost in LOOP.items() if address != (1, -1, 1)}
    for costs, cut in (({**LOOP, **rest}, None), (LOOP, None), ({**only_reads, **rest}, (1,)), (only_reads, None)):
        assert plan.raw_cut(costs, plan.nodes(costs, 1000.0)) == cut


def test_a_sampled_line_tells_whether_it_decodes() -> None:
    """Its name says that it reads; that it parses as well is for the judge to weigh."""
    lines = [
        BodyLine(source="train.py:3", text=text, wall_fraction=0.5, cpu_fraction=0.5)
        for text in ("return np.loadtxt(io.BytesIO(payload))", "return np.fromfile(path)")
    ]
    found = plan.sampled_stages(lines, [1000])
    assert [(stage.kind, stage.decodes) for stage in found] == [("read", True), ("read", False)]


def test_rungs_are_told_apart_though_their_stages_share_a_line_or_a_name() -> None:
    """Each is called by what it has cached, and by the line of that; a long statement leaves room for a bar."""
    nodes = [
        plan.Node((number,), Stage(id=f"code:{number}", kind="code", name=name, source=source), is_item=False, share=0.5, is_leaf=True)
        for number, (name, source) in enumerate(
            [("torch.tensor", "train.py:17"), ("np.asarray", "train.py:17"), ("np.asarray", "train.py:18"), ("x" * 99, "train.py:19")]
        )
    ]  # fmt: skip
    labels = [plan.cut_rung(node, 0).label for node in nodes]
    assert labels[:2] == ["cached after torch.tensor (line 17)", "cached after np.asarray (line 17)"]
    assert len(set(labels)) == 4
    assert max(map(len, labels)) < 60


def test_loops_are_no_calls_on_the_way_down() -> None:
    """A call in a loop in a call is the second call, and is looked into where two are allowed."""
    costs = {(0,): cost(100, can_enter=True), (0, 1): cost(100, is_loop=True), (0, 1, -1, 2): cost(100, can_enter=True)}
    opened = [(0,), (0, 1)]
    assert plan.to_open(costs, opened, 100, depth=2) == [(0, 1, -1, 2)]
    assert plan.to_open(costs, opened, 100, depth=1) == []


def test_a_stage_says_in_how_many_samples_it_read() -> None:
    """Over all workers: what reads in one sample only was once in need of a module."""
    parts = [{(0,): cost(100, 100, reading_samples=1)}, {(0,): cost(100, 100, reading_samples=2)}]
    stages = [node.stage for node in plan.nodes(plan.unperturbed([parts]), 400)]
    assert [stage.reading_samples for stage in stages] == [3]


def test_the_call_around_a_stage_is_the_outermost_of_which_it_is_most() -> None:
    """An index of another file cannot be served alone; the record that is read with it can."""
    stage = stage_of("x")
    shares = {(0,): 0.8, (0, 1): 0.75, (0, 1, -1): 0.74, (0, 1, -1, 2): 0.7, (1,): 0.2}
    nodes = {
        address: plan.Node(address, stage, is_item=False, share=share, is_leaf=False)
        for address, share in shares.items()
    }
    found = list(nodes.values())
    assert plan.around(nodes[0, 1, -1, 2], found) is nodes[0,]
    assert plan.around(nodes[0,], found) is None
    small = plan.Node((0, 3), stage, is_item=False, share=0.1, is_leaf=True)
    assert plan.around(small, [*found, small]) is None
