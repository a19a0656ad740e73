"""Pipelines of audiomentations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from looking import Case, look
from torch.utils.data import Dataset

am = pytest.importorskip("audiomentations")

RATE = 16_000


class Sounds(Dataset):
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        samples = np.sin(np.arange(RATE, dtype=np.float32) * (index + 1) / 100)
        return self.transform(samples=samples, sample_rate=RATE)


class SlowEcho(am.core.transforms_interface.BaseWaveformTransform):
    def apply(self, samples: Any, sample_rate: int) -> Any:
        for _ in range(150):
            samples = 0.9 * samples + 0.1 * np.roll(samples, 7)
        return samples.astype(np.float32)


def _compose(*more: Any, **options: Any) -> Any:
    return Sounds(am.Compose([am.Gain(p=1.0), *more, am.PolarityInversion(p=1.0)], **options))


CASES = [
    Case("audiomentations", "Compose", lambda _: _compose(SlowEcho(p=1.0)), "SlowEcho"),
    Case("audiomentations", "shuffled Compose", lambda _: _compose(SlowEcho(p=1.0), shuffle=True), "SlowEcho"),
    Case("audiomentations", "OneOf", lambda _: _compose(am.OneOf([SlowEcho(p=1.0), am.Gain(p=1.0)])), "SlowEcho"),
    Case("audiomentations", "SomeOf", lambda _: _compose(am.SomeOf(2, [SlowEcho(p=1.0), am.Gain(p=1.0)])), "SlowEcho"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_guilty_transform_is_named(case: Case, tmp_path: Any) -> None:
    """The transform that takes the time is named by its class, in whatever order the transforms are applied."""
    assert look(case.make(tmp_path)).guilty == case.guilty
