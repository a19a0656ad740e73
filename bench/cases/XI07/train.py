"""Speech encoder on a manifest of utterances; every epoch has its own reproducible order."""

import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

EPOCH_STEPS, BATCH, FRAMES = 32, 16, 120
LIMIT = int(os.environ.get("CASE_STEPS", "0"))


def write_corpus(root, utterances=120_000, seed=9):
    rng = random.Random(seed)
    with open(root / "manifest.jsonl", "w") as out:
        for k in range(utterances):
            text = " ".join(str(rng.randrange(1000)) for _ in range(12))
            out.write(
                json.dumps(
                    {
                        "id": f"utt{k:06d}",
                        "offset": rng.randrange(400_000),
                        "frames": rng.randrange(80, 400),
                        "speaker": rng.randrange(900),
                        "text": text,
                    }
                )
                + "\n"
            )
    np.random.default_rng(seed).standard_normal(500_000 * 16, dtype=np.float32).tofile(root / "features.bin")


class Utterances(Dataset):
    def __init__(self, root, count):
        self.root, self.count = root, count
        self.entries = None

    def _open(self):
        with open(self.root / "manifest.jsonl") as lines:
            self.entries = [json.loads(line) for line in lines]
        self.features = np.memmap(self.root / "features.bin", dtype=np.float32, mode="r").reshape(-1, 16)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if self.entries is None:
            self._open()
        entry = self.entries[i]
        clip = np.zeros((FRAMES, 16), dtype=np.float32)
        frames = self.features[entry["offset"] : entry["offset"] + min(FRAMES, entry["frames"])]
        clip[: len(frames)] = (frames - frames.mean(0)) / (frames.std(0) + 1e-5)
        letters = torch.tensor([ord(c) for c in entry["text"][:32]])
        return torch.from_numpy(clip), letters, entry["speaker"]


class EpochOrder:
    """A fixed number of utterances per epoch, in an order that depends on the epoch only."""

    def __init__(self, total, per_epoch):
        self.total, self.per_epoch, self.epoch = total, per_epoch, 0

    def __len__(self):
        return self.per_epoch

    def __iter__(self):
        rng = np.random.default_rng(1000 + self.epoch)
        return iter(rng.integers(0, self.total, self.per_epoch).tolist())


def epoch_batches(dataset, order, epoch):
    order.epoch = epoch
    return DataLoader(dataset, batch_size=BATCH, sampler=order, num_workers=2)


def train_step(clips, letters, speakers):
    time.sleep(0.025)
    return float(clips.square().mean())


def main(root):
    write_corpus(root)
    dataset = Utterances(root, 120_000)
    order = EpochOrder(len(dataset), EPOCH_STEPS * BATCH)
    step, began = 0, None
    for epoch in range(4000 // EPOCH_STEPS):
        for clips, letters, speakers in epoch_batches(dataset, order, epoch):
            loss = train_step(clips, letters, speakers)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if LIMIT and step >= LIMIT:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                return
        print(f"epoch {epoch} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="speech"))
    try:
        main(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
