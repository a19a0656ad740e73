"""SimCLR pre-training with accumulated gradients on unlabelled 96-pixel images."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from views import MultiView, plain_recipe

MAX = int(os.environ.get("CASE_STEPS", 0))
ACCUMULATE = 4


class Unlabelled(Dataset):
    def __init__(self, n=720, transform=None):
        g = torch.Generator().manual_seed(2)
        coarse = torch.rand((n, 3, 8, 8), generator=g)
        self.images = (nn.functional.interpolate(coarse, size=96, mode="bilinear") * 255).to(torch.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        return self.transform(img) if self.transform else img


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.proj = nn.Linear(3, dim)

    def forward(self, x):
        time.sleep(0.058)
        return nn.functional.normalize(self.proj(x[:, :, ::16, ::16].mean((2, 3))), dim=1)


def nt_xent(z, temperature=0.5):
    sim = z @ z.T / temperature
    sim.fill_diagonal_(-1e9)
    target = torch.arange(len(z)) ^ 1
    return nn.functional.cross_entropy(sim, target)


def micro_batches(loader):
    epoch = 0
    while True:
        for views in loader:
            yield epoch, views
        epoch += 1


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Unlabelled(transform=MultiView(plain_recipe(48)))
    loader = DataLoader(
        data, batch_size=4, shuffle=True, drop_last=True, num_workers=2, prefetch_factor=4, persistent_workers=True
    )
    net = Encoder()
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    began = None
    for n, (epoch, views) in enumerate(micro_batches(loader), 1):
        loss = nt_xent(net(views.flatten(0, 1))) / ACCUMULATE
        loss.backward()
        if n % ACCUMULATE == 0:
            opt.step()
            opt.zero_grad()
        if n % 200 == 0:
            print(f"epoch {epoch} micro-batch {n} loss {loss.item() * ACCUMULATE:.4f}", flush=True)
        if n == 6:
            began = time.perf_counter()
        if n == MAX:
            print(f"steps_per_s {(n - 6) / (time.perf_counter() - began):.3f}")
            break
        if epoch >= 300:
            break


if __name__ == "__main__":
    main()
