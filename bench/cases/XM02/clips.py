"""Short clips cut out of longer recordings."""

import cv2
import numpy as np
import torch
from torch.utils.data import Dataset

cv2.setNumThreads(0)


def open_video(path):
    cap = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    if not cap.isOpened():
        raise OSError(f"cannot open {path}")
    return cap


def read_clip(path, start, length, stride):
    """Returns `length` RGB frames, `stride` apart, beginning with frame `start`."""
    cap = open_video(path)
    for _ in range(start):
        cap.read()
    frames = []
    for k in range((length - 1) * stride + 1):
        ok, frame = cap.read()
        if not ok:
            break
        if k % stride == 0:
            frames.append(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    cap.release()
    while len(frames) < length:
        frames.append(frames[-1])
    return np.stack(frames)


class ActionClips(Dataset):
    def __init__(self, videos, labels, n_frames, clips_per_video=40, length=8, stride=2, size=112):
        self.videos, self.labels, self.n_frames = videos, labels, n_frames
        self.clips_per_video = clips_per_video
        self.length, self.stride, self.size = length, stride, size

    def __len__(self):
        return len(self.videos) * self.clips_per_video

    def __getitem__(self, index):
        v = index // self.clips_per_video
        last = self.n_frames[v] - (self.length - 1) * self.stride - 1
        start = int(torch.randint(0, last + 1, ()))
        clip = read_clip(self.videos[v], start, self.length, self.stride)
        top = int(torch.randint(0, clip.shape[1] - self.size + 1, ()))
        left = int(torch.randint(0, clip.shape[2] - self.size + 1, ()))
        clip = clip[:, top : top + self.size, left : left + self.size]
        if torch.rand(()) < 0.5:
            clip = clip[:, :, ::-1]
        clip = torch.from_numpy(np.ascontiguousarray(clip)).permute(3, 0, 1, 2)
        return {"clip": clip, "label": self.labels[v], "start": start}
