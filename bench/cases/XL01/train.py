"""Multi-speaker acoustic model (FastSpeech-like), mel targets from disk, speaker vectors from the store."""

import argparse
import os
import queue
import tempfile
import threading
import time

import numpy as np
import torch
from store import SpeakerStore
from torch.utils.data import DataLoader, Dataset


def write_corpus(root, utterances, speakers, seed=17):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(utterances):
        frames = int(rng.integers(90, 260))
        np.save(os.path.join(root, f"utt{i:05d}.npy"), rng.standard_normal((frames, 80)).astype(np.float16))
        rows.append((f"utt{i:05d}", int(rng.integers(speakers)), rng.integers(1, 70, size=frames // 6)))
    return rows


class MelDataset(Dataset):
    def __init__(self, root, rows):
        self.root, self.rows = root, rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        name, speaker, phones = self.rows[i]
        mel = np.load(os.path.join(self.root, name + ".npy")).astype(np.float32)
        mel = (mel - mel.mean(0)) / (mel.std(0) + 1e-5)
        return {"mel": torch.from_numpy(mel), "phones": torch.from_numpy(phones), "speaker": speaker}


def pad_collate(samples):
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "mel": pad([s["mel"] for s in samples], batch_first=True),
        "mel_len": torch.tensor([len(s["mel"]) for s in samples]),
        "phones": pad([s["phones"] for s in samples], batch_first=True),
        "speaker": torch.tensor([s["speaker"] for s in samples]),
    }


class BackgroundBatches:
    """Runs the loader in a thread and keeps a few complete batches in hand."""

    def __init__(self, loader, store, depth=4):
        self.loader, self.store = loader, store
        self.queue = queue.Queue(maxsize=depth)
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _complete(self, batch):
        vectors = [torch.from_numpy(self.store.get(s)) for s in batch["speaker"].tolist()]
        batch["spk_embed"] = torch.stack(vectors)
        return batch

    def _run(self):
        while not self.closing.is_set():
            for batch in self.loader:
                self.queue.put(self._complete(batch))
                if self.closing.is_set():
                    return

    def __iter__(self):
        while True:
            yield self.queue.get()

    def close(self):
        self.closing.set()
        while self.thread.is_alive():
            try:
                self.queue.get(timeout=0.05)
            except queue.Empty:
                pass


class AcousticModel:
    """Stands for the compiled model on the accelerator."""

    def __init__(self, ms):
        self.seconds = ms / 1000

    def train_step(self, batch):
        assert batch["spk_embed"].shape[0] == batch["mel"].shape[0]
        time.sleep(self.seconds)
        return float(batch["mel"][0, 0, 0]) ** 2


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--step-ms", type=float, default=28)
    ap.add_argument("--steps", type=int, default=int(os.environ.get("CASE_STEPS", 100_000)))
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as root:
        rows = write_corpus(root, 1200, speakers=110)
        loader = DataLoader(
            MelDataset(root, rows),
            args.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=args.workers,
            collate_fn=pad_collate,
            persistent_workers=True,
        )
        batches = BackgroundBatches(loader, SpeakerStore(110))
        model = AcousticModel(args.step_ms)
        skip, start, avg = 5, None, 0.0
        for step, batch in enumerate(batches, 1):
            avg = 0.98 * avg + 0.02 * model.train_step(batch)
            if step == skip:
                start = time.perf_counter()
            if step % 100 == 0:
                print(f"step {step} loss {avg:.4f}", flush=True)
            if step >= args.steps:
                break
        rate = (step - skip) / (time.perf_counter() - start)
        batches.close()
    print(f"steps_per_s {rate:.3f}", flush=True)


if __name__ == "__main__":
    main()
