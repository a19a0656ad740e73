"""Sentiment model on reviews; vocabulary kept in a parquet file, data handled by a data module."""

import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

WORDS = 400_000


class Reviews(Dataset):
    def __init__(self, table):
        self.texts = table["text"]
        self.labels = table["label"].to_numpy()
        self.vocab = None

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        tokens = self.texts[i].as_py().split()
        ids = torch.tensor([self.vocab.get(t, 0) for t in tokens[:128]])
        return ids, int(self.labels[i])


def setup_worker(worker_id):
    data = get_worker_info().dataset
    vocab = pq.read_table(data.vocab_file)
    data.vocab = dict(zip(vocab["word"].to_pylist(), vocab["id"].to_pylist()))


def pad(items):
    ids = torch.nn.utils.rnn.pad_sequence([i for i, _ in items], batch_first=True)
    return ids, torch.tensor([y for _, y in items])


class ReviewsModule:
    def __init__(self, root, batch_size=16, num_workers=2):
        self.root, self.batch_size, self.num_workers = root, batch_size, num_workers

    def prepare_data(self):
        rng = np.random.default_rng(9)
        words = np.array([f"w{k:06d}" for k in range(WORDS)])
        pq.write_table(
            pa.table({"word": words.tolist(), "id": np.arange(1, WORDS + 1)}), os.path.join(self.root, "vocab.parquet")
        )
        texts = [" ".join(words[rng.integers(0, WORDS, rng.integers(60, 160))]) for _ in range(240)]
        pq.write_table(
            pa.table({"text": texts, "label": rng.integers(0, 2, 240)}), os.path.join(self.root, "reviews.parquet")
        )

    def setup(self):
        table = pq.read_table(os.path.join(self.root, "reviews.parquet"))
        self.train = Reviews(table.slice(0, 192))
        self.train.vocab_file = os.path.join(self.root, "vocab.parquet")

    def train_dataloader(self):
        return DataLoader(
            self.train,
            batch_size=self.batch_size,
            shuffle=True,
            collate_fn=pad,
            num_workers=self.num_workers,
            worker_init_fn=setup_worker,
            persistent_workers=True,
        )


class Loop:
    def __init__(self, max_steps):
        self.max_steps, self.global_step, self.epoch, self.began = max_steps, 0, 0, None

    def training_step(self, ids, labels):
        time.sleep(0.030)

    def fit(self, module):
        module.prepare_data()
        module.setup()
        batches = module.train_dataloader()
        while self.global_step < self.max_steps:
            self.run_epoch(batches)
            self.epoch += 1
            if self.epoch % 20 == 0:
                print(f"epoch {self.epoch} done", flush=True)
        return (self.global_step - 8) / (time.perf_counter() - self.began)

    def run_epoch(self, batches):
        for ids, labels in batches:
            self.training_step(ids, labels)
            self.global_step += 1
            if self.global_step == 8:
                self.began = time.perf_counter()
            if self.global_step >= self.max_steps:
                break


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="reviews_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    limit = int(os.environ.get("CASE_STEPS", 0))
    speed = Loop(limit or 4000).fit(ReviewsModule(folder))
    if limit:
        print(f"steps_per_s {speed:.3f}")
