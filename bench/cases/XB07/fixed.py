"""Forecast the motion of road users in traffic scenes."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

STEPS_SEEN = 20


class Scenes(Dataset):
    """Scenes as nested dictionaries: the ego vehicle, its agents and the lanes around it."""

    def __init__(self, count=20_000, agents=10, lanes=6):
        self.count = count
        self.agents = agents
        self.lanes = lanes
        rng = np.random.default_rng(17)
        self.tracks = torch.from_numpy(rng.normal(size=(512, STEPS_SEEN, 4)).astype(np.float32))
        self.polylines = torch.from_numpy(rng.normal(size=(512, 12, 2)).astype(np.float32))

    def __len__(self):
        return self.count

    def agent(self, number):
        track = self.tracks[number % 512]
        return {"track": track.clone(), "box": track[-1, :3].clone()}

    def __getitem__(self, index):
        return {
            "ego": {"track": self.tracks[index % 512].clone(), "speed": torch.tensor([index % 30.0])},
            "agents": {f"agent{number}": self.agent(7 * index + number) for number in range(self.agents)},
            "lanes": [self.polylines[(index + number) % 512].clone() for number in range(self.lanes)],
        }


def collate_scenes(scenes):
    agents = [agent for scene in scenes for agent in scene["agents"].values()]
    return {
        "ego": torch.stack([scene["ego"]["track"] for scene in scenes]),
        "speeds": torch.cat([scene["ego"]["speed"] for scene in scenes]),
        "tracks": torch.stack([agent["track"] for agent in agents]),
        "boxes": torch.stack([agent["box"] for agent in agents]),
        "agents": torch.tensor([len(scene["agents"]) for scene in scenes]),
        "lanes": torch.stack([lane for scene in scenes for lane in scene["lanes"]]),
    }


def train_step(batch):
    assert batch
    time.sleep(0.020)


def train(loader, max_steps):
    step, warmup = 0, 6
    while True:
        for batch in loader:
            train_step(batch)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    torch.multiprocessing.set_sharing_strategy("file_system")
    torch.set_num_threads(1)
    max_steps = int(os.environ.get("CASE_STEPS", "1000000"))
    loader = DataLoader(Scenes(), batch_size=16, shuffle=True, num_workers=2, collate_fn=collate_scenes)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
