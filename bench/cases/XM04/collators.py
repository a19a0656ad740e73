"""Batching of token sequences for the student model."""

import torch
import torch.nn.functional as F


class CausalCollator:
    def __init__(self, vocab_size, pad_id=0, smoothing=0.1):
        self.vocab_size, self.pad_id, self.smoothing = vocab_size, pad_id, smoothing

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), width), self.pad_id, dtype=torch.long)
        for k, r in enumerate(rows):
            ids[k, : len(r["input_ids"])] = torch.tensor(r["input_ids"])
        labels = torch.roll(ids, -1, dims=1)
        labels[:, -1] = self.pad_id
        soft = F.one_hot(labels, self.vocab_size).float()
        soft = soft * (1.0 - self.smoothing) + self.smoothing / self.vocab_size
        return {"input_ids": ids, "attention_mask": ids != self.pad_id, "labels": soft}
