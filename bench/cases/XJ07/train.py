"""DLRM-style click model on a hashed feature space."""

import argparse
import itertools
import os
import tempfile
import time

import torch
from clicks import N_CAT, N_NUM, ClickLog, write_log
from encoders import EncodedLoader
from torch.utils.data import DataLoader


class Dlrm(torch.nn.Module):
    def __init__(self, buckets, dim=8):
        super().__init__()
        self.emb = torch.nn.EmbeddingBag(buckets, dim, mode="sum", sparse=True)
        self.out = torch.nn.Linear(dim + N_NUM, 1)

    def forward(self, ids, num):
        assert ids.shape[1] == N_CAT
        return self.out(torch.cat([self.emb(ids), num], 1)).squeeze(1)


def step(model, opt, ids, num, y):
    opt.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(ids, num), y)
    loss.backward()
    opt.step()
    time.sleep(0.02)  # the remaining towers run on the accelerator
    return loss.item()


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=1024, help="rows per batch")
    ap.add_argument("--buckets", type=int, default=1 << 16)
    ap.add_argument("--passes", type=int, default=200)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--report", type=int, default=50)
    opts = ap.parse_args(argv)
    torch.set_num_threads(1)
    stop = int(os.environ.get("CASE_STEPS", 0))
    with tempfile.TemporaryDirectory() as folder:
        log = ClickLog(write_log(folder), opts.rows)
        raw = DataLoader(log, batch_size=None, num_workers=opts.workers, persistent_workers=True)
        loader = EncodedLoader(raw, opts.buckets)
        model = Dlrm(opts.buckets)
        opt = torch.optim.SGD(model.parameters(), lr=0.05)
        count, t0 = itertools.count(1), 0.0
        for p in range(opts.passes):
            for ids, num, y in loader:
                loss = step(model, opt, ids, num, y)
                k = next(count)
                if k % opts.report == 0:
                    print(f"pass {p} step {k} logloss {loss:.4f}", flush=True)
                if k == 10:
                    t0 = time.perf_counter()
                if k == stop:
                    print(f"steps_per_s {(k - 10) / (time.perf_counter() - t0):.3f}")
                    return


if __name__ == "__main__":
    main()
