"""Train an image classifier from a packed record file and report top-5 accuracy."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

CLASSES = 200


class PackedImages(Dataset):
    def __init__(self, path, images, size=48, length=400_000):
        self.path = path
        self.images = images
        self.size = size
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        nbytes = 3 * self.size * self.size
        with open(self.path, "rb") as file:
            file.seek((index % self.images) * nbytes)
            data = file.read(nbytes)
        pixels = np.frombuffer(data, dtype=np.uint8).reshape(3, self.size, self.size)
        return torch.from_numpy(pixels.astype(np.float32) / 255), index % CLASSES


class Classifier:
    """The network's stand-in: 20 ms on the device, then scores."""

    def __init__(self):
        self.projection = torch.linspace(-1, 1, CLASSES)

    def __call__(self, images):
        time.sleep(0.020)
        return images.mean((1, 2, 3))[:, None] * self.projection + self.projection.flip(0).cos()


def topk_accuracy(scores, labels, k=5):
    hits = 0
    for sample in range(len(labels)):
        ranked = sorted(range(scores.shape[1]), key=lambda label: scores[sample, label].item(), reverse=True)
        if labels[sample].item() in ranked[:k]:
            hits += 1
    return hits / len(labels)


def train(model, loader, max_steps, warmup=8):
    accuracy = 0.0
    step = 0
    while True:
        for images, labels in loader:
            scores = model(images)
            accuracy += topk_accuracy(scores, labels)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "train.pack")
        path.write_bytes(np.random.default_rng(30).integers(0, 256, (600, 3, 48, 48), dtype=np.uint8).tobytes())
        loader = DataLoader(PackedImages(path, 600), batch_size=64, shuffle=True, num_workers=2)
        print(f"steps_per_s {train(Classifier(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
