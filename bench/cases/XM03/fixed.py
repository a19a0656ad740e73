"""Land-cover segmentation of aerial tiles, torchvision v2 pipeline."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scores_mended import SegmentationScores
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2
from tqdm import tqdm

CASE_STEPS = int(os.environ.get("CASE_STEPS", 0))
CLASSES = 7


def render_tiles(root, n=480, size=112):
    rng = np.random.default_rng(2)
    palette = rng.integers(30, 225, (CLASSES, 3))
    for i in range(n):
        coarse = rng.integers(0, CLASSES, (7, 7)).astype(np.uint8)
        lab = np.kron(coarse, np.ones((size // 7, size // 7), np.uint8))
        img = np.clip(palette[lab] + rng.normal(0, 12, (size, size, 1)), 0, 255).astype(np.uint8)
        lab[:2], lab[:, :2] = 255, 255
        Image.fromarray(img).save(root / f"{i:04d}.jpg", quality=85)
        Image.fromarray(lab).save(root / f"{i:04d}_lab.png", compress_level=1)


class Tiles(Dataset):
    def __init__(self, root, augment):
        self.items = sorted(root.glob("*.jpg"))
        self.augment = augment

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path = self.items[i]
        img = tv_tensors.Image(np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1).copy())
        lab = tv_tensors.Mask(np.array(Image.open(path.with_name(path.stem + "_lab.png"))))
        img, lab = self.augment(img, lab)
        return img, lab.long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, CLASSES, 1)

    def forward(self, x):
        time.sleep(0.020)
        return self.stem(x)


class Trainer:
    def __init__(self, net, loader):
        self.net, self.loader = net, loader
        self.opt = torch.optim.AdamW(net.parameters(), 3e-3)
        self.loss = nn.CrossEntropyLoss(ignore_index=255)
        self.scores = SegmentationScores(CLASSES)
        self.step, self.t0 = 0, 0.0

    def epoch(self, number):
        self.scores.reset()
        bar = tqdm(self.loader, desc=f"epoch {number}", mininterval=2.0, disable=None)
        for x, y in bar:
            logits = self.net(x)
            loss = self.loss(logits, y)
            self.opt.zero_grad()
            loss.backward()
            time.sleep(0.018)
            self.opt.step()
            self.scores.update(logits.detach(), y)
            now = self.scores.compute()
            bar.set_postfix(loss=f"{loss.item():.3f}", **{k: f"{v:.3f}" for k, v in now.items()}, refresh=False)
            self.step += 1
            if self.step == 5:
                self.t0 = time.perf_counter()
            if self.step == CASE_STEPS:
                return False
        return True


def main():
    torch.set_num_threads(1)
    augment = v2.Compose(
        [
            v2.RandomCrop(96),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.2, 0.2),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    with tempfile.TemporaryDirectory() as d:
        render_tiles(Path(d))
        loader = DataLoader(Tiles(Path(d), augment), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
        trainer = Trainer(Net(), loader)
        for number in range(200):
            if not trainer.epoch(number):
                print(f"steps_per_s {(trainer.step - 5) / (time.perf_counter() - trainer.t0):.3f}")
                return
            print(f"epoch {number}: {trainer.scores.compute()}", flush=True)


if __name__ == "__main__":
    main()
