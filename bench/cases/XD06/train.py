"""Pre-train a click model on browsing histories that are streamed, split between workers and shuffled in a buffer."""

import gc
import itertools
import json
import os
import random
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WINDOW = 24


def write_days(folder, days=6, visitors=160):
    rng = random.Random(31)
    for day in range(days):
        with open(Path(folder, f"day{day}.jsonl"), "w") as file:
            for visitor in range(visitors):
                pages = [rng.randrange(20_000) for _ in range(rng.randint(120, 400))]
                file.write(json.dumps({"visitor": visitor, "pages": pages}) + "\n")


def page_catalogue(count=20_000):
    """What is known about each page: its section, its tags and the pages it links to."""
    rng = random.Random(13)
    return {
        page: {"section": page % 40, "tags": [page % 7, page % 11], "links": [rng.randrange(count)]}
        for page in range(count)
    }


class Histories(IterableDataset):
    def __init__(self, folder, catalogue, buffer_size=256):
        self.files = sorted(Path(folder).glob("*.jsonl"))
        self.catalogue = catalogue
        self.buffer_size = buffer_size

    def lines(self):
        worker = get_worker_info()
        mine = self.files[worker.id :: worker.num_workers] if worker else self.files
        for path in random.sample(mine, len(mine)):
            with open(path) as file:
                yield from file

    def windows(self):
        for line in self.lines():
            pages = json.loads(line)["pages"]
            for start in range(0, len(pages) - WINDOW, WINDOW):
                yield self.describe(pages[start : start + WINDOW])
            del pages
            gc.collect()

    def describe(self, pages):
        known = [self.catalogue[page] for page in pages]
        sections = torch.tensor([entry["section"] for entry in known])
        tags = torch.tensor([entry["tags"] for entry in known])
        return torch.tensor(pages), sections, tags

    def __iter__(self):
        buffer = []
        for window in self.windows():
            if len(buffer) < self.buffer_size:
                buffer.append(window)
                continue
            place = random.randrange(self.buffer_size)
            yield buffer[place]
            buffer[place] = window
        random.shuffle(buffer)
        yield from buffer


def batches(loader):
    while True:
        yield from loader


def main():
    limit = int(os.environ.get("CASE_STEPS", 4000))
    with tempfile.TemporaryDirectory() as folder:
        write_days(folder)
        loader = DataLoader(Histories(folder, page_catalogue()), batch_size=16, num_workers=2, drop_last=True)
        for number, (pages, sections, tags) in enumerate(itertools.islice(batches(loader), limit), 1):
            time.sleep(0.025)
            if number == 8:
                since = time.perf_counter()
        print(f"steps_per_s {(limit - 8) / (time.perf_counter() - since):.3f}")


if __name__ == "__main__":
    main()
