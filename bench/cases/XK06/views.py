"""Multi-view augmentation for self-supervised pre-training."""

import torch
from torch import nn
from torchvision.transforms import v2


class MultiView(nn.Module):
    """Applies the same random recipe several times to one image."""

    def __init__(self, recipe, n_views=2):
        super().__init__()
        self.recipe = recipe
        self.n_views = n_views

    def forward(self, img):
        return torch.stack([self.recipe(img) for _ in range(self.n_views)])


def simclr_recipe(size):
    return nn.Sequential(
        v2.RandomResizedCrop(size, scale=(0.2, 1.0), antialias=True),
        v2.RandomHorizontalFlip(),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        v2.RandomGrayscale(0.2),
        v2.RandomApply([v2.GaussianBlur(9, sigma=(0.1, 2.0))], p=0.5),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    )


def plain_recipe(size):
    return nn.Sequential(
        v2.RandomResizedCrop(size, scale=(0.2, 1.0), antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    )
