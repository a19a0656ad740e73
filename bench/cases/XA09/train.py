"""Classify lidar sweeps that live in a bucket."""

import os
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS = 512


class BucketClient:
    """Get objects of a bucket in another region."""

    def __init__(self, objects, round_trip=0.018):
        self._objects = objects
        self._round_trip = round_trip

    def keys(self):
        return sorted(self._objects)

    def get(self, key):
        time.sleep(self._round_trip * random.lognormvariate(0, 0.25))
        return self._objects[key]


class Sweeps(Dataset):
    def __init__(self, client, length=50_000):
        self.client = client
        self.keys = client.keys()
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        key = self.keys[index % len(self.keys)]
        body = self.client.get(key)
        points = np.frombuffer(body, dtype=np.float16).reshape(-1, 3).astype(np.float32)
        points = points[np.random.choice(len(points), POINTS, replace=False)]
        points = turn(points - points.mean(0), np.random.uniform(0, 2 * np.pi))
        return torch.from_numpy(points), int(key.split("/")[0])


def turn(points, angle):
    sine, cosine = np.sin(angle), np.cos(angle)
    rotation = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]], dtype=np.float32)
    return points @ rotation.T


def upload(count=80, classes=8):
    rng = np.random.default_rng(4)
    return {
        f"{number % classes}/sweep-{number:05d}.bin": rng.normal(size=(2048, 3)).astype(np.float16).tobytes()
        for number in range(count)
    }


class PointNet(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256))
        self.head = nn.Sequential(nn.Linear(256, 96), nn.ReLU(), nn.Linear(96, classes))

    def forward(self, points):
        return self.head(self.lift(points).amax(1))


def main():
    torch.set_num_threads(1)
    last_step = int(os.environ.get("CASE_STEPS", "0"))
    loader = DataLoader(Sweeps(BucketClient(upload())), batch_size=8, shuffle=True, num_workers=2)
    model = PointNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    batches = iter(loader)
    step = 0
    while step < last_step or not last_step:
        try:
            points, labels = next(batches)
        except StopIteration:
            batches = iter(loader)
            points, labels = next(batches)
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if step == 8:
            start = time.perf_counter()
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
