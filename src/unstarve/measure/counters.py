"""The kernel's counters of one process: time on a core and without one, and what its system calls and its storage read."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Iterator
from typing import NamedTuple

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

PAGE_BYTES = 4096
"""What the kernel reads at least."""


class Usage(NamedTuple):
    """What a process has used so far."""

    user_s: float = 0.0
    """CPU time outside the kernel."""
    system_s: float = 0.0
    """CPU time in the kernel."""
    minor_faults: int = 0
    """Page faults that read nothing."""
    major_faults: int = 0
    """Page faults that read from storage or swap."""


def usage(*, of_children: bool = False) -> Usage:
    """What this process has used, or those that it started and that have ended; zeros where nobody counts."""
    if resource is None:
        return Usage()
    used = resource.getrusage(resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF)
    return Usage(used.ru_utime, used.ru_stime, used.ru_minflt, used.ru_majflt)


def most_files() -> int:
    """Files that this process may have open at a time; 0 where nobody says."""
    return 0 if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def cpu_ns() -> int:
    """CPU time of this process, all threads, and of the processes that it started and that have ended: a decoder that is
    run as a program of its own computes, though whoever waits for it does not."""
    ended = usage(of_children=True)
    return time.process_time_ns() + int((ended.user_s + ended.system_s) * 1e9)


def page_faults() -> int:
    """Page faults of this process so far, with and without a read from storage."""
    used = usage()
    return used.minor_faults + used.major_faults


class OwnReads:
    """What this process has read for our sake so far, which the kernel counts among its reads."""

    def __init__(self) -> None:
        self.bytes = 0
        """Bytes that system calls read."""
        self.calls = 0
        """Read system calls."""

    def pread(self, file: int, size: int) -> bytes:
        """The beginning of a file, which is read for our sake."""
        text = os.pread(file, size, 0)
        self.bytes += len(text)
        self.calls += 1
        return text

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """All that this thread reads inside is read for our sake."""
        try:
            file = os.open("/proc/thread-self/io", os.O_RDONLY)
        except OSError:  # then nobody counts what is read
            yield
            return
        try:
            before = _read_so_far(os.pread(file, 256, 0))
            try:
                yield
            finally:
                text = os.pread(file, 256, 0)
                now = _read_so_far(text)
                self.bytes += now[0] - before[0] + len(text)
                self.calls += now[1] - before[1] + 1
        finally:
            os.close(file)


def _read_so_far(text: bytes) -> tuple[int, int, int]:
    """Bytes and calls of system calls, and bytes from storage, from what the kernel writes into `io`."""
    fields = text.split(None, 10)
    return int(fields[1]), int(fields[5]), int(fields[9])


OWN_READS = OwnReads()
"""Of this process: the kernel has one count for all who look at it."""


class RunDelay:
    """How long a thread of this process was ready to run but waited for a core, by the kernel's scheduler statistics.

    It tells waiting for storage from waiting for a core: both look like wall time without CPU time. Reads 0 where the
    kernel does not say.

    Args:
        thread: its number for the kernel (`threading.get_native_id`); the main thread if None.
    """

    def __init__(self, thread: int | None = None) -> None:
        self._file: int | None = None
        try:
            path = "/proc/self/schedstat" if thread is None else f"/proc/self/task/{thread}/schedstat"
            self._file = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)
        except OSError:  # not Linux, or a kernel without scheduler statistics
            pass

    def read_ns(self) -> int:
        """The delay so far."""
        if self._file is None:
            return 0
        try:
            return int(OWN_READS.pread(self._file, 64).split()[1])
        except ProcessLookupError:  # the thread has ended
            return 0


class _Counters:
    """One of the kernel's files of counters, kept open."""

    def __init__(self, path: str) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):  # not Linux, or not allowed
            self._file = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Give back the file descriptor."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ReadCount(_Counters):
    """What this process has read so far, from `/proc/self/io`, without what was read for our sake.

    Bytes from storage are those of the reads that the kernel sent to a device, or to a network file system that counts
    them, for this process: what it reads ahead is among them, and so are pages of mapped files. Bytes from the page
    cache are not, nor are those of file systems that count nothing, such as tmpfs.

    What other threads than the one that made this counter have read between two looks, and programs that have ended, counts
    from a page on: less is what threads say to each other when a batch is handed over.
    """

    def __init__(self) -> None:
        super().__init__("/proc/self/io")
        self._thread = _Counters("/proc/thread-self/io")
        self._others = self._seen = (0, 0)

    def close(self) -> None:
        """Give back the file descriptors."""
        super().close()
        self._thread.close()

    def read(self) -> tuple[int, int, int]:
        """Bytes and calls of system calls, and bytes from storage; zeros where the kernel does not say."""
        if self._file is None or self._thread._file is None:
            return 0, 0, 0
        own_bytes, own_calls = OWN_READS.bytes, OWN_READS.calls
        text = OWN_READS.pread(self._thread._file, 256)
        size, calls, _ = _read_so_far(text)
        all_size, all_calls, stored = _read_so_far(OWN_READS.pread(self._file, 256))
        others_size, others_calls = self._read_by_others(all_size - size - len(text), all_calls - calls - 1)
        return size - own_bytes + others_size, calls - own_calls + others_calls, stored

    def _read_by_others(self, size: int, calls: int) -> tuple[int, int]:
        """Bytes and calls so far that count, of so many."""
        more_size, more_calls = size - self._seen[0], calls - self._seen[1]
        self._seen = size, calls
        if more_size >= PAGE_BYTES:
            self._others = self._others[0] + more_size, self._others[1] + more_calls
        return self._others


class WriteCount(_Counters):
    """Bytes that this thread has written by system calls, from `/proc/thread-self/io`: to files and pipes, but not what
    other threads send meanwhile. Reads 0 where the kernel does not say."""

    def __init__(self) -> None:
        super().__init__("/proc/thread-self/io")

    def read(self) -> int:
        """The bytes so far."""
        return 0 if self._file is None else int(OWN_READS.pread(self._file, 256).split()[3])
