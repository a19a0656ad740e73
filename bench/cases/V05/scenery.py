"""Reading and preparing satellite scenes: arrays of (bands, rows, columns)."""

from pathlib import Path

import numpy as np
from scipy import ndimage

GAIN = np.array([0.0021, 0.0019, 0.0017, 0.0024], dtype=np.float32)[:, None, None]


def write_scenes(root, count=60, size=96):
    rng = np.random.default_rng(101)
    for number in range(count):
        scene = rng.gamma(3, 40, (len(GAIN), size, size)).clip(0, 1_023).astype(np.uint16)
        np.save(Path(root, f"scene_{number:03d}.npy"), scene)


def to_reflectance(scene):
    return scene.astype(np.float32) * GAIN


def cloud_share(scene):
    return float((scene.min(0) > 0.35).mean())


def dehaze(scene, size=7, percentile=10):
    """Subtract the haze: a low percentile of the darkest band around each pixel."""
    return scene - ndimage.percentile_filter(scene.min(0), percentile, size=size)


def dehaze_roughly(scene, size=7):
    """Subtract the haze: the minimum of the darkest band around each pixel, smoothed."""
    return scene - ndimage.uniform_filter(ndimage.minimum_filter(scene.min(0), size), size)
