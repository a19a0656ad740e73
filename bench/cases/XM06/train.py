"""Fine-grained classification from tar shards: webdataset, albumentations, two workers."""

import io
import os
import tempfile
import time

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import albumentations as A
import cv2
import numpy as np
import torch
import webdataset as wds
from albumentations.pytorch import ToTensorV2
from PIL import Image

cv2.setNumThreads(0)
STEPS = int(os.environ.get("CASE_STEPS", 0))


def write_shards(folder, shards=4, per_shard=60):
    rng = np.random.default_rng(9)
    for s in range(shards):
        with wds.TarWriter(os.path.join(folder, f"birds-{s:03d}.tar")) as sink:
            for k in range(per_shard):
                low = rng.integers(0, 256, (15, 20, 3), dtype=np.uint8)
                img = cv2.resize(low, (360, 270), interpolation=cv2.INTER_CUBIC)
                buf = io.BytesIO()
                Image.fromarray(img).save(buf, "JPEG", quality=90)
                sink.write({"__key__": f"{s:03d}{k:05d}", "jpg": buf.getvalue(), "cls": int(rng.integers(20))})
    return [os.path.join(folder, f"birds-{s:03d}.tar") for s in range(shards)]


def recipe():
    return A.Compose(
        [
            A.RandomResizedCrop((160, 160), scale=(0.3, 1.0)),
            A.HorizontalFlip(p=0.5),
            A.ColorJitter(0.3, 0.3, 0.3, 0.05, p=0.8),
            A.ElasticTransform(alpha=30, sigma=5, p=0.5),
            A.GaussianBlur(p=0.3),
            A.CoarseDropout(p=0.5),
            A.Normalize(),
            ToTensorV2(),
        ]
    )


class Augment:
    def __init__(self, pipeline):
        self.pipeline = pipeline

    def __call__(self, jpeg):
        return self.pipeline(image=np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")))["image"]


def label(raw):
    return int(raw)


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3 * 100, 20)

    def forward(self, x):
        time.sleep(0.024)
        return self.fc(x[:, :, ::16, ::16].flatten(1))


def update(net, opt, images, target):
    loss = torch.nn.functional.cross_entropy(net(images), target)
    opt.zero_grad()
    loss.backward()
    time.sleep(0.036)
    opt.step()
    return loss.detach()


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        urls = write_shards(d)
        data = (
            wds.WebDataset(urls, resampled=True, shardshuffle=False)
            .shuffle(40)
            .to_tuple("jpg", "cls")
            .map_tuple(Augment(recipe()), label)
            .batched(6)
        )
        loader = wds.WebLoader(data, batch_size=None, num_workers=2, prefetch_factor=4, persistent_workers=True)
        loader = loader.with_epoch(1500)
        net = Head()
        opt = torch.optim.SGD(net.parameters(), 0.01, nesterov=True, momentum=0.9)
        step = 0
        for epoch in range(4):
            for images, target in loader:
                loss = update(net, opt, images, torch.as_tensor(target))
                step += 1
                if step == 10:
                    t0 = time.perf_counter()
                if step == STEPS:
                    print(f"steps_per_s {(step - 10) / (time.perf_counter() - t0):.3f}")
                    return
                if step % 200 == 0:
                    print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
