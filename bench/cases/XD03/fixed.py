"""Fine-tune an image classifier on produce photographs with strong augmentation (timm) and accumulated gradients."""

import io
import os
import time

import numpy as np
import torch
from PIL import Image
from timm.data import Mixup, create_transform
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

CLASSES = 12


class Produce(Dataset):
    def __init__(self, files, transform):
        self.files = files
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        data, label = self.files[index]
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return self.transform(image), label


def photographs(count=1200, size=(480, 360)):
    """Encoded pictures; many entries share the same bytes."""
    rng = np.random.default_rng(3)
    encoded = []
    for _ in range(40):
        patches = rng.integers(0, 256, (18, 24, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(patches).resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        encoded.append(buffer.getvalue())
    return [(encoded[i % len(encoded)], i % CLASSES) for i in range(count)]


class Learner:
    """Forward and backward on the accelerator, an update after every few micro batches."""

    def __init__(self, accumulate=4):
        self.accumulate = accumulate
        self.pending = 0
        self.loss = torch.zeros(())

    def micro_batch(self, images, targets):
        self.loss = 0.9 * self.loss + 0.1 * targets.amax()
        time.sleep(0.06)
        self.pending += 1
        if self.pending == self.accumulate:
            self.update()

    def update(self):
        time.sleep(0.012)
        self.pending = 0


def main():
    limit = int(os.environ.get("CASE_STEPS", 4000))
    transform = create_transform(
        input_size=192,
        is_training=True,
        scale=(0.35, 1.0),
        auto_augment="rand-m9-n3-mstd0.5",
        interpolation="random",
        re_prob=0.25,
        re_mode="pixel",
    )
    loader = DataLoader(
        Produce(photographs(), transform),
        batch_size=6,
        shuffle=True,
        num_workers=2,
        prefetch_factor=4,
        drop_last=True,
        persistent_workers=True,
    )
    mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=CLASSES)
    learner = Learner()
    step, start = 0, None
    while step < limit:
        progress = tqdm(enumerate(loader), total=len(loader), mininterval=2)
        for _index, (images, labels) in progress:
            images, targets = mixup(images, labels)
            learner.micro_batch(images, targets)
            step += 1
            if step % 50 == 0:
                progress.set_description(f"loss {learner.loss.item():.3f}")
            if step == 8:
                start = time.perf_counter()
            if step == limit:
                break
        progress.close()
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
