"""Batches of scans with similar numbers of points, so that little is wasted on padding."""

import torch
from torch.utils.data import Sampler


class SimilarSizeBatches(Sampler):
    def __init__(self, data_source, batch_size, bucket=6, seed=0):
        self.data_source, self.batch_size, self.bucket = data_source, batch_size, bucket
        self.sizes = torch.tensor([len(data_source[i]["points"]) for i in range(len(data_source))])
        self.gen = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.data_source) // self.batch_size

    def __iter__(self):
        sizes = self.sizes
        order = torch.randperm(len(sizes), generator=self.gen)
        span = self.batch_size * self.bucket
        batches = []
        for chunk in order.split(span):
            chunk = chunk[sizes[chunk].argsort()]
            batches += [b.tolist() for b in chunk.split(self.batch_size) if len(b) == self.batch_size]
        for k in torch.randperm(len(batches), generator=self.gen).tolist():
            yield batches[k]
