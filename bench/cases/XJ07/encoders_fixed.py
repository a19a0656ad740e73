import functools
import hashlib

import torch


@functools.lru_cache(maxsize=None)
def bucket(column, token, size):
    digest = hashlib.md5(b"%d=%s" % (column, token)).digest()
    return int.from_bytes(digest[:8], "little") % size


class EncodedLoader:
    """Loader proxy: turns the raw string columns of every batch into embedding rows."""

    def __init__(self, loader, size):
        self.loader = loader
        self.size = size

    def __iter__(self):
        for raw in self.loader:
            ids = [[bucket(j, token, self.size) for j, token in enumerate(row)] for row in raw["cat"].tolist()]
            yield torch.tensor(ids), raw["num"], raw["y"]
