"""Land-cover segmentation from Sentinel-2 chips."""

import argparse
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from archive import TileArchive, build
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([1350, 1120, 1040, 950, 1190, 2000], np.float32)[:, None, None]
STD = np.array([65, 150, 190, 280, 230, 355], np.float32)[:, None, None]


class Chips(Dataset):
    def __init__(self, path, augment=True):
        self.archive = TileArchive(path)
        self.augment = augment

    def __len__(self):
        return len(self.archive.names)

    def indices(self, x):
        red, nir = x[2], x[5]
        ndvi = (nir - red) / (nir + red + 1e-3)
        return np.concatenate([(x - MEAN) / STD, ndvi[None]])

    def __getitem__(self, i):
        x = self.indices(self.archive.load(self.archive.names[i]).astype(np.float32))
        y = (x[-1] > 0.1).astype(np.int64)
        if self.augment:
            k = int(torch.randint(4, ()))
            x, y = np.rot90(x, k, (1, 2)), np.rot90(y, k)
            if torch.rand(()) < 0.5:
                x, y = x[:, :, ::-1], y[:, ::-1]
        return {"image": torch.from_numpy(x.copy()), "mask": torch.from_numpy(y.copy())}


class Trainer:
    def __init__(self, cfg, loader):
        self.cfg, self.loader = cfg, loader
        self.step = 0
        self.limit = int(os.environ.get("CASE_STEPS", 0))
        self.t0 = None

    def forward_backward(self, batch):
        time.sleep(self.cfg.step_ms / 1e3)
        return batch["mask"].float().mean().item()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            running = []
            for batch in self.loader:
                running.append(self.forward_backward(batch))
                self.step += 1
                if self.step == 4:
                    self.t0 = time.perf_counter()
                if self.limit and self.step >= self.limit:
                    return (self.step - 4) / (time.perf_counter() - self.t0)
            print(f"epoch {epoch} positive share {np.mean(running):.3f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--num-workers", type=int, default=3)
    p.add_argument("--step-ms", type=float, default=30)
    p.add_argument("--epochs", type=int, default=500)
    cfg = p.parse_args()
    torch.set_num_threads(1)
    tmp = tempfile.mkdtemp(prefix="s2_")
    try:
        path = os.path.join(tmp, "chips.zip")
        build(path, 2600)
        loader = DataLoader(
            Chips(path),
            batch_size=cfg.batch_size,
            shuffle=True,
            num_workers=cfg.num_workers,
            persistent_workers=True,
            drop_last=True,
        )
        rate = Trainer(cfg, loader).fit()
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    if rate:
        print(f"steps_per_s {rate:.3f}")


if __name__ == "__main__":
    main()
