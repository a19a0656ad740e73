"""Other orders of transforms: which are found, how far both orders are the same, and that they are put back."""

from __future__ import annotations

import random
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pipelines
import pytest
import torch
from pipelines import Blur, Brighten, Chain, Crop, Frames, Jitter, Mask, MiddleCrop, Rarely, Unrepeatable
from test_worker import Sent, Worker
from torch.utils.data import ConcatDataset, DataLoader, Subset

from unstarve import errors, judge
from unstarve.measure import reorder
from unstarve.measure.engine import Engine
from unstarve.measure.hook import installed
from unstarve.measure.listing import with_source
from unstarve.measure.program import Options
from unstarve.measure.reorder import EXACT, NO, Arrangement, Orders, Search, chain_at, chains, compare
from unstarve.recording import Reordering


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a worker: on a busy machine, several threads take any time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def found(dataset: Any, samples: int = 8) -> tuple[Reordering, ...]:
    """The other orders that are found on so many samples of the dataset."""
    search = Search(dataset)
    search.follow(lambda: [dataset[number] for number in range(samples)])
    return search.orders().found


def draw() -> list[float]:
    """What the process's generators give next."""
    return [random.random(), np.random.rand(), torch.rand(1).item()]


# --- Chains -----------------------------------------------------------------------------------------------------------


def test_chains_are_found_through_wrapping_data_sets() -> None:
    """Lists of callables are, wherever they hang; other lists, and lists of one, are not."""
    data = Subset(ConcatDataset([Frames(Crop(), Brighten()), Frames(Crop())]), range(4))
    assert [chain.path for chain in chains(data)] == [(".dataset", ".datasets", "[0]", ".transform", ".steps")]
    data.names = ["a", "b"]
    data.kinds = [Crop, Brighten]
    assert len(chains(data)) == 1


@pytest.mark.parametrize(
    "make", [list, tuple, lambda steps: torch.nn.ModuleList(steps), lambda steps: torch.nn.Sequential(*steps)]
)
def test_an_arrangement_is_put_in_place_and_taken_back(make: Any) -> None:
    """In every kind of container that holds transforms, and in a module as in any other object."""
    steps = [torch.nn.ReLU(), torch.nn.Sigmoid(), torch.nn.Tanh()]
    data, holder = Frames(), torch.nn.Module()
    holder.steps = make(steps)
    data.transform = holder
    (chain,) = chains(data)
    arrangement = Arrangement()
    arrangement.put(data, chain.path, [2, 0, 1])
    assert list(holder.steps) == [steps[2], steps[0], steps[1]]
    arrangement.undo()
    assert list(holder.steps) == steps
    assert type(holder.steps) is type(make(steps))


def test_an_order_for_another_chain_is_refused() -> None:
    """Where the chain has another number of transforms than the order, or is none, nothing is changed."""
    data = Frames(Crop(), Brighten())
    with pytest.raises(LookupError):
        Arrangement().put(data, (".transform", ".steps"), [1, 0, 2])
    with pytest.raises(LookupError):
        chain_at(data, (".transform",))
    assert [type(step) for step in data.transform.steps] == [Crop, Brighten]


# --- Search -----------------------------------------------------------------------------------------------------------


def test_a_crop_moves_before_everything_that_works_on_single_pixels() -> None:
    """Both orders give exactly the same, and the order takes less time."""
    (order,) = found(Frames(Brighten(), Brighten(), Crop(), Jitter()))
    assert order.order == (2, 0, 1, 3)
    assert order.names == ("Brighten", "Brighten", "Crop", "Jitter")
    assert order.moves == ((2, 0),)
    assert (order.likeness, order.differing, order.samples) == ("exact", 0.0, 8)
    assert order.after_ns < order.before_ns


def test_no_more_samples_are_kept_than_there_is_memory_for() -> None:
    """Three images and their results, of 12 kB each, say enough; one does not."""
    data = Frames(Brighten(), Brighten(), Crop(), Jitter())
    for limit_bytes, samples in ((2 * 2 * 3 * 64 * 64, [3]), (3 * 64 * 64, [])):
        search = Search(data, limit_bytes)
        search.follow(lambda: [data[number] for number in range(8)])
        assert search.has_enough
        assert [order.samples for order in search.orders().found] == samples


def test_a_crop_stays_behind_what_draws_for_every_pixel() -> None:
    """On fewer pixels other numbers are drawn, so the results differ."""
    assert found(Frames(Mask(), Crop())) == ()


def test_a_crop_moves_up_to_what_it_must_stay_behind() -> None:
    """It passes what it commutes with and stops there."""
    (order,) = found(Frames(Mask(), Brighten(), Crop()))
    assert order.order == (0, 2, 1)


def test_a_blur_before_a_crop_differs_only_at_the_border() -> None:
    """The crop's border pixels see zeros instead of their neighbours: their share is reported."""
    (order,) = found(Frames(Blur(), MiddleCrop()))
    assert order.order == (1, 0)
    assert order.likeness == "border"
    assert order.differing == pytest.approx(1 - 30**2 / 32**2, abs=0.01)


def test_what_is_rarely_done_to_a_sample_is_met() -> None:
    """A crop stays behind a rotation that is applied to a tenth of the samples, though it was applied to none of those that
    were kept."""
    assert found(Frames(Rarely(lambda image: image.rot90(1, (-2, -1))), Crop())) == ()


def test_a_crop_moves_up_to_what_is_rarely_done_and_past_what_never_draws() -> None:
    """That it may not come before the first of them does not keep it behind the second."""
    (order,) = found(Frames(Rarely(lambda image: image.flip(-1)), Brighten(), Crop()))
    assert order.order == (0, 2, 1)


def test_a_border_that_few_samples_have_is_reported() -> None:
    """A blur of a tenth of the samples differs at a crop's border in these, whatever the first eight say."""
    (order,) = found(Frames(Rarely(Blur()), MiddleCrop()))
    assert (order.order, order.samples) == ((1, 0), 8)
    assert order.likeness == "border"
    assert 0 < order.differing < 0.05


def test_too_few_draws_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where patience ends before enough of them were tried, nothing moves before what draws, and all else moves as ever."""
    monkeypatch.setattr(reorder, "DRAWS", reorder.FEWEST_DRAWS - 1)
    assert found(Frames(Jitter(), Crop())) == ()
    assert len(found(Frames(Brighten(), Crop()))) == 1


def test_a_generator_of_a_transforms_own_is_seeded_like_the_shared_ones() -> None:
    """It draws the same in both orders, and goes on afterwards as if nothing had been."""
    jitter = Jitter()
    data = Frames(jitter, Crop())
    search = Search(data)
    search.follow(lambda: [data[number] for number in range(8)])
    before = jitter.random.get_state()[2]
    (order,) = search.orders().found
    assert order.likeness == "exact"
    assert jitter.random.get_state()[2] == before


def test_transforms_that_never_give_the_same_twice_are_left_alone() -> None:
    """Nothing can be said about their order."""
    assert found(Frames(Unrepeatable(), Crop())) == ()


def test_an_order_that_saves_nothing_is_not_proposed() -> None:
    """A crop that is first already, or nothing that makes data smaller."""
    assert found(Frames(Crop(), Brighten())) == ()
    assert found(Frames(Brighten(), Jitter())) == ()


def test_a_transform_that_cannot_take_the_other_order_ends_the_search() -> None:
    """What raises does not commute; the script's own order is in place afterwards."""
    data = Frames(torch.Tensor.numpy, lambda image: image[:, :8, :8].copy(), lambda image: torch.from_numpy(image))
    assert [order.order for order in found(data)] == []
    assert isinstance(data[0][0], torch.Tensor)


class OneOf:
    """One of its transforms, whichever comes."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)

    def __call__(self, image: Any) -> Any:
        return self.steps[int(torch.randint(0, len(self.steps), ()))](image)


def test_a_choice_is_no_chain() -> None:
    """Its transforms do not get what the one before gave."""
    data = Frames()
    data.transform = OneOf(Brighten(), MiddleCrop())
    assert found(data) == ()


def test_samples_on_the_way_are_those_without_a_search() -> None:
    """The batch is what it would have been, the generators are where they would have been, the list is as it was."""
    data = Frames(Brighten(0), Crop(), Jitter())
    steps = list(data.transform.steps)
    made, after = [], []
    for is_searching in (False, True):
        random.seed(1), np.random.seed(2), torch.manual_seed(3)
        data.transform.steps[2].random.seed(4)
        if is_searching:
            search = Search(data)
            made.append(search.follow(lambda: [data[number] for number in range(8)]))
            search.orders()
        else:
            made.append([data[number] for number in range(8)])
        after.append(draw())
    assert all(torch.equal(left[0], right[0]) for left, right in zip(*made, strict=True))
    assert after[0] == after[1]
    assert data.transform.steps == steps


class Doubling(torch.nn.Module):
    """A transform that is a module."""

    def forward(self, image: Any) -> Any:
        return image * 2


class Sorting:
    """Runs its steps as their kinds want it, as a library's `Compose` does, and marks each."""

    def __init__(self, steps: Any) -> None:
        self.steps = steps
        self.kinds: list[str] = []

    def __call__(self, image: Any) -> Any:
        for step in self.steps:
            is_module, is_crop = isinstance(step, torch.nn.Module), isinstance(step, Crop)
            self.kinds.append(f"{is_module} {is_crop} {callable(step)} {step.__class__.__name__}")
            image = step.forward(image) if is_module else step(image)
            if not isinstance(step, types.FunctionType):
                step.has_run = True
        return image


@pytest.mark.parametrize("make", [list, tuple])
def test_transforms_that_are_followed_pass_for_what_they_are(make: Any) -> None:
    """A container that asks for their kinds takes the same branches, and what it sets on them stays set."""
    data, kinds = Frames(), []
    steps = [Brighten(), Doubling(), copy, Crop()]
    data.transform = Sorting(make(steps))
    for is_searching in (False, True):
        data.transform.kinds.clear()
        search = Search(data)
        search.follow(lambda: [data[number] for number in range(8)]) if is_searching else data[0]
        kinds.append(data.transform.kinds[:4])
    assert kinds[0] == kinds[1]
    assert search.has_enough
    assert len(search.orders().found) == 1
    assert all(step.has_run for step in steps if step is not copy)


def copy(image: Any) -> Any:
    return image + 0


def test_modules_in_sequence_are_followed() -> None:
    """A `Sequential` calls what stands for its modules like them."""
    data = Frames()
    data.transform = torch.nn.Sequential(Doubling(), Doubling())
    before = [data[number][0] for number in range(8)]
    search = Search(data)
    made = search.follow(lambda: [data[number][0] for number in range(8)])
    assert all(torch.equal(left, right) for left, right in zip(before, made, strict=True))
    assert search.has_enough
    assert [type(step) for step in data.transform] == [Doubling, Doubling]


def test_chains_of_dictionaries_and_of_several_values_are_followed() -> None:
    """A step may get keyword arguments, or several values, and give them on."""

    class ByName(Chain):
        def __call__(self, image: Any) -> Any:
            data = {"image": image, "label": 3}
            for step in self.steps:
                data = step(**data)
            return data["image"]

    class Several(Chain):
        def __call__(self, image: Any) -> Any:
            values = (image, 3)
            for step in self.steps:
                values = step(*values)
            return values[0]

    brighten, crop = Brighten(), Crop()
    data = Frames()
    data.transform = ByName(
        [
            lambda image, label: {"image": brighten(image), "label": label},
            lambda image, label: {"image": crop(image), "label": label},
        ]
    )
    assert [order.order for order in found(data)] == [(1, 0)]
    data.transform = Several([lambda image, label: (brighten(image), label), lambda image, label: (crop(image), label)])
    assert [order.order for order in found(data)] == [(1, 0)]


def test_the_toy_pipeline_crops_before_it_converts() -> None:
    """The article's second mend, found on its samples and not by name; the patch is of the line that lists the chain."""
    toy = pytest.importorskip("unstarve.demo.toy")
    (order,) = found(toy.ToyDataset(toy.transforms_as_published()))
    assert order.order == (1, 0, 2, 3, 4)
    assert order.likeness == "exact"
    assert str(order) == "RandomCrop before PILToTensor"
    placed = with_source(order, [toy.__file__])
    assert placed.patch is not None
    assert (
        "+    return transforms.Compose([transforms.RandomCrop(256), transforms.PILToTensor(), RandomMask(),"
        in placed.patch
    )
    assert found(toy.ToyDataset(toy.transforms_optimised())) == ()


# --- Likeness ---------------------------------------------------------------------------------------------------------


def image(**changes: float) -> torch.Tensor:
    """32x32 numbers, with those at the places named `y_x` changed by so much."""
    values = torch.arange(1024.0).reshape(32, 32)
    for place, change in changes.items():
        row, column = map(int, place.removeprefix("at_").split("_"))
        values[row, column] += change
    return values


@pytest.mark.parametrize(
    ("right", "kind"),
    [
        (image(), "exact"),
        (image(at_9_9=1e-4), "rounding"),
        (image(at_0_9=50, at_31_31=50, at_9_3=50), "border"),
        (image(at_9_4=50), "no"),
        (image(at_0_9=float("nan")), "border"),
        (image().double(), "no"),
        (image()[:31], "no"),
        (image().numpy(), "no"),
    ],
)
def test_how_far_two_images_are_the_same(right: Any, kind: str) -> None:
    """Rounding is a few units in the last place, a border at most an eighth of the image on each side."""
    assert compare(image(), right).kind == kind


def test_whole_numbers_are_not_rounded() -> None:
    """A class that is off by one is another class."""
    assert compare(torch.tensor([3, 4]), torch.tensor([3, 5])).kind != "rounding"
    assert compare(3, 4) == NO
    assert compare((image(), 3), (image(), 3)) == EXACT
    assert compare((image(), 3), (image(), 4)).kind == "no"
    assert compare({"a": image()}, [image()]) == NO


def test_the_share_of_differing_values_is_of_all_of_them() -> None:
    """Labels and images count by their numbers."""
    likeness = compare([image(), torch.zeros(1024)], [image(at_0_0=50), torch.zeros(1024)])
    assert likeness.kind == "border"
    assert likeness.differing == pytest.approx(1 / 2048)


# --- Source -----------------------------------------------------------------------------------------------------------


def reordering(**facts: Any) -> Reordering:
    return Reordering(
        path=(".transform", ".transforms"), names=("Blur", "Crop", "work"), order=(1, 0, 2), likeness="exact",
        samples=8, before_ns=9, after_ns=3, **facts,
    )  # fmt: skip


def written(tmp_path: Any, text: str) -> Reordering:
    file = tmp_path / "train.py"
    file.write_text(text, encoding="utf-8")
    return with_source(reordering(), [str(file)])


def test_the_patch_moves_the_line_of_the_transform(tmp_path: Any) -> None:
    """Where each stands on a line of its own, whatever its arguments are and however they are broken."""
    placed = written(
        tmp_path, "é = 1\nchain = T.Compose([\n    Blur(\n        3),\n    T.Crop(size=4),\n    work,\n])\n"
    )
    assert placed.source == f"{tmp_path / 'train.py'}:5"
    assert placed.patch is not None
    changed = [line for line in placed.patch.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["+    T.Crop(size=4),", "-    T.Crop(size=4),"]


def test_arguments_of_a_call_are_a_chain_too(tmp_path: Any) -> None:
    """As those of `nn.Sequential`, on one line."""
    placed = written(tmp_path, "chain = nn.Sequential(Blur('é'), Crop(4), partial(work, 3))\n")
    assert placed.patch is not None
    assert "+chain = nn.Sequential(Crop(4), Blur('é'), partial(work, 3))" in placed.patch


def test_comments_go_along_with_their_transform(tmp_path: Any) -> None:
    """Those behind it and those above it, where it has lines of its own."""
    text = "chain = [\n  Blur(),  # soft\n  # not too small\n  Crop(),  # sharp\n  work,\n]\n"
    placed = written(tmp_path, text)
    assert placed.patch is not None
    after = [line[1:] for line in placed.patch.splitlines() if line[:1] in " +" and line[:3] != "+++"]
    assert after[1:4] == ["  # not too small", "  Crop(),  # sharp", "  Blur(),  # soft"]


def test_comments_between_transforms_that_share_lines_are_not_moved_about(tmp_path: Any) -> None:
    """They may speak of one of them: the place is named, the change is left to the reader."""
    placed = written(tmp_path, "chain = [Blur(),  # first of all\n  Crop(), work]\n")
    assert placed.source is not None
    assert placed.patch is None


@pytest.mark.parametrize(
    "text", ["a = [Blur(), Crop(), work]\nb = [Blur(), Crop(), work]\n", "a = [Crop()]\n", "a = ["]
)
def test_a_chain_that_is_listed_twice_or_not_at_all_has_no_place(tmp_path: Any, text: str) -> None:
    """No place is better than the wrong one."""
    assert written(tmp_path, text) == reordering()


# --- Workers ----------------------------------------------------------------------------------------------------------


def until_orders(worker: Worker) -> Orders:
    for _ in range(reorder.MOST_BATCHES):
        told = worker.fetch().telemetry
        assert told.failure is None
        if told.findings is not None:
            assert isinstance(told.findings, Orders)
            return told.findings
    raise AssertionError("the worker never told")


def test_a_worker_searches_on_its_batches_and_tries_what_it_found() -> None:
    """Samples of another order are made while the order stands, and of the script's own before and after."""
    worker = Worker(Frames(Brighten(), MiddleCrop()))
    worker.order(mode="commute", limit_bytes=1 << 30)
    (order,) = until_orders(worker).found
    steps = list(worker.dataset.transform.steps)
    worker.order(mode="reorder", path=order.path, order=order.order)
    made = worker.fetch()
    assert made.telemetry.failure is None
    assert worker.dataset.transform.steps == steps[::-1]
    assert made.data[0].shape == (8, 3, 32, 32)
    worker.order(mode="run")
    worker.fetch()
    assert worker.dataset.transform.steps == steps


def test_small_batches_are_followed_until_there_are_samples_enough() -> None:
    """One sample says nothing: the search goes on with the next batches, and then tells, once."""
    worker = Worker(Frames(Brighten(), MiddleCrop()))
    worker.order(mode="commute", limit_bytes=1 << 30)
    seen = [worker.fetch(size=2).telemetry.findings for _ in range(6)]
    assert [item is not None for item in seen] == [False, False, False, True, False, False]


def test_a_worker_without_chains_tells_so_at_once() -> None:
    """Nobody waits for what will not come."""
    worker = Worker(Frames(Brighten(0)))
    worker.order(mode="commute", limit_bytes=1 << 30)
    assert until_orders(worker).found == ()


def test_an_order_that_fails_is_given_up_and_the_batch_is_made_as_ever() -> None:
    """The failure is told with the batch, and the script's own order is back."""
    worker = Worker(Frames(bytes_to_floats, floats_only))
    steps = list(worker.dataset.transform.steps)
    worker.order(mode="reorder", path=[".transform", ".steps"], order=[1, 0])
    made: Sent = worker.fetch()
    assert "TypeError: no floats" in (made.telemetry.failure or "")
    assert made.data[0].dtype == torch.float32
    assert worker.dataset.transform.steps == steps


def bytes_to_floats(image: torch.Tensor) -> torch.Tensor:
    return image.float()


def floats_only(image: torch.Tensor) -> torch.Tensor:
    if not image.is_floating_point():
        raise TypeError("no floats")
    return image * 2


# --- In the loop ------------------------------------------------------------------------------------------------------


def diagnosed(dataset: Any, step_s: float = 0.002) -> tuple[Engine, Any]:
    engine = Engine(Options(budget_s=30))
    loader = DataLoader(dataset, batch_size=4, num_workers=2)
    with installed(engine), pytest.raises(errors.Finished):
        for _ in range(50):
            for _batch in loader:
                time.sleep(step_s)
    return engine, judge.judge(engine.recording())


@pytest.mark.live
def test_an_order_that_helps_is_tried_in_the_loop_and_advised_with_its_gain() -> None:
    """Planted: a transform that takes its time on every pixel stands before a crop to a quarter of each side."""
    engine, report = diagnosed(pipelines.Frames(Brighten(2e-6), Crop()))
    rung = next(rung for rung in engine.recording().rungs if rung.reordering is not None)
    assert rung.reordering is not None
    assert rung.reordering.order == (1, 0)
    remedy = next(item for item in report.remedies if item.id == "reorder")
    assert remedy.measured_gain is not None
    assert remedy.measured_gain.low > 1
    assert "`Crop` before `Brighten`" in remedy.advice
    assert "exactly the same" in remedy.advice


@pytest.mark.live
def test_an_order_that_changes_samples_is_neither_tried_nor_advised() -> None:
    """Planted: what stands before the crop draws numbers for every pixel."""
    engine, report = diagnosed(pipelines.Frames(Mask(), Crop()))
    assert not any(rung.reordering for rung in engine.recording().rungs)
    assert not any(item.id.startswith("reorder") for item in report.remedies)
