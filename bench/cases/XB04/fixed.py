"""Predict readmission from patients' records: a patient has visits, a visit has diagnosis codes."""

import os
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CODES = 3_000


class Patients(Dataset):
    def __init__(self, count=2_000):
        rng = random.Random(23)
        self.records = []
        for _ in range(count):
            visits = [rng.choices(range(1, CODES), k=rng.randint(4, 14)) for _ in range(rng.randint(10, 30))]
            days = sorted(rng.uniform(0, 900) for _ in visits)
            self.records.append({"visits": visits, "days": days, "readmitted": rng.random() < 0.3})

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]


def pad_visits(patients):
    most_visits = max(len(patient["visits"]) for patient in patients)
    most_codes = max(len(visit) for patient in patients for visit in patient["visits"])
    codes = np.zeros((len(patients), most_visits, most_codes), dtype=np.int64)
    for row, patient in enumerate(patients):
        for column, visit in enumerate(patient["visits"]):
            codes[row, column, : len(visit)] = visit
    return torch.from_numpy(codes)


def collate_patients(patients):
    codes = pad_visits(patients)
    days = nn.utils.rnn.pad_sequence([torch.tensor(patient["days"]) for patient in patients], batch_first=True)
    labels = torch.tensor([float(patient["readmitted"]) for patient in patients])
    return {"codes": codes, "days": days / 365, "label": labels}


class VisitModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.Embedding(CODES, width, padding_idx=0)
        self.time = nn.Linear(1, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 1)

    def forward(self, codes, days):
        visits = self.embedding(codes).mean(dim=2) + self.time(days.unsqueeze(-1))
        return self.head(self.mix(visits).mean(dim=1)).squeeze(-1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    max_steps = int(os.environ.get("CASE_STEPS", "0"))
    loader = DataLoader(Patients(), batch_size=96, shuffle=True, num_workers=1, collate_fn=collate_patients)
    model = VisitModel()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_of = nn.BCEWithLogitsLoss()
    step, epoch, started = 0, 0, 0.0
    while epoch < 100_000:
        for batch in loader:
            optimiser.zero_grad()
            loss = loss_of(model(batch["codes"], batch["days"]), batch["label"])
            loss.backward()
            optimiser.step()
            step += 1
            if step == 5:
                started = time.perf_counter()
            if step == max_steps:
                print(f"steps_per_s {(step - 5) / (time.perf_counter() - started):.3f}")
                return
        epoch += 1


if __name__ == "__main__":
    main()
