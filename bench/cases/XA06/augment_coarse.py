"""Augmentations that treat a picture and its label map alike."""

import cv2
import numpy as np

cv2.setNumThreads(0)


def flip(image, mask, rng):
    if rng.random() < 0.5:
        image, mask = image[:, :, ::-1], mask[:, ::-1]
    if rng.random() < 0.5:
        image, mask = image[:, ::-1], mask[::-1]
    return image, mask


def elastic(image, mask, rng, alpha=60.0, sigma=9.0, coarseness=8):
    height, width = mask.shape
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    coarse = (2, height // coarseness, width // coarseness)
    shifts = rng.uniform(-1, 1, coarse).astype(np.float32) * (alpha / (2 * sigma))
    shifts = [cv2.resize(shift, (width, height), interpolation=cv2.INTER_CUBIC) for shift in shifts]
    rows, columns = rows + shifts[0], columns + shifts[1]
    image = np.ascontiguousarray(image.transpose(1, 2, 0))
    image = cv2.remap(image, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    mask = cv2.remap(np.ascontiguousarray(mask), columns, rows, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REFLECT)
    return image.transpose(2, 0, 1), mask


def stain(image, rng):
    """Vary how strongly each dye has taken."""
    return np.clip(image * rng.uniform(0.85, 1.15, (3, 1, 1)).astype(np.float32), 0, 1)


def augment(image, mask, rng):
    image, mask = flip(image, mask, rng)
    image, mask = elastic(image, mask, rng)
    return stain(image, rng), mask
