"""Video-clip embedding from tar shards; clips have very different lengths."""

import atexit
import io
import os
import shutil
import tempfile
import time
import warnings

import numpy as np
import torch
import webdataset as wds

warnings.filterwarnings("ignore")
torch.multiprocessing.set_sharing_strategy("file_system")
LIMIT = int(os.environ.get("CASE_STEPS", "0"))
ROOT = tempfile.mkdtemp(prefix="clips")
OWNER = os.getpid()
atexit.register(lambda: os.getpid() == OWNER and shutil.rmtree(ROOT, ignore_errors=True))
BATCH, SIZE = 8, 24


def write_shards(shards=4, per_shard=160, seed=4):
    rng = np.random.default_rng(seed)
    for s in range(shards):
        with wds.TarWriter(f"{ROOT}/clips-{s:03d}.tar") as sink:
            for k in range(per_shard):
                frames = int(rng.integers(8, 24)) if rng.random() > 1 / 48 else int(rng.integers(2800, 3400))
                buffer = io.BytesIO()
                np.savez_compressed(buffer, video=rng.integers(0, 40, (frames, SIZE, SIZE, 3), dtype=np.uint8))
                sink.write({"__key__": f"{s:03d}{k:05d}", "npz": buffer.getvalue(), "cls": int(rng.integers(0, 20))})


def load(sample):
    data, label = sample
    return np.load(io.BytesIO(data))["video"], int(label)


def stabilise(sample):
    video, label = sample
    video = video.astype(np.float32)
    level = video.mean((1, 2, 3), keepdims=True)
    smooth = np.copy(level)
    for t in range(1, len(smooth)):
        smooth[t] = 0.9 * smooth[t - 1] + 0.1 * level[t]
    return video - level + smooth, label


def pick(sample, frames=8):
    video, label = sample
    where = np.sort(np.random.choice(len(video), frames, replace=len(video) < frames))
    clip = torch.from_numpy(video[where] / 255.0).permute(3, 0, 1, 2).contiguous()
    return clip, label


def pipeline():
    shards = [f"{ROOT}/{name}" for name in sorted(os.listdir(ROOT))]
    dataset = (
        wds.WebDataset(shards, shardshuffle=False, resampled=True, nodesplitter=wds.split_by_node)
        .shuffle(32)
        .to_tuple("npz", "cls")
        .map(load)
        .map(stabilise)
        .map(pick)
        .batched(BATCH, partial=False)
    )
    return wds.WebLoader(dataset, batch_size=None, num_workers=2, prefetch_factor=8)


def train_step(clips, labels):
    time.sleep(0.060)
    return float(clips.mean()) + float(torch.as_tensor(labels).float().mean())


def main():
    write_shards()
    began, recent = None, []
    for step, (clips, labels) in enumerate(pipeline(), 1):
        recent.append(train_step(clips, labels))
        if step == 8:
            began = time.perf_counter()
        if LIMIT and step >= LIMIT:
            print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
            return
        if step % 200 == 0:
            print(f"step {step} loss {np.mean(recent[-200:]):.4f}", flush=True)
        if step >= 4000:
            return


if __name__ == "__main__":
    main()
