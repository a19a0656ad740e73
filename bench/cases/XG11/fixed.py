"""Document images: sorted batches, batched fetch, PIL augmentation."""

import fcntl
import functools
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler


def locked(fn):
    @functools.wraps(fn)
    def inner(self, *args):
        with open(self.folder / ".lock", "w") as guard:
            fcntl.flock(guard, fcntl.LOCK_SH)
            return fn(self, *args)

    return inner


class Pages(Dataset):
    def __init__(self, folder, transforms):
        self.folder = folder
        self.transforms = transforms
        self.length = len(self.index())

    def index(self):
        return json.loads((self.folder / "index.json").read_text())

    def __len__(self):
        return self.length

    @locked
    def load(self, entry):
        with Image.open(self.folder / entry["file"]) as page:
            return page.convert("RGB")

    def __getitems__(self, keys):
        entries = self.index()
        out = []
        for key in keys:
            page = self.load(entries[key])
            for name, fn in self.transforms.items():
                page = fn(page)
            pixels = np.array(page)
            out.append((pixels.transpose(2, 0, 1).copy(), entries[key]["lines"]))
        return out


class ByLines(Sampler):
    def __init__(self, data, seed=0):
        self.entries = data.index()
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.entries)

    def __iter__(self):
        return iter(sorted(range(len(self.entries)), key=lambda i: (self.entries[i]["lines"] // 4, self.rng.random())))


def collate(samples):
    pages, lines = zip(*samples)
    batch = np.concatenate([p.copy()[None] for p in pages])
    return np.ascontiguousarray(batch).copy(), list(lines)


def write(folder, count=48, copies=12):
    rng = np.random.default_rng(6)
    entries = []
    for i in range(count):
        noise = rng.integers(0, 255, (18, 14, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((224, 288), Image.BILINEAR).save(folder / f"p{i}.jpg", quality=85)
        entries += [{"file": f"p{i}.jpg", "lines": int(rng.integers(4, 60))} for _ in range(copies)]
    (folder / "index.json").write_text(json.dumps(entries, indent=1))


def train(folder):
    write(folder)
    data = Pages(
        folder,
        {
            "contrast": functools.partial(ImageOps.autocontrast, cutoff=1),
            "blur": lambda page: page.filter(ImageFilter.GaussianBlur(0.8)),
            "fit": lambda page: ImageOps.fit(page, (64, 80)),
        },
    )
    loader = DataLoader(
        data,
        batch_sampler=BatchSampler(ByLines(data), 4, True),
        collate_fn=collate,
        num_workers=2,
        persistent_workers=True,
    )
    limit = int(os.environ.get("CASE_STEPS", 4000))
    step, began, history = 0, None, []
    while step < limit:
        for pages, lines in loader:
            time.sleep(0.060)
            history.append(float(torch.from_numpy(pages[:, 0, 0, 0]).float().mean().item()))
            step += 1
            if step == 8:
                began = time.perf_counter()
            if step % 25 == 0:
                (folder / "log.json").write_text(json.dumps(history[-200:]))
            if step >= limit:
                break
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    work = Path(tempfile.mkdtemp(prefix="pages_"))
    try:
        train(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
