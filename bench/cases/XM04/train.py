"""Small causal language model on synthetic support tickets (Hugging Face datasets + torchdata)."""

import os
import random
import re
import tempfile
import time
from dataclasses import dataclass

import datasets
import torch
from collators import CausalCollator
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

STEPS = int(os.environ.get("CASE_STEPS", "0"))
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass
class Config:
    vocab: int = 6500
    batch: int = 10
    max_len: int = 96
    workers: int = 1
    epochs: int = 150
    lr: float = 5e-4


def tickets(n, words, seed=3):
    rng = random.Random(seed)
    for i in range(n):
        k = rng.randint(60, 120)
        body = " ".join(rng.choices(words, k=k))
        yield {"ticket": i, "text": f"{body}. thanks, {rng.choice(words)}!"}


class WordTokenizer:
    def __init__(self, words):
        self.ids = {w: k + 2 for k, w in enumerate(words)}

    def __call__(self, text, max_len):
        return [self.ids.get(t, 1) for t in WORD.findall(text.lower())[:max_len]]


class Student(nn.Module):
    def __init__(self, vocab, width=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.head = nn.Linear(width, 32)

    def forward(self, ids, mask):
        h = self.head(self.embed(ids)) * mask.unsqueeze(-1)
        time.sleep(0.016)
        return h


def train_step(model, opt, batch):
    h = model(batch["input_ids"], batch["attention_mask"])
    loss = h.square().mean()
    opt.zero_grad()
    loss.backward()
    time.sleep(0.018)  # logits and the soft-target loss run on the device
    opt.step()
    return loss.detach()


def build_loader(cfg, cache_dir):
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(cfg.vocab - 2)]
    tok = WordTokenizer(words)
    data = datasets.Dataset.from_list(list(tickets(1200, words)))
    data.save_to_disk(cache_dir)
    data = datasets.load_from_disk(cache_dir)
    data = data.with_transform(lambda rows: {"input_ids": [tok(t, cfg.max_len) for t in rows["text"]]})
    return StatefulDataLoader(
        data,
        batch_size=cfg.batch,
        shuffle=True,
        num_workers=cfg.workers,
        drop_last=True,
        collate_fn=CausalCollator(cfg.vocab),
        persistent_workers=True,
    )


def main():
    cfg = Config()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as tmp:
        loader = build_loader(cfg, os.path.join(tmp, "tickets"))
        model = Student(cfg.vocab)
        opt = torch.optim.SGD(model.parameters(), cfg.lr)
        n, start = 0, 0.0
        for epoch in range(cfg.epochs):
            running = torch.zeros(())
            for batch in loader:
                running += train_step(model, opt, batch)
                n += 1
                if n == 6:
                    start = time.perf_counter()
                if n == STEPS:
                    print(f"steps_per_s {(n - 6) / (time.perf_counter() - start):.3f}")
                    return
            print(f"epoch {epoch} loss {running.item() / len(loader):.5f}", flush=True)


if __name__ == "__main__":
    main()
