"""Train a fraud model on card histories; a batch is fetched with one call."""

import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

MERCHANTS = 40


class CardHistories(Dataset):
    """Payments in the order of time, with what the same card did before."""

    def __init__(self, payments=200_000, cards=150):
        rng = np.random.default_rng(105)
        self.card = rng.integers(0, cards, payments)
        self.merchant = rng.integers(0, MERCHANTS, payments)
        self.amount = rng.gamma(2, 30, payments).astype(np.float32)
        order = np.argsort(self.card, kind="stable")
        self.by_card = np.split(order, np.cumsum(np.bincount(self.card, minlength=cards))[:-1])

    def __len__(self):
        return len(self.card)

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices):
        amounts = np.log1p(self.amount[indices])
        visits = self.earlier_visits(indices)
        merchants = torch.from_numpy(self.merchant[indices])
        return list(zip(torch.from_numpy(amounts), torch.from_numpy(visits), merchants, strict=True))

    def earlier_visits(self, indices):
        table = np.zeros((len(indices), MERCHANTS), dtype=np.float32)
        for row, index in enumerate(indices):
            payments = self.by_card[self.card[index]]
            earlier = payments[: np.searchsorted(payments, index)]
            table[row] = np.bincount(self.merchant[earlier], minlength=MERCHANTS)
        return table


def train_step(amounts, visits, merchants):
    time.sleep(0.030)


def train(loader, max_steps, warmup=8):
    step = 0
    while True:
        for amounts, visits, merchants in loader:
            train_step(amounts, visits, merchants)
            step += 1
            if step == warmup:
                started = time.perf_counter()
            if step == max_steps:
                return (step - warmup) / (time.perf_counter() - started)


def main():
    max_steps = int(os.environ.get("CASE_STEPS", "4000"))
    loader = DataLoader(CardHistories(), batch_size=400, shuffle=True, num_workers=2, drop_last=True)
    print(f"steps_per_s {train(loader, max_steps):.3f}")


if __name__ == "__main__":
    main()
