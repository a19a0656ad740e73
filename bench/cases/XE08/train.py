"""Train the recogniser: python train.py [--metric-every N]"""

import argparse

import numpy as np
import torch
from corpus import Utterances, pad_batch
from torch.utils.data import DataLoader
from trainer import TrainConfig, Trainer


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--utterances", type=int, default=2400)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--metric-every", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--max-steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def build_loader(args):
    return DataLoader(
        Utterances(args.utterances),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=pad_batch,
        persistent_workers=args.workers > 0,
        drop_last=True,
    )


def main():
    args = parse_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    config = TrainConfig(
        max_steps=args.max_steps,
        metric_every=args.metric_every,
        log_every=args.log_every,
    )
    trainer = Trainer(config, build_loader(args))
    speed = trainer.fit()
    print(f"steps_per_s {speed:.3f}")


if __name__ == "__main__":
    main()
