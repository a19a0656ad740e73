"""Image operations that divide an image into strips, one for each thread of a pool."""

import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy import ndimage

_threads = 16


def set_num_threads(threads):
    """Set the number of strips and threads; 1 works in the caller's thread."""
    global _threads
    _threads = threads


@functools.cache
def _pool(process):
    return ThreadPoolExecutor(_threads)


def _in_strips(operation, rows):
    bounds = np.linspace(0, rows, min(_threads, rows) + 1).astype(int)
    strips = list(itertools.pairwise(bounds))
    run = map if _threads == 1 else _pool(os.getpid()).map
    return np.concatenate(list(run(lambda strip: operation(*strip), strips)))


def rotate(image, angle):
    """Rotate an image (rows, columns, channels) around its corner by `angle` radians."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def strip(first, last):
        shape = (last - first, image.shape[1])
        offset = turn @ np.array([first, 0])
        channels = [
            ndimage.affine_transform(plane, turn, offset, shape, order=1) for plane in np.moveaxis(image, -1, 0)
        ]
        return np.stack(channels, axis=-1)

    return _in_strips(strip, len(image))


def box_blur(image, radius):
    """Average an image (rows, columns, channels) over a square of 2 `radius` + 1 pixels."""
    size = (2 * radius + 1, 2 * radius + 1, 1)

    def strip(first, last):
        above, below = min(first, radius), min(len(image) - last, radius)
        blurred = ndimage.uniform_filter(image[first - above : last + below], size)
        return blurred[above : above + last - first]

    return _in_strips(strip, len(image))
