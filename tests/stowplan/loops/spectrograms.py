"""Spectrograms of recordings, of different lengths, and their loudest bands."""

import numpy as np

RATE, WINDOW, HOP = 8_000, 512, 256


def record(number):
    """Stands for reading a file."""
    rng = np.random.default_rng(number)
    seconds = 1.0 + (number * 7 % 5) * 0.25
    t = np.arange(int(seconds * RATE)) / RATE
    return np.sin(2 * np.pi * (200 + 40 * number) * t) + rng.normal(0, 0.2, len(t))


def spectrogram(signal):
    window = np.hanning(WINDOW)
    columns = []
    for begin in range(0, len(signal) - WINDOW + 1, HOP):
        spectrum = np.fft.rfft(signal[begin : begin + WINDOW] * window)
        columns.append(np.abs(spectrum) ** 2)
    return np.array(columns).T


def main():
    loudest = {}
    for number in range(30):
        signal = record(number)
        power = spectrogram(signal)
        decibels = 10 * np.log10(power + 1e-10)
        bands = decibels[: 256 // 16 * 16].reshape(16, -1, decibels.shape[1]).mean(axis=1)
        loudest[number] = int(bands.mean(axis=1).argmax())
    print(loudest)


if __name__ == "__main__":
    main()
