"""Action recognition on short clips stored as JPEG frames, with mixing of clips inside a batch."""

import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

FRAMES, SIDE, VIDEOS = 8, 64, 20


def write_videos(root):
    rng = np.random.default_rng(8)
    for v in range(VIDEOS):
        folder = os.path.join(root, f"v{v:03d}")
        os.makedirs(folder)
        still = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        still = np.asarray(Image.fromarray(still).resize((96, 96), Image.BICUBIC))
        for f in range(24):
            Image.fromarray(np.roll(still, 2 * f, axis=1)).save(f"{folder}/{f:04d}.jpg", quality=85)


class Clips(Dataset):
    def __init__(self, root, repeats=300):
        self.root, self.repeats = root, repeats
        self.transform = v2.Compose(
            [
                v2.RandomCrop(SIDE),
                v2.RandomHorizontalFlip(),
                v2.GaussianBlur(5, (0.1, 2.0)),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.45] * 3, [0.22] * 3),
            ]
        )

    def __len__(self):
        return VIDEOS * self.repeats

    def __getitem__(self, i):
        video, first = i % VIDEOS, np.random.randint(0, 24 - FRAMES)
        frames = []
        for f in range(first, first + FRAMES):
            with Image.open(f"{self.root}/v{video:03d}/{f:04d}.jpg") as image:
                frames.append(np.array(image))
        clip = torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)
        return self.transform(clip), video % 5


class Mixed:
    """Iterates over a loader and blends every clip with another one of its batch."""

    def __init__(self, loader, alpha=0.4, seed=0):
        self.loader, self.alpha = loader, alpha
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for clips, labels in self.loader:
            partner = torch.from_numpy(self.rng.permutation(len(clips)))
            share = self.rng.beta(self.alpha, self.alpha, size=clips.shape)
            share = torch.from_numpy(share.astype(np.float32))
            yield clips * share + clips[partner] * (1 - share), labels, labels[partner]


def train(batches, total):
    step, began = 0, None
    while step < total:
        for clips, labels, others in batches:
            time.sleep(0.040)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step % 250 == 0:
                print(f"step {step}, mean {float(clips[0].mean()):.3f}", flush=True)
            if step >= total:
                break
    return (step - 8) / (time.perf_counter() - began)


if __name__ == "__main__":
    limit = int(os.environ.get("CASE_STEPS", 0))
    torch.set_num_threads(1)
    home = tempfile.mkdtemp(prefix="clips_")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    write_videos(home)
    loader = DataLoader(Clips(home), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
    speed = train(Mixed(loader), limit or 4000)
    if limit:
        print(f"steps_per_s {speed:.3f}")
