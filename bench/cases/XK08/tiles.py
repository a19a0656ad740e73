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
        self.paths = sorted((root / "maps").glob("*.png"))
        self.per_sheet = per_sheet

    def __len__(self):
        return len(self.paths) * self.per_sheet

    def __getitem__(self, i):
        sheet = Image.open(self.paths[i // self.per_sheet]).convert("RGB")
        x = random.randrange(sheet.width - TILE)
        y = random.randrange(sheet.height - TILE)
        window = sheet.crop((x, y, x + TILE, y + TILE))
        if random.random() < 0.5:
            window = window.transpose(Image.FLIP_TOP_BOTTOM)
        return to_tensor(window)
