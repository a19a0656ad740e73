"""Waveform augmentations for keyword spotting. Everything works on float32 mono arrays."""

import numpy as np
from scipy import signal


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, wav, rng):
        for s in self.steps:
            wav = s(wav, rng)
        return wav


class TimeShift:
    def __init__(self, max_shift=1600):
        self.max_shift = max_shift

    def __call__(self, wav, rng):
        return np.roll(wav, int(rng.integers(-self.max_shift, self.max_shift)))


class Gain:
    def __init__(self, low_db=-6, high_db=6):
        self.low, self.high = low_db, high_db

    def __call__(self, wav, rng):
        return wav * np.float32(10 ** (rng.uniform(self.low, self.high) / 20))


class Room:
    """Puts the clip into one of a few recorded rooms."""

    def __init__(self, impulses, p=0.08):
        self.impulses = impulses
        self.p = p

    def __call__(self, wav, rng):
        if rng.random() < self.p:
            ir = self.impulses[rng.integers(len(self.impulses))]
            wet = signal.fftconvolve(wav, ir)[: len(wav)]
            wav = (0.6 * wav + 0.4 * wet / (np.abs(wet).max() + 1e-9)).astype(np.float32)
        return wav


class PreEmphasis:
    def __call__(self, wav, rng):
        return signal.lfilter([1.0, -0.97], [1.0], wav).astype(np.float32)


class LogMel:
    def __init__(self, sr=16000, n_fft=400, hop=160, n_mels=40):
        self.n_fft, self.hop = n_fft, hop
        self.window = np.hanning(n_fft).astype(np.float32)
        hz = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + sr / 2 / 700), n_mels + 2) / 2595) - 1)
        f = np.fft.rfftfreq(n_fft, 1 / sr)
        up = (f[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
        down = (hz[2:, None] - f[None]) / (hz[2:] - hz[1:-1])[:, None]
        self.fb = np.maximum(0, np.minimum(up, down)).astype(np.float32)

    def __call__(self, wav, rng):
        frames = np.lib.stride_tricks.sliding_window_view(wav, self.n_fft)[:: self.hop]
        spec = np.abs(np.fft.rfft(frames * self.window, axis=1)) ** 2
        return np.log(spec.astype(np.float32) @ self.fb.T + 1e-6)
