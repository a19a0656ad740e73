import numpy as np
import torch
from scipy import signal


def mel_bank(sr, n_fft, n_mels):
    def hz(m):
        return 700 * (10 ** (m / 2595) - 1)

    edges = hz(np.linspace(0, 2595 * np.log10(1 + sr / 2 / 700), n_mels + 2))
    bins = np.linspace(0, sr / 2, n_fft // 2 + 1)
    up = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


class LogMel:
    def __init__(self, sr=16000, n_fft=512, hop=160, n_mels=64):
        self.n_fft, self.hop = n_fft, hop
        self.bank = torch.from_numpy(mel_bank(sr, n_fft, n_mels))
        self.window = np.hanning(n_fft).astype(np.float32)

    def __call__(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.n_fft)[:: self.hop]
        power = np.abs(np.fft.rfft(frames * self.window, axis=1)) ** 2
        mel = self.bank @ torch.from_numpy(power.astype(np.float32)).T
        return torch.log(mel + 1e-6)


def speed_perturb(wave, rng):
    up, down = [(9, 10), (1, 1), (11, 10)][rng.integers(3)]
    return signal.resample_poly(wave, up, down).astype(np.float32)


def random_band(wave, rng, sr=16000):
    lo, hi = rng.uniform(60, 400), rng.uniform(3000, 7500)
    sos = signal.butter(4, [lo, hi], "bandpass", fs=sr, output="sos")
    return signal.sosfilt(sos, wave).astype(np.float32)


def add_noise(wave, rng):
    snr = rng.uniform(5, 25)
    noise = rng.standard_normal(len(wave)).astype(np.float32)
    return wave + noise * (wave.std() / 10 ** (snr / 20) + 1e-6)
