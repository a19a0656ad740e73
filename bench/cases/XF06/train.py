"""Road-scene segmentation with a small hook-based trainer."""

import os
import time

import albumentations as A
import cv2
import numpy as np
import torch
from sklearn.metrics import confusion_matrix
from torch.utils.data import DataLoader, Dataset

cv2.setNumThreads(0)
CLASSES, SIDE = 6, 160


class Scenes(Dataset):
    def __init__(self, count=4800, distinct=48, seed=0):
        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 255, (distinct, 192, 192, 3), dtype=np.uint8)
        coarse = rng.integers(0, CLASSES, (distinct, 12, 12), dtype=np.uint8)
        self.masks = coarse.repeat(16, axis=1).repeat(16, axis=2)
        self.count = count
        self.augment = A.Compose(
            [
                A.RandomCrop(SIDE, SIDE),
                A.HorizontalFlip(p=0.5),
                A.ElasticTransform(alpha=20, sigma=6, p=0.5),
                A.RandomBrightnessContrast(p=0.5),
                A.Normalize(),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        k = i % len(self.images)
        out = self.augment(image=self.images[k], mask=self.masks[k])
        return torch.from_numpy(out["image"]).permute(2, 0, 1), torch.from_numpy(out["mask"]).long()


class Callback:
    def on_train_batch_end(self, trainer, outputs, batch_idx): ...
    def on_train_epoch_end(self, trainer): ...


class MeanIoU(Callback):
    def __init__(self):
        self.counts = np.zeros((CLASSES, CLASSES), dtype=np.int64)

    def on_train_batch_end(self, trainer, outputs, batch_idx):
        pred, target = outputs["pred"].numpy().ravel(), outputs["target"].numpy().ravel()
        self.counts += confusion_matrix(target, pred, labels=np.arange(CLASSES))
        hit = np.diag(self.counts)
        union = self.counts.sum(0) + self.counts.sum(1) - hit
        trainer.logged["train/miou"] = float((hit / np.maximum(union, 1)).mean())


class Printer(Callback):
    def on_train_batch_end(self, trainer, outputs, batch_idx):
        if (batch_idx + 1) % 200 == 0:
            print(batch_idx + 1, {k: round(v, 4) for k, v in trainer.logged.items()}, flush=True)


class SegModule:
    def training_step(self, batch, batch_idx):
        images, target = batch
        time.sleep(0.025)
        pred = target.clone()
        pred[:, ::7] = (pred[:, ::7] + 1) % CLASSES
        return {"pred": pred, "target": target, "loss": 1.0 / (batch_idx + 1)}


class Trainer:
    def __init__(self, callbacks, max_steps):
        self.callbacks, self.max_steps, self.logged, self.step = callbacks, max_steps, {}, 0

    def fit(self, module, loader):
        while self.step < self.max_steps:
            for batch_idx, batch in enumerate(loader):
                outputs = module.training_step(batch, batch_idx)
                self.logged["train/loss"] = outputs["loss"]
                for callback in self.callbacks:
                    callback.on_train_batch_end(self, outputs, batch_idx)
                self.step += 1
                if self.step == 8:
                    self.began = time.perf_counter()
                if self.step >= self.max_steps:
                    break
            for callback in self.callbacks:
                callback.on_train_epoch_end(self)
        return (self.step - 8) / (time.perf_counter() - self.began)


if __name__ == "__main__":
    limit = int(os.environ.get("CASE_STEPS", 0))
    loader = DataLoader(Scenes(), batch_size=8, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    speed = Trainer([MeanIoU(), Printer()], limit or 4000).fit(SegModule(), loader)
    if limit:
        print(f"steps_per_s {speed:.3f}")
