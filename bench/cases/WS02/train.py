"""Train with worker processes that are spawned, because the framework in use does not survive a fork."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def scan_manifest(count=600_000):
    return [
        {
            "path": f"/data/speakers/{i % 977:04d}/take_{i:07d}.flac",
            "seconds": 2 + i % 13,
            "speaker": i % 977,
            "text": f"w{i}",
        }
        for i in range(count)
    ]


class SpeechDataset(Dataset):
    def __init__(self, records, length=320):
        self.records = records
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        record = self.records[(index * 7919) % len(self.records)]
        rng = np.random.default_rng(record["speaker"])
        return torch.from_numpy(rng.standard_normal(4_000, dtype=np.float32)), record["seconds"]


def train_step(waves, seconds):
    time.sleep(0.025)


def train(loader, max_steps):
    started = time.perf_counter()
    step = 0
    while True:
        for waves, seconds in loader:
            train_step(waves, seconds)
            step += 1
            if step == max_steps:
                return step / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    dataset = SpeechDataset(scan_manifest())
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, multiprocessing_context="spawn")
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
