"""The kernel's counters of one process: time without a core, system calls that read, page faults."""

from __future__ import annotations

import os
import weakref


class RunDelay:
    """How long this process's main thread was ready to run but waited for a core, from `/proc/self/schedstat`.

    It tells waiting for storage from waiting for a core: both look like wall time without CPU time. Reads 0 where the
    kernel does not say.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self.own_bytes = 0
        """Bytes that reading this counter has read so far, which the kernel counts among the process's reads."""
        self.own_calls = 0
        """Reads of this counter so far."""
        try:
            self._file = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._file)
        except OSError:  # not Linux, or a kernel without scheduler statistics
            pass

    def read_ns(self) -> int:
        """The delay so far."""
        if self._file is None:
            return 0
        text = os.pread(self._file, 64, 0)
        self.own_bytes += len(text)
        self.own_calls += 1
        return int(text.split()[1])
