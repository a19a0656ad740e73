"""Forecast the load of a power grid an hour ahead."""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW = 64


class LoadCurve(Dataset):
    def __init__(self, series):
        self.series = torch.from_numpy(series)

    def __len__(self):
        return len(self.series) - WINDOW

    def __getitems__(self, starts):
        starts = torch.tensor(starts)
        windows = self.series[starts[:, None] + torch.arange(WINDOW)]
        return windows, self.series[starts + WINDOW, 0]


class Forecaster(nn.Module):
    def __init__(self, features, hidden=96):
        super().__init__()
        self.recurrent = nn.GRU(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, windows):
        states, _ = self.recurrent(windows)
        return self.head(states[:, -1]).squeeze(1)


def measure(quarter_hours=40_000):
    rng = np.random.default_rng(6)
    time_ = np.arange(quarter_hours)
    day = np.sin(2 * np.pi * time_ / 96)
    week = np.sin(2 * np.pi * time_ / (96 * 7))
    load = 1 + 0.4 * day + 0.2 * week + 0.05 * rng.standard_normal(quarter_hours)
    return np.stack([load, day, week], axis=1).astype(np.float32)


def train_step(model, optimizer, windows, targets):
    optimizer.zero_grad()
    loss = nn.functional.l1_loss(model(windows), targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    last_step = int(os.environ.get("CASE_STEPS", "0"))
    series = measure()
    loader = DataLoader(LoadCurve(series), batch_size=32, shuffle=True, collate_fn=tuple)
    model = Forecaster(series.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    while step < last_step or not last_step:
        for windows, targets in loader:
            train_step(model, optimizer, windows, targets)
            step += 1
            if step == 8:
                start = time.perf_counter()
            if step == last_step:
                break
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
