"""Language-model pre-training on a stream of text files, documents bucketed by length."""

import itertools
import os
import random
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BATCH = 16
MAX_LEN = 512
POOL = 1024
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def write_files(folder, files=4, documents=3000):
    rng = random.Random(5)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 6))) for _ in range(4000)]
    for n in range(files):
        with open(folder / f"part-{n}.txt", "w") as out:
            for _ in range(documents):
                out.write(" ".join(rng.choices(words, k=rng.randint(55, 125))) + "\n")
    return sorted(folder.glob("part-*.txt"))


def learn_merges():
    """Pair ranks: letters to syllables first, then the commonest syllable pairs."""
    rng = random.Random(6)
    ranks = {(syllable[0], syllable[1]): n for n, syllable in enumerate(SYLLABLES)}
    while len(ranks) < 1600:
        ranks.setdefault(tuple(rng.choices(SYLLABLES, k=2)), len(ranks))
    return ranks


class PairEncoder:
    def __init__(self, ranks):
        self.ranks = ranks
        tokens = ["<pad>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", *SYLLABLES, *map("".join, ranks)]
        self.ids = {token: n for n, token in enumerate(dict.fromkeys(tokens))}

    def split(self, word):
        parts = list(word)
        while len(parts) > 1:
            rank, at = min((self.ranks.get(pair, 9999), i) for i, pair in enumerate(zip(parts, parts[1:])))
            if rank == 9999:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def __call__(self, text):
        ids = []
        for word in text.lower().split():
            ids.extend(self.ids.get(part, 1) for part in self.split(word))
        return ids[:MAX_LEN]


class TextStream(IterableDataset):
    def __init__(self, paths, encode):
        self.paths, self.encode = paths, encode

    def lines(self):
        info = get_worker_info()
        mine = self.paths if info is None else self.paths[info.id :: info.num_workers]
        for path in mine:
            with open(path) as handle:
                yield from handle

    def __iter__(self):
        source = self.lines()
        while True:
            pool = [self.encode(line) for line in itertools.islice(source, POOL)]
            if not pool:
                return
            pool.sort(key=len)
            groups = [pool[i : i + BATCH] for i in range(0, len(pool), BATCH)]
            random.shuffle(groups)
            yield from itertools.chain.from_iterable(groups)


def pad(batch):
    width = max(map(len, batch))
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    return ids, ids.ne(0)


def forever(loader):
    while True:
        yield from loader


def optimise(ids, mask):
    time.sleep(0.028)
    return int(mask.sum())


with tempfile.TemporaryDirectory(prefix="stream") as name:
    stream = TextStream(write_files(Path(name)), PairEncoder(learn_merges()))
    loader = DataLoader(
        stream, batch_size=BATCH, collate_fn=pad, num_workers=1, persistent_workers=True, prefetch_factor=3
    )
    total = int(os.environ.get("CASE_STEPS", 4000))
    tokens = 0
    for step, (ids, mask) in enumerate(itertools.islice(forever(loader), total), 1):
        tokens += optimise(ids, mask)
        if step == 8:
            clock = time.perf_counter()
        if step % 100 == 0:
            print(f"step {step}: {tokens / step / BATCH:.0f} tokens per document")
    print(f"steps_per_s {(total - 8) / (time.perf_counter() - clock):.3f}")
