"""Restore old postcards: a small convolutional denoiser fed from tar shards, with previews of its progress."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import webdataset as wds
from PIL import Image
from torch import nn
from torchvision.transforms import v2
from torchvision.utils import make_grid, save_image

SIZE = 80


def write_shards(folder, shards=4, cards=120):
    rng = np.random.default_rng(9)
    for number in range(shards):
        with wds.TarWriter(str(folder / f"cards-{number:03d}.tar")) as sink:
            for card in range(cards):
                patches = rng.integers(0, 256, (10, 14, 3), dtype=np.uint8)
                picture = Image.fromarray(patches).resize((160, 120), Image.Resampling.BICUBIC)
                sink.write({"__key__": f"{number:03d}{card:05d}", "jpg": np.asarray(picture)})


to_tensor = v2.Compose([v2.ToImage(), v2.RandomCrop(SIZE), v2.ToDtype(torch.float32, scale=True)])


def add_grain(picture):
    clean = to_tensor(picture)
    return (clean + 0.15 * torch.randn_like(clean)).clamp(0, 1), clean


def make_loader(folder):
    shards = sorted(str(path) for path in folder.glob("*.tar"))
    dataset = (
        wds.WebDataset(shards, resampled=True, shardshuffle=False, nodesplitter=None)
        .shuffle(64)
        .decode("pil")
        .to_tuple("jpg")
        .map_tuple(add_grain)
        .map(lambda sample: sample[0])
        .batched(8)
    )
    return wds.WebLoader(dataset, batch_size=None, num_workers=1)


class Preview:
    """Keeps the noisy, the restored and the clean picture of the newest batch on disk."""

    def __init__(self, folder, every=1, shown=8):
        self.path = folder / "preview.png"
        self.every = every
        self.shown = shown

    def __call__(self, step, noisy, restored, clean):
        if step % self.every:
            return
        columns = torch.cat([pictures[: self.shown] for pictures in (noisy, restored.detach(), clean)])
        save_image(make_grid(columns, nrow=self.shown), self.path)


def main():
    limit = int(os.environ.get("CASE_STEPS", 4000))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder)
        source = iter(make_loader(folder))
        model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        preview = Preview(folder)
        step = 0
        while step < limit:
            noisy, clean = next(source)
            restored = model(noisy)
            loss = (restored - clean).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
            step += 1
            preview(step, noisy, restored, clean)
            if step == 8:
                start = time.perf_counter()
        print(f"steps_per_s {(step - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
