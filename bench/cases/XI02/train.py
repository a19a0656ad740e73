"""Embedding model on feature blobs that live behind an HTTP object gateway."""

import io
import multiprocessing as mp
import os
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
import urllib3
from torch.utils.data import DataLoader, Dataset

BLOBS = 3000
BATCH = 8


class Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        key = int(self.path.rsplit("/", 1)[1])
        time.sleep(0.010)
        buffer = io.BytesIO()
        np.save(buffer, np.full((32, 32), key % 251, dtype=np.float32))
        body = buffer.getvalue()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(port_box):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    server.daemon_threads = True
    port_box.put(server.server_address[1])
    server.serve_forever()


class BlobDataset(Dataset):
    def __init__(self, port, count, threads=8):
        self.port, self.count, self.threads = port, count, threads
        self.http = self.executor = None

    def __len__(self):
        return self.count

    def _connect(self):
        self.http = urllib3.HTTPConnectionPool("127.0.0.1", self.port, maxsize=1, block=True, retries=3)
        self.executor = ThreadPoolExecutor(self.threads)

    def fetch(self, key):
        reply = self.http.request("GET", f"/blobs/{key}")
        array = np.load(io.BytesIO(reply.data))
        return torch.from_numpy(array), key % 10

    def __getitems__(self, keys):
        if self.http is None:
            self._connect()
        return list(self.executor.map(self.fetch, keys))

    def __getitem__(self, key):
        return self.__getitems__([key])[0]


def train_step(features, labels):
    time.sleep(0.030)
    return float(features.mean()) + float(labels.float().mean())


def main():
    limit = int(os.environ.get("CASE_STEPS", "0"))
    port_box = mp.Queue()
    gateway = mp.Process(target=serve, args=(port_box,), daemon=True)
    gateway.start()
    dataset = BlobDataset(port_box.get(), BLOBS)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    step, began = 0, None
    try:
        for epoch in range(11):
            for features, labels in loader:
                loss = train_step(features, labels)
                step += 1
                if step == 8:
                    began = time.perf_counter()
                if limit and step >= limit:
                    print(f"steps_per_s {(step - 8) / (time.perf_counter() - began):.3f}")
                    return
            print(f"epoch {epoch} loss {loss:.3f}", flush=True)
    finally:
        gateway.terminate()


if __name__ == "__main__":
    main()
