"""Running segmentation scores."""

import numpy as np


class SegmentationScores:
    def __init__(self, n_classes, ignore=255):
        self.n_classes, self.ignore = n_classes, ignore
        self.reset()

    def reset(self):
        self.predicted, self.target = [], []

    def update(self, logits, mask):
        self.predicted.append(logits.argmax(1).numpy().ravel())
        self.target.append(mask.numpy().ravel())

    def compute(self):
        p = np.concatenate(self.predicted)
        t = np.concatenate(self.target)
        keep = t != self.ignore
        n = self.n_classes
        hist = np.bincount(t[keep] * n + p[keep], minlength=n * n).reshape(n, n)
        inter = np.diag(hist)
        union = hist.sum(0) + hist.sum(1) - inter
        return {"miou": float(np.mean(inter / np.maximum(union, 1))), "acc": float(inter.sum() / max(hist.sum(), 1))}
