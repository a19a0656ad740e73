"""Running segmentation scores."""

import numpy as np


class SegmentationScores:
    def __init__(self, n_classes, ignore=255):
        self.n_classes, self.ignore = n_classes, ignore
        self.reset()

    def reset(self):
        self.hist = np.zeros((self.n_classes, self.n_classes), np.int64)

    def update(self, logits, mask):
        p = logits.argmax(1).numpy().ravel()
        t = mask.numpy().ravel()
        keep = t != self.ignore
        n = self.n_classes
        self.hist += np.bincount(t[keep] * n + p[keep], minlength=n * n).reshape(n, n)

    def compute(self):
        hist = self.hist
        inter = np.diag(hist)
        union = hist.sum(0) + hist.sum(1) - inter
        return {"miou": float(np.mean(inter / np.maximum(union, 1))), "acc": float(inter.sum() / max(hist.sum(), 1))}
