"""Thin client for the speaker-embedding service (d-vectors computed by another team)."""

import threading
import time

import numpy as np


class SpeakerStore:
    RTT = 0.0032

    def __init__(self, num_speakers, dim=192, seed=0):
        rng = np.random.default_rng(seed)
        table = rng.standard_normal((num_speakers, dim)).astype(np.float32)
        self._table = table / np.linalg.norm(table, axis=1, keepdims=True)
        self._conn = threading.Lock()

    def _request(self, keys):
        # one request / one reply on the open connection
        with self._conn:
            time.sleep(self.RTT + 2e-6 * len(keys))
            return self._table[np.asarray(keys)]

    def get(self, key):
        return self._request([key])[0]

    def mget(self, keys):
        return self._request(list(keys))
