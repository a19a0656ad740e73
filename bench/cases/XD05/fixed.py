"""Resumable training of a gesture recogniser on a few sensor sessions with torchdata's StatefulDataLoader."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import torch
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

LENGTH = 200


def record_sessions(path, sessions=24, samples=3000, channels=6):
    rng = np.random.default_rng(17)
    with h5py.File(path, "w") as file:
        for number in range(sessions):
            walk = rng.standard_normal((samples, channels)).cumsum(0).astype(np.float32)
            file.create_dataset(f"session{number:02d}", data=walk)


class Gestures(Dataset):
    def __init__(self, path, windows=160):
        self.path = path
        self.windows = windows
        self.file = None
        with h5py.File(path) as file:
            self.names = sorted(file)

    def open(self):
        self.file = h5py.File(self.path)

    def __len__(self):
        return self.windows

    def __getitem__(self, index):
        if self.file is None:
            self.open()
        session = self.file[self.names[index % len(self.names)]]
        start = np.random.randint(0, len(session) - LENGTH)
        window = session[start : start + LENGTH]
        window = (window - window.mean(0)) / (window.std(0) + 1e-5)
        return torch.from_numpy(window).T, index % 7


def save_state(folder, epoch, loader):
    torch.save({"epoch": epoch, "loader": loader.state_dict()}, folder / "last.pt")


def step(windows, labels):
    time.sleep(0.03)


def make_loader(path):
    return StatefulDataLoader(
        Gestures(path),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        drop_last=True,
        persistent_workers=True,
    )


def run(folder, total):
    path = str(folder / "sessions.h5")
    record_sessions(path)
    loader = make_loader(path)
    done, epoch, started = 0, 0, 0.0
    while done < total:
        for windows, labels in loader:
            step(windows, labels)
            done += 1
            if done == 8:
                started = time.perf_counter()
            if done == total:
                break
        save_state(folder, epoch, loader)
        epoch += 1
    return (done - 8) / (time.perf_counter() - started)


if __name__ == "__main__":
    workdir = Path(tempfile.mkdtemp(prefix="gestures"))
    try:
        rate = run(workdir, int(os.environ.get("CASE_STEPS", 4000)))
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
    print(f"steps_per_s {rate:.3f}")
