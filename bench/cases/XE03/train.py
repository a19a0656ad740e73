"""Forecast sensor readings from sliding windows."""

import argparse
import os
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def make_frame(sensors, ticks, seed=0):
    rng = np.random.default_rng(seed)
    n = sensors * ticks
    table = {
        "sensor": np.repeat(np.arange(sensors, dtype=np.int32), ticks),
        "tick": np.tile(np.arange(ticks, dtype=np.int64), sensors),
    }
    for name in ("temp", "flow", "level", "power", "rpm", "load"):
        table[name] = rng.standard_normal(n, dtype=np.float32)
    return pd.DataFrame(table)


class Windows(Dataset):
    columns = ["temp", "flow", "level", "power", "rpm", "load"]

    def __init__(self, frame, length=96, horizon=12, count=3200, seed=1):
        self.frame = frame
        self.length, self.horizon = length, horizon
        rng = np.random.default_rng(seed)
        last = int(frame["tick"].max()) - length - horizon
        self.windows = list(
            zip(rng.integers(0, int(frame["sensor"].max()) + 1, count).tolist(), rng.integers(0, last, count).tolist())
        )

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        sensor, start = self.windows[index]
        stop = start + self.length + self.horizon
        frame = self.frame
        mask = (frame["sensor"] == sensor) & (frame["tick"] >= start) & (frame["tick"] < stop)
        values = frame.loc[mask, self.columns].to_numpy(dtype=np.float32)
        past, future = values[: self.length], values[self.length :, 0]
        mean, std = past.mean(axis=0), past.std(axis=0) + 1e-6
        past = (past - mean) / std
        future = (future - mean[0]) / std[0]
        return torch.from_numpy(past), torch.from_numpy(future.copy())


class Forecaster(nn.Module):
    def __init__(self, length, features, horizon):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(length * features, 32), nn.ReLU(), nn.Linear(32, horizon))

    def forward(self, x):
        return self.net(x)


class Accelerated:
    """Runs the small model here and takes as long as the large one on the accelerator."""

    def __init__(self, model, seconds=0.040):
        self.model, self.seconds = model, seconds
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(self.seconds)
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sensors", type=int, default=150)
    parser.add_argument("--ticks", type=int, default=10000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    data = Windows(make_frame(args.sensors, args.ticks))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    run = Accelerated(Forecaster(data.length, len(data.columns), data.horizon))
    limit = int(os.environ.get("CASE_STEPS", 0)) or args.epochs * len(loader)
    step = 0
    while step < limit:
        for x, y in loader:
            run.step(x, y)
            step += 1
            if step == 8:
                t0 = time.perf_counter()
            if step >= limit:
                break
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - t0):.3f}")


if __name__ == "__main__":
    main()
