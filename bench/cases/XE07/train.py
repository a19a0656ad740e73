"""Action recognition on short clips."""

import argparse
import atexit
import os
import shutil
import tempfile
import time

import torch
from torch.utils.data import DataLoader
from videoset import ClipDataset, write_clips


class ActionNet:
    """The network lives on the accelerator; this is its handle."""

    def __init__(self, latency):
        self.latency = latency
        self.last = None

    def train_step(self, clips, labels):
        time.sleep(self.latency)
        self.last = labels
        return clips.shape[0]


class Trainer:
    def __init__(self, model, loader, max_epochs, print_every):
        self.model = model
        self.loader = loader
        self.max_epochs = max_epochs
        self.print_every = print_every
        self.global_step = 0
        self.stop_after = int(os.environ.get("CASE_STEPS", "0"))
        self.clock = None

    def fit(self):
        for epoch in range(self.max_epochs):
            if self.run_epoch(epoch):
                break
        return (self.global_step - 8) / (time.perf_counter() - self.clock)

    def run_epoch(self, epoch):
        seen = 0
        for clips, labels in self.loader:
            seen += self.model.train_step(clips, labels)
            self.global_step += 1
            if self.global_step == 8:
                self.clock = time.perf_counter()
            if self.global_step % self.print_every == 0:
                print(f"epoch {epoch} step {self.global_step} clips {seen}")
            if self.global_step == self.stop_after:
                return True
        return False


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=24)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--frames-per-clip", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=56)
    parser.add_argument("--print-every", type=int, default=100)
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="clips-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_clips(folder, args.clips, args.frames)
    dataset = ClipDataset(folder, args.frames_per_clip)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
    trainer = Trainer(ActionNet(0.045), loader, args.epochs, args.print_every)
    speed = trainer.fit()
    print(f"steps_per_s {speed:.3f}")


if __name__ == "__main__":
    main()
