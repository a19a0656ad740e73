"""Action recognition from short clips with object tracks as side information."""

import json
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

FPS_RATIO = 6  # tracks are annotated at the native rate, frames are stored at 1/6
CLIP = 6
LIMIT = int(os.environ.get("CASE_STEPS", 0))


def make_videos(root, videos=24, frames=40, objects=9):
    rng, rnd = np.random.default_rng(5), random.Random(5)
    for v in range(videos):
        folder = root / f"vid{v:03d}"
        folder.mkdir()
        base = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        for t in range(frames):
            Image.fromarray(np.roll(base, t, 1)).resize((80, 80)).save(folder / f"{t:04d}.jpg", quality=80)
        tracks = [
            [
                {
                    "track": o,
                    "label": rnd.choice(["person", "ball", "racket"]),
                    "score": rnd.random(),
                    "box": [rnd.random() for _ in range(4)],
                    "occluded": rnd.random() < 0.1,
                }
                for o in range(objects)
            ]
            for _ in range(frames * FPS_RATIO)
        ]
        (folder / "tracks.json").write_text(json.dumps({"action": v % 6, "frames": frames, "tracks": tracks}))


class ClipDataset(Dataset):
    def __init__(self, root, clips_per_video=12):
        self.folders = sorted(root.iterdir())
        self.meta = [json.loads((f / "tracks.json").read_text()) for f in self.folders]
        self.clips_per_video = clips_per_video

    def __len__(self):
        return len(self.folders) * self.clips_per_video

    def load_frame(self, folder, t):
        return np.asarray(Image.open(folder / f"{t:04d}.jpg"))

    def __getitem__(self, i):
        v = i // self.clips_per_video
        meta = self.meta[v]
        first = random.randrange(meta["frames"] - CLIP)
        clip = np.stack([self.load_frame(self.folders[v], t) for t in range(first, first + CLIP)])
        tracks = meta["tracks"][first * FPS_RATIO : (first + CLIP) * FPS_RATIO]
        return {
            "clip": torch.from_numpy(clip).permute(3, 0, 1, 2),
            "first": first,
            "action": meta["action"],
            "tracks": tracks,
        }


def collate(samples):
    return {
        "clip": torch.stack([s["clip"] for s in samples]),
        "action": torch.tensor([s["action"] for s in samples]),
        "first": [s["first"] for s in samples],
        "tracks": [s["tracks"] for s in samples],
    }


def people_in_clip(tracks, first):
    window = tracks[0]
    return sum(o["label"] == "person" and not o["occluded"] for o in window)


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = torch.nn.Linear(4, 6)
        self.opt = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self, batch):
        rgb = batch["clip"][:, :, 0, ::8, ::8].float().mean((2, 3)) / 255
        count = torch.tensor([[people_in_clip(t, f)] for t, f in zip(batch["tracks"], batch["first"])]).float()
        loss = torch.nn.functional.cross_entropy(self.model(torch.cat([rgb, count], 1)), batch["action"])
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        time.sleep(0.034)
        return loss.item()

    def fit(self, epochs):
        n, began = 0, 0.0
        for e in range(epochs):
            seen = []
            for batch in self.loader:
                seen.append(self.step(batch))
                n += 1
                if n == 5:
                    began = time.perf_counter()
                if n == LIMIT:
                    print(f"steps_per_s {(n - 5) / (time.perf_counter() - began):.3f}")
                    return
            print(f"epoch {e} loss {sum(seen) / len(seen):.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        make_videos(Path(d))
        loader = DataLoader(
            ClipDataset(Path(d)), batch_size=8, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True
        )
        Trainer(loader).fit(1000)


if __name__ == "__main__":
    main()
