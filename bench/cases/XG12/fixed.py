"""Semi-supervised training: labelled and unlabelled loaders side by side."""

import os
import random
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset


@dataclass
class Options:
    batch: int = 6
    unlabelled_factor: int = 2
    step_s: float = 0.060
    remote_s: float = 0.004
    steps: int = int(os.environ.get("CASE_STEPS", 4000))


class Remote(Dataset):
    """Signals of one site, fetched over the network."""

    def __init__(self, site, count, opts):
        rng = np.random.default_rng(site)
        self.signals = rng.standard_normal((count, 4, 256)).astype(np.float32)
        self.site, self.opts = site, opts

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, i):
        time.sleep(self.opts.remote_s)
        signal = self.signals[i]
        spectrum = np.abs(np.fft.rfft(signal * np.hanning(signal.shape[1]), axis=1))
        return {
            "signal": signal.copy(),
            "site": self.site,
            "peaks": spectrum.argmax(1).tolist(),
            "events": [random.random() for _ in range(20)],
        }


class Views(Dataset):
    def __init__(self, base, n):
        self.base, self.n = base, n

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        item = self.base[i]
        views = [np.roll(item["signal"], random.randrange(256), axis=1) for _ in range(self.n)]
        return {**item, "signal": np.stack(views)}


def collate(items):
    batch = {k: [it[k] for it in items] for k in items[0]}
    batch["signal"] = np.concatenate([s.copy()[None] for s in batch["signal"]])
    return batch


def forever(loader):
    epoch = 0
    while True:
        epoch += 1
        for batch in loader:
            signal = torch.from_numpy(batch["signal"])
            batch["signal"] = signal / (signal.abs().amax(-1, keepdim=True) + 1e-6)
            yield batch


def make_loaders(opts):
    sites = ConcatDataset([Remote(s, 600, opts) for s in range(6)])
    order = np.random.default_rng(0).permutation(len(sites)).tolist()
    labelled = Views(Subset(sites, order[:1200]), 1)
    unlabelled = Views(Subset(sites, order[1200:3500]), 2)
    held_out = Views(Subset(sites, order[3500:3506]), 1)
    common = {"shuffle": True, "drop_last": True, "collate_fn": collate, "persistent_workers": True}
    return (
        DataLoader(labelled, opts.batch, num_workers=1, **common),
        DataLoader(unlabelled, opts.batch * opts.unlabelled_factor, num_workers=2, **common),
        DataLoader(held_out, 8, collate_fn=collate),
    )


def main(opts):
    labelled, unlabelled, held_out = make_loaders(opts)
    losses, began = deque(maxlen=50), None
    for step, (a, b) in enumerate(zip(forever(labelled), forever(unlabelled)), 1):
        time.sleep(opts.step_s)
        losses.extend(row.abs().mean().item() for row in a["signal"])
        if step == 8:
            began = time.perf_counter()
        if step % 200 == 0:
            score = float(np.mean([v["signal"].std().item() for v in held_out]))
            print(f"step {step} loss {np.mean(losses):.3f} held-out {score:.3f}", flush=True)
        if step >= opts.steps:
            break
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    main(Options())
