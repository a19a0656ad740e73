"""Scans for training (patches, prepared beforehand) and for validation (whole scans)."""

import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class PatchDataset(Dataset):
    def __init__(self, count, seed=1):
        rng = np.random.default_rng(seed)
        self.patches = rng.standard_normal((count, 1, 48, 48), dtype=np.float32)
        self.labels = rng.integers(0, 2, count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        patch = self.patches[index]
        if np.random.rand() < 0.5:
            patch = patch[:, ::-1]
        patch = patch + np.random.standard_normal(patch.shape).astype(np.float32) * np.float32(0.05)
        return torch.from_numpy(patch), int(self.labels[index])


class ScanDataset(Dataset):
    access_seconds = 0.0025

    def __init__(self, count, seed=2):
        rng = np.random.default_rng(seed)
        self.scans = rng.standard_normal((count, 1, 96, 96), dtype=np.float32)
        self.labels = rng.integers(0, 2, count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        time.sleep(self.access_seconds)
        scan = self.scans[index]
        return torch.from_numpy((scan - scan.mean()) / scan.std()), int(self.labels[index])


def build_loaders(batch_size, workers):
    train = DataLoader(
        PatchDataset(1600), batch_size=batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    val = DataLoader(ScanDataset(64), batch_size=8)
    return train, val
