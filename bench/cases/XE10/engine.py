"""Trainer with callbacks."""

import os
import time


class Network:
    def __init__(self, train_seconds=0.030, eval_seconds=0.005):
        self.train_seconds, self.eval_seconds = train_seconds, eval_seconds

    def training_step(self, x, y):
        time.sleep(self.train_seconds)
        return float(y.float().mean())

    def predict(self, x):
        time.sleep(self.eval_seconds)
        return x.mean(dim=(1, 2, 3)) > 0


class SpeedCallback:
    def __init__(self, warmup=8):
        self.warmup, self.begun, self.speed = warmup, None, None

    def on_step(self, trainer):
        now = time.perf_counter()
        if trainer.step == self.warmup:
            self.begun = now
        elif trainer.step > self.warmup:
            self.speed = (trainer.step - self.warmup) / (now - self.begun)


class PrintCallback:
    def __init__(self, every=100):
        self.every = every

    def on_step(self, trainer):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step} loss {trainer.loss:.3f} best {trainer.best:.3f}")


class Trainer:
    def __init__(self, network, train_loader, val_loader, max_steps, val_interval, callbacks):
        self.network = network
        self.train_loader, self.val_loader = train_loader, val_loader
        self.max_steps = int(os.environ.get("CASE_STEPS", max_steps))
        self.val_interval = val_interval
        self.callbacks = callbacks
        self.step, self.loss, self.best = 0, 0.0, 0.0

    def fit(self):
        while self.step < self.max_steps:
            for x, y in self.train_loader:
                self.loss = self.network.training_step(x, y)
                self.step += 1
                if self.step % self.val_interval == 0:
                    self.best = max(self.best, self.validate())
                for callback in self.callbacks:
                    callback.on_step(self)
                if self.step >= self.max_steps:
                    break

    def validate(self):
        right = total = 0
        for x, y in self.val_loader:
            right += int((self.network.predict(x) == y.bool()).sum())
            total += len(y)
        return right / total
