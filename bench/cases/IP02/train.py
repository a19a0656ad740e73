"""Train a scene-graph network on batches of scene objects."""

import dataclasses
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Scene:
    points: torch.Tensor
    colours: torch.Tensor
    objects: torch.Tensor
    relations: torch.Tensor
    camera: torch.Tensor
    weight: torch.Tensor


class SceneDataset(Dataset):
    def __init__(self, scenes=300, length=80_000):
        rng = np.random.default_rng(63)
        self.points = rng.standard_normal((scenes, 128, 3)).astype(np.float32)
        self.relations = rng.integers(0, 20, (scenes, 30, 2))
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        which = index % len(self.points)
        points = torch.from_numpy(self.points[which])
        relations = torch.from_numpy(self.relations[which])
        return Scene(
            points=points * 1.01,
            colours=points.abs().clamp(max=1),
            objects=relations.flatten().unique(),
            relations=relations + 1,
            camera=torch.eye(4),
            weight=torch.ones(1),
        )


def collate_scenes(scenes):
    return scenes


def train_step(scenes):
    time.sleep(0.020)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for scenes in loader:
            train_step(scenes)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(SceneDataset(), batch_size=40, shuffle=True, num_workers=2, collate_fn=collate_scenes)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
