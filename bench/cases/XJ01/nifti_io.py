"""Minimal NIfTI-1 reader/writer, enough for the CT volumes of this project (no nibabel on the cluster)."""

import functools
import gzip
import struct

import numpy as np

HU_MIN, HU_MAX = -160.0, 240.0


def write_nii(path, vol, spacing=(1.5, 0.8, 0.8)):
    hdr = bytearray(352)
    struct.pack_into("<i", hdr, 0, 348)
    struct.pack_into("<8h", hdr, 40, 3, *vol.shape[::-1], 1, 1, 1, 1)
    struct.pack_into("<h", hdr, 70, 4)
    struct.pack_into("<8f", hdr, 76, 1.0, *spacing[::-1], 0, 0, 0, 0)
    struct.pack_into("<f", hdr, 108, 352.0)
    hdr[344:348] = b"n+1\0"
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(bytes(hdr) + vol.astype("<i2").tobytes())


@functools.lru_cache(maxsize=4)
def load_case(path):
    """Volume as int16 array (z, y, x)."""
    with gzip.open(path, "rb") as f:
        raw = f.read()
    nx, ny, nz = struct.unpack_from("<3h", raw, 42)
    off = int(struct.unpack_from("<f", raw, 108)[0])
    return np.frombuffer(raw, "<i2", offset=off, count=nx * ny * nz).reshape(nz, ny, nx)


def window(x):
    return (np.clip(x.astype(np.float32), HU_MIN, HU_MAX) - HU_MIN) / (HU_MAX - HU_MIN)
