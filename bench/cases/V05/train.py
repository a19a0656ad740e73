"""Train a land-cover network on satellite scenes."""

import os
import tempfile
import time
from abc import abstractmethod
from pathlib import Path

import numpy as np
import scenery
import torch
from torch.utils.data import DataLoader, Dataset


class Catalogue(Dataset):
    """Numbered things that are loaded, prepared and turned into tensors."""

    length = 80_000

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict:
        return self.encode(self.prepare(self.load(index)), index)

    @abstractmethod
    def load(self, index: int) -> np.ndarray: ...

    def prepare(self, item: np.ndarray) -> np.ndarray:
        return item

    def encode(self, item: np.ndarray, index: int) -> dict:
        return {"input": torch.from_numpy(item), "index": index}


class Scenes(Catalogue):
    def __init__(self, root: str):
        self.root = Path(root)

    @property
    def files(self) -> list[Path]:
        return [self.root / name for name in sorted(os.listdir(self.root))]

    def load(self, index: int) -> np.ndarray:
        files = self.files
        return np.load(files[index % len(files)])

    def prepare(self, item: np.ndarray) -> np.ndarray:
        return scenery.to_reflectance(super().prepare(item))


class LabelledScenes(Scenes):
    """Scenes without haze, with a cloud label."""

    def prepare(self, item: np.ndarray) -> np.ndarray:
        reflectance = super().prepare(item)
        self.clouds = scenery.cloud_share(reflectance)
        return scenery.dehaze(reflectance)

    def encode(self, item: np.ndarray, index: int) -> dict:
        return {**super().encode(item, index), "clouds": self.clouds}


def train_step(batch: dict) -> None:
    time.sleep(0.030)


def run(loader: DataLoader, max_steps: int, warmup: int = 8) -> float:
    step = 0
    while step < max_steps:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                break
    return (step - warmup) / (time.perf_counter() - started)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        scenery.write_scenes(folder)
        scenes = DataLoader(LabelledScenes(folder), batch_size=16, shuffle=True, num_workers=2)
        print(f"steps_per_s {run(scenes, int(os.environ.get('CASE_STEPS', '4000'))):.3f}")
