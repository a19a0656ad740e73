import io
import random

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance
from torch.utils.data import DataLoader, Dataset


def draw_scene(rng, size=160):
    img = Image.new("RGB", (size, size), tuple(rng.randrange(60) for _ in range(3)))
    pen, boxes = ImageDraw.Draw(img), []
    for _ in range(rng.randint(1, 6)):
        w, h = rng.randint(15, 50), rng.randint(15, 50)
        x, y = rng.randint(0, size - w), rng.randint(0, size - h)
        (pen.rectangle if rng.random() < 0.5 else pen.ellipse)(
            [x, y, x + w, y + h], fill=tuple(rng.randrange(80, 255) for _ in range(3))
        )
        boxes.append([x, y, x + w, y + h])
    buf = io.BytesIO()
    img.save(buf, "JPEG", quality=90)
    return buf.getvalue(), boxes


class Detection(Dataset):
    def __init__(self, scenes, augment):
        self.scenes, self.augment = scenes, augment

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, i):
        data, boxes = self.scenes[i]
        img = Image.open(io.BytesIO(data)).convert("RGB")
        boxes = np.asarray(boxes, np.float32)
        if self.augment:
            if random.random() < 0.5:
                img = img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
                boxes[:, [0, 2]] = img.width - boxes[:, [2, 0]]
            img = ImageEnhance.Color(img).enhance(random.uniform(0.7, 1.3))
        arr = np.asarray(img, np.float32).transpose(2, 0, 1) / 255
        return torch.from_numpy(arr.copy()), torch.from_numpy(boxes / img.width)


def collate_boxes(samples):
    imgs, boxes = zip(*samples)
    target = torch.cat([torch.cat([torch.full((len(b), 1), float(k)), b], 1) for k, b in enumerate(boxes)])
    return torch.stack(imgs), target


class ShapesModule:
    def __init__(self, n_train=480, n_val=32, batch_size=12, workers=2):
        rng = random.Random(5)
        self.train_scenes = [draw_scene(rng) for _ in range(n_train)]
        self.val_scenes = [draw_scene(rng) for _ in range(n_val)]
        self.batch_size, self.workers = batch_size, workers

    def train_dataloader(self):
        return DataLoader(
            Detection(self.train_scenes, True),
            self.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.workers,
            persistent_workers=True,
            collate_fn=collate_boxes,
            multiprocessing_context="spawn",
        )  # fork deadlocks with our tracker threads

    def val_dataloader(self):
        return DataLoader(Detection(self.val_scenes, False), self.batch_size, collate_fn=collate_boxes)
