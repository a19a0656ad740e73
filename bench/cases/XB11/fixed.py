"""Recommend articles from reading sessions in a key-value store."""

import os
import tempfile
import time

import lmdb
import msgpack
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ARTICLES = 20_000
HISTORY = 120
CANDIDATES = 500
NEGATIVES = 32


def write_sessions(path, count=5_000):
    rng = np.random.default_rng(29)
    with lmdb.open(path, map_size=1 << 28) as store, store.begin(write=True) as transaction:
        for number in range(count):
            session = {"read": rng.integers(0, ARTICLES, HISTORY).tolist(), "reader": int(rng.integers(0, 900))}
            transaction.put(number.to_bytes(4, "big"), msgpack.packb(session))
    return count


class ReadingSessions(Dataset):
    def __init__(self, path, count):
        self.path = path
        self.count = count
        self.store = None

    def __len__(self):
        return self.count

    def sessions(self, indices):
        if self.store is None:
            self.store = lmdb.open(self.path, readonly=True, lock=False)
        with self.store.begin(buffers=True) as transaction:
            return [msgpack.unpackb(transaction.get(index.to_bytes(4, "big"))) for index in indices]

    def __getitems__(self, indices):
        items = []
        draws = np.random.randint(0, ARTICLES, (len(indices), CANDIDATES)).tolist()
        for session, candidates in zip(self.sessions(indices), draws, strict=True):
            read = session["read"]
            seen = set(read)
            unread = [article for article in candidates if article not in seen]
            wanted = torch.tensor([read[-1], *unread[:NEGATIVES]])
            items.append((session["reader"], torch.tensor(read[:-1]), wanted))
        return items


def train_step(readers, histories, wanted):
    time.sleep(0.020)


def batches_for_ever(loader):
    while True:
        yield from loader


def main():
    torch.set_num_threads(1)
    max_steps = int(os.environ.get("CASE_STEPS", "0"))
    with tempfile.TemporaryDirectory() as root:
        count = write_sessions(root)
        sessions = ReadingSessions(root, count)
        loader = DataLoader(sessions, batch_size=160, shuffle=True, num_workers=2, drop_last=True)
        for step, batch in enumerate(batches_for_ever(loader), start=1):
            train_step(*batch)
            if step == 6:
                started = time.perf_counter()
            if step == max_steps:
                break
        print(f"steps_per_s {(step - 6) / (time.perf_counter() - started):.3f}")


if __name__ == "__main__":
    main()
