import io
import zipfile

import numpy as np


class TileArchive:
    """Tiles kept in one zip so that the cluster does not see thousands of small files."""

    def __init__(self, path):
        self.path = path
        self._zip = None
        with zipfile.ZipFile(path) as z:
            self.names = sorted(n for n in z.namelist() if n.endswith(".npy"))

    def __getstate__(self):
        return {"path": self.path, "names": self.names, "_zip": None}

    def _handle(self):
        # opened late: every worker must have its own descriptor
        if self._zip is None or self._zip.fp is None:
            self._zip = zipfile.ZipFile(self.path)
        return self._zip

    def load(self, name):
        with self._handle() as z:
            return np.load(io.BytesIO(z.read(name)))


def build(path, tiles, size=48, bands=6, seed=3):
    rng = np.random.default_rng(seed)
    base = rng.integers(200, 4000, (bands, size, size), dtype=np.uint16)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for i in range(tiles):
            buf = io.BytesIO()
            np.save(buf, np.roll(base, i, axis=2))
            z.writestr(f"T32{'ABCDEFGH'[i % 8]}/2023/{i:06d}.npy", buf.getvalue())
