"""The kernel's counters of one process: time on a core and without one, and what its system calls and its storage read."""

from __future__ import annotations

import contextlib
import os
import resource
import time
import weakref

PAGE_BYTES = 4096
"""What the kernel reads at least."""


def cpu_ns() -> int:
    """CPU time of this process, all threads, and of the processes that it started and that have ended: a decoder that is
    run as a program of its own computes, though whoever waits for it does not."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + int((ended.ru_utime + ended.ru_stime) * 1e9)


def page_faults() -> int:
    """Page faults of this process so far, with and without a read from storage."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


class RunDelay:
    """How long a thread of this process was ready to run but waited for a core, by the kernel's scheduler statistics.

    It tells waiting for storage from waiting for a core: both look like wall time without CPU time. Reads 0 where the
    kernel does not say.

    Args:
        thread: its number for the kernel (`threading.get_native_id`); the main thread if None.
    """

    def __init__(self, thread: int | None = None) -> None:
        self._file: int | None = None
        self.own_bytes = 0
        """Bytes that reading this counter has read so far, which the kernel counts among the process's reads."""
        self.own_calls = 0
        """Reads of this counter so far."""
        try:
            path = "/proc/self/schedstat" if thread is None else f"/proc/self/task/{thread}/schedstat"
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._file)
        except OSError:  # not Linux, or a kernel without scheduler statistics
            pass

    def read_ns(self) -> int:
        """The delay so far."""
        if self._file is None:
            return 0
        try:
            text = os.pread(self._file, 64, 0)
        except ProcessLookupError:  # the thread has ended
            return 0
        self.own_bytes += len(text)
        self.own_calls += 1
        return int(text.split()[1])


class _Counters:
    """One of the kernel's files of counters, kept open."""

    def __init__(self, path: str) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):  # not Linux, or not allowed
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Give back the file descriptor."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ReadCount(_Counters):
    """What this process has read so far, from `/proc/self/io`, without what these counters read.

    Bytes from storage are those of the reads that the kernel sent to a device, or to a network file system that counts
    them, for this process: what it reads ahead is among them, and so are pages of mapped files. Bytes from the page
    cache are not, nor are those of file systems that count nothing, such as tmpfs.

    Args:
        delay: the other counter in use, whose reads are not the program's either.
    """

    def __init__(self, delay: RunDelay) -> None:
        super().__init__("/proc/self/io")
        self._delay = delay
        self._own_bytes = self._own_calls = 0

    def read(self) -> tuple[int, int, int]:
        """Bytes and calls of system calls, and bytes from storage; zeros where the kernel does not say."""
        if self._file is None:
            return 0, 0, 0
        text = os.pread(self._file, 256, 0)
        fields = text.split()
        own_bytes = self._own_bytes + self._delay.own_bytes
        own_calls = self._own_calls + self._delay.own_calls
        self._own_bytes += len(text)
        self._own_calls += 1
        return int(fields[1]) - own_bytes, int(fields[5]) - own_calls, int(fields[9])


class WriteCount(_Counters):
    """Bytes that this thread has written by system calls, from `/proc/thread-self/io`: to files and pipes, but not what
    other threads send meanwhile. Reads 0 where the kernel does not say."""

    def __init__(self) -> None:
        super().__init__("/proc/thread-self/io")

    def read(self) -> int:
        """The bytes so far."""
        return 0 if self._file is None else int(os.pread(self._file, 256, 0).split()[3])
