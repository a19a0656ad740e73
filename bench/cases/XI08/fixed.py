"""Fine-tuning an image classifier on a Hugging Face dataset with on-the-fly augmentation."""

import argparse
import io
import os
import time

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2

disable_progress_bars()
torch.multiprocessing.set_sharing_strategy("file_system")


def synthetic_images(count, seed=0):
    rng = np.random.default_rng(seed)
    encoded = []
    for _ in range(32):
        coarse = rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(coarse).resize((320, 240), Image.BICUBIC).save(buffer, "JPEG", quality=90)
        encoded.append(buffer.getvalue())
    return Dataset.from_dict(
        {"jpeg": [encoded[i % 32] for i in range(count)], "label": rng.integers(0, 10, count).tolist()}
    )


augment = v2.Compose(
    [
        v2.RandomResizedCrop(144, scale=(0.4, 1.0), antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.3, 0.3, 0.3),
        v2.RandomAutocontrast(0.3),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        v2.RandomErasing(0.25),
    ]
)


def with_pixels(rows):
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in rows["jpeg"]]
    return {"pixels": [augment(picture) for picture in pictures], "label": rows["label"]}


def collate(samples):
    return {"pixels": torch.stack([s["pixels"] for s in samples]), "label": [s["label"] for s in samples]}


class Step:
    def __init__(self):
        self.total = torch.zeros(())
        self.history = []

    def __call__(self, batch):
        time.sleep(0.060)
        logits = batch["pixels"].mean((2, 3)).repeat(1, 4)[:, :10]
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(batch["label"]))
        self.total += loss
        self.history.append(loss.item())
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=2400)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=14)
    args = parser.parse_args()
    limit = int(os.environ.get("CASE_STEPS", "0"))

    data = synthetic_images(args.images)
    data.set_transform(with_pixels)
    loader = DataLoader(
        data,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=2,
        collate_fn=collate,
        drop_last=True,
        persistent_workers=True,
    )
    train, step, began = Step(), 0, None
    for epoch in range(args.epochs):
        for batch in loader:
            train(batch)
            step += 1
            if step == 8:
                began = time.perf_counter()
            if limit and step >= limit:
                print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                return
        print(f"epoch {epoch} loss {np.mean(train.history[-100:]):.4f}", flush=True)


if __name__ == "__main__":
    main()
