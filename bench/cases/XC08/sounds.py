"""Features of short sounds."""

import numpy as np
from scipy import signal

RATE = 16_000
RNG = np.random.default_rng()


def band(wave, low=80, high=6000):
    sections = signal.butter(4, (low, high), "bandpass", fs=RATE, output="sos")
    return signal.sosfilt(sections, wave)


def level(wave, window=160):
    power = np.convolve(wave**2, np.ones(window) / window, mode="same")
    return wave / np.sqrt(power + 1e-3)


def hum(wave):
    b, a = signal.iirnotch(50, 30, fs=RATE)
    return signal.lfilter(b, a, wave)


def envelope(wave):
    return np.sqrt(np.abs(signal.hilbert(wave))) * np.sign(wave)


def shift(wave, most=1600):
    return np.roll(wave, RNG.integers(-most, most))


def spectrum(wave):
    frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::160]
    return np.log1p(np.abs(np.fft.rfft(frames * np.hanning(512), axis=1))).astype(np.float32)
