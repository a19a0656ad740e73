"""Action recognition on short clips; every clip is a list of JPEG frames."""

import os
import random
import time
from types import SimpleNamespace

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

cv2.setNumThreads(0)
hp = SimpleNamespace(videos=400, length=24, frames=8, stride=2, size=96, batch=4, workers=2, lr=3e-4, steps=4000)


def film(seed):
    """A bright square drifting over a textured background, as JPEG frames."""
    rng = np.random.default_rng(seed)
    ground = cv2.resize(rng.integers(0, 160, (12, 16, 3), dtype=np.uint8), (176, 132))
    dx, dy = rng.integers(-3, 4, 2)
    frames = []
    for t in range(hp.length):
        frame = ground.copy()
        x, y = int(80 + dx * t) % 150, int(60 + dy * t) % 110
        cv2.rectangle(frame, (x, y), (x + 24, y + 20), (255, 240, 200), -1)
        frames.append(cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, 85])[1])
    return frames, int(dx > 0) * 2 + int(dy > 0)


class Clips(Dataset):
    def __init__(self, train=True):
        self.films = [film(seed) for seed in range(hp.videos)]
        self.train = train
        self.augment = v2.Compose(
            [
                v2.RandomResizedCrop(hp.size, scale=(0.5, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.3, 0.3),
            ]
        )

    def __len__(self):
        return len(self.films)

    def pick(self, total):
        span = (hp.frames - 1) * hp.stride + 1
        first = random.randrange(total - span) if self.train else (total - span) // 2
        return range(first, first + span, hp.stride)

    def decode(self, buffers):
        out = []
        for buffer in buffers:
            frame = cv2.imdecode(buffer, cv2.IMREAD_COLOR)
            frame = cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
            out.append(torch.from_numpy(frame).permute(2, 0, 1))
        return torch.stack(out)

    def motion_energy(self, clip):
        grey = clip.float().mean(1)
        energy = 0.0
        for earlier, later in zip(grey[:-1], grey[1:]):
            energy += float((later - earlier).abs().mean())
        return energy / (len(clip) - 1)

    def __getitem__(self, i):
        buffers, label = self.films[i]
        clip = self.decode([buffers[t] for t in self.pick(len(buffers))])
        clip = self.augment(clip)
        return clip, self.motion_energy(clip), label


def collate(items):
    clips = torch.stack([c for c, _, _ in items])
    return clips, [e for _, e, _ in items], [n for _, _, n in items]


class Clock:
    def __init__(self, skip=8):
        self.skip, self.n = skip, 0

    def __call__(self):
        self.n += 1
        if self.n == self.skip:
            self.t0 = time.perf_counter()

    @property
    def rate(self):
        return (self.n - self.skip) / (time.perf_counter() - self.t0)


def forward_backward(clips, labels):
    time.sleep(0.06)


def loop(loader, stop):
    clock, smooth = Clock(), None
    while clock.n < stop:
        for clips, energy, labels in loader:
            forward_backward(clips, labels)
            mean = sum(energy) / len(energy)
            smooth = mean if smooth is None else 0.95 * smooth + 0.05 * mean
            clock()
            if clock.n % 100 == 0:
                print(f"[{clock.n}] energy {smooth:.2f}")
            if clock.n >= stop:
                break
    return clock.rate


if __name__ == "__main__":
    loader = DataLoader(
        Clips(),
        batch_size=hp.batch,
        shuffle=True,
        num_workers=hp.workers,
        collate_fn=collate,
        persistent_workers=True,
        prefetch_factor=4,
        drop_last=True,
    )
    print(f"steps_per_s {loop(loader, int(os.environ.get('CASE_STEPS', hp.steps))):.3f}")
