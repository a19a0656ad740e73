"""Shape classification on laser scans kept on the lab's scan server."""

import argparse
import functools
import http.server
import io
import os
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ScanHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the scan folder like the machine in the lab."""

    def do_GET(self):
        time.sleep(0.025)
        super().do_GET()

    def log_message(self, *args):
        pass


def host_scans(folder):
    handler = functools.partial(ScanHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def scan_shapes(folder, count, points):
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 10, count)
    for i, label in enumerate(labels):
        cloud = rng.normal(size=(points, 3))
        cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)
        cloud[:, 2] *= 0.3 + 0.2 * label
        np.save(folder / f"scan_{i}.npy", cloud.astype(np.float32))
    return labels.tolist()


class ScanArchive:
    def __init__(self, address, folder):
        self.address, self.folder = address, folder

    def payload(self, name):
        with urllib.request.urlopen(f"{self.address}/{name}") as answer:
            return answer.read()

    def cloud(self, index):
        return np.load(io.BytesIO(self.payload(f"scan_{index}.npy")))


class Shapes(Dataset):
    def __init__(self, archive, labels, keep, voxel):
        self.archive, self.labels, self.keep, self.voxel = archive, labels, keep, voxel

    def __len__(self):
        return len(self.labels)

    def thin(self, cloud):
        cells = np.floor(cloud / self.voxel).astype(np.int32)
        _, first = np.unique(cells, axis=0, return_index=True)
        return cloud[first]

    def farthest(self, cloud):
        chosen = [np.random.randint(len(cloud))]
        distance = np.full(len(cloud), np.inf, np.float32)
        while len(chosen) < self.keep:
            distance = np.minimum(distance, ((cloud - cloud[chosen[-1]]) ** 2).sum(1))
            chosen.append(int(distance.argmax()))
        return cloud[chosen]

    def spin(self, cloud):
        a = np.random.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]], np.float32)
        return cloud @ turn.T

    def __getitem__(self, i):
        cloud = self.archive.cloud(i)
        cloud = self.farthest(self.thin(cloud))
        return torch.from_numpy(self.spin(cloud)), self.labels[i]


def run(opt, folder):
    labels = scan_shapes(folder, opt.scans, opt.points)
    archive = ScanArchive(host_scans(folder), folder)
    data = Shapes(archive, labels, opt.keep, opt.voxel)
    loader = DataLoader(data, opt.batch, shuffle=True, num_workers=opt.workers, drop_last=True, persistent_workers=True)
    stop = int(os.environ.get("CASE_STEPS", opt.steps))
    step = 0
    while step < stop:
        for clouds, target in loader:
            time.sleep(opt.step_ms / 1e3)
            step += 1
            if step == 8:
                mark = time.perf_counter()
            if step == stop:
                break
    print(f"steps_per_s {(step - 8) / (time.perf_counter() - mark):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for flag, value in dict(scans=1200, points=3000, keep=160, batch=8, workers=3, steps=4000).items():
        parser.add_argument(f"--{flag}", type=int, default=value)
    parser.add_argument("--voxel", type=float, default=0.08)
    parser.add_argument("--step-ms", type=float, default=25.0)
    with tempfile.TemporaryDirectory(prefix="scans") as name:
        run(parser.parse_args(), Path(name))
