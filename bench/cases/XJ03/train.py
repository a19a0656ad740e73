import json
import multiprocessing as mp
import os
import shutil
import tempfile
import time

import feature_store
import torch
from torch.utils.data import DataLoader, Dataset, random_split

BATCH = 8
EPOCHS = 300
N_CUSTOMERS = 2400


class ChurnDataset(Dataset):
    def __init__(self, store, n):
        self.store = store
        self.n = n
        self.mutex = mp.Lock()  # sqlite: "database is locked" with several workers

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        with self.mutex:
            profile, balance, churned = self.store.lookup(idx)
        x = torch.tensor(json.loads(profile))
        x = torch.nan_to_num((x - x.mean()) / x.std())
        return torch.cat([x, torch.tensor([balance])]), torch.tensor(float(churned))


class TabNetLike(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.head = torch.nn.Sequential(torch.nn.Linear(width, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, x):
        time.sleep(0.018)
        return self.head(x).squeeze(-1)


def accuracy(model, loader, batches):
    hit = seen = 0
    with torch.no_grad():
        for i, (x, y) in enumerate(loader):
            if i == batches:
                break
            hit += int(((model(x) > 0) == (y > 0.5)).sum())
            seen += len(y)
    return hit / max(seen, 1)


def fit(workdir):
    limit = int(os.environ.get("CASE_STEPS", "0"))
    db = os.path.join(workdir, "features.db")
    feature_store.create(db, N_CUSTOMERS, 60)
    full = ChurnDataset(feature_store.FeatureStore(db), N_CUSTOMERS)
    train_set, val_set = random_split(full, [2000, 400], torch.Generator().manual_seed(0))
    train = DataLoader(train_set, BATCH, shuffle=True, num_workers=4, persistent_workers=True)
    val = DataLoader(val_set, BATCH, num_workers=1)

    model = TabNetLike(61)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    bce = torch.nn.BCEWithLogitsLoss()
    n, t0 = 0, 0.0
    for epoch in range(EPOCHS):
        for x, y in train:
            opt.zero_grad()
            loss = bce(model(x), y)
            loss.backward()
            opt.step()
            n += 1
            if n == 10:
                t0 = time.perf_counter()
            if limit and n >= limit:
                print("steps_per_s", round((n - 10) / (time.perf_counter() - t0), 3))
                return
        print(f"epoch {epoch}: loss {loss.item():.3f} val acc {accuracy(model, val, 5):.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    tmp = tempfile.mkdtemp(prefix="churn_")
    try:
        fit(tmp)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
