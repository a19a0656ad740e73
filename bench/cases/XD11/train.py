"""Patch-wise training on synthetic CT volumes with MONAI; the position in the data is saved with the weights."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from monai.data import CacheDataset, set_track_meta
from monai.transforms import (
    Compose,
    EnsureChannelFirstd,
    RandAxisFlipd,
    RandGaussianNoised,
    RandGaussianSmoothd,
    RandRotate90d,
    RandSpatialCropd,
    ScaleIntensityRanged,
    ToTensord,
)
from monai.utils import set_determinism
from torchdata.stateful_dataloader import StatefulDataLoader

KEYS = ["image", "label"]


def volumes(count=10, shape=(72, 72, 48)):
    rng = np.random.default_rng(14)
    items = []
    for _ in range(count):
        image = rng.normal(40, 120, shape).astype(np.float32)
        image[20:50, 20:50, 12:36] += 260
        items.append({"image": image, "label": (image > 250).astype(np.uint8)})
    return items


def pipeline(patch=(40, 40, 32)):
    return Compose(
        [
            EnsureChannelFirstd(KEYS, channel_dim="no_channel"),
            ScaleIntensityRanged("image", a_min=-160, a_max=560, b_min=0.0, b_max=1.0, clip=True),
            RandSpatialCropd(KEYS, roi_size=patch, random_size=False),
            RandGaussianSmoothd("image", sigma_x=(0.3, 0.8), prob=0.3),
            RandRotate90d(KEYS, prob=0.5, spatial_axes=(0, 1)),
            RandAxisFlipd(KEYS, prob=0.5),
            RandGaussianNoised("image", prob=0.5, std=0.02),
            ToTensord(KEYS),
        ]
    )


class Repeated(torch.utils.data.Dataset):
    """An epoch visits every volume many times; each visit takes another patch."""

    def __init__(self, dataset, times=40):
        self.dataset = dataset
        self.times = times

    def __len__(self):
        return len(self.dataset) * self.times

    def __getitem__(self, index):
        return self.dataset[index % len(self.dataset)]


def learn(image, label):
    time.sleep(0.06)
    return torch.rand(())


def main():
    limit = int(os.environ.get("CASE_STEPS", 4000))
    set_track_meta(False)
    set_determinism(seed=0)
    cached = CacheDataset(volumes(), transform=pipeline(), cache_rate=1.0, num_workers=1, progress=False)
    loader = StatefulDataLoader(
        Repeated(cached), batch_size=3, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True
    )
    losses = []
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while step < limit:
            for batch in loader:
                loss = learn(batch["image"], batch["label"])
                losses.append(loss.item())
                step += 1
                if step % 100 == 0:
                    torch.save({"step": step, "data": loader.state_dict()}, Path(folder, "checkpoint.pt"))
                    print(f"step {step}: {np.mean(losses[-100:]):.4f}")
                if step == 8:
                    since = time.perf_counter()
                if step == limit:
                    break
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - since):.3f}")


if __name__ == "__main__":
    main()
