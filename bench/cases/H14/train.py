"""Train a plant classifier with a trainer, callbacks and accumulated gradients."""

import os
import time

import numpy as np
import torch
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Leaves(Dataset):
    def __init__(self, leaves=80, size=48, augment=None):
        noise = np.random.default_rng(82).standard_normal((leaves, size, size)).astype(np.float32)
        self.images = ndimage.gaussian_filter(noise, (0, 1, 1))
        self.augment = augment or (lambda image: image)

    def __len__(self):
        return 200_000

    def __getitem__(self, index):
        image = self.augment(self.images[index % len(self.images)])
        return torch.from_numpy(np.ascontiguousarray(image)), index % 4


def flip_and_turn(image):
    turns = np.random.randint(4)
    return np.rot90(image[:, ::-1] if np.random.random() < 0.5 else image, turns)


class RunningLoss:
    """Keeps a mean of the loss and says it now and then."""

    def __init__(self, every=100):
        self.every = every
        self.mean = 0.0

    def on_step(self, step, loss):
        self.mean += 0.05 * (loss.item() - self.mean)
        if step % self.every == 0:
            print(f"step {step}: loss {self.mean:.3f}")


class Trainer:
    def __init__(self, model, loader, callbacks, accumulate=2, warmup=8):
        self.model, self.loader, self.callbacks = model, loader, callbacks
        self.accumulate, self.warmup = accumulate, warmup
        self.optimizer = torch.optim.AdamW(model.parameters())

    def batches(self, max_steps):
        step = 0
        while True:
            for batch in self.loader:
                step += 1
                yield step, batch
                if step == max_steps:
                    return

    def fit(self, max_steps):
        for step, (images, labels) in self.batches(max_steps):
            loss = nn.functional.cross_entropy(self.model(images), labels)
            (loss / self.accumulate).backward()
            time.sleep(0.030)
            if step % self.accumulate == 0:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            for callback in self.callbacks:
                callback.on_step(step, loss)
            if step == self.warmup:
                started = time.perf_counter()
        return (max_steps - self.warmup) / (time.perf_counter() - started)


def main():
    torch.set_num_threads(1)
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(36, 4))
    loader = DataLoader(Leaves(augment=flip_and_turn), batch_size=32, shuffle=True, num_workers=2)
    print(f"steps_per_s {Trainer(model, loader, [RunningLoss()]).fit(max_steps):.3f}")


if __name__ == "__main__":
    main()
