"""Supervised fine-tuning on a mixture of instruction files."""

import json
import os
import random
import re
import tempfile
import time
from pathlib import Path

import torch
from jsonl_store import JsonlFile, build_index
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split

SOURCES = {"chat": 15000, "code": 12000, "math": 10000}
VOCAB = 8192
IGNORE = -100
PIECES = re.compile(r"\w+|[^\w\s]|\s+")


def write_sources(root):
    rnd = random.Random(7)
    words = ["".join(rnd.choices("abcdefghijklmnopqrstuvwxyz", k=rnd.randint(2, 9))) for _ in range(3000)]
    for name, n in SOURCES.items():
        path = root / f"{name}.jsonl"
        with open(path, "w") as f:
            for _ in range(n):
                k = rnd.randrange(2900)
                f.write(
                    json.dumps(
                        {
                            "prompt": " ".join(words[k : k + 20]) + "?",
                            "answer": " ".join(words[k + 10 : k + 10 + rnd.randint(20, 90)]),
                        }
                    )
                    + "\n"
                )
        build_index(path)


class InstructionSource(Dataset):
    def __init__(self, path):
        self.file = JsonlFile(path)
        self.n = len(self.file)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.file.record(i)


class ChatFormat(Dataset):
    """Turns records into token ids with the prompt masked out of the loss."""

    def __init__(self, base, max_len=384):
        self.base, self.max_len = base, max_len

    def __len__(self):
        return len(self.base)

    def encode(self, text):
        return [hash(p) % VOCAB for p in PIECES.findall(text)]

    def __getitem__(self, i):
        rec = self.base[i]
        p, a = self.encode("<user> " + rec["prompt"]), self.encode("<assistant> " + rec["answer"])
        ids = (p + a)[: self.max_len]
        labels = ([IGNORE] * len(p) + a)[: self.max_len]
        return torch.tensor(ids), torch.tensor(labels)


def collate(batch):
    ids, labels = zip(*batch)
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORE),
    }


def forward_backward(emb, batch):
    h = emb(batch["input_ids"]).mean()
    h.backward()
    time.sleep(0.030)
    return h.detach()


def main():
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", "0"))
    with tempfile.TemporaryDirectory() as d:
        root = Path(d)
        write_sources(root)
        mixture = ConcatDataset([InstructionSource(root / f"{s}.jsonl") for s in SOURCES])
        train_set, _ = random_split(mixture, [0.95, 0.05], generator=torch.Generator().manual_seed(0))
        loader = DataLoader(
            ChatFormat(train_set),
            batch_size=12,
            shuffle=True,
            num_workers=1,
            collate_fn=collate,
            persistent_workers=True,
        )
        emb = torch.nn.Embedding(VOCAB, 16)
        opt = torch.optim.AdamW(emb.parameters(), 1e-4)
        accumulate, step, began = 2, 0, None
        for epoch in range(100):
            for batch in loader:
                loss = forward_backward(emb, batch)
                step += 1
                if step % accumulate == 0:
                    opt.step()
                    opt.zero_grad(set_to_none=True)
                if step % 100 == 0:
                    print(f"epoch {epoch} step {step} loss {loss:.4f}", flush=True)
                if step == 5:
                    began = time.perf_counter()
                if limit and step >= limit:
                    print(f"steps_per_s {(step - 5) / (time.perf_counter() - began):.3f}")
                    return


if __name__ == "__main__":
    main()
