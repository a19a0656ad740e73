"""Predict the next position of aircraft from windows of their transponder logs."""

import os
import random
import tempfile
import time
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path

import dateutil.parser
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WINDOW = 64
STRIDE = 64
BATCH = 48


def write_logs(folder, flights=8, lines=5_000):
    rng = random.Random(11)
    for flight in range(flights):
        when = datetime(2024, 3, 1, 6, 0) + timedelta(hours=flight)
        lat, lon, alt = 45.0 + rng.random(), 7.0 + rng.random(), 9_000.0
        with open(folder / f"flight{flight:02d}.log", "w") as log:
            for _ in range(lines):
                when += timedelta(milliseconds=rng.randint(400, 1_600))
                lat, lon, alt = lat + rng.gauss(0, 1e-4), lon + rng.gauss(2e-4, 1e-4), alt + rng.gauss(0, 5)
                log.write(
                    f"{when.isoformat(timespec='milliseconds')},{lat:.5f},{lon:.5f},{alt:.1f},{rng.random():.3f}\n"
                )


def read_lines(paths):
    """Go through the logs again and again, each time in another order."""
    paths = list(paths)
    while True:
        random.shuffle(paths)
        for path in paths:
            with open(path) as log:
                yield from log


def parse_records(lines):
    last = None
    for line in lines:
        stamp, *fields = line.rstrip().split(",")
        when = dateutil.parser.parse(stamp)
        elapsed = (when - last).total_seconds() if last else 0.0
        last = when
        yield (max(0.0, min(elapsed, 10.0)), *map(float, fields))


def windows(records, length, stride):
    held = deque(maxlen=length)
    fresh = 0
    for record in records:
        held.append(record)
        fresh += 1
        if len(held) == length and fresh >= stride:
            fresh = 0
            yield torch.tensor(list(held), dtype=torch.float32)


class TrackStream(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.log"))

    def __iter__(self):
        info = get_worker_info()
        paths = self.paths[info.id :: info.num_workers] if info else self.paths
        records = parse_records(read_lines(paths))
        for window in windows(records, WINDOW, STRIDE):
            yield window[:-1], window[-1, 1:4]


class Accelerator:
    """Takes its time for a step and does nothing else."""

    def __init__(self, step_ms):
        self.step_s = step_ms / 1_000

    def train_on(self, tracks, targets):
        time.sleep(self.step_s)


def main():
    limit = int(os.environ.get("CASE_STEPS", 0))
    device = Accelerator(step_ms=22)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        write_logs(folder)
        loader = DataLoader(TrackStream(folder), batch_size=BATCH, num_workers=2)
        started = None
        for step, (tracks, targets) in enumerate(loader, start=1):
            device.train_on(tracks, targets)
            if step == 8:
                started = time.perf_counter()
            if step == limit:
                break
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - started):.3f}")


if __name__ == "__main__":
    main()
