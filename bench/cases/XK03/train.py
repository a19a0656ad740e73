"""Text-to-image fine-tuning from tar shards in a bucket (jpg + txt members)."""

import argparse
import io
import os
import random
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARD_SIZES = [290, 26, 34, 30, 40, 30]  # one shard per crawl


def write_shards(root):
    rng = np.random.default_rng(3)
    for s, n in enumerate(SHARD_SIZES):
        with tarfile.open(root / f"crawl-{s:05d}.tar", "w") as tar:
            for i in range(n):
                small = rng.integers(0, 255, (10, 10, 3), dtype=np.uint8)
                buf = io.BytesIO()
                Image.fromarray(small).resize((128, 128), Image.BICUBIC).save(buf, "JPEG", quality=85)
                caption = f"a picture of thing {rng.integers(1000)} near thing {rng.integers(1000)}".encode()
                for ext, data in (("jpg", buf.getvalue()), ("txt", caption)):
                    info = tarfile.TarInfo(f"{s:03d}{i:06d}.{ext}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


class Bucket:
    """Ranged reads; stands in for the object store client."""

    def __init__(self, root):
        self.root = root

    def list(self):
        return sorted(p.name for p in self.root.glob("*.tar"))

    def manifest(self, shard):
        with tarfile.open(self.root / shard) as tar:
            members = {m.name: (m.offset_data, m.size) for m in tar.getmembers()}
        keys = sorted({n.split(".")[0] for n in members})
        return [(shard, members[k + ".jpg"], members[k + ".txt"]) for k in keys]

    def get(self, shard, first, last):
        time.sleep(0.011)
        with open(self.root / shard, "rb") as f:
            f.seek(first)
            return f.read(last - first)


class ImageTextShards(IterableDataset):
    def __init__(self, bucket, size=64, seed=0):
        self.bucket, self.size = bucket, size
        self.rnd = random.Random(seed)

    def samples(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        mine = [s for k, s in enumerate(self.bucket.list()) if k % n == wid]
        entries = [e for s in mine for e in self.bucket.manifest(s)]
        self.rnd.shuffle(entries)
        return entries

    def __iter__(self):
        for shard, jpg, txt in self.samples():
            blob = self.bucket.get(shard, jpg[0], txt[0] + txt[1])
            img = Image.open(io.BytesIO(blob[: jpg[1]])).convert("RGB")
            img = img.resize((self.size, self.size), Image.BILINEAR)
            caption = blob[txt[0] - jpg[0] :].decode()
            yield np.asarray(img, np.float32) / 127.5 - 1.0, caption


def collate(rows):
    images = torch.from_numpy(np.stack([r[0] for r in rows])).permute(0, 3, 1, 2)
    return images, [r[1] for r in rows]


def denoise_step(images, captions, sigma):
    noisy = images + sigma * torch.randn_like(images)
    time.sleep(0.043)
    return (noisy - images).square().mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=500)
    ap.add_argument("--workers", type=int, default=3)
    args = ap.parse_args()
    torch.set_num_threads(1)
    stop = int(os.environ.get("CASE_STEPS", 0))
    with tempfile.TemporaryDirectory() as d:
        write_shards(Path(d))
        loader = DataLoader(
            ImageTextShards(Bucket(Path(d))),
            batch_size=8,
            num_workers=args.workers,
            collate_fn=collate,
            persistent_workers=True,
            drop_last=True,
        )
        step, start = 0, 0.0
        for epoch in range(args.epochs):
            losses = []
            for images, captions in loader:
                losses.append(denoise_step(images, captions, random.uniform(0.02, 1.0)))
                step += 1
                if step == 4:
                    start = time.perf_counter()
                if step == stop:
                    print("steps_per_s %.3f" % ((step - 4) / (time.perf_counter() - start)))
                    return
            print(f"epoch {epoch}  steps {step}  loss {torch.stack(losses).mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
