"""Small language model pre-trained from raw documents: tokenise in the loader, pack on the fly."""

import os
import random
import re
import tempfile
import time
import unicodedata
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEQ, ROWS, VOCAB = 96, 12, 1024
EVAL_EVERY = 50
LIMIT = int(os.environ.get("CASE_STEPS", 0))


def write_corpus(path, docs=3000):
    rnd = random.Random(11)
    lexicon = ["".join(rnd.choices("etaoinshrdlucmfwyp", k=rnd.randint(1, 10))) for _ in range(6000)]
    offsets = [0]
    with open(path, "wb") as f:
        for _ in range(docs):
            k = rnd.randrange(5800)
            text = " ".join(rnd.sample(lexicon[k : k + 200], rnd.randint(30, 100))) + "."
            offsets.append(offsets[-1] + f.write(text.encode()))
    np.save(path.with_suffix(".npy"), np.array(offsets))


class Tokeniser:
    """Greedy byte-pair merging; the merge table is made up, the procedure is the usual one."""

    PAT = re.compile(r" ?\w+|[^\w\s]+|\s+")

    def __init__(self):
        letters = "etaoinshrdlucmfwyp "
        pairs = [a + b for a in letters for b in letters]
        table = pairs + [a + b for a in pairs[::3] for b in letters] + [a + b for a in pairs[::4] for b in pairs]
        self.rank = {p: r for r, p in enumerate(table)}

    def word(self, w):
        parts = list(w)
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda k: self.rank.get(parts[k] + parts[k + 1], 1 << 30))
            if parts[best] + parts[best + 1] not in self.rank:
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        return [(sum(map(ord, p)) * 31 + len(p)) % (VOCAB - 1) + 1 for p in parts]

    def __call__(self, text):
        text = unicodedata.normalize("NFKC", text).lower()
        return [t for w in self.PAT.findall(text) for t in self.word(w)] + [0]


class NearDuplicates:
    """Min-hash signature of a document; documents too close to a listed one are dropped."""

    def __init__(self, permutations=12, width=4, seed=5):
        rnd = random.Random(seed)
        self.coef = [(rnd.randrange(1, 1 << 31), rnd.randrange(1 << 31)) for _ in range(permutations)]
        self.width = width
        self.listed = set()

    def __call__(self, text):
        grams = {hash(text[k : k + self.width]) & 0xFFFFFFFF for k in range(len(text) - self.width + 1)}
        signature = tuple(min((a * g + b) & 0x7FFFFFFF for g in grams) for a, b in self.coef)
        return signature in self.listed


class Documents(Dataset):
    def __init__(self, path):
        self.duplicate = NearDuplicates()
        self.blob = np.memmap(path, np.uint8, "r")
        self.offsets = np.load(path.with_suffix(".npy"))
        self.tokenise = Tokeniser()

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, i):
        text = self.blob[self.offsets[i] : self.offsets[i + 1]].tobytes().decode()
        if self.duplicate(text):
            text = ""
        return np.array(self.tokenise(text), np.int64)


def packed(loader):
    """Rows of SEQ + 1 tokens without padding, documents joined end to end."""
    need = ROWS * (SEQ + 1)
    rest = torch.empty(0, dtype=torch.long)
    while True:
        for tokens in loader:
            rest = torch.cat([rest, tokens])
            while len(rest) >= need:
                yield rest[:need].view(ROWS, SEQ + 1)
                rest = rest[need:]


def concat(docs):
    return torch.from_numpy(np.concatenate(docs))


class TinyLM(nn.Module):
    def __init__(self, dim=32, layers=1):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.out = nn.Linear(dim, VOCAB)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(SEQ))

    def forward(self, rows):
        h = self.emb(rows[:, :-1])
        for b in self.blocks:
            h = b(h, src_mask=self.mask, is_causal=True)
        return nn.functional.cross_entropy(self.out(h).flatten(0, 1), rows[:, 1:].flatten())


def optimise(model, opt, rows):
    loss = model(rows)
    loss.backward()
    opt.step()
    opt.zero_grad()
    time.sleep(0.046)
    return loss.detach()


@torch.no_grad()
def evaluate(model, held_out):
    model.eval()
    loss = sum(model(r).item() for r in held_out) / len(held_out)
    model.train()
    return loss


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        path = Path(d) / "corpus.bin"
        write_corpus(path)
        loader = DataLoader(
            Documents(path),
            batch_size=8,
            shuffle=True,
            num_workers=1,
            prefetch_factor=8,
            collate_fn=concat,
            persistent_workers=True,
        )
        stream = packed(loader)
        held_out = [next(stream).clone() for _ in range(3)]
        model = TinyLM()
        opt = torch.optim.AdamW(model.parameters(), 3e-4)
        began = None
        for step, rows in enumerate(stream, 1):
            loss = optimise(model, opt, rows)
            if step % EVAL_EVERY == 0:
                print(f"step {step} train {loss.item():.3f} held out {evaluate(model, held_out):.3f}", flush=True)
            if step == 5:
                began = time.perf_counter()
            if step == LIMIT:
                print(f"steps_per_s {(step - 5) / (time.perf_counter() - began):.3f}")
                return
            if step == 60_000:
                return


if __name__ == "__main__":
    main()
