"""Fine-tune a classifier on photographs."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class PhotoDataset(Dataset):
    def __init__(self, root, transform, length=40_000):
        self.paths = sorted(Path(root).glob("*.jpg"))
        self.transform = transform
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = Image.open(self.paths[index % len(self.paths)])
        image = image.convert("RGB")
        return self.transform(image), index % 100


def write_photos(root, count=30):
    rng = np.random.default_rng(3)
    for number in range(count):
        coarse = rng.integers(0, 256, (36, 48, 3), dtype=np.uint8)
        photo = Image.fromarray(coarse).resize((2000, 1500), Image.BILINEAR)
        photo.save(Path(root, f"photo_{number:03d}.jpg"), quality=90)


def train_step(images, labels):
    time.sleep(0.020)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    transform = transforms.Compose(
        [
            transforms.Resize((224, 224)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    with tempfile.TemporaryDirectory() as root:
        write_photos(root)
        loader = DataLoader(PhotoDataset(root, transform), batch_size=6, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(loader, max_steps):.3f}")


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for images, labels in loader:
            train_step(images, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
