"""Train with augmentation on a simulated accelerator; images and masks are augmented together."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Accelerator:
    """In-order queue with a link to the host; the host may run two launches ahead."""

    def __init__(self, bytes_per_s=500e6):
        self.bytes_per_s = bytes_per_s
        self.free_at = 0.0

    def launch(self, seconds):
        self.free_at = max(time.perf_counter(), self.free_at) + seconds
        time.sleep(max(0.0, self.free_at - 0.080 - time.perf_counter()))

    def synchronize(self):
        time.sleep(max(0.0, self.free_at - time.perf_counter()))

    def transfer_s(self, tensor):
        return tensor.numel() * tensor.element_size() / self.bytes_per_s


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor and where it is."""

    values: torch.Tensor
    device: Accelerator | None = None

    def to(self, device):
        if device is not self.device:
            device.launch(device.transfer_s(self.values))
        return DeviceTensor(self.values, device)

    def cpu(self):
        self.device.synchronize()
        time.sleep(self.device.transfer_s(self.values))
        return DeviceTensor(self.values)


class Augmentation:
    """Flips and colour changes on the device, for any number of keys."""

    def __init__(self, keys):
        self.keys = keys

    def __call__(self, **tensors):
        tensors["image"].device.launch(0.010)
        return {key: self.restore(tensors[key]) for key in self.keys}

    def restore(self, tensor):
        return tensor


class ScanDataset(Dataset):
    def __init__(self, scans=40, size=256, length=200_000):
        rng = np.random.default_rng(39)
        self.scans = rng.standard_normal((scans, size, size)).astype(np.float32)
        self.masks = (self.scans > 0.5).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        which = index % len(self.scans)
        return torch.from_numpy(self.scans[which]), torch.from_numpy(self.masks[which])


def train(device, loader, max_steps, warmup=8):
    augment = Augmentation(["image", "mask"])
    step = 0
    while True:
        for images, masks in loader:
            batch = augment(image=DeviceTensor(images).to(device), mask=DeviceTensor(masks).to(device))
            batch = {key: tensor.to(device) for key, tensor in batch.items()}
            device.launch(0.030)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(ScanDataset(), batch_size=8, shuffle=True, num_workers=2)
    print(f"steps_per_s {train(Accelerator(), loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
