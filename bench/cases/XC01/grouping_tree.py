"""Local groups of a point cloud."""

import numpy as np
from scipy.spatial import cKDTree


class Groups:
    """Gathers the points nearest to every seed, seen from that seed."""

    def __init__(self, seeds, size):
        self.seeds = seeds
        self.size = size

    def pick(self, points):
        return np.linspace(0, len(points) - 1, self.seeds).astype(np.int64)

    def __call__(self, points):
        seeds = self.pick(points)
        members = cKDTree(points).query(points[seeds], k=self.size)[1]
        return points[members] - points[seeds][:, None, :]


class Pose:
    """A random turn about the upright axis and a slight change of scale."""

    def __init__(self, rng):
        self.rng = rng

    def __call__(self, points):
        angle = self.rng.uniform(0, 2 * np.pi)
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=np.float32)
        return (points @ turn.T) * np.float32(self.rng.uniform(0.9, 1.1))
