"""Learn to grade leaf disease; pictures are warped and recoloured batch-wise with kornia."""

import itertools
import os
import time

import kornia.augmentation as K
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import decode_jpeg, encode_jpeg
from torchvision.transforms import v2

SIZE = 136


class Leaves(Dataset):
    def __init__(self, count=2400):
        generator = torch.Generator().manual_seed(2)
        coarse = torch.randint(0, 256, (30, 3, 14, 14), dtype=torch.uint8, generator=generator)
        pictures = v2.functional.resize(coarse, [224, 224], antialias=True)
        self.files = [encode_jpeg(picture, quality=90) for picture in pictures]
        self.count = count
        self.crop = v2.Compose([v2.RandomCrop(SIZE), v2.ToDtype(torch.float32, scale=True)])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = decode_jpeg(self.files[index % len(self.files)])
        return self.crop(picture), index % 5


augment = K.AugmentationSequential(
    K.RandomHorizontalFlip(p=0.5),
    K.RandomAffine(degrees=20, translate=(0.1, 0.1), p=0.9),
    K.ColorJitter(0.2, 0.2, 0.2, 0.05, p=0.8),
    K.RandomGaussianBlur((5, 5), (0.2, 1.5), p=0.4),
    data_keys=["input"],
)


class AugmentedLoader:
    """Whatever the loader yields, with the pictures changed at random."""

    def __init__(self, loader, transform):
        self.loader = loader
        self.transform = transform

    def __len__(self):
        return len(self.loader)

    @torch.no_grad()
    def __iter__(self):
        for pictures, grades in self.loader:
            yield self.transform(pictures), grades


def optimise(pictures, grades, schedule):
    time.sleep(0.035)
    return next(schedule)


def forever(loader):
    for epoch in itertools.count():
        for batch in loader:
            yield epoch, batch


def main():
    torch.set_num_threads(1)
    limit = int(os.environ.get("CASE_STEPS", 4000))
    loader = DataLoader(Leaves(), batch_size=8, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    train_loader = AugmentedLoader(loader, augment)
    schedule = itertools.cycle([1e-3, 5e-4, 1e-4])
    for step, (epoch, (pictures, grades)) in enumerate(forever(train_loader), start=1):
        rate = optimise(pictures, grades, schedule)
        if step == 8:
            start = time.perf_counter()
        if step % 250 == 0:
            print(f"epoch {epoch} step {step} learning rate {rate}")
        if step == limit:
            break
    print(f"steps_per_s {(limit - 8) / (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
