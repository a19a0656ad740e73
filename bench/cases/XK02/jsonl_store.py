"""Random access into .jsonl files by means of a side-car index (one entry per record)."""

import json
from pathlib import Path


def build_index(path):
    entries, pos = [], 0
    with open(path, "rb") as f:
        for line in f:
            entries.append({"offset": pos, "length": len(line), "valid": len(line) > 2})
            pos += len(line)
    Path(str(path) + ".idx").write_text(json.dumps({"version": 1, "entries": entries}))


def load_index(path):
    with open(str(path) + ".idx") as f:
        return json.load(f)["entries"]


class JsonlFile:
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return len(load_index(self.path))

    def record(self, i):
        entry = load_index(self.path)[i]
        with open(self.path, "rb") as f:
            f.seek(entry["offset"])
            return json.loads(f.read(entry["length"]))
