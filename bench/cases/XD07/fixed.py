"""Segment road damage on dash-cam frames; albumentations, gradient accumulation, validation now and then."""

import os
import time

import albumentations as A
import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

cv2.setNumThreads(0)
SIZE = 128


class DashCam(Dataset):
    def __init__(self, frames, masks, transform, repeat=30):
        self.frames = frames
        self.masks = masks
        self.transform = transform
        self.repeat = repeat

    def __len__(self):
        return len(self.frames) * self.repeat

    def __getitem__(self, index):
        index %= len(self.frames)
        result = self.transform(image=self.frames[index], mask=self.masks[index])
        frame = result["image"].astype(np.float32) / 255
        return {"frame": frame.transpose(2, 0, 1), "mask": result["mask"].astype(np.int64), "id": index}


def drive(count=40, height=240, width=320):
    rng = np.random.default_rng(6)
    coarse = rng.integers(0, 256, (count, height // 8, width // 8, 3), dtype=np.uint8)
    frames = [cv2.resize(picture, (width, height), interpolation=cv2.INTER_CUBIC) for picture in coarse]
    masks = [(frame[..., 0] > 190).astype(np.uint8) for frame in frames]
    return frames, masks


def segmentation_batch(samples):
    return {
        "frame": torch.from_numpy(np.stack([sample["frame"] for sample in samples])),
        "mask": torch.from_numpy(np.stack([sample["mask"] for sample in samples])),
        "id": [sample["id"] for sample in samples],
    }


class Fit:
    def __init__(self, train_loader, valid_batches, accumulate=2, valid_every=50):
        self.train_loader = train_loader
        self.valid_batches = valid_batches
        self.accumulate = accumulate
        self.valid_every = valid_every

    def validate(self):
        for _batch in self.valid_batches:
            time.sleep(0.008)

    def run(self, limit):
        step = 0
        while step < limit:
            for batch in self.train_loader:
                assert batch["frame"].shape[-2:] == batch["mask"].shape[-2:]
                time.sleep(0.03)
                step += 1
                if step % self.accumulate == 0:
                    time.sleep(0.004)
                if step % self.valid_every == 0:
                    self.validate()
                if step == 8:
                    began = time.perf_counter()
                if step == limit:
                    break
        return (step - 8) / (time.perf_counter() - began)


def main():
    frames, masks = drive()
    train_transform = A.Compose(
        [
            A.RandomCrop(SIZE, SIZE),
            A.HorizontalFlip(p=0.5),
            A.RandomBrightnessContrast(p=0.5),
            A.MotionBlur(blur_limit=5, p=0.2),
        ]
    )
    loader = DataLoader(
        DashCam(frames, masks, train_transform),
        batch_size=12,
        shuffle=True,
        num_workers=2,
        collate_fn=segmentation_batch,
        drop_last=True,
    )
    valid = DashCam(frames[:6], masks[:6], A.CenterCrop(SIZE, SIZE), repeat=1)
    valid_batches = [segmentation_batch([valid[i] for i in range(first, first + 3)]) for first in (0, 3)]
    rate = Fit(loader, valid_batches).run(int(os.environ.get("CASE_STEPS", 4000)))
    print(f"steps_per_s {rate:.3f}")


if __name__ == "__main__":
    main()
