"""Files' bytes from memory: every usual way of reading goes to the copies, and nothing of it is left afterwards."""

from __future__ import annotations

import builtins
import gc
import gzip
import io
import itertools
import mmap
import os
import pickle
import random
import resource
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Callable
from os import open as os_open
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from test_engine import diagnose_slow
from test_worker import Worker
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from unstarve import judge
from unstarve.measure.engine import Engine
from unstarve.measure.program import Options
from unstarve.measure.reads import Reads, Unkept
from unstarve.report import Report

FILES = 4
LIMIT = 1 << 24


def as_list(samples: list) -> list:
    return samples


class Folder(Dataset):
    """One file for each sample, read by a function."""

    def __init__(self, folder: Path, read: Callable[[str], Any], suffix: str = ".bin") -> None:
        self.read = read
        self.paths = [str(folder / f"{number}{suffix}") for number in range(FILES)]

    def __len__(self) -> int:
        return FILES

    def __getitem__(self, index: int) -> Any:
        return self.read(self.paths[index])

    def fetcher(self, collate: Any = as_list) -> Any:
        return _MapDatasetFetcher(self, True, collate, False)


def fetch(reads: Reads, data: Folder) -> list:
    return reads.fetch(data.fetcher(), list(range(FILES)), [], by_sample=True)


# --- Ways of reading --------------------------------------------------------------------------------------------------


def noise(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)


def write_bytes(path: str, number: int) -> None:
    Path(path).write_bytes(noise(number).tobytes())


def write_array(path: str, number: int) -> None:
    with open(path, "wb") as file:
        np.save(file, noise(number))


def write_image(path: str, number: int) -> None:
    Image.fromarray(noise(number)).save(path, "PNG")


def write_zip(path: str, number: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", noise(number).tobytes())


def write_tar(path: str, number: int) -> None:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("a")
        info.size = noise(number).nbytes
        archive.addfile(info, io.BytesIO(noise(number).tobytes()))


def write_sound(path: str, number: int) -> None:
    pytest.importorskip("soundfile").write(path, np.linspace(-1, number / 9, 400), 8000, "PCM_16", format="WAV")


def read_open(path: str) -> bytes:
    with open(path, "rb") as file:
        assert file.name == path
        first = file.read(7)
        file.seek(0)
        return first + file.read()


def read_io(path: str) -> bytes:
    with io.open(path, "rb") as file:  # noqa: UP020
        return file.read()


def read_text(path: str) -> str:
    with open(path, encoding="latin-1") as file:
        return file.read()


def read_descriptor(opener: Callable[..., int]) -> Callable[[str], bytes]:
    def read(path: str) -> bytes:
        descriptor = opener(path, os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 16)
        finally:
            os.close(descriptor)

    return read


def read_mapped(path: str) -> bytes:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return bytes(mapped)


def read_pil(path: str) -> bytes:
    return Image.open(path).convert("RGB").tobytes()


def read_gzip(path: str) -> bytes:
    with gzip.open(path) as file:
        return file.read()


def read_zip(path: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read("a")


def read_tar(path: str) -> bytes:
    with tarfile.open(path) as archive:
        member = archive.extractfile("a")
        assert member is not None
        return member.read()


def read_pickle(path: str) -> Any:
    with open(path, "rb") as file:
        return pickle.load(file)


def read_opencv(path: str) -> bytes:
    return sys.modules["cv2"].imread(path).tobytes()


def read_torchvision(path: str) -> bytes:
    return sys.modules["torchvision"].io.read_file(path).numpy().tobytes()


def read_sound(path: str) -> bytes:
    return sys.modules["soundfile"].read(path)[0].tobytes()


def read_fsspec(path: str) -> bytes:
    with sys.modules["fsspec"].open(path, "rb") as file:
        return file.read()


def read_arrow(path: str) -> bytes:
    return sys.modules["pyarrow"].memory_map(path).read()


WAYS: dict[str, tuple[Callable[[str, int], None], Callable[[str], Any]]] = {
    "open": (write_bytes, read_open),
    "text": (write_bytes, read_text),
    "io.open": (write_bytes, read_io),
    "pathlib": (write_bytes, lambda path: Path(path).read_bytes()),
    "os.open": (write_bytes, read_descriptor(lambda *arguments: os.open(*arguments))),
    "imported os.open": (write_bytes, read_descriptor(lambda *arguments: os_open(*arguments))),
    "mmap": (write_bytes, read_mapped),
    "numpy.load": (write_array, lambda path: np.load(path).tobytes()),
    "numpy.load, mapped": (write_array, lambda path: np.load(path, mmap_mode="r").tobytes()),
    "numpy.memmap": (write_bytes, lambda path: np.memmap(path, mode="r").tobytes()),
    "numpy.fromfile": (write_bytes, lambda path: np.fromfile(path, dtype=np.uint8).tobytes()),
    "pickle": (lambda path, n: Path(path).write_bytes(pickle.dumps(noise(n).tolist())), read_pickle),
    "torch.load": (lambda path, n: torch.save(torch.tensor(noise(n)), path), lambda path: torch.load(path).tolist()),
    "gzip": (lambda path, n: Path(path).write_bytes(gzip.compress(noise(n).tobytes())), read_gzip),
    "zip": (write_zip, read_zip),
    "tar": (write_tar, read_tar),
    "PIL": (write_image, read_pil),
    "cv2": (write_image, read_opencv),
    "torchvision": (write_bytes, read_torchvision),
    "soundfile": (write_sound, read_sound),
    "fsspec": (write_bytes, read_fsspec),
    "pyarrow": (write_bytes, read_arrow),
}


@pytest.mark.parametrize("way", WAYS)
def test_bytes_come_from_memory(way: str, tmp_path: Path) -> None:
    """Once files are kept, every usual way of reading gives the same bytes though the files are gone."""
    for name in ("cv2", "torchvision", "soundfile", "fsspec", "pyarrow"):
        if way.startswith(name):
            pytest.importorskip(name)
    write, read = WAYS[way]
    data = Folder(tmp_path, read, ".wav" if way == "soundfile" else ".bin")
    for number, path in enumerate(data.paths):
        write(path, number)
    expected = [data[number] for number in range(FILES)]
    reads = Reads(LIMIT)
    assert fetch(reads, data) == expected
    for path in data.paths:
        os.remove(path)
    for _ in range(3):
        assert fetch(reads, data) == expected
    with pytest.raises(Exception, match=r"."):
        data[0]  # outside the order storage is asked again
    reads.close()


def test_files_of_other_file_systems_come_from_memory() -> None:
    """What fsspec opens elsewhere is kept, too: object stores, archives and the like."""
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    names = [f"/shard/{number}" for number in range(FILES)]
    for number, name in enumerate(names):
        files.pipe(name, noise(number).tobytes())
    data = Folder(Path("/"), lambda path: files.open(path, "rb").read())
    data.paths = names
    reads = Reads(LIMIT)
    expected = fetch(reads, data)
    files.rm("/shard", recursive=True)
    assert fetch(reads, data) == expected == [noise(number).tobytes() for number in range(FILES)]
    reads.close()


def test_one_file_is_opened_twice_with_two_positions(tmp_path: Path) -> None:
    """Two readers of the same copy do not disturb each other."""

    def read(path: str) -> bytes:
        with open(path, "rb") as one, open(path, "rb") as other:
            return one.read(5) + other.read(3) + one.read(5)

    data = written(tmp_path, read)
    reads = Reads(LIMIT)
    expected = [data[number] for number in range(FILES)]
    assert fetch(reads, data) == expected
    assert fetch(reads, data) == expected


def written(folder: Path, read: Callable[[str], Any]) -> Folder:
    data = Folder(folder, read)
    for number, path in enumerate(data.paths):
        write_bytes(path, number)
    return data


# --- Nothing is left --------------------------------------------------------------------------------------------------


def descriptors() -> list[str]:
    return [name for name in os.listdir("/proc/self/fd") if is_ours(name)]


def is_ours(descriptor: str) -> bool:
    try:
        return "memfd:unstarve" in os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return False


def holders() -> dict[str, Any]:
    found = {
        "open": builtins.open, "io": io.open, "os": os.open, "tar": tarfile.bltn_open, "own": os_open,
    }  # fmt: skip
    for module, name in (("cv2", "imread"), ("torchvision.io", "read_file"), ("pyarrow", "memory_map")):
        if module in sys.modules:
            found[module] = getattr(sys.modules[module], name)
    if "soundfile" in sys.modules:
        found["soundfile"] = sys.modules["soundfile"].SoundFile.__dict__["_open"]
    if "fsspec.spec" in sys.modules:
        found["fsspec"] = sys.modules["fsspec.spec"].AbstractFileSystem.__dict__["open"]
    return found


def test_functions_are_redirected_during_a_fetch_only(tmp_path: Path) -> None:
    """While a batch is made the functions are ours, under every name; before and after they are what they were."""
    during = []

    def read(path: str) -> bytes:
        during.append(holders())
        return read_open(path)

    data = written(tmp_path, read)
    before = holders()
    reads = Reads(LIMIT)
    fetch(reads, data)
    fetch(reads, data)
    after = holders()
    assert all(after[name] is before[name] for name in before)
    assert all(found[name] is not before[name] for found in during for name in before)


def test_functions_are_put_back_after_the_users_error(tmp_path: Path) -> None:
    """An exception of the data set's own passes through, and leaves nothing redirected."""
    data = written(tmp_path, read_open)
    reads = Reads(LIMIT)
    before = holders()
    fetch(reads, data)
    data.read = lambda path: 1 // 0
    with pytest.raises(ZeroDivisionError):
        fetch(reads, data)
    assert all(held is before[name] for name, held in holders().items())


def test_what_the_data_set_replaces_meanwhile_stays_replaced(tmp_path: Path) -> None:
    """A function that was put in place by somebody else during the fetch is left alone."""

    def read(path: str) -> bytes:
        tarfile.bltn_open = read_io
        return read_open(path)

    try:
        fetch(Reads(LIMIT), written(tmp_path, read))
        assert tarfile.bltn_open is read_io
    finally:
        tarfile.bltn_open = open


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    """Copies are gone with the object that keeps them, as they are with a process that is killed."""
    data = written(tmp_path, read_open)
    reads = Reads(LIMIT)
    fetch(reads, data)
    assert len(descriptors()) == FILES
    assert reads.bytes == FILES * noise(0).nbytes
    del reads
    assert descriptors() == []


# --- What is refused --------------------------------------------------------------------------------------------------


def test_writing_is_never_redirected(tmp_path: Path) -> None:
    """A data set that writes gets real files, and so does what reads them later."""

    def read(path: str) -> bytes:
        with open(f"{path}.log", "a") as file:
            file.write("read\n")
        return read_open(path)

    data = written(tmp_path, read)
    reads = Reads(LIMIT)
    fetch(reads, data)
    fetch(reads, data)
    assert Path(f"{data.paths[0]}.log").read_text() == "read\n" * 3  # the first call makes each sample twice


def test_files_that_stay_open_are_refused(tmp_path: Path) -> None:
    """Redirecting a handle that the data set keeps would outlast the order."""
    kept = {}

    def read(path: str) -> bytes:
        kept[path] = file = open(path, "rb")  # noqa: SIM115
        return file.read()

    with pytest.raises(Unkept, match="keeps the files open"):
        fetch(Reads(LIMIT), written(tmp_path, read))
    assert descriptors() == []
    assert all("memfd" not in os.readlink(f"/proc/self/fd/{file.fileno()}") for file in kept.values())
    for file in kept.values():
        file.close()


def test_maps_that_stay_are_refused(tmp_path: Path) -> None:
    """The same for files that stay mapped after their descriptor is closed."""
    kept = {}

    def read(path: str) -> bytes:
        kept[path] = np.memmap(path, mode="r")
        return kept[path].tobytes()

    with pytest.raises(Unkept, match="keeps the files open"):
        fetch(Reads(LIMIT), written(tmp_path, read))


def test_files_that_were_open_before_are_refused(tmp_path: Path) -> None:
    """Where the bytes come through a handle from before, next to a small file that is opened, nothing would be shown."""
    big = tmp_path / "big"
    big.write_bytes(bytes(1 << 20))
    with open(big, "rb", buffering=0) as handle:

        def read(path: str) -> bytes:
            handle.seek(0)
            return read_open(path) + handle.read()

        with pytest.raises(Unkept, match="files that stay open"):
            fetch(Reads(LIMIT), written(tmp_path, read))


def test_a_data_set_that_opens_nothing_is_refused(tmp_path: Path) -> None:
    """Samples from memory have no reading to be told from decoding."""
    with pytest.raises(Unkept, match="no file is opened"):
        fetch(Reads(LIMIT), written(tmp_path, lambda path: path))


def test_a_data_set_with_a_cache_of_its_own_is_refused(tmp_path: Path) -> None:
    """The same indices again would be served from its cache, decoding and all."""
    known: dict[str, bytes] = {}

    def read(path: str) -> bytes:
        if path not in known:
            known[path] = read_open(path)
        return known[path]

    reads = Reads(LIMIT)
    data = written(tmp_path, read)
    for _ in range(2):
        with pytest.raises(Unkept, match="opens no file"):
            fetch(reads, data)
    assert descriptors() == []


def test_a_data_set_that_opens_other_files_each_time_is_refused(tmp_path: Path) -> None:
    """Files drawn at random are not in memory when they are asked for."""
    numbers = itertools.count()

    def read(path: str) -> bytes:
        other = f"{path}.{next(numbers)}"
        write_bytes(other, 0)
        return read_open(other)

    with pytest.raises(Unkept, match="other files"):
        fetch(Reads(LIMIT), written(tmp_path, read))


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Only as many samples are kept as fit, and they are made over and over; if none fits, that is said."""
    data = written(tmp_path, read_open)
    size = noise(0).nbytes
    reads = Reads(2 * size + 1)
    assert fetch(reads, data) == [data[0], data[1], data[0], data[1]]
    assert reads.bytes == 2 * size
    with pytest.raises(Unkept, match="larger than"):
        fetch(Reads(size - 1), data)


def test_code_and_the_kernels_files_are_not_data(tmp_path: Path) -> None:
    """Modules, libraries and devices are opened as they are."""

    def read(path: str) -> Any:
        return open("/proc/self/stat", "rb").read(), open(os.__file__, "rb").read(), open(__file__, "rb").read()

    with pytest.raises(Unkept, match="no file is opened"):
        fetch(Reads(LIMIT), written(tmp_path, read))


# --- In a worker ------------------------------------------------------------------------------------------------------


class Random(Folder):
    """Reads and draws, so that a sample is never the same twice though its file is."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        return self.read(self.paths[index % FILES])[0], index, random.random()


def test_a_worker_repeats_the_indices_whose_files_it_keeps(tmp_path: Path) -> None:
    """Under the order every batch has the size asked for and indices seen before; everything above the files runs."""
    random.seed(3)
    data = written(tmp_path, read_open)
    worker = Worker(Random(tmp_path, read_open))
    worker.watch(samples=2)
    worker.fetch()
    worker.order(mode="reads", limit_bytes=LIMIT)
    first = worker.fetch()
    for path in data.paths:
        os.remove(path)
    later = [worker.fetch() for _ in range(4)]
    assert [item.telemetry.failure for item in (first, *later)] == [None] * 5
    assert all(len(item.data[1]) == 8 for item in (first, *later))
    assert {int(index) for item in (first, *later) for index in item.data[1]} <= set(range(16))
    draws = [float(value) for item in (first, *later) for value in item.data[2]]
    assert len(set(draws)) == len(draws)
    assert first.telemetry.copied_ns > 0
    assert later[-1].telemetry.copied_ns == 0


def test_a_worker_whose_reads_cannot_be_kept_says_why(tmp_path: Path) -> None:
    """The batch is made as without the order, and the reason travels with it."""
    worker = Worker(Random(tmp_path, lambda path: b"x"))
    worker.order(mode="reads", limit_bytes=LIMIT)
    item = worker.fetch()
    assert item.data[1].tolist() == list(range(8))
    assert item.telemetry.failure == "NothingRead: no file is opened by name while a sample is made"


# --- In a loop --------------------------------------------------------------------------------------------------------


class Photos(Dataset):
    """A statement that opens, reads and decodes."""

    def __init__(self, folder: Path, side: int) -> None:
        self.paths = [str(folder / f"{number}.png") for number in range(64)]
        for number, path in enumerate(self.paths):
            pixels = np.random.default_rng(number).integers(0, 255, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(self.paths[index % 64]).convert("RGB")
        return torch.from_numpy(np.asarray(image)[:32, :32].copy())


class FarPhotos(Photos):
    """The same on a file system of a library's."""

    def __init__(self, files: Any, folder: Path, side: int) -> None:
        super().__init__(folder, side)
        self.files = files

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(self.files.open(self.paths[index % 64], "rb")).convert("RGB")
        return torch.from_numpy(np.asarray(image)[:32, :32].copy())


FAR = """
class Far(fsspec.AbstractFileSystem):
    protocol = "far"

    def _open(self, path, mode="rb", **more):
        time.sleep(0.01)
        return open(path, mode)

    def info(self, path, **more):
        return {"name": path, "size": os.stat(path).st_size, "type": "file"}
"""


def far_files() -> Any:
    """A file system that answers late, as if it came with an installed package."""
    names = {"fsspec": pytest.importorskip("fsspec"), "time": time, "os": os}
    exec(compile(FAR, os.path.join(sysconfig.get_paths()["purelib"], "far.py"), "exec"), names)
    return names["Far"]()


def diagnosed(data: Dataset, workers: int) -> Report:
    engine = Engine(Options(budget_s=20))
    diagnose_slow(engine, DataLoader(data, batch_size=8, num_workers=workers))
    report = judge.judge(engine.recording())
    assert report.verdict.bound == "input"
    assert "bytes" in {rung.id for rung in report.rungs}, report.caveats
    return report


@pytest.mark.live
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_decodes_files_gets_the_rung_and_blames_the_decoding(tmp_path: Path, workers: int) -> None:
    """Files that the page cache holds cost nothing to read: the line that opens and decodes them is a decode."""
    report = diagnosed(Photos(tmp_path, 400), workers)
    gc.collect()
    culprit = next(each for each in report.verdict.culprits if each.kind != "workers")
    assert (culprit.kind, culprit.resource) == ("decode", "cpu")
    assert "Image.open" in (culprit.text or "")
    assert "files' bytes in memory" in culprit.evidence
    shares = [stage.cached_share for stage in report.stages if stage.read_bytes_per_sample]
    assert shares
    assert all(share is None or share > 0.9 for share in shares)
    assert descriptors() == []


@pytest.mark.live
def test_a_loop_that_waits_for_its_storage_gets_the_rung_and_blames_the_reading(tmp_path: Path) -> None:
    """The same line over a file system that answers late is a read, and fast with the bytes in memory."""
    report = diagnosed(FarPhotos(far_files(), tmp_path, 64), 2)
    culprit = report.verdict.culprits[0]
    assert (culprit.kind, culprit.resource) == ("read", "wait")
    assert culprit.evidence.startswith("With the bytes of files in memory")


def test_copies_leave_descriptors_to_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of more files than a quarter of what the process may open is refused, and none of them stays open."""
    for number in range(12):
        (tmp_path / f"{number}").write_bytes(b"x" * 5000)

    class Many:
        def __getitem__(self, index: int) -> int:
            return sum(len((tmp_path / f"{number}").read_bytes()) for number in range(12))

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (40, 4096))
    made: list[int] = []
    create = os.memfd_create
    monkeypatch.setattr(os, "memfd_create", lambda *facts: made.append(create(*facts)) or made[-1])
    fetcher = _MapDatasetFetcher(Many(), True, list, False)
    with pytest.raises(Unkept, match="more than 10"):
        Reads(10**9).fetch(fetcher, [0, 1], [], by_sample=True)
    assert not made
