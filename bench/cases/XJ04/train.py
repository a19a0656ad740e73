"""Day-ahead load forecasting. Windows are pulled from the plant historian while training."""

import argparse
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Historian:
    """Client of the time-series server (one blocking range query at a time)."""

    def __init__(self, meters, hours, seed=0):
        rng = np.random.default_rng(seed)
        t = np.arange(hours)
        daily = np.sin(2 * np.pi * (t[None] + rng.integers(0, 24, (meters, 1))) / 24)
        self.series = (daily * rng.uniform(0.5, 2, (meters, 1)) + rng.normal(0, 0.2, (meters, hours))).astype(
            np.float32
        )

    def query_range(self, meter, start, stop):
        time.sleep(0.006)
        return self.series[meter, start:stop].copy()


class LoadWindows(IterableDataset):
    def __init__(self, client, history=168, horizon=24, stride=12):
        self.client, self.history, self.horizon, self.stride = client, history, horizon, stride
        self.epoch = 0

    def _schedule(self):
        meters, hours = self.client.series.shape
        starts = np.arange(0, hours - self.history - self.horizon, self.stride)
        plan = np.stack(np.meshgrid(np.arange(meters), starts, indexing="ij"), -1).reshape(-1, 2)
        np.random.default_rng(self.epoch).shuffle(plan)
        info = get_worker_info()
        return plan if info is None else plan[info.id :: info.num_workers]

    def __iter__(self):
        for meter, start in self._schedule():
            values = self.client.query_range(meter, start, start + self.history + self.horizon)
            past, future = values[: self.history], values[self.history :]
            mu, sd = past.mean(), past.std() + 1e-6
            hour = (start + np.arange(self.history)) % 24
            clock = np.stack([np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12)])
            yield np.concatenate([((past - mu) / sd)[None], clock]).astype(np.float32), (future - mu) / sd


class Forecaster(torch.nn.Module):
    def __init__(self, history, horizon):
        super().__init__()
        self.net = torch.nn.Linear(3 * history, horizon)

    def forward(self, x):
        return self.net(x.flatten(1))


def train_step(model, opt, x, y):
    opt.zero_grad()
    loss = torch.nn.functional.l1_loss(model(x), y)
    loss.backward()
    opt.step()
    time.sleep(0.022)  # accelerator
    return loss.item()


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--meters", type=int, default=40)
    p.add_argument("--weeks", type=int, default=13)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--epochs", type=int, default=50)
    return p.parse_args()


def run(args):
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 0))
    data = LoadWindows(Historian(args.meters, args.weeks * 168))
    loader = DataLoader(data, batch_size=args.batch, num_workers=args.workers, drop_last=True)
    model = Forecaster(data.history, data.horizon)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    i, begin = 0, None
    for epoch in range(args.epochs):
        data.epoch = epoch
        mae = []
        for x, y in loader:
            mae.append(train_step(model, opt, x, y))
            i += 1
            if i == 15:
                begin = time.perf_counter()
            if limit and i == limit:
                print(f"steps_per_s {(i - 15) / (time.perf_counter() - begin):.2f}")
                return
        print(f"epoch {epoch:3d}  mae {np.mean(mae):.4f}", flush=True)


if __name__ == "__main__":
    run(parse())
