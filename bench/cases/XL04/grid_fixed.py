"""Puts irregular bedside measurements on an hourly grid."""

import numpy as np
import pandas as pd
import torch


def stay_hours(charttime, stay):
    """Hours since the first measurement of each stay."""
    when = pd.to_datetime(pd.Series(charttime), format="%d/%m/%Y %H:%M:%S")
    first = when.groupby(stay).transform("min")
    return ((when - first).dt.total_seconds() // 3600).to_numpy().astype(np.int64)


class HourlyGrid:
    """collate_fn: list of stays -> dense (batch, hours, channels) tensors with observation mask."""

    def __init__(self, hours=48, channels=17):
        self.hours, self.channels = hours, channels

    def __call__(self, stays):
        counts = [len(s["charttime"]) for s in stays]
        stay = np.repeat(np.arange(len(stays)), counts)
        charttime = [t for s in stays for t in s["charttime"]]
        channel = np.concatenate([s["channel"] for s in stays])
        value = np.concatenate([s["value"] for s in stays])

        hour = np.clip(stay_hours(charttime, stay), 0, self.hours - 1)
        x = np.zeros((len(stays), self.hours, self.channels), np.float32)
        mask = np.zeros_like(x)
        x[stay, hour, channel] = value
        mask[stay, hour, channel] = 1
        return {
            "x": torch.from_numpy(x),
            "mask": torch.from_numpy(mask),
            "y": torch.tensor([s["mortality"] for s in stays], dtype=torch.float32),
        }
