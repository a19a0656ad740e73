"""What the kernel counts of this process's reading and computing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from unstarve.measure.counters import OWN_READS, ReadCount, RunDelay, WriteCount, cpu_ns

SIZE = 4 << 20


@pytest.fixture
def count():
    found = ReadCount()
    if found.read() == (0, 0, 0):
        pytest.skip("this kernel does not say what a process reads")
    yield found
    found.close()


def written(folder: Path) -> Path:
    path = folder / "data"
    with open(path, "wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
    return path


def counted(count: ReadCount, path: Path, *, drop: bool = False) -> list[int]:
    """What is counted while the file is read whole, without a buffer of Python's."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if drop:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        before = count.read()
        while os.read(descriptor, 1 << 20):
            pass
        return [now - then for now, then in zip(count.read(), before, strict=True)]
    finally:
        os.close(descriptor)


def test_bytes_from_the_page_cache_are_not_counted_as_storage(count: ReadCount, tmp_path: Path) -> None:
    """What was just written lies in memory: system calls read all of it, storage next to nothing."""
    read, calls, stored = counted(count, written(tmp_path))
    assert read == SIZE
    assert calls == SIZE // (1 << 20) + 1
    assert 0 <= stored < SIZE / 10


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the page cache cannot be told to let go")
def test_bytes_that_the_page_cache_has_let_go_are_counted_as_storage(count: ReadCount, tmp_path: Path) -> None:
    """The same system calls, but the bytes have to be fetched; counted once, for then they are in memory again."""
    path = written(tmp_path)
    read, calls, stored = counted(count, path, drop=True)
    assert read == SIZE
    assert calls == SIZE // (1 << 20) + 1
    if not stored:
        pytest.skip("this file system counts nothing, or keeps its files in memory")
    assert stored > SIZE / 2
    assert counted(count, path)[2] < SIZE / 10


def test_what_the_counters_read_is_not_counted(count: ReadCount) -> None:
    """Looking at them changes nothing."""
    before = count.read()
    for _ in range(5):
        assert count.read() == before


def test_what_is_read_for_our_sake_is_not_counted(count: ReadCount, tmp_path: Path) -> None:
    """Neither by other instruments, nor of a file that is read between two looks."""
    path, others = written(tmp_path), ReadCount()
    before = count.read()
    delay, writes = RunDelay(), WriteCount()
    for instrument in (delay.read_ns, writes.read, others.read):
        instrument()
    with OWN_READS.counting():
        path.read_bytes()
    others.close()
    writes.close()
    assert count.read()[:2] == before[:2]


@pytest.mark.parametrize(("size", "counted_size"), [(100, 0), (SIZE, SIZE)])
def test_threads_that_read_data_count_and_those_that_talk_do_not(
    count: ReadCount, tmp_path: Path, size: int, counted_size: int
) -> None:
    """A stage may read in threads of its own; a batch is handed over with a few bytes."""
    path = tmp_path / "x"
    path.write_bytes(bytes(size))
    before = count.read()
    thread = threading.Thread(target=path.read_bytes)
    thread.start()
    thread.join()
    assert count.read()[0] - before[0] == counted_size


def test_without_a_count_all_is_nothing(count: ReadCount) -> None:
    """Where the kernel does not say, the figures are zeros and not an error."""
    count.close()
    assert count.read() == (0, 0, 0)


def test_what_a_program_computed_counts_for_who_ran_it() -> None:
    """Waiting for another program that computes is computing; waiting for one that sleeps is not."""
    spent = []
    for work in ("while time.process_time() < 0.2: pass", "time.sleep(0.2)"):
        before, own = cpu_ns(), time.process_time_ns()
        subprocess.run([sys.executable, "-I", "-S", "-c", f"import time\n{work}"], check=True)
        spent.append(cpu_ns() - before - (time.process_time_ns() - own))
    assert spent[0] >= 200_000_000
    assert spent[1] < 150_000_000


def test_the_delay_is_that_of_the_thread_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread's by its number is that without one; of a thread that has ended nothing is read."""
    whole, mine = RunDelay(), RunDelay(os.getpid())
    assert whole.read_ns() <= mine.read_ns() <= whole.read_ns()
    assert RunDelay(2**30).read_ns() == 0

    def ended(*_: object) -> bytes:
        raise ProcessLookupError

    monkeypatch.setattr(os, "pread", ended)
    assert mine.read_ns() == 0
