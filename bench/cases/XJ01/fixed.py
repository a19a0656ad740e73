"""Liver segmentation on CT patches: 3D U-Net, random crops with foreground oversampling."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from nifti_io_fixed import load_case, window, write_nii
from torch.utils.data import DataLoader, Dataset


def make_cohort(root, n):
    rng = np.random.default_rng(3)
    base = np.cumsum(rng.normal(0, 6, (64, 176, 176)), axis=2)
    cases = []
    for i in range(n):
        vol = np.roll(base, 7 * i, axis=1) + rng.integers(-12, 12, base.shape)
        path = os.path.join(root, f"case_{i:03d}.nii.gz")
        write_nii(path, vol)
        cases.append((path, tuple(int(c) for c in rng.integers([12, 50, 50], [52, 126, 126]))))
    return cases


class CTPatches(Dataset):
    def __init__(self, cases, patches_per_case=16, size=(16, 64, 64)):
        self.cases, self.ppc, self.size = cases, patches_per_case, size

    def __len__(self):
        return len(self.cases) * self.ppc

    def _corner(self, shape, centre, rng):
        if rng.random() < 0.33:
            lo = [c - s // 2 for c, s in zip(centre, self.size)]
        else:
            lo = [rng.integers(0, n - s + 1) for n, s in zip(shape, self.size)]
        return [int(min(max(a, 0), n - s)) for a, n, s in zip(lo, shape, self.size)]

    def __getitem__(self, i):
        rng = np.random.default_rng()
        path, centre = self.cases[i // self.ppc]
        vol = load_case(path)
        z, y, x = self._corner(vol.shape, centre, rng)
        d, h, w = self.size
        patch = window(vol[z : z + d, y : y + h, x : x + w])
        for ax in range(3):
            if rng.random() < 0.5:
                patch = np.flip(patch, ax)
        patch = patch * rng.uniform(0.9, 1.1) + rng.normal(0, 0.02)
        label = (patch > 0.55).astype(np.int64)
        return torch.from_numpy(patch.astype(np.float32)[None].copy()), torch.from_numpy(label.copy())


class Net:
    """Stand-in for the network running on the accelerator."""

    def train_step(self, image, label):
        time.sleep(0.028)
        return float((image[:, 0] - label).abs().mean())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cases", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=6)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=200)
    args = ap.parse_args()
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 0))
    with tempfile.TemporaryDirectory() as root:
        ds = CTPatches(make_cohort(root, args.cases))
        dl = DataLoader(
            ds,
            args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            drop_last=True,
            persistent_workers=args.workers > 0,
        )
        net, step, t0 = Net(), 0, None
        for epoch in range(args.epochs):
            losses = []
            for image, label in dl:
                losses.append(net.train_step(image, label))
                step += 1
                if step == 20:
                    t0 = time.perf_counter()
                if limit and step >= limit:
                    print(f"steps_per_s {(step - 20) / (time.perf_counter() - t0):.3f}")
                    return
            print(f"epoch {epoch} loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
