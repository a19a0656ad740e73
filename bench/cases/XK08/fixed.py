"""Unpaired translation between satellite images and maps (two generators, two critics)."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import tiles_fixed as tiles
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader

LIMIT = int(os.environ.get("CASE_STEPS", 0))


def prepare(root, sheets=12, side=960, optical=288):
    rng = np.random.default_rng(0)
    (root / "maps").mkdir()
    (root / "optical").mkdir()
    for s in range(sheets):
        img = Image.new("RGB", (side, side), (240, 236, 228))
        draw = ImageDraw.Draw(img)
        for _ in range(500):
            x, y, w, h = rng.integers(0, side, 4)
            colour = tuple(int(c) for c in rng.integers(80, 255, 3))
            draw.rectangle((x, y, x + w // 12, y + h // 12), fill=colour)
            draw.line((x, y, h, w), fill=colour, width=2)
        np.save(root / "maps" / f"sheet{s:02d}.npy", np.asarray(img))
    for i in range(optical):
        small = rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(small).resize((tiles.TILE, tiles.TILE), Image.BICUBIC).save(
            root / "optical" / f"o{i:04d}.png", compress_level=1
        )


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.a2b, self.b2a = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.critic_a, self.critic_b = nn.Conv2d(3, 1, 1), nn.Conv2d(3, 1, 1)

    def generator_loss(self, a, b):
        a, b = a[..., ::8, ::8], b[..., ::8, ::8]
        fake_b, fake_a = self.a2b(a), self.b2a(b)
        cycle = (self.b2a(fake_b) - a).abs().mean() + (self.a2b(fake_a) - b).abs().mean()
        return cycle - 0.1 * (self.critic_a(fake_a).mean() + self.critic_b(fake_b).mean())

    def critic_loss(self, a, b):
        a, b = a[..., ::8, ::8], b[..., ::8, ::8]
        return (
            self.critic_a(self.b2a(b).detach()).mean()
            - self.critic_a(a).mean()
            + self.critic_b(self.a2b(a).detach()).mean()
            - self.critic_b(b).mean()
        )


def update(opt, loss, device_time):
    opt.zero_grad()
    loss.backward()
    opt.step()
    time.sleep(device_time)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        prepare(Path(d))
        kw = dict(batch_size=4, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)
        satellite = DataLoader(tiles.OpticalTiles(Path(d)), **kw)
        maps = DataLoader(tiles.MapSheets(Path(d)), **kw)
        net = Translator()
        gen = torch.optim.Adam([*net.a2b.parameters(), *net.b2a.parameters()], 2e-4)
        dis = torch.optim.Adam([*net.critic_a.parameters(), *net.critic_b.parameters()], 2e-4)
        count, began = 0, None
        for epoch in range(1000):
            for a, b in zip(satellite, maps):
                g = net.generator_loss(a, b)
                update(gen, g, 0.020)
                c = net.critic_loss(a, b)
                update(dis, c, 0.012)
                count += 1
                if count == 5:
                    began = time.perf_counter()
                if count == LIMIT:
                    print(f"steps_per_s {(count - 5) / (time.perf_counter() - began):.3f}")
                    return
            print(f"[{epoch}] G {g.item():.3f} D {c.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
