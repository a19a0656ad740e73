"""Lesion classifier: trained on patches, validated on whole scans."""

import random
from dataclasses import dataclass, field

import numpy as np
import torch
from data import build_loaders
from engine import Network, PrintCallback, SpeedCallback, Trainer


@dataclass
class LoaderConfig:
    batch_size: int = 16
    workers: int = 1


@dataclass
class ScheduleConfig:
    max_steps: int = 4000
    val_interval: int = 400
    print_interval: int = 100


@dataclass
class ExperimentConfig:
    name: str = "lesions-baseline"
    seed: int = 13
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def run(config):
    seed_everything(config.seed)
    torch.set_num_threads(1)
    train_loader, val_loader = build_loaders(config.loader.batch_size, config.loader.workers)
    speed = SpeedCallback()
    trainer = Trainer(
        Network(),
        train_loader,
        val_loader,
        max_steps=config.schedule.max_steps,
        val_interval=config.schedule.val_interval,
        callbacks=[speed, PrintCallback(config.schedule.print_interval)],
    )
    print(f"{config.name}: {len(train_loader)} steps per epoch, {len(val_loader)} validation batches")
    trainer.fit()
    return speed.speed


def main():
    speed = run(ExperimentConfig())
    print(f"steps_per_s {speed:.3f}")


if __name__ == "__main__":
    main()
