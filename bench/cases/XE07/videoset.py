"""Clips stored as motion JPEG: a header with the frame offsets, then the frames."""

import io
import os
import struct

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


def write_clips(folder, clips, frames, size=(160, 120), seed=4):
    rng = np.random.default_rng(seed)
    for c in range(clips):
        base = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)).resize(size)
        pixels = np.asarray(base)
        blobs = []
        for f in range(frames):
            buffer = io.BytesIO()
            Image.fromarray(np.roll(pixels, 2 * f, axis=1)).save(buffer, format="JPEG", quality=90)
            blobs.append(buffer.getvalue())
        with open(os.path.join(folder, f"clip{c:03d}.mjpg"), "wb") as out:
            out.write(struct.pack("<I", frames))
            out.write(struct.pack(f"<{frames}I", *[len(b) for b in blobs]))
            for blob in blobs:
                out.write(blob)


class ClipReader:
    def __init__(self, path):
        with open(path, "rb") as source:
            data = source.read()
        (count,) = struct.unpack_from("<I", data)
        sizes = struct.unpack_from(f"<{count}I", data, 4)
        self.blobs, at = [], 4 + 4 * count
        for size in sizes:
            self.blobs.append(data[at : at + size])
            at += size

    def __len__(self):
        return len(self.blobs)

    def frame(self, index):
        return np.asarray(Image.open(io.BytesIO(self.blobs[index])).convert("RGB"))

    def frames(self):
        return [self.frame(i) for i in range(len(self))]


class ClipDataset(Dataset):
    def __init__(self, folder, frames_per_clip=8, views=12, crop=112):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self.frames_per_clip, self.views, self.crop = frames_per_clip, views, crop

    def __len__(self):
        return len(self.paths) * self.views

    def __getitem__(self, index):
        number = index % len(self.paths)
        reader = ClipReader(self.paths[number])
        frames = reader.frames()
        stride = len(frames) // self.frames_per_clip
        first = np.random.randint(stride)
        clip = np.stack(frames[first::stride][: self.frames_per_clip])
        y = np.random.randint(clip.shape[1] - self.crop + 1)
        x = np.random.randint(clip.shape[2] - self.crop + 1)
        clip = clip[:, y : y + self.crop, x : x + self.crop]
        if np.random.rand() < 0.5:
            clip = clip[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(clip.transpose(3, 0, 1, 2))), number % 5
