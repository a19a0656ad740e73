"""Next-item recommendation from an interaction log, trained with gradient accumulation."""

import os
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset

MAX_HISTORY = 50


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 32
    gradient_accumulation_steps: int = 4
    dataloader_num_workers: int = 2
    max_steps: int = 4000
    logging_steps: int = 400


def make_log(users=20_000, items=5_000, events=2_500_000, seed=3):
    rng = np.random.default_rng(seed)
    log = pd.DataFrame(
        {
            "ts": np.sort(rng.integers(1_600_000_000, 1_640_000_000, events)),
            "user_id": rng.integers(0, users, events),
            "item_id": rng.zipf(1.3, events) % items,
        }
    )
    return log


def user_history(log, user, before):
    """Item ids the user touched before a moment, oldest first."""
    mine = log[log["user_id"] == user]
    past = mine[mine["ts"] < before]
    return past["item_id"].to_numpy()[-MAX_HISTORY:]


def encode(history):
    out = np.zeros(MAX_HISTORY, dtype=np.int64)
    if len(history):
        out[-len(history) :] = history + 1
    return out


class NextItemDataset(Dataset):
    def __init__(self, log, seed=0):
        self.log = log
        late = log.iloc[len(log) // 2 :]
        picks = late.sample(60_000, random_state=seed)
        self.users = picks["user_id"].to_numpy()
        self.moments = picks["ts"].to_numpy()
        self.targets = picks["item_id"].to_numpy()

    def __len__(self):
        return len(self.users)

    def __getitem__(self, i):
        history = user_history(self.log, self.users[i], self.moments[i])
        ids = torch.from_numpy(encode(history))
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": int(self.targets[i])}


class Trainer:
    def __init__(self, args, train_dataset):
        self.args = args
        self.train_dataset = train_dataset
        self.global_step = 0
        self.updates = 0

    def get_train_dataloader(self):
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.per_device_train_batch_size,
            shuffle=True,
            num_workers=self.args.dataloader_num_workers,
            drop_last=True,
            persistent_workers=True,
        )

    def training_step(self, inputs):
        time.sleep(0.022)
        return float(inputs["attention_mask"].float().mean())

    def optimizer_step(self):
        time.sleep(0.006)
        self.updates += 1

    def train(self):
        limit = int(os.environ.get("CASE_STEPS", 0))
        stop = limit or self.args.max_steps
        loader, began, running = self.get_train_dataloader(), None, 0.0
        while self.global_step < stop:
            for inputs in loader:
                running += self.training_step(inputs)
                self.global_step += 1
                if self.global_step % self.args.gradient_accumulation_steps == 0:
                    self.optimizer_step()
                if self.global_step % self.args.logging_steps == 0:
                    print({"step": self.global_step, "fill": running / self.global_step}, flush=True)
                if self.global_step == 8:
                    began = time.perf_counter()
                if self.global_step >= stop:
                    break
        if limit:
            print(f"steps_per_s {(self.global_step - 8) / (time.perf_counter() - began):.3f}")


if __name__ == "__main__":
    Trainer(TrainingArguments(), NextItemDataset(make_log())).train()
