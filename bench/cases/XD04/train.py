"""Translate sketches to textures: the generator sees a sketch batch, the critic a batch of real textures."""

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision.transforms import v2


class Sketches(Dataset):
    def __init__(self, count=3000, size=96):
        generator = torch.Generator().manual_seed(8)
        strokes = torch.rand(60, 1, size, size, generator=generator)
        self.strokes = (strokes > 0.7).to(torch.uint8) * 255
        self.count = count
        self.transform = v2.Compose(
            [
                v2.RandomHorizontalFlip(),
                v2.RandomResizedCrop(size, scale=(0.7, 1.0), antialias=True),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.strokes[index % len(self.strokes)])


def texture_descriptors(count=1_600_000, width=12):
    """Compressed statistics of texture patches, small enough for memory."""
    generator = torch.Generator().manual_seed(5)
    table = torch.empty(count, width, dtype=torch.float16)
    for part in table.split(200_000):
        part.copy_(torch.randn(part.shape, generator=generator))
    return TensorDataset(table)


class Gan:
    def __init__(self):
        self.critic_loss = 0.0
        self.generator_loss = 0.0

    def critic_step(self, real, sketches):
        time.sleep(0.018)
        self.critic_loss += 0.01 * (float(real.float().mean()) - self.critic_loss)

    def generator_step(self, sketches):
        time.sleep(0.017)
        self.generator_loss += 0.01 * (float(sketches.mean()) - self.generator_loss)


def train(gan, sketch_loader, texture_loader, limit, warm=8):
    step = 0
    while True:
        for sketches in sketch_loader:
            (real,) = next(iter(texture_loader))
            gan.critic_step(real, sketches)
            gan.generator_step(sketches)
            step += 1
            if step == warm:
                start = time.perf_counter()
            if step % 100 == 0:
                print(f"{step}: critic {gan.critic_loss:.4f} generator {gan.generator_loss:.4f}")
            if step == limit:
                return (step - warm) / (time.perf_counter() - start)


def main():
    limit = int(os.environ.get("CASE_STEPS", 4000))
    sketch_loader = DataLoader(
        Sketches(), batch_size=8, shuffle=True, num_workers=1, drop_last=True, persistent_workers=True
    )
    texture_loader = DataLoader(texture_descriptors(), batch_size=16, shuffle=True, drop_last=True)
    print(f"steps_per_s {train(Gan(), sketch_loader, texture_loader, limit):.3f}")


if __name__ == "__main__":
    main()
