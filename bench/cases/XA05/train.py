"""Next-track recommendation from the listening histories of a music service."""

import os
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

LISTENERS = 4_000
TRACKS = 20_000


class History:
    """The database as one process sees it."""

    QUERY = "SELECT track, seconds FROM plays WHERE listener = ? ORDER BY played_at"

    def __init__(self, path):
        self.path = path
        self.connection = None

    def of(self, listener):
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        return self.connection.execute(self.QUERY, (listener,)).fetchall()


class NextTrack(Dataset):
    def __init__(self, history, longest=40):
        self.history = history
        self.longest = longest

    def __len__(self):
        return LISTENERS

    def __getitem__(self, listener):
        plays = self.history.of(listener)[-self.longest - 1 :]
        tracks = torch.tensor([track for track, _ in plays])
        heard = torch.tensor([min(seconds / 240, 1.0) for _, seconds in plays])
        return tracks[:-1], heard[:-1], tracks[-1]


def collate(samples):
    tracks, heard, targets = zip(*samples, strict=True)
    return pad_sequence(tracks, batch_first=True), pad_sequence(heard, batch_first=True), torch.stack(targets)


def fill(path, plays=200_000):
    rng = np.random.default_rng(7)
    listeners = np.concatenate([np.tile(np.arange(LISTENERS), 4), rng.integers(0, LISTENERS, plays - 4 * LISTENERS)])
    rng.shuffle(listeners)
    rows = zip(
        listeners.tolist(),
        range(1_600_000_000, 1_600_000_000 + plays),
        rng.integers(1, TRACKS, plays).tolist(),
        rng.integers(5, 400, plays).tolist(),
        strict=True,
    )
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE plays (listener INTEGER, played_at INTEGER, track INTEGER, seconds INTEGER)")
        connection.executemany("INSERT INTO plays VALUES (?, ?, ?, ?)", rows)
    connection.close()


class Device:
    def step(self, *tensors):
        time.sleep(0.020)


def run(loader, device, steps):
    count = 0
    while True:
        for tracks, heard, targets in loader:
            device.step(tracks, heard, targets)
            count += 1
            if count == 8:
                start = time.perf_counter()
            if count == steps:
                return (count - 8) / (time.perf_counter() - start)


def main():
    steps = int(os.environ.get("CASE_STEPS", "0"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plays.db")
        fill(path)
        dataset = NextTrack(History(path))
        loader = DataLoader(
            dataset, batch_size=16, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True
        )
        print(f"steps_per_s {run(loader, Device(), steps):.3f}")


if __name__ == "__main__":
    main()
