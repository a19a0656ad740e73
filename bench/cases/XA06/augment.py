"""Augmentations that treat a picture and its label map alike."""

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates


def flip(image, mask, rng):
    if rng.random() < 0.5:
        image, mask = image[:, :, ::-1], mask[:, ::-1]
    if rng.random() < 0.5:
        image, mask = image[:, ::-1], mask[::-1]
    return image, mask


def elastic(image, mask, rng, alpha=60.0, sigma=9.0):
    height, width = mask.shape
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    rows += alpha * gaussian_filter(rng.uniform(-1, 1, (height, width)).astype(np.float32), sigma)
    columns += alpha * gaussian_filter(rng.uniform(-1, 1, (height, width)).astype(np.float32), sigma)
    image = np.stack([map_coordinates(channel, (rows, columns), order=3, mode="reflect") for channel in image])
    mask = map_coordinates(mask, (rows, columns), order=0, mode="reflect")
    return image, mask


def stain(image, rng):
    """Vary how strongly each dye has taken."""
    return np.clip(image * rng.uniform(0.85, 1.15, (3, 1, 1)).astype(np.float32), 0, 1)


def augment(image, mask, rng):
    image, mask = flip(image, mask, rng)
    image, mask = elastic(image, mask, rng)
    return stain(image, rng), mask
