"""Follow a target that turns, from its bearings, with a particle filter that resamples when it has to."""

import hashlib
import sys

import numpy as np


def resample(particles, weights, rng):
    positions = (np.arange(len(weights)) + rng.random()) / len(weights)
    return particles[np.searchsorted(np.cumsum(weights), positions).clip(max=len(weights) - 1)]


def follow(bearings, count, rng):
    particles = np.column_stack([rng.normal(0, 2, (count, 2)), rng.normal(0, 0.5, (count, 2))])
    path = []
    for bearing in bearings:
        particles[:, :2] += particles[:, 2:]
        particles[:, 2:] += rng.normal(0, 0.05, (count, 2))
        predicted = np.arctan2(particles[:, 1] + 10, particles[:, 0] + 10)
        error = np.angle(np.exp(1j * (predicted - bearing)))
        weights = np.exp(-0.5 * (error / 0.05) ** 2) + 1e-300
        weights /= weights.sum()
        path.append(weights @ particles[:, :2])
        if 1 / (weights**2).sum() < count / 2:
            particles = resample(particles, weights, rng)
    return np.array(path)


def main(bearings=200, count=100_000):
    rng = np.random.default_rng(0)
    turn = np.arange(bearings) / 15
    truth = np.cumsum(0.3 * np.column_stack([np.cos(turn), np.sin(turn)]), axis=0)
    seen = np.arctan2(truth[:, 1] + 10, truth[:, 0] + 10) + rng.normal(0, 0.02, bearings)
    path = follow(seen, count, rng)
    print(float(np.abs(path - truth).mean()))
    print(hashlib.sha256(path.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
