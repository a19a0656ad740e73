"""Sequence tagging with a callback-style trainer."""

import os
import random
import time
from collections import Counter

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
WORDS = [f"w{i}" for i in range(2000)]


class Sentences(Dataset):
    def __init__(self, count, length, seed=0):
        rng = random.Random(seed)
        self.length = length
        self.vocab = {w: i + 1 for i, w in enumerate(WORDS)}
        self.texts = [" ".join(rng.choices(WORDS, k=length)) for _ in range(count)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        ids = []
        for word in self.texts[i].split():
            token = word.lower().strip(".,;")
            ids.append(self.vocab.get(token, 0))
        ids = torch.tensor(ids)
        return {"ids": ids, "tags": ids % len(TAGS)}


class Callback:
    def on_batch_end(self, trainer, batch, logits):
        pass


class TagReport(Callback):
    """Running precision and recall for every tag."""

    def __init__(self):
        self.hit, self.found, self.wanted = Counter(), Counter(), Counter()

    def on_batch_end(self, trainer, batch, logits):
        best = logits.argmax(-1)
        for guess, truth in zip(best, batch["tags"]):
            for g, t in zip(guess, truth):
                g, t = TAGS[g.item()], TAGS[t.item()]
                self.found[g] += 1
                self.wanted[t] += 1
                if g == t:
                    self.hit[t] += 1
        trainer.log["f1"] = 2 * sum(self.hit.values()) / (sum(self.found.values()) + sum(self.wanted.values()))


class Smoothed(Callback):
    def on_batch_end(self, trainer, batch, logits):
        value = float(logits.detach().abs().mean())
        trainer.log["scale"] = 0.98 * trainer.log.get("scale", value) + 0.02 * value


class Speed(Callback):
    def __init__(self):
        self.began = None

    def on_batch_end(self, trainer, batch, logits):
        if trainer.step == 8:
            self.began = time.perf_counter()

    def report(self, step):
        return (step - 8) / (time.perf_counter() - self.began)


class Trainer:
    def __init__(self, max_steps, callbacks):
        self.max_steps, self.callbacks = max_steps, callbacks
        self.step, self.log = 0, {}

    def forward(self, batch):
        time.sleep(0.024)
        return torch.randn(*batch["ids"].shape, len(TAGS))

    def fit(self, loader):
        while self.step < self.max_steps:
            for batch in loader:
                logits = self.forward(batch)
                self.step += 1
                for cb in self.callbacks:
                    cb.on_batch_end(self, batch, logits)
                if self.step >= self.max_steps:
                    return


def main():
    loader = DataLoader(Sentences(1600, 300), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    speed = Speed()
    trainer = Trainer(int(os.environ.get("CASE_STEPS", 4000)), [Smoothed(), TagReport(), speed])
    trainer.fit(loader)
    print({k: round(v, 3) for k, v in trainer.log.items()})
    print(f"steps_per_s {speed.report(trainer.step):.3f}")


if __name__ == "__main__":
    main()
