"""Access to the image bucket of the project."""

import io
import time

import numpy as np
from PIL import Image


class Bucket:
    def __init__(self, objects, round_trip=0.008):
        self._objects = objects
        self.round_trip = round_trip

    def keys(self):
        return sorted(self._objects)

    def get(self, key):
        time.sleep(self.round_trip)
        return self._objects[key]


def synthetic_bucket(count, size, seed=7):
    rng = np.random.default_rng(seed)
    objects, labels = {}, {}
    for i in range(count):
        small = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((size, size))
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        key = f"images/{i:05d}.png"
        objects[key] = buffer.getvalue()
        n = int(rng.integers(1, 6))
        xy = rng.uniform(0, size * 0.6, (n, 2))
        wh = rng.uniform(6, size * 0.4, (n, 2))
        cls = rng.integers(0, 4, (n, 1))
        labels[key] = np.concatenate([cls, xy, xy + wh], axis=1).astype(np.float32)
    return Bucket(objects), labels
