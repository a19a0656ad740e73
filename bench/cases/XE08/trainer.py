"""The training loop."""

import os
import time
from dataclasses import dataclass

import torch
from metrics import ErrorRate


@dataclass
class TrainConfig:
    max_steps: int = 4000
    metric_every: int = 1
    log_every: int = 100
    device_seconds: float = 0.030
    warmup: int = 8


class Recogniser:
    """Handle of the network: one update, and the best path it found."""

    def __init__(self, seconds):
        self.seconds = seconds

    def update(self, feats, tokens):
        time.sleep(self.seconds)
        wrong = torch.rand(tokens.shape) < 0.3
        best = torch.where(wrong, torch.randint_like(tokens, 1, 500), tokens)
        return float(wrong.float().mean()), best


class Trainer:
    def __init__(self, config, loader):
        self.config = config
        self.loader = loader
        self.model = Recogniser(config.device_seconds)
        self.error_rate = ErrorRate()
        self.step = 0
        self.limit = int(os.environ.get("CASE_STEPS", config.max_steps))

    def fit(self):
        begun = None
        while True:
            for batch in self.loader:
                self.train_step(*batch)
                self.step += 1
                if self.step == self.config.warmup:
                    begun = time.perf_counter()
                if self.step >= self.limit:
                    return (self.step - self.config.warmup) / (time.perf_counter() - begun)

    def train_step(self, feats, tokens, lengths):
        loss, best = self.model.update(feats, tokens)
        if self.step % self.config.metric_every == 0:
            references = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist())]
            hypotheses = [row[:n] for row, n in zip(best.tolist(), lengths.tolist())]
            self.error_rate.update(references, hypotheses)
        if self.step % self.config.log_every == 0:
            print(f"step {self.step} loss {loss:.3f} error rate {self.error_rate.value():.3f}")
