"""Train an instance-segmentation network; proposals are grouped between its two halves."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


class Accelerator:
    """In-order queue of a simulated device."""

    def __init__(self):
        self.free_at = 0.0

    def launch(self, seconds):
        self.free_at = max(time.perf_counter(), self.free_at) + seconds

    def synchronize(self):
        time.sleep(max(0.0, self.free_at - time.perf_counter()))


class TileDataset(Dataset):
    def __init__(self, tiles=60, length=400_000):
        noise = np.random.default_rng(33).standard_normal((tiles, 192, 192)).astype(np.float32)
        self.tiles = ndimage.gaussian_filter(noise, (0, 2, 2))
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.from_numpy(self.tiles[index % len(self.tiles)])


class Network:
    def __init__(self, device):
        self.device = device

    def backbone(self, images):
        self.device.launch(0.010)
        return images

    def group(self, heat):
        self.device.synchronize()
        regions = []
        for image in heat.numpy():
            labels, count = ndimage.label(image > 0.1)
            regions.append(ndimage.mean(image, labels, range(1, count + 1)).max(initial=0.0))
        return torch.from_numpy(np.array(regions))

    def head(self, regions):
        self.device.launch(0.010)
        self.device.synchronize()
        return regions.mean()

    def __call__(self, images):
        return self.head(self.group(self.backbone(images)))


def train(network, loader, max_steps, warmup=8):
    step = 0
    while True:
        for images in loader:
            network(images)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(TileDataset(), batch_size=32, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Network(Accelerator()), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
