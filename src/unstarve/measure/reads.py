"""Files' bytes from memory in place of storage, so that what is left is decoding.

Under the order `reads` a worker makes the same few samples over and over. The first batch under it is made while
everything through which files are usually opened is watched; the files that it opens are copied into anonymous memory
(`memfd_create`: gone with its descriptors, whatever becomes of the process). From then on the same functions are
redirected to these copies, each by a path below `/proc/self/fd`, so that callers get real files: descriptors, memory
maps and readers in C work, and every opening has a position of its own. Questions about files (`stat`, lists of
folders) go to storage as before.

Redirected are the built-in `open`, `os.open`, and functions that open files below Python, of modules that the process has
imported, under whatever names other modules hold them. So PIL, `numpy.load`, `numpy.memmap`, `zipfile`, `tarfile`,
`gzip`, `torch.load`, pandas and fsspec's local files are covered by `open`. HDF5 refuses paths that are links, and lmdb
maps its file for good: where most bytes come through such ways, or through files that the data set keeps open, the order
is refused, since the rung would show nothing.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import stat
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from unstarve.measure.counters import PAGE_BYTES, most_files
from unstarve.measure.cuts.resolving import is_library

KEPT_SAMPLES = 16
"""Samples whose files are kept at least, where that many indices are known: as many as pools keep values."""

LEAST_SAMPLES = 4
"""Samples whose files are kept however long it takes to make them."""

PATIENCE_NS = 3_000_000_000
"""No more samples are made for their files after this long."""

OF_DESCRIPTORS = 4
"""Copies take at most one in so many of the descriptors that the process may have: the script needs its own."""

READ_AGAIN_BYTES = 4 * PAGE_BYTES
"""What a reader with a buffer may read over again of a small file, such as the directory of an archive."""

KEPT_SHARE = 0.9
"""Share of the openings under the order that must find their file in memory."""

_NOT_DATA = (".py", ".pyc", ".pyi", ".pyd", ".so", ".dll", ".dylib")
_NOT_STORAGE = ("/proc/", "/sys/", "/dev/")

_FUNCTIONS = (
    ("cv2", "imread", "filename"),
    ("torchvision.io.image", "read_file", "path"),
    ("pyarrow", "memory_map", "path"),
)
"""Functions that open the file that an argument names below Python: module, name, the argument's name."""

Key = tuple[str, str]
"""The file system, empty for the local one, and the path in it."""

Redirect = Callable[[Any], str | None]


class Unkept(Exception):
    """Reads of this data set cannot be served from memory."""


class NothingRead(Unkept):
    """There are none: nothing to serve, and nothing to say of it."""


class _Opened(NamedTuple):
    """A file that the data set opened."""

    key: Key
    size: int
    """Bytes."""
    copy: Callable[[int], None]
    """Writes the bytes to a descriptor."""


class _Place(NamedTuple):
    """Where a function is held under a name."""

    owner: Any
    """A module's dictionary, or a class."""
    name: str
    original: Any
    replacement: Any

    def put(self, value: Any) -> None:
        if isinstance(self.owner, dict):
            self.owner[self.name] = value
        else:
            setattr(self.owner, self.name, value)

    @property
    def held(self) -> Any:
        return self.owner.get(self.name) if isinstance(self.owner, dict) else self.owner.__dict__.get(self.name)


class Reads:
    """The files of a few samples in memory, and the fetches that read them; of one process.

    Args:
        limit_bytes: memory that the copies may take.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._descriptors: dict[Key, int] = {}
        self._places: list[_Place] | None = None
        self._opened: list[_Opened] | None = None
        self._items: list[Any] = []
        self._next = 0
        self._openings = 0.0
        self._hits = self._misses = 0
        self._refusal: str | None = None
        self.kept_ns = 0
        """Time spent on learning which files are read and on copying them."""
        self.close = weakref.finalize(self, _close_all, self._descriptors)
        """Give the memory back."""

    @property
    def bytes(self) -> int:
        """Memory that the copies take."""
        return sum(os.fstat(descriptor).st_size for descriptor in self._descriptors.values())

    def fetch(self, fetcher: Any, index: Any, recent: Sequence[Any], *, by_sample: bool) -> Any:
        """A batch of as many samples as `index` has, of those whose files are kept; the first call keeps them.

        Args:
            fetcher: torch's own, of a data set that is indexed.
            index: what the worker was asked for.
            recent: what it was asked for before, where one index is too little to go by.
            by_sample: whether `index` lists samples that are made one by one.

        Raises:
            Unkept: reads of this data set do not, or no longer, go to the copies.
        """
        if self._refusal is not None:
            raise Unkept(self._refusal)
        try:
            if not self._descriptors:
                before = time.perf_counter_ns()
                try:
                    self._fill(fetcher, index, recent, by_sample)
                finally:
                    self.kept_ns += time.perf_counter_ns() - before
            return self._serve(fetcher, index, by_sample)
        except Unkept as error:
            self._refusal = str(error)
            self.close()
            raise
        except Exception as error:  # the user's, or a full memory; half a set of files would serve wrong bytes
            self._refusal = f"keeping or reading them failed ({type(error).__name__}: {error})"
            self.close()
            raise

    # Serving -------------------------------------------------------------------------------------

    def _serve(self, fetcher: Any, index: Any, by_sample: bool) -> Any:
        count = len(index) if by_sample else 1
        items = [self._items[(self._next + offset) % len(self._items)] for offset in range(count)]
        self._next = (self._next + count) % len(self._items)
        self._hits = self._misses = 0
        with self._redirected():
            batch = fetcher.fetch(items if by_sample else items[0])
        if self._hits < KEPT_SHARE * (self._hits + self._misses):
            raise Unkept("it opens other files each time that the same sample is made")
        if self._hits < self._openings * count / 2:
            raise Unkept("it opens no file when the same sample is made again")
        return batch

    @contextmanager
    def _redirected(self) -> Iterator[None]:
        if self._places is None:
            this = weakref.proxy(self)  # what is put in place of `open` must not keep the copies alive
            self._places = _find_places(lambda path: this._local(path), lambda *file: this._remote(*file))
        for place in self._places:
            if place.held is place.original:
                place.put(place.replacement)
        try:
            yield
        finally:
            for place in self._places:
                if place.held is place.replacement:
                    place.put(place.original)

    def _local(self, path: Any) -> str | None:
        """Where the copy of a file is; None for files that are to be opened as they are."""
        name = _name_of(path)
        if name is None:
            return None
        found = self._found(("", name))
        if found is None:
            size = _data_bytes(name)
            if size is not None:
                self._missed(_Opened(("", name), size, functools.partial(_copy, functools.partial(_plainly, name))))
        return found

    def _remote(self, files: Any, path: Any, read: Callable[[], Any]) -> str | None:
        """The same for a file of one of fsspec's file systems, which `read` would open."""
        key = (f"{type(files).__name__}:{getattr(files, '_fs_token', id(files))}", str(path))
        found = self._found(key)
        if found is None:
            size = files.info(path).get("size") if self._opened is not None else 0
            self._missed(_Opened(key, size or 0, functools.partial(_copy, read)))
        return found

    def _found(self, key: Key) -> str | None:
        descriptor = self._descriptors.get(key)
        if descriptor is None:
            return None
        self._hits += 1
        return f"/proc/self/fd/{descriptor}"

    def _missed(self, opened: _Opened) -> None:
        self._misses += 1
        if self._opened is not None:
            self._opened.append(opened)

    # Filling -------------------------------------------------------------------------------------

    def _fill(self, fetcher: Any, index: Any, recent: Sequence[Any], by_sample: bool) -> None:
        if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
            raise Unkept("this system keeps no files in anonymous memory")
        before = _read_bytes()
        groups = self._watched(fetcher, index, recent, by_sample)
        read = _read_bytes() - before
        opened = {each.key: each for _, group in groups for each in group}
        if not opened:
            raise NothingRead("no file is opened by name while a sample is made")
        sizes = [each.size for _, group in groups for each in group]
        if read > 2 * sum(sizes) + READ_AGAIN_BYTES * len(sizes):
            raise Unkept("most of what is read comes through files that stay open, or in other ways than by name")
        _check_closed({key[1] for key in opened if not key[0]})
        self._keep(groups)

    def _watched(
        self, fetcher: Any, index: Any, recent: Sequence[Any], by_sample: bool
    ) -> list[tuple[Any, list[_Opened]]]:
        """The files that each of some samples opens, which are made and dropped."""
        groups: list[tuple[Any, list[_Opened]]] = []
        deadline = time.perf_counter_ns() + PATIENCE_NS
        asked = list(index) if by_sample else [index]
        wanted = asked + list(recent[: max(0, KEPT_SAMPLES - len(asked))])
        samples = []
        try:
            with self._redirected():
                for item in wanted:
                    group: list[_Opened] = []
                    self._opened = group
                    groups.append((item, group))
                    samples.append(fetcher.dataset[item] if by_sample else fetcher.fetch(item))
                    if len(groups) >= LEAST_SAMPLES and time.perf_counter_ns() > deadline:
                        break
                if by_sample:  # a collate function may open files, too
                    fetcher.collate_fn([samples[position % len(samples)] for position in range(len(index))])
        finally:
            self._opened = None
        return groups

    def _keep(self, groups: Sequence[tuple[Any, list[_Opened]]]) -> None:
        """Copy the files of as many samples as fit into the memory for them."""
        left = self._limit_bytes
        most = most_files() // OF_DESCRIPTORS
        openings = 0
        for item, group in groups:
            new = {each.key: each for each in group if each.key not in self._descriptors}
            left -= sum(each.size for each in new.values())
            if left < 0 or len(self._descriptors) + len(new) > most:
                break
            for each in new.values():
                descriptor = os.memfd_create("unstarve", os.MFD_CLOEXEC)
                self._descriptors[each.key] = descriptor
                each.copy(descriptor)
            self._items.append(item)
            openings += len(group)
        if not self._descriptors:
            raise Unkept(
                f"the files of a sample are more than {most}, or larger than the {self._limit_bytes / 1e6:.3g} MB for copies"
            )
        self._openings = openings / len(self._items)


def _copy(read: Callable[[], Any], descriptor: int) -> None:
    with read() as source, open(descriptor, "wb", closefd=False) as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _plainly(name: str) -> Any:
    """The file itself; `open` is looked up now, when it is no longer redirected."""
    return open(name, "rb")


def _close_all(descriptors: dict[Key, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _name_of(path: Any) -> str | None:
    """The absolute path that an argument names; None for descriptors and other things."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    try:
        return os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError, OSError):
        return None


def _data_bytes(name: str) -> int | None:
    """Size of a file of data; None for code, libraries' files, devices and the kernel's files."""
    if name.startswith(_NOT_STORAGE) or name.endswith(_NOT_DATA) or is_library(name):
        return None
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _read_bytes() -> int:
    """Bytes that system calls of this process have read so far, page cache included; 0 where the kernel does not say."""
    try:
        with open("/proc/self/io", "rb") as file:
            return int(file.readline().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _check_closed(names: set[str]) -> None:
    """Refuse files that stay open after the samples are gone: redirecting them would outlast the order.

    Raises:
        Unkept: one of these files is open or mapped.
    """
    names = {os.path.realpath(name) for name in names}
    if names & _held_files():
        gc.collect()
        if names & _held_files():
            raise Unkept("it keeps the files open that it reads")


def _held_files() -> set[str]:
    held = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            held.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # the one that the list itself was read through
            continue
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        held |= {line.split(maxsplit=5)[5].rstrip("\n") for line in file if "/" in line}
    return held


# --- What is redirected -----------------------------------------------------------------------------------------------


def _find_places(local: Redirect, remote: Callable[..., str | None]) -> list[_Place]:
    """Every name under which a loaded module holds a function that opens files, and the methods that do."""
    replacements = {
        id(open): (open, _opening(open, os.open, local)),
        id(os.open): (os.open, _os_opening(os.open, local)),
    }
    for module, name, argument in _FUNCTIONS:
        function = getattr(sys.modules.get(module), name, None)
        if function is not None:
            replacements[id(function)] = (function, _by_path(function, argument, local))
    places = []
    for module_name, found in list(sys.modules.items()):
        if not isinstance(found, types.ModuleType) or module_name == __name__:
            continue
        names = vars(found)
        for name, value in list(names.items()):
            if id(value) in replacements and replacements[id(value)][0] is value:
                places.append(_Place(names, name, value, replacements[id(value)][1]))
    return places + _methods(local, remote)


def _methods(local: Redirect, remote: Callable[..., str | None]) -> list[_Place]:
    places = []
    sound = getattr(sys.modules.get("soundfile"), "SoundFile", None)
    if sound is not None and "_open" in vars(sound):
        places.append(_Place(sound, "_open", sound._open, _sound_opening(sound._open, local)))
    files = getattr(sys.modules.get("fsspec.spec"), "AbstractFileSystem", None)
    if files is not None:
        places.append(_Place(files, "open", files.open, _files_opening(files.open, open, remote)))
    return places


def _opening(original: Any, os_open: Any, redirect: Redirect) -> Any:
    """The built-in `open`; a file from memory keeps the name that it was opened by."""

    def open(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None,
        closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        memory = redirect(file) if opener is None and mode in ("r", "rb", "rt", "br") else None
        if memory is not None:
            opener = lambda _, flags: os_open(memory, flags)  # noqa: E731
        return original(file, mode, buffering, encoding, errors, newline, closefd, opener)

    return open


def _os_opening(original: Any, redirect: Redirect) -> Any:
    writes = (
        os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
    )
    refused = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECT", 0)  # by the links to, and files in, memory

    def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        memory = redirect(path) if dir_fd is None and not flags & writes else None
        if memory is None:
            return int(original(path, flags, mode, dir_fd=dir_fd))
        return int(original(memory, flags & ~refused))

    return open


def _by_path(original: Any, argument: str, redirect: Redirect) -> Any:
    """A function whose first argument is a path, and whose second may be a mode."""

    @functools.wraps(original)
    def function(*arguments: Any, **named: Any) -> Any:
        path = arguments[0] if arguments else named.get(argument)
        modes = [value for value in (*arguments[1:2], named.get("mode")) if isinstance(value, str)]
        memory = redirect(path) if all(mode in ("r", "rb") for mode in modes) else None
        if memory is None:
            return original(*arguments, **named)
        if arguments:
            return original(memory, *arguments[1:], **named)
        return original(**{**named, argument: memory})

    return function


def _sound_opening(original: Any, redirect: Redirect) -> Any:
    """soundfile's own way to libsndfile, below the checks of names and modes."""

    @functools.wraps(original)
    def _open(self: Any, file: Any, *more: Any) -> Any:
        memory = redirect(file) if self.mode == "r" else None
        return original(self, file if memory is None else memory, *more)

    return _open


def _files_opening(original: Any, plain_open: Any, redirect: Callable[..., str | None]) -> Any:
    """fsspec's opening of a file of any file system; local files end up at `open`."""

    @functools.wraps(original)
    def open(self: Any, path: Any, mode: str = "rb", *arguments: Any, **named: Any) -> Any:
        protocols = self.protocol if isinstance(self.protocol, (tuple, list)) else (self.protocol,)
        is_plain = mode == "rb" and not arguments and not named.get("compression")
        if not is_plain or "file" in protocols:
            return original(self, path, mode, *arguments, **named)
        memory = redirect(self, path, lambda: original(self, path, "rb"))
        return original(self, path, mode, **named) if memory is None else plain_open(memory, "rb")

    return open
