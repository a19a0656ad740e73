"""Classification of LiDAR object crops with a PointNet-like model."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from buckets_mended import SimilarSizeBatches
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

CASE_STEPS = int(os.environ.get("CASE_STEPS", "0"))


def make_scans(root, n=400):
    rng = np.random.default_rng(5)
    for i in range(n):
        k = int(rng.integers(2000, 12000))
        label = i % 5
        xyz = rng.normal(size=(k, 3)) * (1 + label * 0.3, 1, 0.5)
        np.savez_compressed(
            root / f"obj_{i:04d}.npz",
            xyz=xyz.astype(np.float16),
            label=label,
            intensity=rng.integers(0, 255, k).astype(np.uint8),
        )


class ObjectCrops(Dataset):
    def __init__(self, root, voxel=0.08):
        self.files = sorted(root.glob("obj_*.npz"))
        self.voxel = voxel

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with np.load(self.files[i]) as scan:
            xyz = scan["xyz"].astype(np.float32)
            intensity = scan["intensity"].astype(np.float32) / 255
            label = int(scan["label"])
        cell = np.floor(xyz / self.voxel).astype(np.int64) + 512
        _, keep = np.unique((cell[:, 0] * 1024 + cell[:, 1]) * 1024 + cell[:, 2], return_index=True)
        xyz, intensity = xyz[keep], intensity[keep]
        a = np.random.uniform(0, 2 * np.pi)
        rot = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]], np.float32)
        xyz = (xyz - xyz.mean(0)) @ rot
        return {"points": torch.from_numpy(np.column_stack([xyz, intensity])), "label": label}


def pad(rows):
    pts = pad_sequence([r["points"] for r in rows], batch_first=True)
    n = torch.tensor([len(r["points"]) for r in rows])
    return pts, torch.arange(pts.shape[1]) < n[:, None], torch.tensor([r["label"] for r in rows])


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Linear(4, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, pts, mask):
        h = self.local(pts[:, ::32]).masked_fill(~mask[:, ::32, None], -1e4)
        time.sleep(0.02)
        return self.head(h.amax(1))


def step(net, opt, pts, mask, label):
    loss = nn.functional.cross_entropy(net(pts, mask), label)
    opt.zero_grad()
    loss.backward()
    time.sleep(0.02)
    opt.step()
    return loss.item()


def run():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        make_scans(Path(tmp))
        data = ObjectCrops(Path(tmp))
        loader = DataLoader(
            data, batch_sampler=SimilarSizeBatches(data, 12), collate_fn=pad, num_workers=4, persistent_workers=True
        )
        net = PointNet()
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        count = 0
        for epoch in range(250):
            losses = []
            for pts, mask, label in loader:
                losses.append(step(net, opt, pts, mask, label))
                count += 1
                if count == 6:
                    t0 = time.perf_counter()
                if count == CASE_STEPS:
                    print(f"steps_per_s {(count - 6) / (time.perf_counter() - t0):.3f}")
                    return
            print(f"epoch {epoch} loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    run()
