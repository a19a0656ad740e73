"""Two unpaired image domains: optical tiles and rendered map sheets."""

import random

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

TILE = 64


def to_tensor(img):
    a = np.asarray(img, np.uint8)
    return torch.from_numpy(a.copy()).permute(2, 0, 1).float().div_(127.5).sub_(1)


class OpticalTiles(Dataset):
    def __init__(self, root):
        self.paths = sorted((root / "optical").glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        img = Image.open(self.paths[i]).convert("RGB")
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        return to_tensor(img)


class MapSheets(Dataset):
    """Random windows from large sheets, `per_sheet` of them per epoch."""

    def __init__(self, root, per_sheet=24):
        self.paths = sorted((root / "maps").glob("*.npy"))
        self.per_sheet = per_sheet

    def __len__(self):
        return len(self.paths) * self.per_sheet

    def __getitem__(self, i):
        sheet = np.load(self.paths[i // self.per_sheet], mmap_mode="r")
        x = random.randrange(sheet.shape[1] - TILE)
        y = random.randrange(sheet.shape[0] - TILE)
        window = Image.fromarray(np.array(sheet[y : y + TILE, x : x + TILE]))
        if random.random() < 0.5:
            window = window.transpose(Image.FLIP_TOP_BOTTOM)
        return to_tensor(window)
