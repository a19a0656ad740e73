"""Action recognition on surveillance-like recordings."""

import os
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from clips import ActionClips
from torch.utils.data import DataLoader

LIMIT = int(os.environ.get("CASE_STEPS", 0))
W, H = 256, 192


def record(path, n, seed):
    rng = np.random.default_rng(seed)
    back = cv2.resize(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8), (W, H), interpolation=cv2.INTER_CUBIC)
    out = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 25, (W, H))
    x, y = rng.uniform(30, 100, 2)
    vx, vy = rng.uniform(-2, 2, 2)
    for _ in range(n):
        frame = back.copy()
        x, y = (x + vx) % W, (y + vy) % H
        cv2.circle(frame, (int(x), int(y)), 14, (20, 220, 240), -1)
        out.write(frame)
    out.release()


class Recogniser(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = torch.nn.Linear(3 * 8 * 16, classes)

    def forward(self, clip):
        x = clip[:, :, :, ::28, ::28].float().div_(255)
        time.sleep(0.020)
        return self.head(x.flatten(1))


def fit(model, opt, batch):
    loss = torch.nn.functional.cross_entropy(model(batch["clip"]), batch["label"])
    opt.zero_grad()
    loss.backward()
    time.sleep(0.035)
    opt.step()
    return float(loss.detach())


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="cams_") as d:
        videos, frames, labels = [], [], []
        for k in range(6):
            n = 420 + 30 * k
            record(Path(d) / f"cam{k}.mp4", n, k)
            videos.append(Path(d) / f"cam{k}.mp4")
            frames.append(n)
            labels.append(k % 3)
        loader = DataLoader(
            ActionClips(videos, labels, frames),
            batch_size=6,
            shuffle=True,
            drop_last=True,
            num_workers=1,
            prefetch_factor=4,
            persistent_workers=True,
        )
        model = Recogniser(3)
        opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        seen = 0
        for epoch in range(120):
            losses = []
            for batch in loader:
                losses.append(fit(model, opt, batch))
                seen += 1
                if seen == 8:
                    t0 = time.perf_counter()
                if seen == LIMIT:
                    print(f"steps_per_s {(seen - 8) / (time.perf_counter() - t0):.3f}")
                    return
            print(f"[{epoch}] loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
