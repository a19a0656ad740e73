"""Copies must keep what later stages and transport depend on, and changes in place must show."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import random
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from unstarve.measure.cuts import values


class Pair(NamedTuple):
    image: Any
    label: int


@dataclasses.dataclass
class Sample:
    image: Any
    label: int


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    image: Any


class Encoding(collections.UserDict):
    def __init__(self, data: Any, note: str) -> None:
        super().__init__(data)
        self.note = note


class Record(dict):
    pass


class Plain:
    def __init__(self, image: Any) -> None:
        self.image = image


# --- Copying ----------------------------------------------------------------------------------------------------------


def test_a_copy_keeps_views_and_storages() -> None:
    """Two views of one storage stay two views of one storage, which a crop still drags along."""
    whole = torch.arange(100.0).reshape(10, 10)
    copied = values.snapshot([whole[2:4, 3:5], whole[0]])
    assert copied[0].untyped_storage().data_ptr() == copied[1].untyped_storage().data_ptr()
    assert copied[0].untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()
    assert copied[0].untyped_storage().nbytes() == 400
    assert copied[0].stride() == (10, 1)
    assert torch.equal(copied[0], whole[2:4, 3:5])


def test_a_copy_keeps_the_number_of_tensors() -> None:
    """The same tensor twice is the same tensor twice in the copy, and equal tensors stay apart."""
    one, other = torch.zeros(3), torch.zeros(3)
    copied = values.snapshot({"a": one, "b": one, "c": other})
    assert copied["a"] is copied["b"]
    assert copied["a"] is not copied["c"]
    assert len(values.tensors(list(copied.values()))) == 3


def test_a_row_of_a_whole_data_set_is_copied_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of a storage far larger than itself is copied without it, strides and values kept."""
    monkeypatch.setattr(values, "DRAGGED_BYTES", 1000)
    held = torch.arange(100_000.0).reshape(1000, 100)
    copied = values.snapshot(held[5:7].T)
    assert torch.equal(copied, held[5:7].T)
    assert copied.stride() == (1, 100)
    assert copied.untyped_storage().nbytes() == 800


@pytest.mark.parametrize(
    "view",
    [lambda a: a[:, 5], lambda a: a[:, 5:7], lambda a: a.T[5:7]],
    ids=["column", "window", "turned"],
)
@pytest.mark.parametrize("make", [torch.from_numpy, np.asarray], ids=["tensor", "array"])
def test_a_window_over_a_whole_data_set_is_copied_alone(monkeypatch: pytest.MonkeyPatch, make: Any, view: Any) -> None:
    """It reaches from one end of the data set to the other, of which a copy for each sample would not fit."""
    monkeypatch.setattr(values, "DRAGGED_BYTES", 1000)
    held = make(np.arange(100_000.0).reshape(1000, 100))
    copied = values.snapshot({"x": view(held)})
    assert (copied["x"] == view(held)).all()
    assert values.size_bytes(copied) < 20_000  # of 800 kB


@pytest.mark.parametrize(
    "make",
    [lambda image: Pair(image, 1), lambda image: Sample(image, 1), Slotted, Plain, lambda image: Record(image=image)],
    ids=["named tuple", "dataclass", "slots", "plain object", "mapping"],
)
def test_a_row_inside_an_object_is_copied_alone(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    """As in a list: the storage behind the view stays behind, and one row held twice stays one."""
    monkeypatch.setattr(values, "DRAGGED_BYTES", 1000)
    row = torch.arange(100_000.0).reshape(1000, 100)[5]
    value = make([row, {"again": row}])
    copied = values.snapshot(value)
    assert values.size_bytes(copied) < 2000  # of 400 kB
    found = values.tensors(copied)
    assert type(copied) is type(value)
    assert torch.equal(found[0], row)
    assert found[0].data_ptr() == found[-1].data_ptr() != row.data_ptr()


def test_views_inside_an_object_keep_a_storage_that_is_not_much_larger() -> None:
    """Such a storage travels with the view, and so it does in the copy; two views of it stay two views of one."""
    whole = torch.arange(100.0).reshape(10, 10)
    copied = values.snapshot(Pair([whole[2:4, 3:5], whole[0]], 1))
    one, other = values.tensors(copied)
    assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert one.untyped_storage().nbytes() == 400


def test_a_shared_object_inside_another_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to the program is not copied, and neither are its parts."""
    monkeypatch.setattr(values, "DRAGGED_BYTES", 1000)
    held = Plain(torch.arange(100_000.0)[:10])
    assert values.snapshot(Pair(held, 1), (held,)).image.image is held.image


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::-1],
        lambda a: a.transpose(2, 0, 1),
        lambda a: a[2:5, 1:3],
        lambda a: np.asfortranarray(a[..., 0]),
        lambda a: a[::-1, ::2, ::-1],
        lambda a: a[:0],
        lambda a: np.broadcast_to(a[0], (3, *a[0].shape)),
        lambda a: a[0, 0, 0],
    ],
)
def test_an_array_keeps_its_strides(view: Any) -> None:
    """A flipped, transposed or cropped array is as costly to make contiguous in the copy as it was."""
    array = view(np.arange(7 * 6 * 3, dtype=np.uint8).reshape(7, 6, 3))
    copied = values.snapshot(array)
    assert np.array_equal(copied, array)
    assert np.shape(copied) == np.shape(array)
    if isinstance(array, np.ndarray):
        assert copied.strides == array.strides
        assert copied.flags.writeable == array.flags.writeable
        assert not np.shares_memory(copied, array)


def test_an_array_far_smaller_than_its_base_keeps_its_strides() -> None:
    """The base is left behind, the strides are not."""
    array = np.arange(1_000_000).reshape(1000, 1000)[10:12, 5:50:9][::-1]
    copied = values.snapshot(array)
    assert np.array_equal(copied, array)
    assert copied.strides == array.strides
    assert values.size_bytes(copied) < 10_000  # of 8 MB


def test_views_of_one_array_stay_entangled() -> None:
    """Writing to one view in the copy shows in the other, as it did in the original."""
    array = np.zeros((4, 4))
    copied = values.snapshot([array, array[1:, ::-1], array[2]])
    copied[2][0] = 7
    assert copied[0][2, 0] == 7
    assert copied[1][1, 3] == 7
    assert array.sum() == 0


def test_a_picture_keeps_its_name_and_format(tmp_path: Any) -> None:
    """Code after the cut may ask a picture for its file's name and format."""
    Image.new("RGB", (8, 8), "red").save(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as picture:
        copied = values.snapshot(picture)
    assert copied.filename == str(tmp_path / "x.png")
    assert copied.format == "PNG"
    assert copied.getpixel((0, 0)) == (255, 0, 0)


def test_bound_methods_follow_their_object() -> None:
    """A method of a copied value is a method of the copy; one of a shared object stays."""
    picture, plain = Image.new("L", (2, 2)), Plain(1)
    copied = values.snapshot([picture, picture.getpixel, [1, 2].index, plain.__init__], (plain,))
    assert copied[1].__self__ is copied[0]
    assert copied[2](2) == 1
    assert copied[3].__self__ is plain


@pytest.mark.parametrize("make", [torch.Generator, np.random.default_rng, random.Random, np.random.RandomState])
def test_random_generators_are_shared(make: Any) -> None:
    """A copied generator would draw the same number each time that it is served."""
    generator = make()
    assert values.snapshot({"rng": generator})["rng"] is generator


def test_program_objects_inside_plain_objects_are_shared() -> None:
    """A sample that leads to the model or the data set does not copy them."""
    module = torch.nn.Linear(2, 2)
    assert values.snapshot(Plain([{"m": module}])).image[0]["m"] is module


def test_shared_objects_are_kept_by_reference() -> None:
    """What hangs on the data set is the data set's, also inside lists."""
    owned = {"a": [1]}
    copied = values.snapshot([owned, [owned["a"]]], (owned, owned["a"]))
    assert copied[0] is owned
    assert copied[1][0] is owned["a"]


def _generator() -> Any:
    yield 1


def _closure() -> Any:
    image = torch.zeros(2)
    return lambda: image


@pytest.mark.parametrize(
    "make",
    [
        _generator,
        _closure,
        lambda: iter([1]),
        lambda: open(__file__),  # noqa: SIM115
        lambda: [open(__file__, "rb")],  # noqa: SIM115
        lambda: threading.Lock(),
        lambda: Plain(threading.Lock()),
        lambda: torch.ones(2, requires_grad=True) * 2,
        lambda: Plain(torch.ones(2, requires_grad=True) * 2),
    ],
)
def test_what_cannot_be_served_twice_is_refused(make: Any) -> None:
    """Generators, nested functions, open files, locks and tensors of a graph raise `Uncopyable`."""
    value = make()
    with pytest.raises(values.Uncopyable):
        values.snapshot({"value": value})


def test_a_tensor_and_an_array_of_one_memory_are_refused() -> None:
    """Copies of an array and of a tensor made from it would drift apart."""
    array = np.zeros(3)
    with pytest.raises(values.Uncopyable, match="share memory"):
        values.snapshot([array, torch.from_numpy(array)])


def test_a_value_that_holds_itself_is_refused_and_not_followed_for_ever() -> None:
    """A cycle of lists ends in a refusal; one of objects is copied."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(values.Uncopyable):
        values.snapshot(loop)
    plain = Plain(None)
    plain.image = plain
    copied = values.snapshot(plain)
    assert copied.image is copied
    assert values.size_bytes(copied) >= 0


# --- Watching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (torch.zeros(3), lambda v: v.add_(1)),
        (torch.zeros(3), lambda v: v.view(-1)[1:].fill_(2)),
        (torch.zeros(3), lambda v: v.numpy().__setitem__(0, 1)),
        (torch.zeros(3), lambda v: v.data.add_(1)),
        (np.zeros(3), lambda v: v.__setitem__(0, 1)),
        (np.zeros(3), lambda v: torch.from_numpy(v).add_(1)),
        (np.zeros((3, 3))[:, ::-1], lambda v: v.__setitem__((0, 0), 1)),
        (Image.new("L", (2, 2)), lambda v: v.putpixel((0, 0), 9)),
        ({"a": 1}, lambda v: v.update(b=2)),
        ([1, 2], lambda v: v.reverse()),
        (Plain([torch.zeros(2)]), lambda v: v.image[0].mul_(0)),
        (Encoding({"a": torch.zeros(2)}, ""), lambda v: v["a"].add_(1)),
        (functools.partial(max, torch.zeros(2)), lambda v: v.args[0].add_(1)),
    ],
)
def test_changes_in_place_show(value: Any, change: Any) -> None:
    """The fingerprint differs after the value was changed in any of the ways in which pipelines do."""
    before = values.fingerprint(value)
    assert values.fingerprint(value) == before
    change(value)
    assert values.fingerprint(value) != before


def test_size_counts_a_storage_once() -> None:
    """Ten views of a storage hold the storage, once."""
    whole = torch.zeros(1000)
    assert values.size_bytes([whole[i:] for i in range(10)]) == 4000
    assert values.size_bytes({"a": np.zeros(10), "b": whole[:1]}) == 4080


def test_size_counts_what_a_view_of_an_array_holds() -> None:
    """A crop holds its frame, once; a part of a file that is mapped holds itself."""
    frame = np.zeros((100, 100))
    assert values.size_bytes([frame[:10, :10], frame[5:]]) == frame.nbytes


@pytest.mark.parametrize(
    ("mode", "stored", "held"), [("1", 1, 1), ("L", 1, 1), ("RGB", 3, 4), ("RGBA", 4, 4), ("I", 4, 4), ("F", 4, 4), ("I;16", 2, 2)]
)  # fmt: skip
def test_a_picture_is_sized_by_its_pixels(mode: str, stored: int, held: int) -> None:
    """Bytes of each band where it is stored; in memory, those that it takes there."""
    image = pytest.importorskip("PIL.Image").new(mode, (10, 20))
    assert (values.content_bytes(image), values.size_bytes(image)) == (200 * stored, 200 * held)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_a_sparse_tensor_is_sized_by_what_it_holds(layout: torch.layout) -> None:
    """Its values and their places, and not the zeros between."""
    dense = torch.zeros(1000, 1000)
    dense[3, 4] = dense[5, 6] = 1.0
    places = {torch.sparse_coo: 2 * 2 * 8}.get(layout, (1001 + 2) * 8)
    sparse = dense.to_sparse(layout=layout)
    assert values.content_bytes(sparse) == places + 2 * 4
    assert values.content_bytes(sparse) <= values.size_bytes(sparse) < 10 * places


def test_leaves_are_named_by_the_way_to_them() -> None:
    """Each name, read as an expression, leads to its leaf, in the order of the leaves."""
    value = {
        "a": [torch.zeros(1), Pair(torch.ones(1), 3)],
        7: Sample(torch.zeros(2), (np.zeros(1), "x")),
        "e": Encoding({"ids": torch.zeros(3)}, "note"),
        "r": Record(k=Slotted(torch.zeros(4))),
        "p": Plain([1, 2]),
        "d": collections.deque([5.0]),
        "long": list(range(50)),
    }
    named = list(values.named_leaves(value, "value"))
    assert [name for name, _ in named[:4]] == [
        "value['a'][0]",
        "value['a'][1].image",
        "value['a'][1].label",
        "value[7].image",
    ]
    assert [id(leaf) for _, leaf in named] == [id(leaf) for leaf in values.leaves(value)]
    assert all(eval(name, {"value": value}) is leaf for name, leaf in named)


@pytest.mark.parametrize("value", [torch.zeros(2), 3, None, {"a": (shared := [torch.zeros(1)]), "b": shared}])
def test_named_leaves_are_the_leaves(value: Any) -> None:
    """A value without parts is its own leaf, and a container met twice is looked through once."""
    assert [id(leaf) for _, leaf in values.named_leaves(value, "value")] == [id(leaf) for leaf in values.leaves(value)]


def test_forcing_leaves_errors_to_the_user(tmp_path: Any) -> None:
    """A picture that cannot be decoded does not fail before the user's code touches it."""
    Image.effect_noise((64, 64), 50).save(tmp_path / "x.jpg")
    data = (tmp_path / "x.jpg").read_bytes()
    (tmp_path / "x.jpg").write_bytes(data[: len(data) // 2])
    picture = Image.open(tmp_path / "x.jpg")
    values.force([picture])
    with pytest.raises(OSError, match="truncated"):
        picture.convert("L")


def noise(seed: int) -> Image.Image:
    return Image.frombytes("L", (64, 64), random.Random(seed).randbytes(4096))


@pytest.fixture
def damaged(tmp_path: Any) -> Any:
    """A picture which PIL takes for decoded once it has failed to decode it."""
    noise(0).save(tmp_path / "x.png")
    data = bytearray((tmp_path / "x.png").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    (tmp_path / "x.png").write_bytes(data)
    return Image.open(tmp_path / "x.png")


def _outcome(action: Any) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


def _look_by(name: str, picture: Any) -> None:
    with contextlib.suppress(values.Uncopyable):
        getattr(values, name)({"image": picture})


@pytest.mark.parametrize("looks", [("force",), ("force", "force"), ("snapshot",), ("fingerprint",)])
def test_looking_at_a_damaged_picture_does_not_mend_it(damaged: Any, looks: tuple[str, ...]) -> None:
    """A picture that fails to be decoded once, and then not again, does so for the user's code, however it was looked at."""
    untouched = Image.open(damaged.filename)
    for name in (*looks, "fingerprint", "snapshot"):
        _look_by(name, damaged)
    assert values.is_unloaded(damaged)
    for _ in range(2):
        assert _outcome(lambda: damaged.convert("RGB")) == _outcome(lambda: untouched.convert("RGB"))
    assert damaged.tobytes() == untouched.tobytes()
    assert damaged.tile == untouched.tile
    assert vars(damaged).keys() == vars(untouched).keys()


@pytest.mark.parametrize("moves", [(0,), (1, 1), (1, 0, 0), (0, 1)])
def test_a_damaged_frame_fails_once_and_not_in_place_of_another(tmp_path: Any, moves: tuple[int, ...]) -> None:
    """Going on to another frame meets the errors that it would meet without us, and no others."""
    frames = [noise(seed) for seed in range(2)]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    data = bytearray((tmp_path / "x.gif").read_bytes())
    data[2000:2300] = bytes([255]) * 300
    (tmp_path / "x.gif").write_bytes(data)
    looked_at, untouched = [Image.open(tmp_path / "x.gif") for _ in range(2)]
    values.force(looked_at)
    for frame in moves:
        for action in ("seek", "load"):
            arguments = (frame,) if action == "seek" else ()
            expected = _outcome(lambda: getattr(untouched, action)(*arguments))  # noqa: B023
            assert _outcome(lambda: getattr(looked_at, action)(*arguments)) == expected  # noqa: B023
    assert looked_at.tobytes() == untouched.tobytes()


def test_forcing_does_not_read_a_huge_map(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory map of a whole data set is not read because one sample opened it."""
    monkeypatch.setattr(values, "FORCED_FILE_BYTES", 100)
    monkeypatch.setattr(values, "_touch_pages", lambda array: pytest.fail("it was read"))
    values.force(np.memmap(tmp_path / "x", np.uint8, "w+", shape=(1000,)))


def test_forcing_reads_the_part_of_a_map_that_was_taken(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file with many samples, one sample's part is read when it is taken, and not the file when it is opened."""
    read: list[int] = []
    monkeypatch.setattr(values, "FORCED_FILE_BYTES", 100)
    monkeypatch.setattr(values, "_touch_pages", lambda array: read.append(array.nbytes))
    mapped = np.memmap(tmp_path / "x", np.uint8, "w+", shape=(10, 1000))
    values.force(mapped)
    values.force(mapped[3])
    assert read == [1000]


def test_shared_memory_is_found() -> None:
    """Views, arrays of tensors, pictures and dictionaries that reach a batch are recognised."""
    image, picture, target = torch.zeros(4, 4), Image.new("L", (2, 2)), {"boxes": 1}
    for held, batch in [
        (image, [image[1:]]),
        (image, image.numpy()[1:]),
        (image.numpy(), image),
        ([picture], (picture,)),
        ({"target": target}, [target]),
    ]:
        assert values.share_storage(held, batch)
    assert not values.share_storage(image, image.clone())
    assert not values.share_storage([1, "a", (2,)], [1, "a", (2,)])


# --- Rewrapping -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "get"),
    [
        (Pair(torch.zeros(2), 3), lambda v: v.image),
        (Sample(torch.zeros(2), 3), lambda v: v.image),
        (Slotted(torch.zeros(2)), lambda v: v.image),
        (Encoding({"a": torch.zeros(2)}, "kept"), lambda v: v["a"]),
        (Record(a=torch.zeros(2)), lambda v: v["a"]),
        (collections.OrderedDict(a=torch.zeros(2)), lambda v: v["a"]),
        (collections.defaultdict(list, a=torch.zeros(2)), lambda v: v["a"]),
        (collections.deque([torch.zeros(2)], maxlen=3), lambda v: v[0]),
        (Plain(torch.zeros(2)), lambda v: v.image),
        ((torch.zeros(2), [1]), lambda v: v[0]),
        (torch.max(torch.zeros(2, 2), 0), lambda v: v.values),
        (torch.nn.utils.rnn.pack_sequence([torch.zeros(2, 1)]), lambda v: v.data[:, 0]),
    ],
)
def test_rewrapping_keeps_types(value: Any, get: Any) -> None:
    """Containers come back as what they were, with other leaves, and the original is left alone."""
    changed = values.rewrap(value, lambda leaf: leaf + 1 if isinstance(leaf, torch.Tensor) else leaf)
    assert type(changed) is type(value)
    assert get(changed).tolist() == [1, 1]
    assert get(value).tolist() == [0, 0]
    assert getattr(changed, "note", "kept") == "kept"


def test_rewrapping_follows_no_cycle() -> None:
    """An object that leads back to itself is rewrapped once."""
    plain = Plain(None)
    plain.image = plain
    changed = values.rewrap(plain, lambda leaf: leaf)
    assert changed.image is changed
    assert changed is not plain


class Strict(dict):
    __getattr__ = dict.__getitem__


class Lenient(dict):
    __getattr__ = dict.get


class Table:
    """As a frame of pandas: columns are attributes, and have no truth."""

    class Column:
        def __bool__(self) -> bool:
            raise ValueError("the truth of a column is ambiguous")

    tile = Column()
    load = None


@pytest.mark.parametrize("kind", [Strict, Lenient, Table])
def test_only_pictures_are_asked_whether_they_are_decoded(kind) -> None:
    """An object that answers to every name, or raises at an unknown one, is no picture."""
    assert not values.is_unloaded(kind())


def test_a_dictionary_that_answers_to_every_name_is_no_file() -> None:
    """It is copied like any other."""
    original = Lenient(a=torch.zeros(2))
    duplicate = values.snapshot(original)
    original["a"] += 1
    assert type(duplicate) is Lenient
    assert torch.equal(duplicate["a"], torch.zeros(2))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"x": [np.zeros(2)]}, True),
        (torch.zeros(3), True),
        (Image.new("L", (4, 4)), True),
        (bytes(9), True),
        ([1, 2.0, "name", None, np.float64(3.0), torch.tensor(3)], False),
        ({"path": "x" * 999, "boxes": [[1, 2, 3, 4]]}, False),
        (threading.Lock(), False),
    ],
)
def test_data_are_told_from_numbers_and_names(value: Any, expected: bool) -> None:
    """What makes up a sample is data wherever it stands in containers; numbers, names and handles are not."""
    assert values.holds_data(value) is expected


def outlines() -> list[dict[str, Any]]:
    """Annotations of pictures as they come from JSON: lists of points."""
    return [{"id": number, "outline": [[float(x), 2.0 * number] for x in range(40)]} for number in range(3)]


def test_lists_of_points_are_looked_at_as_one_thing() -> None:
    """A batch of them may hold a hundred thousand numbers, which are not gone through one by one."""
    found = outlines()
    assert len(list(values.leaves(found))) == 6
    assert values.content_bytes(found) == 3 * 80 * 8


def test_a_copy_of_lists_of_points_shares_none_of_them() -> None:
    """A change of a single number shows in the fingerprint, and in no copy."""
    found = outlines()
    mark, copied = values.fingerprint(found), values.snapshot(found)
    assert not values.share_storage(found, copied)
    assert values.share_storage(found, [found[1]["outline"][3]])
    found[1]["outline"][3][0] = -1.0
    assert values.fingerprint(found) != mark
    assert copied == outlines()


def test_fresh_containers_have_fresh_lists_of_points() -> None:
    """What the loop takes out of its batch, or puts into it, is not missed or found in the next."""
    found = outlines()
    fresh = values.rewrap(found, lambda leaf: leaf)
    fresh[0]["outline"].pop()
    fresh[1].clear()
    assert found == outlines()


@pytest.mark.parametrize("odd", [[1.0, torch.zeros(1)], 3.0, [[1.0]]])
def test_a_list_with_anything_but_points_is_looked_through(odd: Any) -> None:
    assert len(list(values.leaves([[1.0, 2.0]] * 20 + [odd] + [[3.0, 4.0]] * 20))) > 2


@pytest.mark.parametrize("kind", ["jpg", "png", "bmp", "gif", "tif", "webp"])
def test_a_copied_picture_knows_what_the_picture_knows(tmp_path: Any, kind: str) -> None:
    """Tables, layers and texts of its file can be asked for where nothing more is read from it; its pixels are its own."""
    try:
        Image.effect_noise((16, 16), 50).save(tmp_path / f"x.{kind}")
    except (KeyError, OSError):
        pytest.skip("this PIL does not write it")
    picture = Image.open(tmp_path / f"x.{kind}")
    values.force(picture)
    facts = ("format", "filename", "info", "quantization", "layers", "text", "n_frames")
    before, copied = picture.tobytes(), values.snapshot(picture)
    if type(copied) is not Image.Image:
        assert type(copied) is type(picture)
        assert [getattr(copied, fact, None) for fact in facts] == [getattr(picture, fact, None) for fact in facts]
    assert (type(copied) is Image.Image) == (kind in ("gif", "tif"))
    copied.putpixel((0, 0), 255 - copied.convert("L").getpixel((0, 0)))
    assert copied.tobytes() != picture.tobytes() == before
    values.snapshot(copied).resize((4, 4))
    copied.close()
    assert picture.resize((4, 4)).size == (4, 4)


def test_bytes_that_change_through_a_view_show() -> None:
    """An array over a buffer writes into it, and its length stays."""
    buffer = bytearray(64)
    before = values.fingerprint({"buffer": buffer})
    np.frombuffer(buffer, np.uint8)[3] = 7
    assert values.fingerprint({"buffer": buffer}) != before


def test_an_element_of_a_structured_array_is_a_view_of_it() -> None:
    """A change shows, the two are tied, and no copy of both pretends that they were not."""
    table = np.zeros(4, [("a", "f4"), ("b", "i8")])
    row = table[1]
    before = values.fingerprint(row)
    table["b"][1] = 9
    assert values.fingerprint(row) != before
    assert values.share_storage(table, row)
    with pytest.raises(values.Uncopyable, match="record"):
        values.snapshot({"table": table, "row": row})
    assert values.snapshot({"row": row})["row"] == row


def test_windows_over_an_array_stay_views_of_it() -> None:
    """They show what is written into the array later, in the copy as in the original."""
    array = np.arange(8.0)
    windows = np.lib.stride_tricks.sliding_window_view(array, 3)
    assert values.share_storage(array, windows)
    copied = values.snapshot({"array": array, "windows": windows})
    copied["array"][2] = 9
    assert copied["windows"][:3, :].max() == 9
    assert windows.max() == 7
    assert copied["windows"].strides == windows.strides
