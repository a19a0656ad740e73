"""Brain-lesion patches from memory-mapped MR volumes, elastic and affine augmentation, background prefetch."""

import os
import queue
import tempfile
import threading
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

SHAPE, PATCH = (72, 96, 96), (36, 64, 64)
N_VOLUMES, PER_EPOCH, BATCH, WORKERS = 12, 160, 2, 2


def build_archive(folder):
    path = os.path.join(folder, "mr_t2.dat")
    arr = np.memmap(path, np.int16, "w+", shape=(N_VOLUMES, *SHAPE))
    rng = np.random.default_rng(11)
    for i in range(N_VOLUMES):
        arr[i] = rng.integers(0, 900, SHAPE, dtype=np.int16)
    arr.flush()
    return path


class Archive(Dataset):
    def __init__(self, path):
        self.path, self.vols = path, None

    def __len__(self):
        return PER_EPOCH

    def deform(self, patch, rng):
        angle, scale = rng.uniform(-0.2, 0.2), rng.uniform(0.9, 1.1)
        c, s = np.cos(angle) * scale, np.sin(angle) * scale
        mat = np.array([[scale, 0, 0], [0, c, -s], [0, s, c]])
        mid = (np.array(patch.shape) - 1) / 2
        return ndimage.affine_transform(patch, mat, mid - mat @ mid, order=1, mode="nearest")

    def __getitem__(self, i):
        if self.vols is None:
            self.vols = np.memmap(self.path, np.int16, "r", shape=(N_VOLUMES, *SHAPE))
        rng = np.random.default_rng()
        lo = [rng.integers(0, n - p + 1) for n, p in zip(SHAPE, PATCH)]
        vol = self.vols[i % N_VOLUMES]
        patch = vol[tuple(slice(a, a + p) for a, p in zip(lo, PATCH))].astype(np.float32)
        patch = self.deform(patch, rng)
        patch = ndimage.gaussian_filter(patch, rng.uniform(0.3, 0.8))
        patch = (patch - patch.mean()) / (patch.std() + 1e-5)
        return torch.from_numpy(patch[None].astype(np.float32)), torch.from_numpy((patch > 1.5).astype(np.int64))


class Prefetcher:
    """Pulls batches in a thread so that host-to-device staging overlaps with the step."""

    def __init__(self, loader, depth=2):
        self.loader, self.depth = loader, depth

    def __iter__(self):
        q = queue.Queue(self.depth)

        def pump():
            for batch in self.loader:
                q.put(tuple(t.contiguous() for t in batch))
            q.put(None)

        threading.Thread(target=pump, daemon=True).start()
        while (item := q.get()) is not None:
            yield item


class Engine:
    def __init__(self):
        self.bias = torch.zeros(1)

    def step(self, x, y):
        loss = ((x[:, 0] + self.bias) - y).pow(2).mean()
        self.device_wait(0.06)
        self.bias -= 1e-3 * (x.mean() + self.bias)
        return loss.item()

    def device_wait(self, seconds):
        time.sleep(seconds)


def main():
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 0))
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Archive(build_archive(folder)),
            BATCH,
            shuffle=True,
            num_workers=WORKERS,
            persistent_workers=True,
            prefetch_factor=4,
        )
        engine, n, t0 = Engine(), 0, 0.0
        for epoch in range(300):
            for x, y in Prefetcher(loader):
                loss = engine.step(x, y)
                n += 1
                if n == 8:
                    t0 = time.perf_counter()
                if limit and n >= limit:
                    print(f"steps_per_s {(n - 8) / (time.perf_counter() - t0):.3f}", flush=True)
                    return
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
