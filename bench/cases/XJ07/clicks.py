"""Click log: parquet part files, read by row group."""

import os

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from torch.utils.data import IterableDataset, get_worker_info

N_CAT, N_NUM = 26, 6


def write_log(folder, parts=6, rows=12_288, seed=0):
    rng = np.random.default_rng(seed)
    pools = [np.array([f"{rng.integers(1 << 32):08x}" for _ in range(k)]) for k in rng.integers(20, 900, N_CAT)]
    for p in range(parts):
        cols = {f"c{j}": pool[(len(pool) * rng.random(rows) ** 2).astype(int)] for j, pool in enumerate(pools)}
        cols |= {f"n{j}": rng.lognormal(size=rows).astype(np.float32) for j in range(N_NUM)}
        cols["click"] = (rng.random(rows) < 0.1).astype(np.float32)
        pd.DataFrame(cols).to_parquet(os.path.join(folder, f"part-{p:04d}.parquet"), row_group_size=2048)
    return sorted(os.path.join(folder, f) for f in os.listdir(folder))


class ClickLog(IterableDataset):
    def __init__(self, files, batch_rows):
        self.files, self.batch_rows = files, batch_rows

    def __iter__(self):
        info = get_worker_info()
        for path in self.files[info.id :: info.num_workers] if info else self.files:
            for table in pq.ParquetFile(path).iter_batches(batch_size=self.batch_rows):
                df = table.to_pandas()
                yield {
                    "cat": df[[f"c{j}" for j in range(N_CAT)]].to_numpy().astype("S8"),
                    "num": torch.from_numpy(np.log1p(df[[f"n{j}" for j in range(N_NUM)]].to_numpy())),
                    "y": torch.from_numpy(df["click"].to_numpy().copy()),
                }
