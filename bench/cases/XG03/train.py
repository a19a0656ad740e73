"""Product photo classifier: samples travel as small record objects until they are batched."""

import io
import os
import time
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "data": {"photos": 96, "size": (1280, 960), "side": 128},
    "loader": {"batch_size": 8, "shuffle": True, "num_workers": 2, "persistent_workers": True},
    "optim": {"lr": 1e-3, "steps": 4000},
}


@dataclass
class Photo:
    blob: bytes
    label: int
    side: int
    tags: dict = field(default_factory=dict)

    @cached_property
    def picture(self):
        return Image.open(io.BytesIO(self.blob)).convert("RGB")

    @property
    def pixels(self):
        small = self.picture.resize((self.side, self.side), Image.BILINEAR, reducing_gap=2.0)
        return torch.from_numpy(np.asarray(small).copy())

    @property
    def aspect(self):
        w, h = self.picture.size
        return w / h


class PhotoStore:
    """Stands for the object store: keeps the encoded photos."""

    def __init__(self, count, size, seed=5):
        rng = np.random.default_rng(seed)
        w, h = size
        self.blobs = []
        for _ in range(count // 4):
            coarse = rng.integers(0, 255, (h // 16, w // 16, 3), dtype=np.uint8)
            picture = Image.fromarray(coarse).resize((w, h), Image.BICUBIC)
            buf = io.BytesIO()
            picture.save(buf, "JPEG", quality=92)
            self.blobs.append(buf.getvalue())
        self.count = count

    def get(self, key):
        return self.blobs[key % len(self.blobs)]


class PhotoDataset(Dataset):
    def __init__(self, store, side):
        self.store = store
        self.side = side

    def __len__(self):
        return self.store.count

    def __getitem__(self, key):
        return Photo(self.store.get(key), key % 12, self.side, {"key": key})


class Batcher:
    def __init__(self, mean=0.45, std=0.25):
        self.mean, self.std = mean, std

    def __call__(self, photos):
        x = torch.stack([p.pixels for p in photos]).permute(0, 3, 1, 2).float()
        x = x.div_(255).sub_(self.mean).div_(self.std)
        extra = torch.tensor([p.aspect for p in photos])
        y = torch.tensor([p.label for p in photos])
        return {"x": x, "aspect": extra, "y": y}


class Trainer:
    def __init__(self, loader, limit):
        self.loader, self.limit = loader, limit
        self.count, self.since = 0, None

    def training_step(self, batch):
        time.sleep(0.022)
        return batch["x"].shape[0]

    def fit(self):
        while self.count < self.limit:
            for batch in self.loader:
                self.training_step(batch)
                self.count += 1
                if self.count == 8:
                    self.since = time.perf_counter()
                if self.count >= self.limit:
                    break
        return (self.count - 8) / (time.perf_counter() - self.since)


if __name__ == "__main__":
    data = CONFIG["data"]
    dataset = PhotoDataset(PhotoStore(data["photos"], data["size"]), data["side"])
    loader = DataLoader(dataset, collate_fn=Batcher(), **CONFIG["loader"])
    limit = int(os.environ.get("CASE_STEPS", CONFIG["optim"]["steps"]))
    print(f"steps_per_s {Trainer(loader, limit).fit():.3f}")
