"""Action recognition on short clips out of longer films."""

import os
import random
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WIDTH, HEIGHT, FRAMES = 192, 144, 280

Clip = namedtuple("Clip", "frames label start")


class Film:
    def __init__(self, path):
        self.capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.capture.release()

    def frame(self):
        good, picture = self.capture.read()
        if not good:
            raise EOFError("the film is over")
        return picture

    def go_to(self, number):
        self.capture.set(cv2.CAP_PROP_POS_FRAMES, number)


class Actions(Dataset):
    def __init__(self, folder, length=30_000, frames=6):
        self.films = sorted(Path(folder).glob("*.avi"))
        self.length = length
        self.frames = frames

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        start = random.randrange(FRAMES - self.frames)
        with Film(self.films[index % len(self.films)]) as film:
            film.go_to(start)
            pictures = [film.frame()[::2, ::2, ::-1] for _ in range(self.frames)]
        block = np.ascontiguousarray(np.stack(pictures).transpose(3, 0, 1, 2))
        return Clip(torch.from_numpy(block), index % 7, start)


def shoot(folder, count=6):
    rng = np.random.default_rng(12)
    for number in range(count):
        writer = cv2.VideoWriter(f"{folder}/film{number}.avi", cv2.VideoWriter_fourcc(*"MJPG"), 25, (WIDTH, HEIGHT))
        scene = rng.integers(0, 255, (9, 12, 3), dtype=np.uint8).repeat(16, axis=0).repeat(16, axis=1)
        for moment in range(FRAMES):
            writer.write(np.roll(scene, (number + 1) * moment, axis=1))
        writer.release()


def set_up(_):
    cv2.setNumThreads(0)


if __name__ == "__main__":
    limit = int(os.environ.get("CASE_STEPS", "4000"))
    seen = 0
    with tempfile.TemporaryDirectory() as folder:
        shoot(folder)
        loader = DataLoader(Actions(folder), 8, shuffle=True, num_workers=2, worker_init_fn=set_up)
        while seen < limit:
            for clip in loader:
                images = clip.frames.float() / 255
                time.sleep(0.03)
                seen += 1
                if seen == 8:
                    started = time.perf_counter()
                if seen == limit:
                    finished = time.perf_counter()
                    break
    print(f"steps_per_s {(limit - 8) / (finished - started):.3f}")
